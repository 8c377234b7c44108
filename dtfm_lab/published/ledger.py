"""The ledger: published rows beside our predictions, summed up by group, misses included."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from dtfm_lab.domain.units import plain_rows
from dtfm_lab.published.row import NO_WORSE, KnownMiss, Row
from dtfm_lab.published.sources import Source

MEAN = "mean"
"""In place of a quantity, in the known misses of a source: the goal of a group."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """The rows of one group and quantity of a source, summed up."""

    source: str
    group: str
    quantity: str
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


@dataclass(frozen=True, eq=False, repr=False)
class Ledger:
    """Published rows beside our predictions, in the order of their sources."""

    rows: tuple[Row, ...]
    sources: tuple[Source, ...] = field(default=())

    def __repr__(self) -> str:
        return f"<Ledger: {self.sentence}>"

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    @property
    def misses(self) -> tuple[Row, ...]:
        """All rows outside of their bands, known or not, the farthest first."""
        return tuple(sorted((row for row in self.rows if not row.inside), key=lambda row: -abs(row.error)))

    @property
    def failures(self) -> tuple[Row | Group, ...]:
        """Rows and goals that are missed without a reason on record, or by more than on record."""
        goals = [group for group in self.groups if group.verdict == "miss"]
        return (*(row for row in self.rows if row.verdict == "miss"), *goals)

    @property
    def groups(self) -> tuple[Group, ...]:
        """A summary of each group and quantity, in the order of the rows."""
        by_key: dict[tuple[str, str, str], list[Row]] = {}
        for row in self.rows:
            by_key.setdefault((row.source, row.group, row.quantity), []).append(row)
        return tuple(self._group(key, rows) for key, rows in by_key.items())

    def _group(self, key: tuple[str, str, str], rows: Sequence[Row]) -> Group:
        source_name, group, quantity = key
        source = next((source for source in self.sources if source.name == source_name), None)
        goal = source.goals.get(group) if source is not None and quantity in ("iteration", "throughput") else None
        theirs = [abs(error) for row in rows if (error := row.their_error) is not None]
        return Group(
            source=source_name,
            group=group,
            quantity=quantity,
            n=len(rows),
            inside=sum(row.inside for row in rows),
            mean_error=sum(abs(row.error) for row in rows) / len(rows),
            their_mean_error=sum(theirs) / len(theirs) if theirs else None,
            goal=goal,
            known_miss=source.known_misses.get((group, MEAN)) if source is not None else None,
        )

    @property
    def sentence(self) -> str:
        """How many rows are inside their bands, and which is the farthest outside."""
        if not self.rows:
            return "no rows"
        inside = sum(row.inside for row in self.rows)
        line = f"{inside} of {len(self.rows)} rows inside their bands"
        if self.misses:
            worst = self.misses[0]
            line += f"; worst outside: {worst.source}, {worst.setting}, {worst.quantity}, {worst.error:+.1%}"
        return line

    def to_frame(self) -> pd.DataFrame:
        """A row for each row: source, group, setting, quantity, unit, published, predicted, ratio, theirs, band,
        verdict, assumptions, fitted, note and cite."""
        return pd.DataFrame([row.to_dict() for row in self.rows])

    def to_dict(self) -> dict[str, Any]:
        """The ledger as plain values for JSON: sentence, sources, groups and rows."""
        return {
            "sentence": self.sentence,
            "rows_inside": sum(row.inside for row in self.rows),
            "sources": [
                {"name": each.name, "title": each.title, "cite": each.cite, "licence": each.licence, "url": each.url}
                for each in self.sources
            ],
            "groups": [
                {
                    "source": group.source,
                    "group": group.group,
                    "quantity": group.quantity,
                    "rows": group.n,
                    "inside": group.inside,
                    "mean_error": group.mean_error,
                    "their_mean_error": group.their_mean_error,
                    "goal": group.goal,
                    "verdict": group.verdict,
                }
                for group in self.groups
            ],
            "rows": plain_rows(self.to_frame()),
        }
