"""A table of residuals as a picture that stands alone: bars left and right of zero."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from dtfm_lab.domain.units import format_s
from dtfm_lab.figures.palette import BLUE, ORANGE

MOST_ROWS = 24
ROW, TOP, LEFT, WIDTH, RIGHT = 20, 46, 210, 680, 500
LETTERS = 32


def picture(table: Mapping[str, Any] | None) -> str:
    """The rows with the largest errors of one of ``residuals.tables``; empty where there are none."""
    if table is None or not table["rows"]:
        return ""
    rows = table["rows"][:MOST_ROWS]
    errors = [row["error_s"] for row in rows]
    low, high = min(0.0, *errors), max(0.0, *errors)
    span = (high - low) or 1.0

    def x(error_s: float) -> float:
        return float(LEFT + (error_s - low) / span * (RIGHT - LEFT))

    height = TOP + ROW * len(rows) + 10
    more = f", largest {len(rows)} of {table['count']}" if len(rows) < table["count"] else ""
    parts = [
        f'<text x="8" y="17" font-weight="600">{escape(table["name"])}: predicted less measured{more}</text>',
        f'<text x="{x(0):.1f}" y="{TOP - 8}" text-anchor="middle">0</text>',
        f'<path d="M{x(0):.1f} {TOP - 4}V{height - 8}" stroke="#777"/>',
    ]
    for at, row in enumerate(rows):
        error_s, y = row["error_s"], TOP + at * ROW
        begin, end = sorted((x(0), x(error_s)))
        told = format_s(error_s) + ("" if row["relative"] is None else f" ({row['relative']:+.1%})")
        parts.append(
            f'<text x="{LEFT - 10}" y="{y + 14}" text-anchor="end">{escape(_short(row["label"]))}</text>'
            f'<rect x="{begin:.1f}" y="{y + 4}" width="{max(1.0, end - begin):.1f}" height="12" '
            f'fill="{ORANGE if error_s < 0 else BLUE}"/>'
            f'<text x="{RIGHT + 10}" y="{y + 14}">{"+" if error_s > 0 else ""}{escape(told)}</text>'
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'font-family="system-ui, sans-serif" font-size="12" fill="#333" role="img" '
        f'aria-label="{escape(table["name"])}, predicted less measured">'
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>{"".join(parts)}</svg>'
    )


def _short(label: str) -> str:
    return label if len(label) <= LETTERS else label[: LETTERS - 1] + "…"
