"""What is drawn from rates: closed forms within four standard errors of a fixed seed, and orders."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dtfm_lab.domain.errors import TraceError
from dtfm_lab.domain.network import Device, Topology
from dtfm_lab.extensions.elasticity.availability import DAY_S, Availability

NAMES = [f"n{i}" for i in range(200)]
HOUR = 3600.0


def lives(trace: Availability) -> np.ndarray:
    """Seconds from coming to leaving, of lives that began in the first half, so that few are cut off by the end."""
    order = np.lexsort((trace.comes, trace.time_s, trace.device))
    time_s, comes, device = trace.time_s[order], trace.comes[order], trace.device[order]
    whole = comes[:-1] & ~comes[1:] & (device[1:] == device[:-1]) & (time_s[:-1] > 0) & (time_s[:-1] < trace.end_s / 2)
    return (time_s[1:] - time_s[:-1])[whole]


def regional() -> Topology:
    devices = [Device(name=f"{region}{i}", region=region) for region in ("east", "west", "") for i in range(5)]
    return Topology(devices, np.full((15, 15), 0.01), np.full((15, 15), 1e9))


@pytest.mark.parametrize("shape", [0.6, 1.0, 3.0])
def test_lives_have_the_mean_and_the_spread_of_a_weibull(shape: float) -> None:
    drawn = lives(Availability.sampled(NAMES, 400 * HOUR, mean_life_s=HOUR, mean_absence_s=HOUR, shape=shape, seed=1))
    relative = math.sqrt(math.gamma(1 + 2 / shape) / math.gamma(1 + 1 / shape) ** 2 - 1)
    assert abs(drawn.mean() - HOUR) < 4 * HOUR * relative / math.sqrt(len(drawn))
    assert drawn.std() / drawn.mean() == pytest.approx(relative, rel=0.05)


def test_an_exponential_loses_one_in_a_mean_life_of_seconds_present() -> None:
    trace = Availability.sampled(NAMES, 100 * HOUR, mean_life_s=2 * HOUR, mean_absence_s=HOUR, seed=2)
    expected = trace.present_s().sum() / (2 * HOUR)
    assert abs((~trace.comes).sum() - expected) < 4 * math.sqrt(expected)


@pytest.mark.parametrize("shape", [0.6, 1.0, 3.0])
def test_the_share_of_time_present_is_that_of_life_from_the_first_hour_on(shape: float) -> None:
    many = [f"n{i}" for i in range(4000)]
    trace = Availability.sampled(many, 20 * HOUR, mean_life_s=3 * HOUR, mean_absence_s=HOUR, shape=shape, seed=3)
    for part in (trace.until(HOUR), trace):
        shares = part.present_s() / part.end_s
        assert abs(shares.mean() - 3 / 4) < 4 * shares.std() / math.sqrt(len(shares))


def test_who_is_away_for_good_was_there_at_the_beginning() -> None:
    trace = Availability.sampled(NAMES, 100 * HOUR, mean_life_s=HOUR, mean_absence_s=math.inf, shape=2, seed=4)
    assert len(trace.present_at(0)) == len(NAMES)
    assert (~trace.comes).sum() == len(NAMES)
    assert trace.comes.sum() == len(NAMES)


def test_regions_leave_together_and_who_has_none_with_nobody() -> None:
    trace = Availability.sampled(
        regional(), 1000 * HOUR, mean_life_s=1e9, mean_absence_s=HOUR, region_loss_s=50 * HOUR, seed=5
    )
    losses = [[trace.devices[i][:4] for i in change.left] for change in trace.changes if change.left]
    assert all(len(set(names)) == 1 for names in losses)
    assert sum(len(names) for names in losses) > 3 * len(losses)
    assert {name for names in losses for name in names} == {"east", "west"}
    n_expected = 2 * 1000 / 50
    assert abs(len(losses) - n_expected) < 4 * math.sqrt(n_expected)


def test_nights_have_more_devices_than_noons_and_weekends_are_like_nights() -> None:
    trace = Availability.sampled(
        NAMES, 7 * DAY_S, mean_life_s=6 * HOUR, mean_absence_s=6 * HOUR, daily=1, weekends=True, seed=6
    )
    there = {hour: len(trace.present_at(hour * HOUR)) for hour in range(7 * 24)}
    # who left at noon is back hours later: fewest are there in the afternoon, most in the early morning
    mornings, afternoons = ([there[24 * day + hour] for day in range(1, 5)] for hour in (5, 15))
    assert min(mornings) > 1.5 * max(afternoons)
    assert there[24 * 5 + 15] > 1.5 * max(afternoons)


@pytest.mark.parametrize("hour", [0, 6, 12])
def test_losses_a_second_present_follow_the_rhythm(hour: int) -> None:
    """In each hour of the day one mean life's worth, times one less the mean cosine of that hour."""
    trace = Availability.sampled(NAMES, 10 * DAY_S, mean_life_s=HOUR, mean_absence_s=HOUR, daily=1, seed=7)
    here = trace.time_s % DAY_S // HOUR == hour
    begins_s = [day * DAY_S + hour * HOUR for day in range(1, 10)]
    present_s = sum(
        trace.until(begin_s + HOUR).present_s().sum() - trace.until(begin_s).present_s().sum() for begin_s in begins_s
    )
    angles = np.array([hour, hour + 1]) * np.pi / 12
    expected = present_s / HOUR * (1 - np.diff(np.sin(angles))[0] * 12 / np.pi)
    n_lost = (here & ~trace.comes & (trace.time_s >= DAY_S)).sum()
    assert abs(n_lost - expected) < 4 * math.sqrt(expected)


def test_the_same_seed_gives_the_same_events_and_another_gives_others() -> None:
    one, two, other = (
        Availability.sampled(NAMES, 50 * HOUR, mean_life_s=HOUR, mean_absence_s=HOUR, shape=0.7, daily=0.5, seed=seed)
        for seed in (8, 8, 9)
    )
    assert (one.time_s.tolist(), one.device.tolist()) == (two.time_s.tolist(), two.device.tolist())
    assert one.time_s.tolist() != other.time_s.tolist()
    assert "mean life 3600 s (Weibull of shape 0.7), away for 3600 s, daily rhythm 0.5; seed 8" in one.source


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"mean_life_s": 0}, "mean_life_s is 0; wanted seconds above 0"),
        ({"mean_life_s": "long"}, "mean_life_s is 'long'; wanted seconds above 0"),
        ({"mean_absence_s": -1}, "mean_absence_s is -1; wanted seconds above 0, infinite for no return"),
        ({"shape": 0.1}, "shape is 0.1; wanted 0.2 to 20"),
        ({"daily": 1.5}, "daily is 1.5; wanted 0 to 1"),
        ({"region_loss_s": 0}, "region_loss_s is 0; wanted seconds above 0, or None"),
        ({"region_loss_s": 10}, "region_loss_s is given, but no device has a region; wanted a network of regions"),
        ({"devices": "volunteers"}, "devices are 'volunteers'; wanted a Topology, or a list of names"),
        ({"end_s": -5}, "sampled until -5 s; wanted more than 0"),
        ({"end_s": "a day"}, "sampled until 'a day' s; wanted more than 0"),
        ({"seed": -1}, "seed is -1; wanted a whole number, 0 or more"),
        ({"seed": 1.5}, "seed is 1.5; wanted a whole number, 0 or more"),
        ({"mean_life_s": 1e-6, "mean_absence_s": 1e-6}, "devices for 60 s make about .* events; wanted at most"),
    ],
)
def test_rates_that_are_none_are_refused_in_one_line(changed: dict, says: str) -> None:
    given = {"devices": NAMES, "end_s": 60, "mean_life_s": 10, "mean_absence_s": 10} | changed
    with pytest.raises(TraceError, match=says):
        Availability.sampled(given.pop("devices"), given.pop("end_s"), **given)


def test_who_would_come_after_the_end_never_comes() -> None:
    for seed in range(40):
        drawn = Availability.sampled(NAMES, 60.0, mean_life_s=900.0, mean_absence_s=600.0, seed=seed)
        assert drawn.time_s.max(initial=0.0) <= 60.0


def test_sampled_hours_had_another_name() -> None:
    rates = {"mean_life_s": 900.0, "mean_absence_s": 60.0, "seed": 1}
    with pytest.warns(FutureWarning, match=r"Availability\.sampled"):
        former = Availability.drawn(["ada", "alan"], HOUR, **rates)
    assert former.time_s.tolist() == Availability.sampled(["ada", "alan"], HOUR, **rates).time_s.tolist()
