"""A Gantt chart as SVG that stands alone: light, of bounded size whatever the number of bars."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from textwrap import wrap
from typing import Any, NamedTuple

import numpy as np

from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.figures.palette import CRIMSON, ink_on
from dtfm_lab.widgets.views.gantt.columns import Bars, CriticalPath

WIDTH = 1000
LABELS = 190
RIGHT = 16
HEAD = 62
ENDS = 18
FOOT = 48
LETTERS = 150
"""of a line of the caption"""
FONT = "font-family=\"system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif\""
ROW_PX = {16: 22, 32: 17, 64: 12, 10**9: 7}
"""height of a row, by how many there are at most"""
CLOSEST = (0.05, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 64.0, 1e9)
"""pixels between neighbours of one colour that are drawn as one, coarser until there are few enough"""
SMALLEST = 0.4
NUMBERED = 13.0
MOST_NUMBERS = 600
"""bars that carry numbers and outlines"""
LEVELS = 4
"""of opacity"""
MOST_PATH = 1_500
INK, SOFT, RULE, STRIPE = "#212121", "#616161", "#d5d5d5", "#f4f4f4"


class Drawn(NamedTuple):
    """What has pixels; with ``lower`` each row has two halves."""

    upper: Bars
    lower: Bars | None
    path: CriticalPath | None
    devices_per_pipeline: int


class Place(NamedTuple):
    """Where times and rows are."""

    slot: IntArray
    """(rows,) from the top; -1 of rows that are left out"""
    row_px: float
    per_second: float
    top: float

    @property
    def bottom(self) -> float:
        return self.top + self.row_px * (int(self.slot.max(initial=-1)) + 1)

    def x(self, seconds: FloatArray) -> FloatArray:
        at: FloatArray = LABELS + np.asarray(seconds, dtype=np.float64) * self.per_second
        return at

    def y(self, row: IntArray) -> FloatArray:
        at: FloatArray = self.top + self.slot[row] * self.row_px
        return at


def chart_svg(
    drawn: Drawn,
    *,
    labels: Sequence[str],
    kinds: Sequence[dict[str, Any]],
    order: Sequence[int],
    title: str,
    caption: str,
    ends: Sequence[dict[str, Any]],
    lower_name: str,
    most_bars: int,
) -> str:
    """The whole iteration, at most ``most_bars`` rectangles; neighbours of one colour are merged as far as it takes."""
    sides = [drawn.upper] if drawn.lower is None else [drawn.upper, drawn.lower]
    n_rows = max([len(labels), *(int(bars.row.max(initial=0)) + 1 for bars in sides)])
    slot = np.full(n_rows, -1)
    slot[list(order)] = np.arange(len(order))
    until_s = max([float(bars.end.max(initial=0.0)) for bars in sides]) or 1.0
    row_px = next(px for most, px in ROW_PX.items() if len(order) <= most)
    place = Place(slot, row_px, (WIDTH - LABELS - RIGHT) / until_s, HEAD + (ENDS if ends else 0))
    body = [*_rows(place, labels, order), *_axis(place, until_s)]
    for half, bars in enumerate(sides):
        body += _bars(bars, half, len(sides), place, kinds, drawn.devices_per_pipeline, most_bars // len(sides))
    if drawn.path is not None and len(drawn.path.row):
        body.append(_path(drawn.path, place, len(sides)))
    body += _ends(ends, place)
    used = np.unique(np.concatenate([bars.kind for bars in sides]))
    below = f"lower half: {lower_name}" if len(sides) > 1 else ""
    lines = wrap(caption, LETTERS)
    head = [
        f'<text x="10" y="22" font-size="15" font-weight="600" fill="{INK}">{escape(title)}</text>',
        f'<text x="{WIDTH - RIGHT}" y="22" text-anchor="end" fill="{SOFT}">{escape(below)}</text>',
        *_legend([kinds[k] for k in used if k < len(kinds)]),
        *(
            f'<text x="10" y="{place.bottom + 40 + 15 * number:.0f}" fill="{SOFT}">{escape(line)}</text>'
            for number, line in enumerate(lines)
        ),
    ]
    height = place.bottom + FOOT + 15 * max(0, len(lines) - 1)
    told = escape(f"{title}. {caption}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:.0f}" '
        f'viewBox="0 0 {WIDTH} {height:.0f}" {FONT} font-size="11" role="img" aria-label="{told}">'
        f'<rect width="100%" height="100%" fill="#fff"/>'
        f"{''.join(head + body)}</svg>"
    )


def _rows(place: Place, labels: Sequence[str], order: Sequence[int]) -> list[str]:
    every = max(1, round(11 / place.row_px))
    out = []
    for slot, row in enumerate(order):
        y = place.top + slot * place.row_px
        if slot % 2:
            out.append(f'<path fill="{STRIPE}" d="M{LABELS} {y:g}H{WIDTH - RIGHT}v{place.row_px:g}H{LABELS}z"/>')
        if slot % every == 0:
            label = labels[row] if row < len(labels) else f"row {row}"
            label = label if len(label) <= 28 else f"{label[:27]}…"
            middle = y + place.row_px / 2 + 3.5
            out.append(
                f'<text x="{LABELS - 7}" y="{middle:g}" text-anchor="end" fill="{INK}"'
                f' font-size="{min(11, place.row_px + 1):g}">{escape(label)}</text>'
            )
    return out


def _axis(place: Place, until_s: float) -> list[str]:
    unit, per_second = ("s", 1.0) if until_s >= 1 else ("ms", 1e3) if until_s >= 1e-3 else ("µs", 1e6)
    rough = until_s * per_second / 8
    power = 10.0 ** np.floor(np.log10(rough))
    step = power * next(lead for lead in (1, 2, 5, 10) if lead >= rough / power - 1e-9)
    out = []
    for number in range(int(until_s * per_second / step + 1e-9) + 1):
        x = float(place.x(np.float64(number * step / per_second)))
        out.append(f'<path stroke="{RULE}" d="M{x:.1f} {place.top:g}V{place.bottom + 4:g}"/>')
        text = f"{number * step:,.10g} {unit}"
        out.append(f'<text x="{x:.1f}" y="{place.bottom + 16:g}" text-anchor="middle" fill="{SOFT}">{text}</text>')
    frame = f"M{LABELS} {place.top:g}H{WIDTH - RIGHT}V{place.bottom:g}H{LABELS}z"
    return [*out, f'<path fill="none" stroke="{RULE}" d="{frame}"/>']


def _bars(
    bars: Bars,
    half: int,
    n_halves: int,
    place: Place,
    kinds: Sequence[dict[str, Any]],
    devices_per_pipeline: int,
    most: int,
) -> list[str]:
    """A path for each colour, and micro-batch numbers where there are few enough."""
    shade = bars.stage // devices_per_pipeline if devices_per_pipeline else np.zeros_like(bars.stage)
    kept = (bars.kind < len(kinds)) & (place.slot[bars.row] >= 0)
    row, kind, shade, microbatch = (c[kept].astype(np.int64) for c in (bars.row, bars.kind, shade, bars.microbatch))
    left, right = place.x(bars.start[kept]), place.x(bars.end[kept])
    for closest in CLOSEST:
        runs = _merged(row, kind, shade, left, right, closest)
        if len(runs.first) <= most:
            break
    gap = 2.0 if place.row_px > 10 else 0.6
    height = (place.row_px - gap) / n_halves - (0.6 if n_halves > 1 else 0.0)
    top = place.y(row[runs.first]) + gap / 2 + half * (place.row_px - gap) / n_halves
    width = np.maximum(runs.right - runs.left - np.where(runs.right - runs.left > 6, 1.0, 0.0), SMALLEST)
    few = len(runs.first) <= MOST_NUMBERS
    # what stands for several shows through as far as it was idle
    level = np.where(runs.n > 1, np.clip(np.ceil(LEVELS * runs.busy / width), 1, LEVELS), LEVELS).astype(np.int64)
    codes = (kind[runs.first] * 64 + np.minimum(shade[runs.first], 63)) * (LEVELS + 1) + level
    out = []
    for code in np.unique(codes):
        color_code, opacity = divmod(int(code), LEVELS + 1)
        entry = kinds[color_code // 64]
        shades = entry.get("shades") or [entry.get("color") or "#8a8a8a"]
        color = shades[min(color_code % 64, len(shades) - 1)]
        edge = (INK if half else entry.get("edge")) if few else ""
        faint = f' opacity="{opacity / LEVELS:g}"' if opacity < LEVELS else ""
        mine = np.flatnonzero(codes == code)
        boxes = [(round(runs.left[i], 1), round(top[i], 1), round(width[i], 1)) for i in mine]
        if edge:
            d = "".join(f"M{x:g} {y:g}h{w:g}v{height:.3g}h-{w:g}z" for x, y, w in boxes)
            out.append(f'<path fill="{color}" stroke="{edge}" stroke-width="0.6"{faint} d="{d}"/>')
        else:
            out.append(f'<path stroke="{color}" stroke-width="{height:.3g}"{faint} d="{_strokes(boxes, height / 2)}"/>')
        if few and height >= 8:
            numbered = mine[(width[mine] >= NUMBERED) & (runs.n[mine] == 1) & (microbatch[runs.first[mine]] >= 0)]
            written = "".join(
                f'<text x="{runs.left[i] + width[i] / 2:.1f}" y="{top[i] + height / 2 + 3.2:.1f}">'
                f"{microbatch[runs.first[i]]}</text>"
                for i in numbered
            )
            size = min(10.0, height)
            out.append(f'<g text-anchor="middle" font-size="{size:.3g}" fill="{ink_on(color)}">{written}</g>')
    return out


def _strokes(boxes: Sequence[tuple[float, float, float]], down: float) -> str:
    """Boxes of one height as one thick line with gaps, which takes a third of the letters."""
    parts, at = [], (-1.0, -1.0)
    for x, y, w in boxes:
        parts.append(f"m{x - at[0]:.4g} 0h{w:g}" if y == at[1] else f"M{x:g} {y + down:g}h{w:g}")
        at = (round(x + w, 1), y)
    return "".join(parts)


class Runs(NamedTuple):
    """Bars of one row and colour that are drawn as one, each entry a run."""

    first: IntArray
    """a bar of it"""
    n: IntArray
    left: FloatArray
    right: FloatArray
    busy: FloatArray
    """pixels of the bars themselves"""


def _merged(
    row: IntArray, kind: IntArray, shade: IntArray, left: FloatArray, right: FloatArray, closest: float
) -> Runs:
    """Neighbours at most ``closest`` pixels apart are one where both are narrow; from 8 pixels on, any are."""
    if not len(row):
        return Runs(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), left, right, right)
    group = (row * 256 + kind) * 64 + np.minimum(shade, 63)
    order = np.lexsort((left, group))
    group, a, b = group[order], left[order], right[order]
    lane = np.cumsum(np.diff(group, prepend=group[0]) != 0) * 4.0 * WIDTH  # apart, so that one sweep serves all
    reach = np.maximum.accumulate(b + lane)
    narrow = (b - a) < max(3.0, closest)
    together = (a + lane)[1:] <= reach[:-1] + closest
    together &= (narrow[1:] & narrow[:-1]) | (closest >= 8)
    begins = np.flatnonzero(np.append(True, ~together | (np.diff(group) != 0)))
    n = np.diff(np.append(begins, len(order)))
    return Runs(order[begins], n, a[begins], np.maximum.reduceat(b, begins), np.add.reduceat(b - a, begins))


def _path(path: CriticalPath, place: Place, n_halves: int) -> str:
    """A line along the upper halves of rows and from row to row."""
    every = max(1, len(path.row) // MOST_PATH)
    row = path.row[::every].astype(np.int64)
    seen = place.slot[row] >= 0
    y = place.y(row[seen]) + place.row_px / 2 / n_halves
    a, b = place.x(path.start[::every][seen]), place.x(path.end[::every][seen])
    points = " ".join(f"{x0:.1f},{at:.1f} {x1:.1f},{at:.1f}" for x0, x1, at in zip(a, b, y, strict=True))
    return f'<polyline fill="none" stroke="{CRIMSON}" stroke-width="1.5" points="{points}"/>'


def _ends(ends: Sequence[dict[str, Any]], place: Place) -> list[str]:
    out, room = [], float(WIDTH - 4)
    for end in sorted(ends, key=lambda end: -end["at"]):
        x = float(place.x(np.float64(end["at"])))
        wide = 6.7 * len(end["text"])
        right = min(room, x + wide / 2)
        dashes = ' stroke-dasharray="4 3"' if end.get("dashed") else ""
        out.append(f'<path stroke="{INK}" stroke-width="1.2"{dashes} d="M{x:.1f} {place.top - 3:g}V{place.bottom:g}"/>')
        out.append(
            f'<text x="{right:.1f}" y="{place.top - 7:g}" text-anchor="end" fill="{INK}">{escape(end["text"])}</text>'
        )
        room = right - wide - 10
    return out


def _legend(kinds: Sequence[dict[str, Any]]) -> list[str]:
    out, x = [], 10.0
    for entry in kinds:
        out.append(f'<rect x="{x:.0f}" y="35" width="10" height="10" fill="{entry.get("color") or "#8a8a8a"}"/>')
        out.append(f'<text x="{x + 14:.0f}" y="44" fill="{SOFT}">{escape(entry["name"])}</text>')
        x += 30 + 6.4 * len(entry["name"])
    return out
