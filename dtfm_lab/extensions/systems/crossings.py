"""Which system is fastest where: all choose anew at given values of one quantity, and between two at which the fastest
differs the stretch is halved until the crossing is bracketed."""

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
"""Share of the seconds up to which systems count as alike, such as those whose best plan here is the same."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CrossingPoint:
    """The systems at one value."""

    value: float
    seconds: Mapping[str, float]
    """Of an iteration, by the systems' labels; a system without a plan here has none."""
    plans: Mapping[str, Plan] = field(default_factory=dict)
    """The systems' plans, on the network and for the job at this value."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Why a system has no plan here."""
    refined: bool = False
    """Whether it was put between two values. There only the fastest of both choose anew; the others have the better of
    their plans of both."""


@dataclass(frozen=True, kw_only=True)
class Crossing:
    """A value at which another system becomes the fastest."""

    value: float
    """Where the seconds of both are alike, by a line in the logarithms between ``low`` and ``high``; where one of them
    has no plan at one of these, their geometric mean."""
    low: float
    """Last value looked at where ``before`` is fastest; the crossing lies above it."""
    high: float
    """First value looked at where ``after`` is fastest; the crossing does not lie above it."""
    before: tuple[str, ...]
    """Labels of the fastest below, several where they take as long; none where no system has a plan."""
    after: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Crossings:
    """The systems' seconds along one axis, and which is fastest where."""

    topology: Topology
    job: Job
    axis: Axis
    systems: tuple[Strategy, ...]
    points: tuple[CrossingPoint, ...] = ()
    """In any order, kept in that of their values; those put between given values are marked ``refined``."""
    mathematics: bool = False
    """Whether systems that change the mathematics may be the fastest."""
    latest: str = ""
    """What was just computed, in words."""
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
        """Labels of the systems that may be the fastest: those that keep the mathematics, or all."""
        return tuple(one.label for one in self.systems if self.mathematics or not one.mathematics)

    @property
    def apart(self) -> tuple[str, ...]:
        """Labels of the systems that change the mathematics and are not compared: their losses may take more tokens."""
        return tuple(one.label for one in self.systems if one.label not in self.compared)

    def fastest(self, point: CrossingPoint) -> tuple[str, ...]:
        """Labels of the fastest of the systems that are compared: several where they take as long, none without a plan.

        They are in the order of the systems.
        """
        of = [one for one in self.compared if one in point.seconds]
        least_s = min((point.seconds[one] for one in of), default=0.0)
        return tuple(one for one in of if point.seconds[one] <= least_s * (1 + ALIKE))

    @cached_property
    def crossings(self) -> tuple[Crossing, ...]:
        """Every value at which another system becomes the fastest, the least first."""
        found = []
        for a, b in zip(self.points, self.points[1:], strict=False):
            before, after = self.fastest(a), self.fastest(b)
            if before != after:
                value = _meeting(a, b, before, after)
                found.append(Crossing(value=value, low=a.value, high=b.value, before=before, after=after))
        return tuple(found)

    @property
    def headline(self) -> str:
        """Who is fastest from where to where, by the link model."""
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
        """Headings of the fastest, in words."""
        return listed([self.headings[one] for one in labels]) or "no system with a plan"

    def _said(self, labels: Sequence[str]) -> str:
        alike = "are fastest, alike" if len(labels) > 1 else "is fastest"
        return f"{self.name_of(labels)} {alike}" if labels else "no system has a plan"

    def plan(self, system: str, value: float) -> Plan:
        """The plan that a system chose at a given value, such as ``plan("megatron", 1.0)``.

        Raises LabError where it has none there.
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
        """One row a point and system: the axis' value, system, iteration_s, fastest, times over the fastest, shape.

        ``refined`` points lie between given values. A system without a plan has a reason.
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
        """Plain values for JSON."""
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
    """The comparison so far, after every value and then after every halving of a crossing.

    At a given value every system chooses among all of its plans, as in ``outcome_of``. The ends come first, then the
    values between, so that one that is stopped spans the axis. A system that searches may choose, at every value, any
    plan that it found at another: without that, one lucky search would look like a crossing. Between two values at
    which the fastest differs, the stretch is halved until its ends are no more than ``precision`` apart: there the
    fastest of both ends choose anew, and the others among their plans of both. An executor's workers make the choices
    at given values; halvings follow each other, and are made here.
    """
    order = list(_spread_out(values))
    tasks = [(one, *found.axis.at(found.topology, found.job, at), budget) for at in order for one in found.systems]
    outcomes = outcomes_in_order(tasks, executor)
    for at in order:
        point = _point(at, [next(outcomes) for _ in found.systems])
        found = replace(found, points=(*found.points, point), latest=found.axis.text(at))
        yield found
    for one in found.systems:
        if one.searches:
            shared = tuple(_with_best_of(found.points, found, one, point, budget) for point in found.points)
            found = replace(found, points=shared)
    stretches = [(a, b, (a, b)) for a, b in zip(found.points, found.points[1:], strict=False)]
    while stretches:
        a, b, given = stretches.pop()
        middle = found.axis.middle(a.value, b.value)
        if found.fastest(a) == found.fastest(b) or b.value <= a.value * (1 + precision) or middle is None:
            continue
        try:
            point = _between(found, middle, given, {*found.fastest(a), *found.fastest(b)}, budget)
        except LabError:  # the job cannot be at this value: a batch that is no whole number of micro-batches
            continue
        stretches += [(a, point, given), (point, b, given)]
        latest = f"between {found.axis.text(a.value)} and {found.axis.text(b.value)}"
        found = replace(found, points=(*found.points, point), latest=latest)
        yield found
    yield replace(found, latest="", finished=True)


def compared_by_default(systems: Asked) -> tuple[Strategy, ...]:
    """The systems that are asked for; all whose plans need no search where None."""
    if systems is None:
        systems = [name for name in strategies if not strategies[name].searches]
    return tuple(chosen(systems))


def _spread_out(values: Sequence[float]) -> Iterator[float]:
    """The same values, first and last first, then halves of what lies between."""
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
    """The point with the fastest plan that a system has at these points, moved to its value and its communication cost
    computed there; as it is where none that fits is faster than its own."""
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
    """The systems at a value between given ones: rivals choose anew, others, and those that search, take the best of
    their plans of those."""
    network, job = found.axis.at(found.topology, found.job, at)
    anew = [one for one in found.systems if one.label in rivals and not one.searches]
    point = replace(_point(at, [outcome_of(one, network, job, budget) for one in anew]), refined=True)
    for one in found.systems:
        if one not in anew and one.label in found.compared:
            point = _with_best_of(given, found, one, point, budget)
    return point


def _meeting(a: CrossingPoint, b: CrossingPoint, before: Sequence[str], after: Sequence[str]) -> float:
    """Value between two points at which two systems take as long, if log seconds are lines of the log value."""
    low, high = a.value, b.value
    middle = math.sqrt(low * high)
    left = next((one for one in before if one not in after), "") or next(iter(before), "")
    joined = next((one for one in after if one not in before), "") or next(iter(after), "")
    if not all(one in point.seconds for one in (left, joined) for point in (a, b)):
        return middle
    at_low, at_high = (math.log(p.seconds[joined] / p.seconds[left]) for p in (a, b))
    if at_low == at_high:
        return middle
    return float(low * (high / low) ** min(1.0, max(0.0, at_low / (at_low - at_high))))
