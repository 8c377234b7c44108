"""The ledger as a report: rows by class, the hard ones by source, groups, what is missed and left out, with reasons."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from dtfm_lab.domain.report import Part, Section, Table
from dtfm_lab.published.row import Row
from dtfm_lab.published.tally import Group, Tally

if TYPE_CHECKING:
    from dtfm_lab.published.ledger import Ledger

GROUPS = ("published", "class", "rows inside", "mean error", "theirs", "farthest", "band")
COUNTS = ("measured", "rows inside", "median error", "within 20 %", "source's own noise", "in the 90 % interval")
ROWS = ("setting", "published", "ours", "ratio", "theirs", "band")


def report_of(ledger: Ledger, *, rows: bool) -> Iterator[Part]:
    """The headline, tallies and groups, what is missed in bold; then misses, omissions and sources.

    With ``rows`` those of every group, too.
    """
    yield f"**{ledger.headline}.**"
    yield _tallies("class of evidence", ledger.classes)
    if ledger.hard:
        yield "The rows of the headline, by source:"
        yield _tallies("published", ledger.hard)
    by_group = [
        (group, [row for row in ledger.rows if (row.source, row.group, row.quantity) == group.key])
        for group in ledger.groups
    ]
    yield Table(GROUPS, [_group(group, own) for group, own in by_group])
    if rows:
        yield from (_rows(group, own) for group, own in by_group)
    yield f"Of all classes {ledger.sentence}.".replace("..", ".")
    if ledger.misses:
        yield Section("Misses, the farthest first", [_miss(row) for row in ledger.misses], opened=True)
    if ledger.omitted:
        n = sum(each.n for _, each in ledger.omitted)
        reasons = [f"{name}: {each.what} ({each.n}): {each.reason}." for name, each in ledger.omitted]
        yield Section(f"{n} published rows are left out", reasons)
    yield Section("Sources", [f"{each.title}: {each.cite}. Licence: {each.licence}." for each in ledger.sources])


def _tallies(head: str, tallies: Iterable[Tally]) -> Table:
    lines = [
        (
            each.name,
            str(each.measured),
            _marked(f"{each.inside} of {each.n}", each.inside == each.n),
            f"{each.median_error:.1%}",
            f"{each.within_fifth / each.n:.0%}",
            f"{100 * each.noise:.2g} %" if each.noise else "",
            "" if each.coverage is None else f"{each.coverage:.0%}",
        )
        for each in tallies
    ]
    return Table((head, *COUNTS), lines)


def _group(group: Group, rows: Sequence[Row]) -> tuple[str, ...]:
    farthest = max(rows, key=lambda row: abs(row.error))
    goal = "" if group.goal is None else f" (goal {group.goal:.1%})"
    return (
        f"{group.source}: {group.group}, {group.quantity}",
        ", ".join(group.classes),
        _marked(f"{group.inside} of {group.n}", group.inside == group.n),
        _marked(f"{group.mean_error:.1%}{goal}", group.reached),
        "" if group.their_mean_error is None else f"{group.their_mean_error:.1%}",
        f"{farthest.ratio:.3f}",
        ", ".join(dict.fromkeys(str(row.band) for row in rows)),
    )


def _rows(group: Group, rows: Sequence[Row]) -> Section:
    """The rows of a group, and what all of them and single ones assume."""
    words = [_words(row) for row in rows]
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
    told = [f"{row.setting}: {said}." for row, said in own if said]
    missed = group.inside < group.n or not group.reached
    title = f"{group.source}: {group.group}, {group.quantity}, {group.inside} of {group.n} inside"
    return Section(title, [f"{'; '.join(shared)}.", Table(ROWS, lines), *told], opened=missed)


def _words(row: Row) -> list[str]:
    """The class, what was assumed and fitted, and the note."""
    kind = row.evidence.words if row.measured else f"{row.evidence.words}, not a measurement"
    return [kind, *row.assumptions, *filter(None, [row.fitted, row.note])]


def _miss(row: Row) -> str:
    why = row.known_miss.reason if row.known_miss is not None else row.note or "no reason on record"
    return f"{row.source}, {row.setting}, {row.quantity} {row.error:+.1%}: {why}"


def _marked(text: str, good: bool) -> str:
    return text if good else f"**{text}**"


def number(value: float) -> str:
    """Four figures, thousands apart, without an exponent."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
