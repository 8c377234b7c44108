"""The ledger as Markdown: a line for each group, and a list of what is missed, with its reason."""

from collections.abc import Iterable, Sequence

from dtfm_lab.published.group import Group
from dtfm_lab.published.row import Row
from dtfm_lab.published.sources import Source

HEAD = "| published | rows inside | mean error | theirs | farthest | band |\n| --- | --- | --- | --- | --- | --- |"


def summary(sentence: str, rows: Sequence[Row], groups: Iterable[Group], sources: Iterable[Source]) -> str:
    """A table of the groups, in bold what is missed, then the misses and the sources."""
    lines = [HEAD]
    for group in groups:
        own = [row for row in rows if (row.source, row.group, row.quantity) == group.key]
        farthest = max(own, key=lambda row: abs(row.error))
        inside = f"{group.inside} of {group.n}"
        error = f"{group.mean_error:.1%}" + (f" (goal {group.goal:.1%})" if group.goal is not None else "")
        cells = [
            f"{group.source}: {group.group}, {group.quantity}",
            inside if group.inside == group.n else f"**{inside}**",
            error if group.reached else f"**{error}**",
            "" if group.their_mean_error is None else f"{group.their_mean_error:.1%}",
            f"{farthest.ratio:.3f}",
            str(farthest.band),
        ]
        lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    misses = sorted((row for row in rows if not row.inside), key=lambda row: -abs(row.error))
    lines += ["", f"{sentence}.".replace("..", ".")]
    lines += ["", "Misses, the farthest first:", ""] if misses else []
    for row in misses:
        why = row.known_miss.reason if row.known_miss is not None else row.note or "no reason on record"
        lines.append(f"- {row.source}, {row.setting}, {row.quantity} {row.error:+.1%}: {why}")
    lines += ["", "Sources:", ""]
    lines += [f"- {source.title}: {source.cite}. Licence: {source.licence}." for source in sources]
    return "\n".join(lines) + "\n"
