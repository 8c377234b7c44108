"""Which system is fastest at which value of one quantity.

All systems choose their plans at given values. If the fastest system differs between two values, the interval between
them is halved until it is short.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, cast

import pandas as pd

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.registry import listed
from dtfm_lab.domain.units import plain_rows
from dtfm_lab.extensions.systems.choosing import Asked, chosen, outcome_of, outcomes_in_order
from dtfm_lab.extensions.systems.outcome import Outcome
from dtfm_lab.extensions.systems.strategy import Budget, Strategy, priced, strategies
from dtfm_lab.extensions.systems.variations import Axis
from dtfm_lab.simulation.executors import Executor
from dtfm_lab.simulation.memory import memory

ALIKE = 1e-6
"""Seconds that differ by at most this share count as equal. Systems with the same best plan take equally long."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CrossingPoint:
    """The seconds and plans of the systems at one value of the quantity."""

    value: float
    seconds: Mapping[str, float]
    """Seconds of an iteration by system label. A system without a plan here has no entry. At a refined point, systems
    that are not compared may have none either."""
    plans: Mapping[str, Plan] = field(default_factory=dict)
    """The systems' plans, for the network and the job at this value."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Why a system has no plan here, by system label."""
    refined: bool = False
    """True if halving added this point between two given values. Then only the fastest systems at the ends of the
    halved interval chose again. The other compared systems, and any with a search, have the better of their plans at
    the two given values."""


@dataclass(frozen=True, kw_only=True)
class Crossing:
    """A value at which another system becomes the fastest."""

    value: float
    """Where the two systems take the same seconds: interpolated between ``low`` and ``high`` on a log-log scale. If
    either has no plan at ``low`` or ``high``, the geometric mean of these two."""
    low: float
    """Last computed value at which ``before`` is fastest. The crossing does not lie below it."""
    high: float
    """First computed value at which ``after`` is fastest. The crossing does not lie above it."""
    before: tuple[str, ...]
    """Labels of the systems that are fastest up to ``low``: several if they take equally long, none if no system has a
    plan."""
    after: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Crossings:
    """The systems' seconds along one axis, and which is fastest where."""

    topology: Topology
    job: Job
    axis: Axis
    systems: tuple[Strategy, ...]
    points: tuple[CrossingPoint, ...] = ()
    """The points in rising order of their values. Points that halving added are ``refined``."""
    mathematics: bool = False
    """True if systems that change the mathematics may count as the fastest."""
    latest: str = ""
    """What was computed last, in words."""
    finished: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "points", tuple(sorted(self.points, key=lambda point: point.value)))

    def __repr__(self) -> str:
        return f"<Crossings of {self.job.name} on {self.topology.name}: {self.sentence}>"

    @property
    def headings(self) -> dict[str, str]:
        """The title of each system by its label."""
        return {one.label: one.heading for one in self.systems}

    @property
    def compared(self) -> tuple[str, ...]:
        """Labels of the systems that are compared: those that do not change the mathematics. All if ``mathematics`` is
        True."""
        return tuple(one.label for one in self.systems if self.mathematics or not one.mathematics)

    @property
    def apart(self) -> tuple[str, ...]:
        """Labels of the systems that are not compared because they change the mathematics. They may need more tokens to
        reach the same loss."""
        return tuple(one.label for one in self.systems if one.label not in self.compared)

    def fastest(self, point: CrossingPoint) -> tuple[str, ...]:
        """Return the labels of the fastest compared systems, in the order of the systems.

        Several if they take equally long, none if none has a plan.
        """
        of = [one for one in self.compared if one in point.seconds]
        least_s = min((point.seconds[one] for one in of), default=0.0)
        return tuple(one for one in of if point.seconds[one] <= least_s * (1 + ALIKE))

    @cached_property
    def crossings(self) -> tuple[Crossing, ...]:
        """Every value at which another system becomes the fastest, in increasing order."""
        found = []
        for a, b in zip(self.points, self.points[1:], strict=False):
            before, after = self.fastest(a), self.fastest(b)
            if before != after:
                value = _meeting(a, b, before, after)
                found.append(Crossing(value=value, low=a.value, high=b.value, before=before, after=after))
        return tuple(found)

    @property
    def headline(self) -> str:
        """Which system is fastest in which range, by the link model."""
        if not self.points:
            return "nothing was compared yet"
        if not self.compared:
            return "all of these systems change the mathematics; wanted mathematics=True to compare their seconds"
        text = self._text()
        return text if self.finished else f"so far: {text}"

    @property
    def sentence(self) -> str:
        """The headline, and which systems are not compared."""
        if not (self.points and self.compared and self.apart):
            return self.headline
        return f"{self.headline}; not compared, as they change the mathematics: {self.name_of(self.apart)}"

    def _text(self) -> str:
        first, last, text = self.points[0], self.points[-1], self.axis.text
        whole = f"from {text(first.value)} to {text(last.value)}"
        if not self.crossings:
            return f"{self._said(self.fastest(first))} at every {self.axis.noun} {whole} by the link model"
        parts = [f"Below {text(self.crossings[0].value)} {self._said(self.crossings[0].before)}"]
        for here, then in zip(self.crossings, self.crossings[1:], strict=False):
            parts.append(f"from there to {text(then.value)} {self.name_of(here.after)}")
        parts.append(f"above it {self.name_of(self.crossings[-1].after)}")
        return f"{', '.join(parts)}, by the link model, {whole}"

    def name_of(self, labels: Sequence[str]) -> str:
        """Return the headings of these systems, in words."""
        return listed([self.headings[one] for one in labels]) or "no system with a plan"

    def _said(self, labels: Sequence[str]) -> str:
        alike = "are fastest, alike" if len(labels) > 1 else "is fastest"
        return f"{self.name_of(labels)} {alike}" if labels else "no system has a plan"

    def plan(self, system: str, value: float) -> Plan:
        """Return the plan that a system chose at a given value, such as ``plan("megatron", 1.0)``.

        Raises LabError if the system has no plan there, or if the value is not one of the given values.
        """
        given = [point for point in self.points if not point.refined]
        for point in given:
            if math.isclose(point.value, value):
                if system in point.plans:
                    return point.plans[system]
                raise LabError(f"{system} has no plan there: {point.reasons.get(system, 'it was not asked')}")
        known = ", ".join(self.axis.text(point.value) for point in given)
        raise LabError(f"no plans were made for {value:g}; wanted one of: {known}")

    def to_frame(self) -> pd.DataFrame:
        """Return one row per point and system. Columns: the value of the quantity, system, iteration_s, fastest, times
        (relative to the fastest), shape and others.

        ``refined`` is True for points that halving added. A system without a plan has a reason.
        """
        rows = []
        for point in self.points:
            best = self.fastest(point)
            for one in self.systems:
                seconds, plan = point.seconds.get(one.label), point.plans.get(one.label)
                job = None if plan is None else plan.job
                rows.append(
                    {
                        self.axis.name: point.value,
                        "system": one.label,
                        "iteration_s": seconds,
                        "fastest": one.label in best,
                        "times": None if seconds is None or not best else seconds / point.seconds[best[0]],
                        **{name: getattr(job, name, None) for name in ("n_stages", "n_replicas", "microbatch")},
                        "mathematics": one.mathematics,
                        "refined": point.refined,
                        "reason": point.reasons.get(one.label, ""),
                    }
                )
        return pd.DataFrame(rows)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "topology": self.topology.name,
            "job": self.job.name,
            "over": [self.axis.name],
            "units": [self.axis.unit],
            "own": [self.axis.own],
            "sentence": self.sentence,
            "crossings": [vars(one) for one in self.crossings],
            "compared": list(self.compared),
            "apart": list(self.apart),
            "points": plain_rows(self.to_frame()),
            "finished": self.finished,
            "assumptions": {one.label: one.assumed for one in self.systems},
        }


def stream_crossings(
    found: Crossings, values: Sequence[float], budget: Budget, *, precision: float, executor: Executor | None = None
) -> Iterator[Crossings]:
    """Yield the comparison so far, after every given value and then after every halving.

    At a given value, every system chooses among all of its plans, as in ``outcome_of``. The ends come first, so that a
    stopped comparison still spans the axis. A system with a search may reuse a plan that it found at another value;
    otherwise one lucky search would look like a crossing.

    If the fastest system differs between two values, the interval is halved until its ends are within ``precision`` of
    each other. In the middle only the fastest systems of both ends choose again. The other compared systems, and any
    with a search, take the better of their plans at the two given values. An executor's workers compute the given
    values. Halvings depend on each other, so they run here.
    """
    # The ends first, so that an early stop still covers the whole range.
    order = list(_spread_out(values))
    tasks = [(one, *found.axis.at(found.topology, found.job, at), budget) for at in order for one in found.systems]
    outcomes = outcomes_in_order(tasks, executor)
    for at in order:
        point = _point(at, [next(outcomes) for _ in found.systems])
        found = replace(found, points=(*found.points, point), latest=found.axis.text(at))
        yield found
    for one in found.systems:
        # A search may find a worse plan at one value than at its neighbour, which would look like a crossing.
        if one.searches:
            shared = tuple(_with_best_of(found.points, found, one, point, budget) for point in found.points)
            found = replace(found, points=shared)
    stretches = [(a, b, (a, b)) for a, b in zip(found.points, found.points[1:], strict=False)]
    while stretches:
        a, b, given = stretches.pop()
        middle = found.axis.middle(a.value, b.value)
        if found.fastest(a) == found.fastest(b) or b.value <= a.value * (1 + precision) or middle is None:
            # The same leader on both sides, or close enough, or no value between them.
            continue
        try:
            point = _between(found, middle, given, {*found.fastest(a), *found.fastest(b)}, budget)
        except LabError:  # the job cannot have this value: its micro-batches do not divide the batch
            continue
        stretches += [(a, point, given), (point, b, given)]
        latest = f"between {found.axis.text(a.value)} and {found.axis.text(b.value)}"
        found = replace(found, points=(*found.points, point), latest=latest)
        yield found
    yield replace(found, latest="", finished=True)


def compared_by_default(systems: Asked) -> tuple[Strategy, ...]:
    """Return the requested systems. By default, these are all systems whose plans need no search."""
    if systems is None:
        systems = [name for name in strategies if not strategies[name].searches]
    return tuple(chosen(systems))


def _spread_out(values: Sequence[float]) -> Iterator[float]:
    """Yield the values in an order that soon covers them all: the first and the last, then the middle, then the
    quarters."""
    n, parts = len(values), 1
    seen: set[int] = set()
    while len(seen) < n:
        for i in range(parts + 1):
            at = round(i * (n - 1) / parts)
            if at not in seen:
                seen.add(at)
                yield values[at]
        parts *= 2


def _point(at: float, outcomes: Sequence[Outcome]) -> CrossingPoint:
    had = [one for one in outcomes if one.found is not None]
    return CrossingPoint(
        value=at,
        seconds={one.name: cast(float, one.iteration_s) for one in had},
        plans={one.name: one.plan for one in had},
        reasons={one.name: one.reason for one in outcomes if one.found is None},
    )


def _with_best_of(
    points: Sequence[CrossingPoint], found: Crossings, system: Strategy, at: CrossingPoint, budget: Budget
) -> CrossingPoint:
    """Return the point ``at`` with the fastest plan that a system has at any of these points.

    The plan is moved to the point's value, and its communication cost is computed again. If no fitting plan is faster
    than the point's own, the point is unchanged.
    """
    label, best = system.label, None
    least_s = at.seconds.get(label, math.inf)
    for point in points:
        if (plan := point.plans.get(label)) is None:
            continue
        try:
            network, job = found.axis.at(plan.topology, plan.job, at.value, point.value)
            moved = plan.changed(topology=network, job=job)
            seconds = system.seconds(moved, budget)
        except LabError:
            continue
        if seconds < least_s and memory(moved).fits:
            least_s, best = seconds, moved
    if best is None:
        return at
    return replace(
        at,
        seconds={**at.seconds, label: least_s},
        plans={**at.plans, label: priced(best).changed(iteration_s=least_s)},
        reasons={name: why for name, why in at.reasons.items() if name != label},
    )


def _between(
    found: Crossings, at: float, given: Sequence[CrossingPoint], rivals: set[str], budget: Budget
) -> CrossingPoint:
    """Return the point at a value between given ones. Rivals choose their plans again. All other compared systems, and
    rivals with a search, take the best of their plans at the given values."""
    # Only the leaders can cross here; the others keep their best plan, which is quicker.
    network, job = found.axis.at(found.topology, found.job, at)
    anew = [one for one in found.systems if one.label in rivals and not one.searches]
    point = replace(_point(at, [outcome_of(one, network, job, budget) for one in anew]), refined=True)
    for one in found.systems:
        if one not in anew and one.label in found.compared:
            point = _with_best_of(given, found, one, point, budget)
    return point


def _meeting(a: CrossingPoint, b: CrossingPoint, before: Sequence[str], after: Sequence[str]) -> float:
    """Return the value between two points at which two systems take equally long.

    Between the points, their seconds are taken to be straight lines on a log-log scale. If the lines are parallel, or
    if either system has no plan at one of the points, it is the geometric mean.
    """
    low, high = a.value, b.value
    middle = math.sqrt(low * high)
    left = next((one for one in before if one not in after), "") or next(iter(before), "")
    joined = next((one for one in after if one not in before), "") or next(iter(after), "")
    if not all(one in point.seconds for one in (left, joined) for point in (a, b)):
        return middle
    at_low, at_high = (math.log(p.seconds[joined] / p.seconds[left]) for p in (a, b))
    if at_low == at_high:
        return middle
    # Where two lines on logarithmic scales meet.
    return float(low * (high / low) ** min(1.0, max(0.0, at_low / (at_low - at_high))))
