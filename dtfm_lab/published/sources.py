"""Publications by name: each yields the rows of its tables, with our predictions."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.registry import Registry
from dtfm_lab.published.row import KnownMiss, Row

Rows = Callable[[], Iterator[Row]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Source:
    """A publication: what it is, and a function that yields its rows, predicted anew at every call."""

    name: str
    title: str
    """The system and what was published of it."""
    cite: str
    """Authors, venue and year; the tables are named by the rows where they differ."""
    licence: str
    """Licence of the repository that the numbers are from, or how they may be cited."""
    rows: Rows
    goals: Mapping[str, float] = field(default_factory=dict)
    """By group: the most that the mean absolute error of its iterations or throughputs may be, 0.06 is 6 %."""
    known_misses: Mapping[tuple[str, str], KnownMiss] = field(default_factory=dict)
    """By setting and quantity: rows that are known to leave their band, or groups (group, "mean") their goal."""
    url: str = ""

    def __iter__(self) -> Iterator[Row]:
        """The rows, each with the source's name, citation and known miss."""
        seen = set()
        for row in self.rows():
            if row.key in seen:
                raise LabError(f"source {self.name} has two rows of {row.setting}, {row.quantity}; wanted one")
            seen.add(row.key)
            yield replace(row, source=self.name, cite=row.cite or self.cite, known_miss=self.known_misses.get(row.key))


sources: Registry[Source] = Registry(
    "source of published numbers", group="dtfm_lab.sources", fits=lambda entry: isinstance(entry, Source)
)


def published(
    name: str,
    *,
    title: str,
    cite: str,
    licence: str,
    goals: Mapping[str, float] | None = None,
    known_misses: Mapping[tuple[str, str], KnownMiss] | None = None,
    url: str = "",
) -> Callable[[Rows], Rows]:
    """Decorator of the generator of a publication's rows: registers it as a Source."""

    def add(rows: Rows) -> Rows:
        source = Source(
            name=name,
            title=title,
            cite=cite,
            licence=licence,
            rows=rows,
            goals=goals or {},
            known_misses=known_misses or {},
            url=url,
        )
        sources.register(name)(source)
        return rows

    return add
