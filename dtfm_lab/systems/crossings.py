"""Which system is fastest where: the systems' seconds along one or two axes, and the values at which that turns."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pandas as pd

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import plain_rows
from dtfm_lab.systems.strategy import Strategy
from dtfm_lab.systems.variations import Variation

ALIKE = 1e-6
"""Share of the seconds up to which systems count as alike, such as those whose best plan here is the same."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CrossingPoint:
    """The systems at one value of each axis."""

    values: tuple[float, ...]
    seconds: Mapping[str, float]
    """Of an iteration, by the systems' labels; a system without a plan here has none."""
    plans: Mapping[str, Plan] = field(default_factory=dict)
    """The systems' plans, on the network and for the job at these values."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Why a system has no plan here."""
    refined: bool = False
    """Whether it was put between two values. There only the fastest of both choose anew; the others have the better of
    their plans of both."""

    def ranked(self, among: Sequence[str]) -> list[str]:
        """Labels of those systems that have a plan, the fastest first."""
        return sorted((one for one in among if one in self.seconds), key=lambda one: self.seconds[one])

    def margin(self, among: Sequence[str]) -> float | None:
        """What the second takes more than the fastest, as a share of the fastest's seconds; None without a second."""
        first, second = [*self.ranked(among), "", ""][:2]
        return self.seconds[second] / self.seconds[first] - 1 if second else None


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
    """The systems' seconds along one axis, or over the grid of two, and which is fastest where."""

    topology: Topology
    job: Job
    axes: tuple[Variation, ...]
    systems: tuple[Strategy, ...]
    points: tuple[CrossingPoint, ...]
    """In any order, kept in that of their values; those put between given values are marked ``refined``."""
    mathematics: bool = False
    """Whether systems that change the mathematics may be the fastest."""
    done: int = 0
    """Outcomes on the given values so far."""
    total: int = 0
    """Outcomes on the given values in all."""
    latest: str = ""
    """What was just computed, in words."""
    finished: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "points", tuple(sorted(self.points, key=lambda point: point.values)))

    def __repr__(self) -> str:
        return f"<Crossings of {self.job.name} on {self.topology.name}: {self.sentence}>"

    @property
    def over(self) -> tuple[str, ...]:
        """Names of the axes."""
        return tuple(axis.name for axis in self.axes)

    @property
    def own(self) -> tuple[float, ...]:
        """The values of the network and the job as they are."""
        return tuple(axis.own for axis in self.axes)

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
        """Every value along one axis at which another system becomes the fastest, the least first; none of two axes."""
        if len(self.axes) > 1:
            return ()
        found = []
        for a, b in zip(self.points, self.points[1:], strict=False):
            before, after = self.fastest(a), self.fastest(b)
            if before != after:
                low, high = a.values[0], b.values[0]
                value = meeting(a, b, before, after)
                found.append(Crossing(value=value, low=low, high=high, before=before, after=after))
        return tuple(found)

    @property
    def stretches(self) -> tuple[tuple[float, float, tuple[str, ...]], ...]:
        """Along one axis: from, to, and the labels of the fastest between them."""
        if len(self.axes) > 1 or not self.points:
            return ()
        ends = [self.points[0].values[0], *(one.value for one in self.crossings), self.points[-1].values[0]]
        first = self.fastest(self.points[0])
        names = [first, *(one.after for one in self.crossings)]
        return tuple(zip(ends, ends[1:], names, strict=False))

    @property
    def headline(self) -> str:
        """Who is fastest from where to where, by the link model."""
        if not self.points:
            return "nothing was compared yet"
        if not self.compared:
            return "all of these systems change the mathematics; wanted mathematics=True to compare their seconds"
        text = self._along() if len(self.axes) == 1 else self._counted()
        return text if self.finished else f"so far: {text}"

    @property
    def sentence(self) -> str:
        """The headline, and which systems are not compared."""
        if not (self.points and self.compared and self.apart):
            return self.headline
        return f"{self.headline}; not compared, as they change the mathematics: {self.name_of(self.apart)}"

    def _along(self) -> str:
        axis = self.axes[0]
        if not axis.even:
            return "; ".join(f"{axis.text(p.values[0])}: {self._said(self.fastest(p))}" for p in self.points)
        whole = f"from {axis.text(self.points[0].values[0])} to {axis.text(self.points[-1].values[0])}"
        if not self.crossings:
            return f"{self._said(self.fastest(self.points[0]))} at every {axis.noun} {whole} by the link model"
        parts = [f"Below {axis.text(self.crossings[0].value)} {self._said(self.crossings[0].before)}"]
        for here, then in zip(self.crossings, self.crossings[1:], strict=False):
            parts.append(f"from there to {axis.text(then.value)} {self.name_of(here.after)}")
        parts.append(f"above it {self.name_of(self.crossings[-1].after)}")
        return f"{', '.join(parts)}, by the link model, {whole}"

    def _counted(self) -> str:
        wins = Counter(self.fastest(point) for point in self.points).most_common()
        nouns = " and ".join(axis.noun for axis in self.axes)
        words = [self._said(one) if i == 0 else self.name_of(one) for i, (one, _) in enumerate(wins)]
        counts = ", ".join(f"{word} at {n}" for word, (_, n) in zip(words, wins, strict=True))
        return f"{counts} of {len(self.points)} combinations of {nouns}, by the link model"

    def name_of(self, labels: Sequence[str]) -> str:
        """Headings of the fastest, in words."""
        names = [self.headings[one] for one in labels]
        return " and ".join((", ".join(names[:-1]), names[-1]) if len(names) > 1 else names) or "no system with a plan"

    def _said(self, labels: Sequence[str]) -> str:
        alike = "are fastest, alike" if len(labels) > 1 else "is fastest"
        return f"{self.name_of(labels)} {alike}" if labels else "no system has a plan"

    def plan(self, system: str, *values: float) -> Plan:
        """The plan that a system chose at a given value of each axis, such as ``plan("megatron", 1.0)``.

        Raises LabError where it has none there.
        """
        for point in self.points:
            if not point.refined and all(math.isclose(a, b) for a, b in zip(point.values, values, strict=True)):
                if system in point.plans:
                    return point.plans[system]
                raise LabError(f"{system} has no plan there: {point.reasons.get(system, 'it was not asked')}")
        given = ", ".join(
            " and ".join(axis.text(value) for axis, value in zip(self.axes, point.values, strict=True))
            for point in self.points
            if not point.refined
        )
        raise LabError(f"no plans were made for {values}; wanted one of: {given}")

    def to_frame(self) -> pd.DataFrame:
        """One row a point and system: the axes' values, system, iteration_s, shape, fastest, times over the fastest.

        ``margin`` is what the second fastest takes more; ``refined`` points lie between given values. A system without
        a plan has a reason.
        """
        rows = []
        for point in self.points:
            best, margin = self.fastest(point), point.margin(self.compared)
            for one in self.systems:
                seconds, plan = point.seconds.get(one.label), point.plans.get(one.label)
                rows.append(
                    {
                        **dict(zip(self.over, point.values, strict=True)),
                        "system": one.label,
                        "iteration_s": seconds,
                        "fastest": one.label in best,
                        "times": None if seconds is None or not best else seconds / point.seconds[best[0]],
                        "margin": margin if one.label in best else None,
                        "n_stages": None if plan is None else plan.job.n_stages,
                        "n_replicas": None if plan is None else plan.job.n_replicas,
                        "microbatch": None if plan is None else plan.job.microbatch,
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
            "over": list(self.over),
            "units": [axis.unit for axis in self.axes],
            "own": list(self.own),
            "sentence": self.sentence,
            "crossings": [vars(one) for one in self.crossings],
            "compared": list(self.compared),
            "apart": list(self.apart),
            "points": plain_rows(self.to_frame()),
            "finished": self.finished,
            "assumptions": {one.label: one.assumed for one in self.systems},
        }


def meeting(a: CrossingPoint, b: CrossingPoint, before: Sequence[str], after: Sequence[str]) -> float:
    """Value between two points at which two systems take as long, if log seconds are lines of the log value."""
    low, high = a.values[0], b.values[0]
    middle = math.sqrt(low * high)
    left = next((one for one in before if one not in after), "") or next(iter(before), "")
    joined = next((one for one in after if one not in before), "") or next(iter(after), "")
    if not all(one in point.seconds for one in (left, joined) for point in (a, b)):
        return middle
    at_low, at_high = (math.log(p.seconds[joined] / p.seconds[left]) for p in (a, b))
    if at_low == at_high:
        return middle
    return float(low * (high / low) ** min(1.0, max(0.0, at_low / (at_low - at_high))))
