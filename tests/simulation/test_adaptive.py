"""1F1B for slow links: as deep as the network wants, never deeper than there is room, plain where links are free."""

from itertools import combinations_with_replacement

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plans import equal, even, plan_of, uneven

from dtfm_lab.costs.seconds import analytic
from dtfm_lab.domain.errors import ScheduleError
from dtfm_lab.domain.network import QUEUEING, Links, Topology
from dtfm_lab.simulation.engine import programs_of, simulate_iteration
from dtfm_lab.simulation.schedules import build, choose_warmups, peak_activations, schedules
from dtfm_lab.simulation.schedules.adaptive import Makespans

seeds = st.integers(0, 10_000)
sizes = st.tuples(st.integers(1, 5), st.integers(1, 14), st.integers(1, 2))
"""stages, micro-batches, replicas"""


def makespan_s(plan, profile, links, name, **choices):
    schedule = schedules[name](plan.job.n_stages, plan.job.n_microbatches, **choices)
    return simulate_iteration(plan, schedule, profile, links, synchronise=plan.job.synchronise_every == 1).makespan_s


def drawn(size, seed, queueing="pairs"):
    """A plan, its profile and its links, no two numbers alike; some synchronise every iteration, some every second, and
    of some the second pipeline has fewer micro-batches."""
    n_stages, n_microbatches, n_replicas = size
    topology, rng = uneven(n_stages * n_replicas, seed), np.random.default_rng(seed)
    fewer = int(rng.integers(1, n_microbatches, endpoint=True)) if seed % 5 > 2 else n_microbatches
    plan = plan_of(
        n_stages,
        n_microbatches,
        n_replicas,
        topology,
        tied=seed % 3 == 0,
        counts=(n_microbatches, fewer)[:n_replicas],
        synchronise_every=1 + seed % 2,
    )
    profile = [row._replace(seconds=row.seconds * rng.uniform(0.5, 1.5)) for row in equal(plan, 1, 2)]
    return plan, profile, Links.of(topology, queueing)


@pytest.mark.parametrize(("n_microbatches", "plain_s", "best_s"), [(16, 93.0, 77.4), (64, 287.4, 221.4)])
def test_on_slow_links_it_is_as_fast_as_gpipe_with_a_fraction_of_its_memory(n_microbatches, plain_s, best_s):
    """Eight stages, a hop of 0.6 forwards. Nothing is faster than the first stage's work and one round trip."""
    plan, links = plan_of(8, n_microbatches), even(8, latency_s=0.6)
    profile = equal(plan, 1, 2)
    chosen = choose_warmups(plan, profile, links)
    assert makespan_s(plan, profile, links, "1f1b") == pytest.approx(plain_s)
    assert makespan_s(plan, profile, links, "gpipe") == pytest.approx(best_s)
    assert makespan_s(plan, profile, links, "adaptive-1f1b", warmups=chosen) == pytest.approx(best_s)
    schedule = build(plan, "adaptive-1f1b", profile, links)
    assert schedule == schedules["adaptive-1f1b"](8, n_microbatches, warmups=chosen)
    assert max(peak_activations(schedule)) == peak_activations(schedule)[0] <= 15


@given(st.integers(1, 8), st.integers(1, 20), st.floats(0.1, 5), st.floats(0.1, 5))
def test_on_free_links_it_is_plain_1f1b(n_stages, n_microbatches, forward_s, backward_s):
    plan = plan_of(n_stages, n_microbatches)
    built = build(plan, "adaptive-1f1b", equal(plan, forward_s, backward_s), Links.free(n_stages))
    assert built.programs == schedules["1f1b"](n_stages, n_microbatches).programs


@given(sizes, seeds, st.sampled_from(QUEUEING))
def test_it_is_never_slower_than_1f1b_or_gpipe(size, seed, queueing):
    plan, profile, links = drawn(size, seed, queueing)
    chosen = choose_warmups(plan, profile, links)
    ours_s = makespan_s(plan, profile, links, "adaptive-1f1b", warmups=chosen)
    for name in ("1f1b", "gpipe"):
        assert ours_s <= makespan_s(plan, profile, links, name) * (1 + 1e-8)


@given(sizes, seeds, st.sampled_from(QUEUEING))
def test_unless_it_is_plain_1f1b_one_forward_fewer_on_any_device_would_cost_time(size, seed, queueing):
    plan, profile, links = drawn(size, seed, queueing)
    chosen = choose_warmups(plan, profile, links)
    ours_s = makespan_s(plan, profile, links, "adaptive-1f1b", warmups=chosen)
    if chosen == tuple(min(size[0] - 1 - s, size[1] - 1) for s in range(size[0])):
        return
    for device, (depth, below) in enumerate(zip(chosen, (*chosen[1:], 0), strict=True)):
        if depth > below:  # else the one after it would be deeper, which no pipeline can do
            fewer = [w - (s == device) for s, w in enumerate(chosen)]
            assert makespan_s(plan, profile, links, "adaptive-1f1b", warmups=fewer) > ours_s


@given(sizes, seeds, st.data())
def test_no_device_ever_holds_more_than_it_may(size, seed, data):
    plan, profile, links = drawn(size, seed)
    limits = data.draw(st.lists(st.integers(1, size[1] + 2), min_size=size[0], max_size=size[0]))
    counts, given = (plan.job.n_stages, plan.job.n_microbatches), {"plan": plan, "profile": profile, "links": links}
    for most in (limits, limits[0]):
        held = peak_activations(schedules["adaptive-1f1b"](*counts, **given, most_activations=most))
        assert (np.array(held) <= most).all()


@pytest.mark.parametrize("most", [1, 2, 3, 4])
@pytest.mark.parametrize("latency_s", [0.0, 0.6])
def test_under_a_tight_limit_nothing_within_it_is_faster(most, latency_s):
    """All ways to spread so few activations over six devices, by brute force."""
    plan, links = plan_of(6, 20), even(6, latency_s=latency_s)
    profile = equal(plan, 1, 2)
    chosen = choose_warmups(plan, profile, links, most)
    every = combinations_with_replacement(range(most - 1, -1, -1), 6)
    best_s = min(makespan_s(plan, profile, links, "adaptive-1f1b", warmups=warmups) for warmups in every)
    assert makespan_s(plan, profile, links, "adaptive-1f1b", warmups=chosen) == pytest.approx(best_s)


@given(sizes, seeds, st.sampled_from(QUEUEING))
def test_the_search_sees_the_makespans_that_the_engine_plays(size, seed, queueing):
    plan, profile, links = drawn(size, seed, queueing)
    rng = np.random.default_rng(seed)
    searched = Makespans(plan, tuple(profile), links)
    for _ in range(3):
        warmups = np.sort(rng.integers(0, size[1] + 1, size[0]))[::-1]
        played_s = makespan_s(plan, profile, links, "adaptive-1f1b", warmups=warmups.tolist())
        assert searched(warmups) == searched(warmups) == played_s


def test_some_tens_of_plays_are_enough(monkeypatch):
    counts = []
    original = Makespans.__call__
    monkeypatch.setattr(
        Makespans, "__call__", lambda self, depths: (original(self, depths), counts.append(len(self)))[0]
    )
    for seed in range(6):
        counts.append(0)
        choose_warmups(*drawn((6, 24, 1), seed))
    assert max(counts) <= 60


def test_without_a_profile_it_is_chosen_for_the_drawn_devices_and_links():
    topology = Topology.from_matrices(np.full((4, 4), 600.0), np.ones((4, 4)), peak_flop_per_s=100.0)
    plan = plan_of(4, 12, topology=topology)
    profile = analytic(plan, programs_of(plan, schedules["1f1b"](4, 12)))
    built = build(plan, "adaptive-1f1b")
    assert built == build(plan, "adaptive-1f1b", profile, Links.of(topology))
    assert built.orders != build(plan, "1f1b").orders


@pytest.mark.parametrize(
    ("most", "says"),
    [
        (0, "most activations of device 0 is 0; wanted 1 or more"),
        ([3, 1.5], "most activations of device 1 is 1.5; wanted 1 or more"),
        ([3, 2, 1], "most activations of 3 devices; wanted one number, or 2"),
    ],
)
def test_a_limit_that_is_none_is_refused(most, says):
    plan = plan_of(2, 4)
    with pytest.raises(ScheduleError, match=says):
        choose_warmups(plan, equal(plan, 1, 2), even(2), most)
