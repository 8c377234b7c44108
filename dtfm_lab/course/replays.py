"""Replays that missions are judged by: of cards from a table, of one's own placement, and of one's own policy."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dtfm_lab.course.checks import require, value_of
from dtfm_lab.domain.availability import Availability
from dtfm_lab.domain.history import History, Operation
from dtfm_lab.domain.plan import Plan
from dtfm_lab.elasticity import Costs, PlannedFleet, Policy, TableFleet, policy_of, replay
from dtfm_lab.elasticity.policy import Keeps, Response, Situation

BATCH = 512.0
"""Samples of a step of cards from a table."""


def played(table: Mapping[int, float], hours: Availability, policy: Policy, **costs: float) -> History:
    """The hours of cards whose speed is from a table."""
    fleet = TableFleet(n_devices=len(hours.devices), samples_per_s=table, batch=BATCH)
    return replay(hours, fleet, policy, Costs(**costs))


def able_s(hours: Availability, least: int, start_s: float) -> float:
    """Seconds in which at least so many devices have been there for ``start_s``."""
    there: dict[int, float] = {}
    serving: list[tuple[float, int]] = []
    for at_s, device, comes in zip(hours.time_s.tolist(), hours.device.tolist(), hours.comes.tolist(), strict=True):
        if comes:
            there[device] = at_s + start_s
        elif (begin_s := there.pop(device)) < at_s:
            serving += [(begin_s, 1), (at_s, -1)]
    serving += [
        each for begin_s in there.values() if begin_s < hours.end_s for each in ((begin_s, 1), (hours.end_s, -1))
    ]
    seconds, count, before_s = 0.0, 0, 0.0
    for at_s, change in sorted(serving):
        seconds += (at_s - before_s) * (count >= least)
        count, before_s = count + change, at_s
    return seconds


HOUR_S, LOST_S, BACK_S = 3600.0, 1200.0, 3000.0
"""How long it lasts, when a region is lost, and when it is back."""


@dataclass(frozen=True, eq=False, kw_only=True)
class OnePlan(PlannedFleet):
    """A fleet that trains by one plan while all are there; who is left shares the work, or waits."""

    own: Plan

    def plan(self, present: frozenset[int]) -> Plan | None:
        """The plan where everybody is there; None otherwise."""
        return self.own if len(present) == len(self.network) else None


def after_each_region(plan: Plan) -> dict[str, float]:
    """Samples of an hour in which a region is away for half of it, by the region that is lost."""
    network = plan.topology
    fleet = OnePlan(network=network, job=plan.job, own=plan)
    made = {}
    for region in dict.fromkeys(device.region for device in network.devices):
        present = {
            device.name: [(0.0, LOST_S), (BACK_S, HOUR_S)] if device.region == region else [(0.0, HOUR_S)]
            for device in network.devices
        }
        hours = Availability.from_intervals(present, HOUR_S)
        made[region] = replay(hours, fleet, policy_of("swarm"), Costs(start_s=0.0)).samples
    return made


LEAST_PAUSE = (
    "wanted a pause of now.costs.regrouping(n) at least, or of now.costs.restarting(n) where nothing is at work"
)


class OwnPolicy(Policy):
    """A reader's function as a policy, held to what the replay's own policies pay."""

    def __init__(self, function: Callable[[Situation], Response | None]) -> None:
        object.__setattr__(self, "function", function)
        object.__setattr__(self, "every_steps", 0)
        object.__setattr__(self, "every_s", float("inf"))

    def decide(self, now: Situation) -> Response | None:
        """What the function returns. Raises NotYet where it takes what is not there, or pays nothing."""
        response = value_of(self.function, now)  # type: ignore[attr-defined]
        if response is None or response == Response(None):
            return None if now.operation is not None and not now.lost else Response(None)
        kind = f"{type(response).__name__} {response!r:.50}"
        require(type(response) is Response, f"your function returned {kind}; wanted a Response, or None")
        operation = response.operation
        if operation is None or (not now.lost and _same(operation, now.operation)):
            return Response(operation, keeps=Keeps.STEP)
        real = now.fleet.operation(operation.devices)
        require(real is not None and _same(operation, real), "wanted an operation that now.fleet.operation makes")
        assert real is not None
        n = len(operation.devices)
        least_s = now.costs.restarting(n) if now.operation is None else now.costs.regrouping(n)
        found = f"at {now.time_s:.0f} s it goes on after a pause of {response.pause_s:.3g} s"
        require(response.pause_s >= min(least_s, now.pause_left_s or least_s), f"{found}; {LEAST_PAUSE}")
        return Response(real, pause_s=response.pause_s, again=response.again)


def _same(one: Operation, other: Operation | None) -> bool:
    return other is not None and (one.devices, one.step_s, one.samples) == (other.devices, other.step_s, other.samples)
