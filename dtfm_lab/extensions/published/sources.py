"""Publications by name. Each yields the rows of its tables, with our predictions."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.registry import Registry
from dtfm_lab.extensions.published.row import KnownMiss, Row, document, numbers

Rows = Callable[[], Iterator[Row]]
DESCRIBED = document("sources.yaml")
"""Texts about the packaged publications, by name."""


@dataclass(frozen=True)
class Omission:
    """Published rows that are not predicted, and why. Rows left out silently would look like cherry-picking."""

    what: str
    """Table and rows of the publication."""
    n: int
    """Number of rows."""
    reason: str
    held_out: bool = False
    """True if they are kept for a blind test and have not been looked at."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Source:
    """A publication: what it is, and a function that yields its rows. Each call predicts them again."""

    name: str
    title: str
    """The system, and what was published about it, in words."""
    cite: str
    """Authors, venue and year. Rows name the table if it differs."""
    licence: str
    """Licence of the numbers' repository, or how they may be cited."""
    rows: Rows
    goals: Mapping[str, float] = field(default_factory=dict)
    """Goals for groups, by group: the maximum mean absolute error of its iterations or throughputs. 0.06 is 6 %."""
    known_misses: Mapping[tuple[str, str], KnownMiss] = field(default_factory=dict)
    """Recorded misses: rows outside their band by (setting, quantity), and groups that miss their goal by (group,
    "mean")."""
    url: str = ""
    omitted: tuple[Omission, ...] = ()
    """Rows that are not predicted."""
    fitted_elsewhere: str = ""
    """Constants that were fitted to the same GPUs and framework, in rows of other sources; may be empty."""
    noise: Mapping[str, float] = field(default_factory=dict)
    """How much two measurements of the same plan differ, by quantity: the mean relative difference. Empty if the source
    does not tell."""

    def __iter__(self) -> Iterator[Row]:
        """Yield the rows, each with the source's name, citation and known miss. Raises LabError for two rows with the
        same setting and quantity."""
        seen = set()
        for row in self.rows():
            # A row is identified by its key, also in notes on known misses.
            if row.key in seen:
                raise LabError(f"source {self.name} has two rows of {row.setting}, {row.quantity}; wanted one")
            seen.add(row.key)
            yield replace(
                row,
                source=self.name,
                cite=row.cite or self.cite,
                known_miss=self.known_misses.get(row.key),
                fitted_elsewhere=bool(self.fitted_elsewhere),
            )


sources: Registry[Source] = Registry(
    "source of published numbers", group="dtfm_lab.sources", fits=lambda entry: isinstance(entry, Source)
)


def published(name: str, **described: Any) -> Callable[[Rows], Rows]:
    """Decorate the generator of a publication's rows: register it as a Source.

    ``described`` are the Source's other fields. By default they come from ``data/sources.yaml``.
    """

    def add(rows: Rows) -> Rows:
        fields = described or DESCRIBED[name]
        omitted = tuple(one if isinstance(one, Omission) else Omission(**one) for one in fields.get("omitted", ()))
        known_misses = _known_misses().get(name, {})
        sources.register(name)(Source(name=name, rows=rows, known_misses=known_misses, **fields | {"omitted": omitted}))
        return rows

    return add


@cache
def _known_misses() -> dict[str, dict[tuple[str, str], KnownMiss]]:
    """Return the known misses of ``data/known_misses.csv``, by source."""
    by_source: dict[str, dict[tuple[str, str], KnownMiss]] = {}
    for line in numbers("known_misses.csv"):
        miss = KnownMiss(float(line["ratio"]), line["reason"])
        by_source.setdefault(line["source"], {})[line["setting"], line["quantity"]] = miss
    return by_source
