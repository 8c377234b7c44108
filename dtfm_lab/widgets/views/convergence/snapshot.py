"""The curves of a search, or of a race, as a picture that stands alone."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

import numpy as np

from dtfm_lab.domain.units import format_s
from dtfm_lab.figures.palette import CATEGORIES, LINE_GREY

WIDTH, HEIGHT = 760, 300
LEFT, TOP, RIGHT, BOTTOM = 64, 40, WIDTH - 150, HEIGHT - 44
MOST_CORNERS = 250
"""of one curve"""
FEW = 100
"""evaluations; a search this short is read on a linear axis"""
BEST, LOWER, MEDIAN = 2, 3, 4


def picture(points: Mapping[str, np.ndarray], against: str, title: str, clock: str) -> str:
    """Named series of rows, as of a ConvergenceView; at least one row in all."""
    column, across = (0, "placements priced") if against == "evaluations" else (1, clock)
    levels = np.concatenate([rows[:, BEST:].ravel() for rows in points.values()])
    levels = levels[np.isfinite(levels) & (levels > 0)]
    low_s, high_s = (float(levels.min()), float(levels.max())) if len(levels) else (0.0, 1.0)
    margin_s = 0.06 * (high_s - low_s) or 0.1 * high_s
    low_s, high_s = max(0.0, low_s - margin_s), high_s + margin_s
    last = max(float(rows[-1, column]) for rows in points.values())
    logarithmic = column == 0 and last > FEW

    def x(values: np.ndarray) -> np.ndarray:
        share = np.log(np.maximum(values, 1.0)) / np.log(last) if logarithmic else values / (last or 1.0)
        return LEFT + share * (RIGHT - LEFT)

    def y(costs_s: np.ndarray) -> np.ndarray:
        return BOTTOM - (costs_s - low_s) / (high_s - low_s) * (BOTTOM - TOP)

    drawn = [_grid(low_s, high_s)]
    ends: list[tuple[float, str, str]] = []
    for i, (name, rows) in enumerate(points.items()):
        color = CATEGORIES[i % len(CATEGORIES)]
        at = x(rows[:, column])
        drawn.append(_stair(at, y(rows[:, MEDIAN]), f'stroke="{color}" stroke-width="1" opacity=".6"'))
        drawn.append(_stair(at, y(rows[:, BEST]), f'stroke="{color}" stroke-width="2"'))
        ends.append((float(y(rows[-1:, BEST])[0]), f"{format_s(rows[-1, BEST])} {name}", color))
    bounded = [rows for rows in points.values() if rows[-1, LOWER] > 0]
    if bounded:
        rows = max(bounded, key=lambda one: one[-1, LOWER])
        drawn.append(_stair(x(rows[:, column]), y(rows[:, LOWER]), f'stroke="{LINE_GREY}" stroke-dasharray="6 4"'))
        ends.append((float(y(rows[-1:, LOWER])[0]), f"{format_s(rows[-1, LOWER])} lower bound", "#555"))
    scale = ", logarithmic" if logarithmic else ""
    told = "; ".join(text for _, text, _ in ends)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'font-family="system-ui, sans-serif" font-size="12" role="img" aria-label="{escape(f"{title}: {told}")}">'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>'
        f'<text x="{LEFT}" y="20" font-weight="600">{escape(title)}</text>{"".join(drawn)}{_labels(ends)}'
        f'<text x="{(LEFT + RIGHT) / 2}" y="{HEIGHT - 10}" text-anchor="middle" fill="#555">'
        f"{across}, to {last:,.6g}{scale}; thin: median of the population</text></svg>"
    )


def _grid(low_s: float, high_s: float) -> str:
    lines = []
    for cost_s in np.linspace(low_s, high_s, 5).tolist():
        at = BOTTOM - (cost_s - low_s) / (high_s - low_s) * (BOTTOM - TOP)
        lines.append(
            f'<path d="M{LEFT} {at:.1f}H{RIGHT}" stroke="#e0e0e0"/>'
            f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end" fill="#555">{format_s(cost_s)}</text>'
        )
    return "".join(lines)


def _stair(at: np.ndarray, levels: np.ndarray, look: str) -> str:
    """A value holds until the next one; rows without one are left out."""
    there = np.isfinite(levels)
    at, levels = at[there], levels[there]
    if not len(at):
        return ""
    if len(at) > MOST_CORNERS:
        kept = np.unique(np.linspace(0, len(at) - 1, MOST_CORNERS).astype(int))
        at, levels = at[kept], levels[kept]
    steps = "".join(f"H{right:.1f}V{level:.1f}" for right, level in zip(at[1:], levels[1:], strict=True))
    return f'<path d="M{at[0]:.1f} {levels[0]:.1f}{steps}" fill="none" {look}/>'


def _labels(ends: list[tuple[float, str, str]]) -> str:
    """At the right end, from top to bottom, none over another."""
    labels, before = [], -np.inf
    for level, text, color in sorted(ends):
        before = max(level + 4, before + 15)
        labels.append(f'<text x="{RIGHT + 8}" y="{before:.1f}" fill="{color}">{escape(text)}</text>')
    return "".join(labels)
