"""Summaries of a ledger: rows by group, and counts by distance from what constants were fitted on, by class of
evidence, and by source."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from dtfm_lab.domain.units import by_key, format_share
from dtfm_lab.extensions.published.row import NO_WORSE, Distance, Evidence, KnownMiss, Row
from dtfm_lab.extensions.published.sources import Source

MEAN = "mean"
"""Second part of the key of a known miss that is about a group's goal instead of a row's quantity: (group, "mean")."""
RATES = ("iteration", "throughput")
"""Quantities to which the goals of groups apply."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """Summary of the rows of one group and quantity of a source."""

    source: str
    group: str
    quantity: str
    classes: tuple[Evidence, ...]
    """Classes of evidence of its rows."""
    n: int
    inside: int
    mean_error: float
    """Mean absolute relative error of our predictions; 0.03 is 3 %."""
    their_mean_error: float | None
    """Mean absolute error of the system's own predictions, over the rows that have one."""
    goal: float | None = None
    """Maximum ``mean_error`` that the source states for the group; None if it states none."""
    known_miss: KnownMiss | None = None
    """Why the goal is known to be missed; None if it is not. Its ratio is 1 + the mean error when it was examined."""

    @property
    def key(self) -> tuple[str, str, str]:
        """Source, group and quantity."""
        return self.source, self.group, self.quantity

    @property
    def reached(self) -> bool:
        """True if the goal is reached, or if there is no goal."""
        return self.goal is None or self.mean_error <= self.goal

    @property
    def verdict(self) -> str:
        """``inside``, ``known miss`` or ``miss``, as for a row, about the goal; empty if there is no goal."""
        if self.goal is None:
            return ""
        if self.reached:
            return "inside"
        known = self.known_miss
        return "known miss" if known is not None and self.mean_error <= known.ratio - 1 + NO_WORSE else "miss"

    def to_dict(self) -> dict[str, Any]:
        """Return the summary as plain values."""
        key = {"source": self.source, "group": self.group, "quantity": self.quantity}
        names = ("inside", "mean_error", "their_mean_error", "goal", "verdict")
        return {**key, "classes": [*self.classes], "rows": self.n, **{name: getattr(self, name) for name in names}}


def groups_of(rows: Iterable[Row], sources: Iterable[Source]) -> tuple[Group, ...]:
    """Return a summary of each group and quantity, in the order of the rows."""
    by_name = {source.name: source for source in sources}
    found = by_key(((row.source, row.group, row.quantity), row) for row in rows)
    return tuple(_summed(key, of_key, by_name.get(key[0])) for key, of_key in found.items())


def _summed(key: tuple[str, str, str], rows: Sequence[Row], source: Source | None) -> Group:
    name, group, quantity = key
    theirs = [abs(error) for row in rows if (error := row.their_error) is not None]
    return Group(
        source=name,
        group=group,
        quantity=quantity,
        classes=tuple(dict.fromkeys(row.evidence for row in rows)),
        n=len(rows),
        inside=sum(row.inside for row in rows),
        mean_error=sum(abs(row.error) for row in rows) / len(rows),
        their_mean_error=sum(theirs) / len(theirs) if theirs else None,
        goal=source.goals.get(group) if source is not None and quantity in RATES else None,
        known_miss=source.known_misses.get((group, MEAN)) if source is not None else None,
    )


FIFTH = 1.2
"""Nine of ten rows without a fit should be within this factor of the published number, either way."""


@dataclass(frozen=True)
class Tally:
    """Counts over some rows of a ledger, at least one."""

    name: str
    rows: Sequence[Row]
    noise: float | None = None
    """Mean relative difference of two measurements of the same plan; None if the source does not tell."""

    @property
    def n(self) -> int:
        return len(self.rows)

    @property
    def measured(self) -> int:
        """Number of rows whose published number was measured."""
        return sum(row.measured for row in self.rows)

    @property
    def inside(self) -> int:
        return sum(row.inside for row in self.rows)

    @property
    def median_error(self) -> float:
        """Median absolute relative error; 0.03 is 3 %."""
        return median(abs(row.error) for row in self.rows)

    @property
    def within_fifth(self) -> int:
        """Number of rows predicted within a factor of 1.2, either way."""
        # By logarithms, so that half and twice are equally far off.
        return sum(row.ratio > 0 and abs(math.log(row.ratio)) <= math.log(FIFTH) for row in self.rows)

    @property
    def covered(self) -> int:
        """Number of rows whose interval holds the published number."""
        return sum(row.covered is True for row in self.rows)

    @property
    def with_interval(self) -> int:
        return sum(row.covered is not None for row in self.rows)

    @property
    def coverage(self) -> float | None:
        """Share of the rows with an interval whose interval holds the published number; the target is 0.9. None without
        intervals."""
        return self.covered / self.with_interval if self.with_interval else None

    @property
    def words(self) -> str:
        """Misses, median error, share within 20 %, and coverage if intervals are known."""
        missed = f"{self.n - self.inside} of {self.n} outside their bands"
        parts = [missed, f"median error {format_share(self.median_error)}"]
        parts.append(f"{format_share(self.within_fifth / self.n, 0)} within 20 %")
        if self.coverage is not None:
            parts.append(f"90 % intervals hold {format_share(self.coverage, 0)} of {self.with_interval}")
        return ", ".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """Return the counts as plain values."""
        return {name: getattr(self, name) for name in COUNTS}


COUNTS = (
    *("name", "n", "measured", "inside", "median_error", "within_fifth", "covered", "with_interval", "noise"),
    "coverage",
)


def by_class(rows: Iterable[Row]) -> tuple[Tally, ...]:
    """Return a tally of each class of evidence that has rows, the strongest evidence first."""
    listed = list(rows)
    of_class = {evidence: [row for row in listed if row.evidence is evidence] for evidence in Evidence}
    return tuple(Tally(evidence.words, some) for evidence, some in of_class.items() if some)


def by_distance(rows: Iterable[Row]) -> tuple[Tally, ...]:
    """Return a tally of each class of distance that has rows, the farthest first."""
    listed = list(rows)
    found = {distance: [row for row in listed if row.distance is distance] for distance in Distance}
    return tuple(Tally(str(distance), some) for distance, some in found.items() if some)


def counted_by_source(rows: Iterable[Row], sources: Iterable[Source]) -> tuple[Tally, ...]:
    """Return a tally for each class of distance, source and quantity. The farthest class comes first, and in it the
    tally with the smallest share of rows inside their bands."""
    noise = {source.name: source.noise for source in sources}
    order = list(Distance)
    found = by_key(((row.distance, row.source, row.quantity), row) for row in rows if row.distance is not None)
    tallies = [
        (order.index(distance), Tally(f"{distance}: {source}, {quantity}", some, noise.get(source, {}).get(quantity)))
        for (distance, source, quantity), some in found.items()
    ]
    return tuple(tally for _, tally in sorted(tallies, key=lambda each: (each[0], each[1].inside / each[1].n)))
