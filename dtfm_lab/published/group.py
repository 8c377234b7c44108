"""The rows of one group and quantity of a source, summed up."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dtfm_lab.published.evidence import Evidence
from dtfm_lab.published.row import NO_WORSE, KnownMiss, Row
from dtfm_lab.published.sources import Source

MEAN = "mean"
"""In place of a quantity, in the known misses of a source: the goal of a group."""
RATES = ("iteration", "throughput")
"""Quantities that the goal of a group is about."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """The rows of one group and quantity of a source, summed up."""

    source: str
    group: str
    quantity: str
    classes: tuple[Evidence, ...]
    """Classes of evidence of its rows."""
    n: int
    inside: int
    mean_error: float
    """Mean absolute error of our predictions, 0.03 is 3 %."""
    their_mean_error: float | None
    """The same of the system's own predictions, of all rows that have one."""
    goal: float | None = None
    """Most that ``mean_error`` is stated to be."""
    known_miss: KnownMiss | None = None
    """Why the goal is known to be missed; its ratio is 1 + the mean error at that time."""

    @property
    def key(self) -> tuple[str, str, str]:
        """Source, group and quantity."""
        return self.source, self.group, self.quantity

    @property
    def reached(self) -> bool:
        """Whether the goal is reached; true where there is none."""
        return self.goal is None or self.mean_error <= self.goal

    @property
    def verdict(self) -> str:
        """As that of a row, on the goal; empty where there is none."""
        if self.goal is None:
            return ""
        if self.reached:
            return "inside"
        known = self.known_miss
        return "known miss" if known is not None and self.mean_error <= known.ratio - 1 + NO_WORSE else "miss"


def groups_of(rows: Iterable[Row], sources: Iterable[Source]) -> tuple[Group, ...]:
    """A summary of each group and quantity, in the order of the rows."""
    by_name = {source.name: source for source in sources}
    by_key: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        by_key.setdefault((row.source, row.group, row.quantity), []).append(row)
    return tuple(_summed(key, of_key, by_name.get(key[0])) for key, of_key in by_key.items())


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
