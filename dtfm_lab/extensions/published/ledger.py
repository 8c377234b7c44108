"""The ledger: published rows, our predictions, and summaries by group, misses included.

It covers sources by name, all sources, or your own file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from dtfm_lab.domain.errors import FileError, LabError
from dtfm_lab.domain.network import shortened
from dtfm_lab.domain.report import Part, ReportSection, Table, as_html, as_markdown, as_page
from dtfm_lab.domain.units import format_share, plain_rows, signed_share
from dtfm_lab.extensions.published import own as own_files
from dtfm_lab.extensions.published import sailor_records
from dtfm_lab.extensions.published.own_predictions import predict_rows
from dtfm_lab.extensions.published.row import Row
from dtfm_lab.extensions.published.sources import Omission, Source, sources
from dtfm_lab.extensions.published.systems import sailor
from dtfm_lab.extensions.published.tally import Group, Tally, by_class, by_distance, counted_by_source, groups_of
from dtfm_lab.files.reading import ending_of, write_text

ENDINGS = (".html", ".md", ".csv", ".json")


@dataclass(frozen=True, eq=False, repr=False)
class Ledger:
    """Published rows with our predictions, in the order of their sources."""

    rows: tuple[Row, ...]
    sources: tuple[Source, ...] = field(default=())
    stopped: bool = False
    """True if it was interrupted before all rows were predicted."""

    def __repr__(self) -> str:
        return f"<Ledger: {self.headline}>"

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    @property
    def misses(self) -> tuple[Row, ...]:
        """All rows outside their bands, known or not, the farthest first."""
        return tuple(sorted((row for row in self.rows if not row.inside), key=lambda row: -abs(row.error)))

    @property
    def failures(self) -> tuple[Row | Group, ...]:
        """Rows outside their bands and groups that miss their goal, if no reason is recorded or the miss has grown
        since."""
        goals = [group for group in self.groups if group.verdict == "miss"]
        return (*(row for row in self.rows if row.verdict == "miss"), *goals)

    @property
    def groups(self) -> tuple[Group, ...]:
        """A summary of each group and quantity, in the order of the rows."""
        return groups_of(self.rows, self.sources)

    @property
    def classes(self) -> tuple[Tally, ...]:
        """Tallies of rows by class of evidence, the strongest evidence first."""
        return by_class(self.rows)

    @property
    def distances(self) -> tuple[Tally, ...]:
        """Tallies of measured rows by how new they are to the lab's fitted constants (see ``Distance``): rows from new
        clusters first."""
        return by_distance(self.rows)

    @property
    def counted(self) -> tuple[Tally, ...]:
        """Tallies of the headline's rows, one for each class of distance, source and quantity. In each class, the
        tally with the smallest share of rows inside their bands comes first."""
        return counted_by_source(self.rows, self.sources)

    @property
    def omitted(self) -> tuple[tuple[str, Omission], ...]:
        """Published numbers that we do not predict: the source's name, and what is left out and why."""
        return tuple((source.name, omission) for source in self.sources for omission in source.omitted)

    @property
    def headline(self) -> str:
        """How well measured numbers are predicted, by their distance from what constants were fitted on. Rows without a
        ``distance`` do not count."""
        if not self.distances:
            return "no measured number is predicted here"
        n = sum(each.n for each in self.distances)
        return f"{n} measured numbers. " + ". ".join(
            f"{each.name[:1].upper()}{each.name[1:]}: {each.words}" for each in self.distances
        )

    @property
    def sentence(self) -> str:
        """How many rows of all classes are inside their bands, and which row is farthest outside."""
        if not self.rows:
            return "no rows"
        inside = sum(row.inside for row in self.rows)
        line = f"{inside} of {len(self.rows)} rows inside their bands"
        if self.misses:
            worst = self.misses[0]
            line += f"; worst outside: {worst.source}, {worst.setting}, {worst.quantity}, {signed_share(worst.error)}"
        return line + ("; stopped before all were predicted" if self.stopped else "")

    def to_frame(self) -> pd.DataFrame:
        """Return one row per published row: source, group, setting, quantity, unit, class, distance, measured,
        published, predicted, low, high, ratio, theirs, band, verdict, assumptions, fitted, note and cite."""
        return pd.DataFrame([row.to_dict() for row in self.rows])

    def _repr_html_(self) -> str:
        return as_html(report_of(self, rows=True))

    def to_dict(self) -> dict[str, Any]:
        """Return the ledger as plain values for JSON: headline, sentence, tallies, omissions, sources, groups and
        rows."""
        return {
            "headline": self.headline,
            "sentence": self.sentence,
            "classes": [each.to_dict() for each in self.classes],
            "distances": [each.to_dict() for each in self.distances],
            "counted": [each.to_dict() for each in self.counted],
            "omitted": [{"source": name} | asdict(omission) for name, omission in self.omitted],
            "rows_inside": sum(row.inside for row in self.rows),
            "sources": [
                {"name": each.name, "title": each.title, "cite": each.cite, "licence": each.licence, "url": each.url}
                for each in self.sources
            ],
            "groups": [each.to_dict() for each in self.groups],
            "rows": plain_rows(self.to_frame()),
        }

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write a page (.html), a table of groups (.md), a table of rows (.csv), or everything (.json).

        Raises FileError for another ending.
        """
        match check_ending(path):
            case ".html":
                text = as_page("Published numbers and our predictions", report_of(self, rows=True))
            case ".md":
                text = as_markdown(report_of(self, rows=False))
            case ".csv":
                text = self.to_frame().to_csv(index=False)
            case _:
                text = json.dumps(self.to_dict(), indent=1) + "\n"
        return write_text(path, text)


def check_ending(path: str | os.PathLike[str]) -> str:
    """Return the ending of a file that a ledger can be written to. Raises FileError for another ending."""
    return ending_of(path, ENDINGS)


def reproduce(
    names: Iterable[str | Source] = (),
    *,
    own: str | os.PathLike[str] | None = None,
    progress: Callable[[Row], None] | None = None,
) -> Ledger:
    """Return the ledger of these sources, given by name or as Sources. By default, all sources are predicted, or only
    your file if ``own`` is given.

    ``progress`` is called with every row. Ctrl-C keeps the rows so far. Raises UnknownName for an unknown source, and
    FileError for a file whose row cannot be read or predicted.
    """
    if isinstance(names, str | Source) or not isinstance(names, Iterable):
        raise LabError(f"sources are {shortened(names)}; wanted names or Sources in a list")
    # With a file of your own, other sources are predicted only if named.
    given = list(names) or ([] if own is not None else list(sources))
    wanted = [_source(name) for name in given]
    # Twice named is still one source.
    wanted = list(dict.fromkeys(wanted))
    if own is not None:
        wanted.append(own_source(own))
    rows: list[Row] = []
    stopped = False
    try:
        for source in wanted:
            for row in source:
                rows.append(row)
                if progress is not None:
                    progress(row)
    except KeyboardInterrupt:
        # Nothing is predicted yet, so there is nothing to keep.
        if not rows:
            raise
        stopped = True
    return Ledger(tuple(rows), tuple(wanted), stopped)


def _source(name: object) -> Source:
    """Return a source, given by name or as a Source. Raises LabError for anything else, such as a list of names."""
    if isinstance(name, Source):
        return name
    if not isinstance(name, str):
        raise LabError(f"source is {shortened(name)}; wanted a name or a Source each, such as 'sailor', 'simumax'")
    return sources[name]


def own_source(path: str | os.PathLike[str]) -> Source:
    """Return your own file as a source. It is read at once, and predicted when its rows are requested.

    It holds rows in the format of ``own``, or records in Sailor's format like the packaged ones. Raises FileError if
    the file cannot be read.
    """
    if not isinstance(path, str | os.PathLike):
        raise FileError(f"own is {shortened(path)}; wanted a path of a CSV or JSON file")
    name, data = Path(path).name, own_files.document_of(path)
    rows: Callable[[], Iterator[Row]]
    if sailor_records.is_document(data):
        rows = partial(sailor.rows_of, sailor_records.document_of(data, name))
    else:
        rows = partial(predict_rows, own_files.read_rows(path))
    return Source(name=name, title="Your own file", cite=name, licence="", rows=rows)


GROUPS = ("published", "class", "rows inside", "mean error", "theirs", "farthest", "band")
COUNTS = ("measured", "rows inside", "median error", "within 20 %", "source's own noise", "in the 90 % interval")
ROWS = ("setting", "published", "ours", "ratio", "theirs", "band")


def report_of(ledger: Ledger, *, rows: bool) -> Iterator[Part]:
    """Yield the parts of a report: the headline, the tallies, and the groups, with misses in bold. Then misses,
    omissions and sources.

    With ``rows``, the rows of each group come after the groups.
    """
    yield f"**{ledger.headline}.**"
    if ledger.distances:
        yield _tallies("distance from what constants were fitted on", ledger.distances)
        yield "The same rows by source, the worst first:"
        yield _tallies("published", ledger.counted)
    yield "All rows by class of evidence:"
    yield _tallies("class of evidence", ledger.classes)
    by_group = [
        (group, [row for row in ledger.rows if (row.source, row.group, row.quantity) == group.key])
        for group in ledger.groups
    ]
    yield Table(GROUPS, [_group(group, own) for group, own in by_group])
    if rows:
        yield from (_rows(group, own) for group, own in by_group)
    yield f"Over all classes, {ledger.sentence}.".replace("..", ".")
    if ledger.misses:
        yield ReportSection("Misses, the farthest first", [_miss(row) for row in ledger.misses], opened=True)
    if ledger.omitted:
        n = sum(each.n for _, each in ledger.omitted)
        reasons = [f"{name}: {each.what} ({each.n}): {each.reason}." for name, each in ledger.omitted]
        yield ReportSection(f"{n} published rows are left out", reasons)
    yield ReportSection("Sources", [f"{each.title}: {each.cite}. Licence: {each.licence}." for each in ledger.sources])


def _tallies(head: str, tallies: Iterable[Tally]) -> Table:
    lines = [
        (
            each.name,
            str(each.measured),
            _marked(f"{each.inside} of {each.n}", each.inside == each.n),
            format_share(each.median_error),
            format_share(each.within_fifth / each.n, 0),
            f"{100 * each.noise:.2g} %" if each.noise else "",
            "" if each.coverage is None else format_share(each.coverage, 0),
        )
        for each in tallies
    ]
    return Table((head, *COUNTS), lines)


def _group(group: Group, rows: Sequence[Row]) -> tuple[str, ...]:
    farthest = max(rows, key=lambda row: abs(row.error))
    goal = "" if group.goal is None else f" (goal {format_share(group.goal)})"
    return (
        f"{group.source}: {group.group}, {group.quantity}",
        ", ".join(group.classes),
        _marked(f"{group.inside} of {group.n}", group.inside == group.n),
        _marked(f"{format_share(group.mean_error)}{goal}", group.reached),
        "" if group.their_mean_error is None else format_share(group.their_mean_error),
        f"{farthest.ratio:.3f}",
        ", ".join(dict.fromkeys(str(row.band) for row in rows)),
    )


def _rows(group: Group, rows: Sequence[Row]) -> ReportSection:
    """Return the rows of a group, with the assumptions that all share and the assumptions of single rows."""
    words = [_words(row) for row in rows]
    # What all rows assume is stated once, above the table.
    shared = [each for each in words[0] if all(each in others for others in words)]
    lines = [
        (
            row.setting,
            f"{number(row.published)} {row.unit}",
            number(row.predicted),
            _marked(f"{row.ratio:.3f}", row.inside),
            "" if row.theirs is None else f"{number(row.theirs)} ({row.theirs / row.published:.3f})",
            str(row.band),
        )
        for row in rows
    ]
    own = [(row, "; ".join(each for each in said if each not in shared)) for row, said in zip(rows, words, strict=True)]
    notes = [f"{row.setting}: {said}." for row, said in own if said]
    missed = group.inside < group.n or not group.reached
    title = f"{group.source}: {group.group}, {group.quantity}, {group.inside} of {group.n} inside"
    # Only groups with a miss are open, because the page is long.
    return ReportSection(title, [f"{'; '.join(shared)}.", Table(ROWS, lines), *notes], opened=missed)


def _words(row: Row) -> list[str]:
    """Return texts about a row: its class, what was assumed and fitted, and its note."""
    kind = row.evidence.words if row.measured else f"{row.evidence.words}, not a measurement"
    return [kind, *row.assumptions, *filter(None, [row.fitted, row.note])]


def _miss(row: Row) -> str:
    why = row.known_miss.reason if row.known_miss is not None else row.note or "no reason on record"
    return f"{row.source}, {row.setting}, {row.quantity} {signed_share(row.error)}: {why}"


def _marked(text: str, good: bool) -> str:
    return text if good else f"**{text}**"


def number(value: float) -> str:
    """Format a number with four figures and thousands separators, without an exponent."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
