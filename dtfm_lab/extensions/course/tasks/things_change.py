"""Missions about fleets that change. Each is judged by a replay of some hours."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import numpy as np

from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import format_share
from dtfm_lab.extensions.course.checks import (
    TRAINED,
    MissionsOf,
    Number,
    TextValues,
    fresh_cases,
    once_per_reader,
    plan_of,
    require,
    value_of,
)
from dtfm_lab.extensions.course.mission import Given, NotYet
from dtfm_lab.extensions.course.small_networks import CITIES, of_sites
from dtfm_lab.extensions.elasticity.api import (
    PlannedFleet,
    Policy,
    ReconfigurationCosts,
    TableFleet,
    policies,
    policy_of,
    replay,
)
from dtfm_lab.extensions.elasticity.availability import Availability
from dtfm_lab.extensions.elasticity.history import History, Operation
from dtfm_lab.extensions.elasticity.policy import Response, Situation, WorkKept
from dtfm_lab.extensions.elasticity.race import race_over
from dtfm_lab.files import load_job
from dtfm_lab.planning import evaluate, simulated

BATCH = 512.0
"""Samples per step in missions that take the devices' speed from a table."""


def played(table: Mapping[int, float], hours: Availability, policy: Policy, **costs: float) -> History:
    """Replay some hours under a policy. ``table`` has samples per second by number of devices. Return the history."""
    fleet = TableFleet(n_devices=len(hours.devices), samples_per_s=table, batch=BATCH)
    return replay(hours, fleet, policy, ReconfigurationCosts(**costs))


def able_s(hours: Availability, least: int, start_s: float) -> float:
    """Return the seconds during which at least ``least`` devices are ready. A device is ready ``start_s`` after it
    arrives."""
    there: dict[int, float] = {}
    serving: list[tuple[float, int]] = []
    for at_s, device, comes in zip(hours.time_s.tolist(), hours.device.tolist(), hours.comes.tolist(), strict=True):
        if comes:
            there[device] = at_s + start_s
        elif (begin_s := there.pop(device)) < at_s:
            # Devices that leave before they are ready have never served.
            serving += [(begin_s, 1), (at_s, -1)]
    serving += [
        each for begin_s in there.values() if begin_s < hours.end_s for each in ((begin_s, 1), (hours.end_s, -1))
    ]
    seconds, count, before_s = 0.0, 0, 0.0
    for at_s, change in sorted(serving):
        seconds += (at_s - before_s) * (count >= least)
        count, before_s = count + change, at_s
    return seconds


HOUR_S = 3600.0
"""Length of the replay in seconds."""
LOST_S = 1200.0
"""Seconds from the start of the replay until a region is lost."""
BACK_S = 3000.0
"""Seconds from the start of the replay until the region is back."""


@dataclass(frozen=True, eq=False, kw_only=True)
class OnePlan(PlannedFleet):
    """A fleet that trains by one plan while all devices are present. Otherwise the remaining devices share the work, or
    wait."""

    own: Plan

    def plan(self, present: frozenset[int]) -> Plan | None:
        """Return the plan if all devices are present; None otherwise."""
        return self.own if len(present) == len(self.network) else None


def after_each_region(plan: Plan) -> dict[str, float]:
    """Return the samples trained in an hour in which one region is away for half of the time, by the name of that
    region."""
    network = plan.topology
    fleet = OnePlan(network=network, job=plan.job, own=plan)
    made = {}
    for region in dict.fromkeys(device.region for device in network.devices):
        present = {
            device.name: [(0.0, LOST_S), (BACK_S, HOUR_S)] if device.region == region else [(0.0, HOUR_S)]
            for device in network.devices
        }
        hours = Availability.from_intervals(present, HOUR_S)
        made[region] = replay(hours, fleet, policy_of("swarm"), ReconfigurationCosts(start_s=0.0)).samples
    return made


LEAST_PAUSE = "wanted a pause of now.costs.regrouping(n) at least, or of now.costs.restarting(n) if nothing is training"


class OwnPolicy(Policy):
    """A reader's function as a policy. Its changes cost at least as much as the changes of built-in policies."""

    def __init__(self, function: Callable[[Situation], Response | None]) -> None:
        object.__setattr__(self, "function", function)
        object.__setattr__(self, "every_steps", 0)
        object.__setattr__(self, "every_s", float("inf"))

    def decide(self, now: Situation) -> Response | None:
        """Return a Response with the operation, the pause and ``again`` of the function's answer. Its other fields are
        ignored. Raises NotYet for an operation that ``now.fleet.operation`` would not return, or for a pause that is
        shorter than the change takes."""
        response = value_of(self.function, now)  # type: ignore[attr-defined]
        if response is None or response == Response(None):
            return None if now.operation is not None and not now.lost else Response(None)
        kind = f"{type(response).__name__} {response!r:.50}"
        require(type(response) is Response, f"your function returned {kind}; wanted a Response, or None")
        operation = response.operation
        if operation is None or (not now.lost and _same(operation, now.operation)):
            return Response(operation, keeps=WorkKept.STEP)
        real = now.fleet.operation(operation.devices)
        require(real is not None and _same(operation, real), "wanted an operation that now.fleet.operation makes")
        assert real is not None
        n = len(operation.devices)
        least_s = now.costs.restarting(n) if now.operation is None else now.costs.regrouping(n)
        found = f"at {now.time_s:.0f} s it continues after a pause of {response.pause_s:.3g} s"
        require(response.pause_s >= min(least_s, now.pause_left_s or least_s), f"{found}; {LEAST_PAUSE}")
        return Response(real, pause_s=response.pause_s, again=response.again)


def _same(one: Operation, other: Operation | None) -> bool:
    return other is not None and (one.devices, one.step_s, one.samples) == (other.devices, other.step_s, other.samples)


lesson = MissionsOf("17_things_change")

CARDS = tuple(f"card-{number}" for number in range(1, 9))
SPEEDS = {n: 40.0 * n for n in range(4, 9)}
"""Samples per second by number of devices. Fewer than four cannot hold the model."""
SAME = {1: 320.0}
"""Samples per second with any number of devices if a slow link limits them all."""
NAMES = ("restart", "varuna", "oobleck", "bamboo", "torchft", "swarm", "recycle")


def give_drawn_hours(rng: np.random.Generator) -> Mapping[str, Any]:
    """Return three hours of devices that come and go, and the minimum number of devices that can train."""
    seed, start_s = int(rng.integers(10**6)), int(rng.integers(30, 91))
    hours = Availability.sampled(CARDS, 3 * 3600, mean_life_s=2400, mean_absence_s=1200, seed=seed, name="three hours")
    return {"hours": hours, "least": int(rng.integers(5, 7)), "start_s": start_s}


@lesson.number("able-to-train", give=give_drawn_hours)
def able_to_train(given: Given) -> Number:
    wanted = able_s(given.hours, given.least, given.start_s)
    there_s = able_s(given.hours, given.least, 0.0)
    more_s = able_s(given.hours, given.least + 1, given.start_s)
    slips = {"at_once": there_s, "one_more": more_s, "unable": given.hours.end_s - wanted}
    slips |= {"minutes": wanted / 60, "hours": wanted / 3600}
    return Number(wanted, slips, {"end_s": given.hours.end_s}, within=0.002)


def give_failing_cards(rng: np.random.Generator) -> Mapping[str, Any]:
    """Return some hours of devices that fail at random, the seconds of a checkpoint and of a restart, and a factor on
    the seconds of a checkpoint."""
    between_s, writes_s = float(np.round(10 ** rng.uniform(2.6, 3.8))), int(rng.integers(10, 60))
    cards, seed = [f"card-{n}" for n in range(16)], int(rng.integers(10**6))
    hours = Availability.sampled(cards, 400 * between_s, mean_life_s=16 * between_s, mean_absence_s=60.0, seed=seed)
    costs = {
        "writes_s": writes_s,
        "restart_s": int(rng.integers(20, 90)),
        "times_longer": int(rng.choice([2, 3, 5, 7])),
    }
    return {"hours": hours, "table": SAME, "batch": BATCH} | costs


SWEPT = 15
CLOSE = 0.997
"""The answer has to train at least this share of the samples that the best checkpoint interval of a sweep trains."""


def times_rarer(given: Given, every_s: float) -> Number:
    """Return the factor on Young's checkpoint interval if writing a checkpoint takes ``given.times_longer`` times as
    long."""
    times = float(given.times_longer)
    return Number(times**0.5, {"proportional": times, "inverse": times**-0.5})


def _restarted(given: Given, every_s: float) -> History:
    """Return what is trained in the given hours with a checkpoint every ``every_s`` seconds."""
    costs = {"checkpoint_s": float(given.writes_s), "restart_s": float(given.restart_s)}
    return played(SAME, given.hours, policy_of("restart", every_s=every_s), **costs)


def _young_s(given: Given) -> float:
    return float(np.sqrt(2 * given.writes_s * given.hours.mean_between_losses_s))


@once_per_reader
def most_samples(given: Given) -> float:
    """Return the samples that the best checkpoint interval trains. It is searched for around Young's, where it is."""
    intervals = [_young_s(given) * 1.2 ** (n - SWEPT // 2) for n in range(SWEPT)]
    swept = race_over(lambda every_s: (_restarted(given, every_s),), intervals, 0.05)
    return max(point.histories[0].samples for point in swept)


@lesson.mission("how-often-to-write", takes=(int, float), reason=times_rarer, give=give_failing_cards)
def how_often_to_write(every_s: float, given: Given) -> TextValues:
    require(not isinstance(every_s, bool) and 0 < every_s < np.inf, f"found {every_s!r}; wanted seconds above 0")

    found = _restarted(given, every_s)
    share = found.samples / most_samples(given)
    if share < CLOSE:
        writing, redone = found.seconds["checkpoint"], found.seconds["redone"]
        side = "mostly writing" if writing > redone else "mostly work that is done again"
        raise NotYet(f"every {every_s:.0f} s trains {format_share(share)} of the best of a sweep; the rest is {side}")
    return {"share": format_share(share, 2), "young": _young_s(given)}


def give_three_traces(rng: np.random.Generator) -> Mapping[str, Any]:
    """Return quiet and rough traces in random order, and costs for which no single policy is the best on all."""
    # Sample until the best policy is clear on each trace, and not the same on all.
    while True:
        costs = {
            "checkpoint_s": float(rng.integers(2, 40)),
            "restart_s": float(rng.integers(20, 200)),
            "regroup_s": float(rng.choice([2, 20, 60, 200])),
        }
        lives = [float(rng.choice([rng.integers(18_000, 72_000), rng.integers(600, 2400)])) for _ in range(3)]
        absences = [float(rng.integers(300, 3000)) for _ in lives]
        traces = [
            Availability.sampled(CARDS, 8 * 3600, mean_life_s=life, mean_absence_s=away, seed=int(rng.integers(10**6)))
            for life, away in zip(lives, absences, strict=True)
        ]
        names = tuple(str(name) for name in rng.choice(NAMES, 3, replace=False))
        ranked = [_ranked(hours, costs, names) for hours in traces]
        margins = [one[0][1] > 1.02 * one[1][1] for one in ranked]
        if all(margins) and len({one[0][0] for one in ranked}) > 1:
            return {"traces": traces, "table": SPEEDS, "batch": BATCH, "costs": costs, "names": names, **costs}


def _ranked(hours: Availability, costs: Mapping[str, float], names: Sequence[str]) -> list[tuple[str, float]]:
    """Return the named policies with the samples that each trains in these hours, the most first."""
    made = {name: played(SPEEDS, hours, policy_of(name), **costs).samples for name in names}
    return sorted(made.items(), key=lambda each: -each[1])


@lesson.mission("a-policy-for-each", takes=(list, tuple), give=give_three_traces)
def a_policy_for_each(answer: Sequence[Any], given: Given) -> TextValues:
    require(len(answer) == 3, f"the list has {len(answer)} things; wanted three names")
    for name in answer:
        require(
            isinstance(name, str) and name in given.names, f"found {name!r:.40}; wanted one of {', '.join(given.names)}"
        )
    said = []
    for at, (name, hours) in enumerate(zip(answer, given.traces, strict=True)):
        ranked = dict(_ranked(hours, given.costs, given.names))
        best = max(ranked.values())
        share = ranked[name] / best
        require(share == 1, f"on given.traces[{at}] {name} trains {format_share(share)} of what the best policy does")
        said.append(f"{name} ({len(np.unique(hours.time_s[~hours.comes]))} losses)")
    return {"ranked": ", ".join(said)}


def give_three_regions(rng: np.random.Generator) -> Mapping[str, Any]:
    """Return six devices in three cities, a job of three stages with two replicas, and the minimum number of samples to
    train in an hour in which one of the cities is away for half of the time."""
    cities = [str(city) for city in rng.choice(CITIES, 3, replace=False)]
    where = [city for city in cities for _ in range(2)]
    network = of_sites(
        where,
        (0.3, 10.0),
        (int(rng.integers(5, 20)), int(rng.integers(10, 30)) / 10),
        names=[f"{city}-{number}" for city in cities for number in (1, 2)],
        name="three-cities",
        gpu="T4",
    )
    job = load_job(
        "gpt2-small",
        n_stages=3,
        n_replicas=2,
        dtype="fp16",
        schedule="1f1b",
        microbatch=2,
        global_batch=int(rng.integers(4, 9)) * 16,
    )
    spread = [[2 * stage, (2 * (stage + 1) + 1) % 6] for stage in range(3)]
    limit = 0.97 * min(after_each_region(simulated(evaluate(network, job, stages=spread))).values())
    return {"network": network, "job": job, "cities": ", ".join(cities), "limit": limit}


@lesson.mission("spread-the-replicas", takes=Plan, give=give_three_regions)
def spread_the_replicas(plan: Plan, given: Given) -> TextValues:
    plan_of(plan, given.network, given.job, "n_stages", "n_replicas", "global_batch", "microbatch", *TRAINED)
    own = simulated(evaluate(given.network, given.job, stages=plan.placement.devices.tolist()))
    made = after_each_region(own)
    worst = min(made, key=lambda region: made[region])
    for stage, names in enumerate(own.stages):
        regions = {given.network.devices[given.network.index(name)].region for name in names}
        if len(regions) == 1:
            (alone,) = regions
            less = f"without {alone} it trains {made[alone]:.0f} samples; wanted {given.limit:.0f}"
            raise NotYet(f"{less}: all of stage {stage} is there")
    require(
        made[worst] >= given.limit, f"without {worst} it trains {made[worst]:.0f} samples; wanted {given.limit:.0f}"
    )
    return {"samples": made[worst]}


WINS_BY = 1.05
BEATEN = "oobleck"


@lesson.mission("beat-a-policy", takes=FunctionType)
def beat_a_policy(function: Callable[[Situation], Response | None], given: Given) -> TextValues:
    rng, ratios = fresh_cases(), []
    for _ in range(4):
        life_s, away_s, seed = int(rng.integers(3600, 7200)), int(rng.integers(1200, 2400)), int(rng.integers(10**6))
        hours = Availability.sampled(CARDS, 8 * 3600, mean_life_s=life_s, mean_absence_s=away_s, seed=seed)
        costs = {"regroup_s": float(rng.integers(2, 10)), "restart_s": float(rng.integers(20, 60))}
        own, other = (played(SPEEDS, hours, one, **costs) for one in (OwnPolicy(function), policies[BEATEN]()))
        ratios.append(own.samples / other.samples)
    times = float(np.mean(ratios))
    require(times >= WINS_BY, f"it trains {times:.3f} times the samples of {BEATEN}; wanted {WINS_BY} times")
    return {"times": times, "beaten": BEATEN, "n": len(ratios)}
