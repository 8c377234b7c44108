"""The ledger as Markdown: rows by class, the hard ones by source, groups, what is missed and left out, with reasons."""

from __future__ import annotations

from collections.abc import Iterable

from dtfm_lab.published.tally import Report, Tally

GROUPS = ("published", "class", "rows inside", "mean error", "theirs", "farthest", "band")
COUNTS = ("measured", "rows inside", "median error", "within 20 %", "source's own noise", "in the 90 % interval")


def summary(ledger: Report) -> str:
    """The headline, rows by class and the hard ones by source, in bold what is missed; then groups, misses, sources."""
    lines = [f"**{ledger.headline}.**", "", *_counted("class of evidence", ledger.classes), ""]
    lines += (
        ["The rows of the headline, by source:", "", *_counted("published", ledger.hard), ""] if ledger.hard else []
    )
    lines += [_line(GROUPS), _line("---" for _ in GROUPS)]
    for group in ledger.groups:
        own = [row for row in ledger.rows if (row.source, row.group, row.quantity) == group.key]
        farthest = max(own, key=lambda row: abs(row.error))
        inside = f"{group.inside} of {group.n}"
        error = f"{group.mean_error:.1%}" + (f" (goal {group.goal:.1%})" if group.goal is not None else "")
        cells = [
            f"{group.source}: {group.group}, {group.quantity}",
            ", ".join(group.classes),
            inside if group.inside == group.n else f"**{inside}**",
            error if group.reached else f"**{error}**",
            "" if group.their_mean_error is None else f"{group.their_mean_error:.1%}",
            f"{farthest.ratio:.3f}",
            ", ".join(dict.fromkeys(str(row.band) for row in own)),
        ]
        lines.append(_line(cells))
    lines += ["", f"Of all classes {ledger.sentence}.".replace("..", ".")]
    lines += ["", "Misses, the farthest first:", ""] if ledger.misses else []
    for row in ledger.misses:
        why = row.known_miss.reason if row.known_miss is not None else row.note or "no reason on record"
        lines.append(f"- {row.source}, {row.setting}, {row.quantity} {row.error:+.1%}: {why}")
    lines += ["", "Published, and left out:", ""] if ledger.omitted else []
    lines += [f"- {name}: {each.what} ({each.n}): {each.reason}." for name, each in ledger.omitted]
    lines += ["", "Sources:", ""]
    lines += [f"- {source.title}: {source.cite}. Licence: {source.licence}." for source in ledger.sources]
    return "\n".join(lines) + "\n"


def _counted(head: str, tallies: Iterable[Tally]) -> list[str]:
    lines = [_line((head, *COUNTS)), _line("---" for _ in (head, *COUNTS))]
    for each in tallies:
        inside = f"{each.inside} of {each.n}"
        cells = [
            each.name,
            str(each.measured),
            inside if each.inside == each.n else f"**{inside}**",
            f"{each.median_error:.1%}",
            f"{each.within_fifth / each.n:.0%}",
            f"{100 * each.noise:.2g} %" if each.noise else "",
            "" if each.coverage is None else f"{each.coverage:.0%}",
        ]
        lines.append(_line(cells))
    return lines


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"
