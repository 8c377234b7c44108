"""The table of schedules as SVG that stands alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from dtfm_lab.domain.units import format_s
from dtfm_lab.figures.palette import SKY

WIDTH, LINE = 860, 24
COLUMNS = (14, 190, 420, 510, 800)
HEAD = ("Schedule", "Iteration", "Bubble", "Worst memory", "Fits")
LONGEST = 200
"""pixels of the slowest schedule's bar"""


def table_svg(rows: Sequence[Mapping[str, Any]], chosen: str, title: str) -> str:
    """A line a schedule, its iteration as a bar; the chosen one is bold."""
    slowest_s = max((row["iteration_s"] for row in rows if "iteration_s" in row), default=0.0)
    lines = [f'<text x="14" y="22" font-size="14" font-weight="600">{escape(title)}</text>']
    lines += [f'<text x="{x}" y="46" fill="#616161">{text}</text>' for x, text in zip(COLUMNS, HEAD, strict=True)]
    for number, row in enumerate(rows):
        y = 70 + number * LINE
        weight = ' font-weight="600"' if row["name"] == chosen else ""
        lines.append(f'<path stroke="#e0e0e0" d="M10 {y - 16}H{WIDTH - 10}"/>')
        lines.append(f'<text x="{COLUMNS[0]}" y="{y}"{weight}>{escape(row["name"])}</text>')
        if "iteration_s" not in row:
            said = escape(str(row.get("problem", "…")))[:110]
            lines.append(f'<text x="{COLUMNS[1]}" y="{y}" fill="#616161">{said}</text>')
            continue
        wide = LONGEST * row["iteration_s"] / slowest_s if slowest_s else 0.0
        lines.append(
            f'<rect x="{COLUMNS[1] - 4}" y="{y - 12}" width="{wide:.1f}" height="16" fill="{SKY}" opacity="0.45"/>'
        )
        cells = (format_s(row["iteration_s"]), f"{row['bubble']:.1%}", row["memory"], "yes" if row["fits"] else "no")
        lines += [f'<text x="{x}" y="{y}">{escape(cell)}</text>' for x, cell in zip(COLUMNS[1:], cells, strict=True)]
    height = 66 + LINE * len(rows)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        f'font-family="system-ui, \'DejaVu Sans\', sans-serif" font-size="12" fill="#212121" role="img" '
        f'aria-label="{escape(title)}"><rect width="100%" height="100%" fill="#fff"/>{"".join(lines)}</svg>'
    )
