"""The groups' view as a picture that stands alone: light, one step, small whatever the size of the plan."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from html import escape
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from dtfm_lab.domain.units import FloatArray, format_s
from dtfm_lab.figures.maps.layout import cluster, open_ellipse
from dtfm_lab.figures.palette import BLUE, LINE_GREY, ink_on, stage_color

WIDTH, HEIGHT = 760, 420
MOST_IN_RING = 16
"""groups; of more, a matrix of their weights"""
CELLS = 48
"""a side of the matrix; larger ones are drawn by the means of blocks"""
SHADES = ("#fde725", "#7ad151", "#22a884", "#2a788e", "#414487", "#440154")
"""viridis: light is cheap, dark is dear"""
MARGIN = 44


class Place(NamedTuple):
    """The middle of a group's node and its outward direction, upwards negative."""

    x: float
    y: float
    dx: float
    dy: float


def picture(
    groups: Sequence[dict[str, Any]],
    weights: Sequence[Sequence[float]],
    network: dict[str, Any],
    idle: Sequence[str],
    step: str,
) -> str:
    """The traits of a GroupsView as SVG; ``step`` is one of a to e."""
    if step == "a" and network:
        drawn = _network(network)
    elif step in "de" and len(groups) > MOST_IN_RING:
        drawn = _matrix(groups, weights, step)
    else:
        drawn = _nodes(groups, weights, step if step != "a" else "b")
    title = f"step ({step}), {len(groups)} groups" + (f", {len(idle)} devices idle" if idle else "")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'font-family="system-ui, sans-serif" font-size="12" role="img" aria-label="{escape(title)}">'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>{drawn}</svg>'
    )


def _network(network: dict[str, Any]) -> str:
    """Devices where they stand, links faint by their strength, regions by name."""
    devices = network["devices"]
    at = np.array([(device["x"], device["y"]) for device in devices], dtype=float)
    grounds = [(r["x"], r["y"], *r["half"]) for r in network["regions"]]
    corners = np.vstack([at, *(np.array([(x - a, y - b), (x + a, y + b)]) for x, y, a, b in grounds)])
    low, spread = corners.min(axis=0), np.maximum(np.ptp(corners, axis=0), 1.0)
    scale = float(((np.array([WIDTH, HEIGHT]) - 2 * MARGIN) / spread).min())
    start = (np.array([WIDTH, HEIGHT]) - spread * scale) / 2 - low * scale

    def put(x: float, y: float) -> tuple[float, float]:
        return x * scale + float(start[0]), y * scale + float(start[1])

    parts = []
    for region, (x, y, a, b) in zip(network["regions"], grounds, strict=True):
        cx, cy = put(x, y)
        round_by = a * scale if region["round"] else 10
        parts.append(
            f'<rect x="{cx - a * scale:.0f}" y="{cy - b * scale:.0f}" width="{2 * a * scale:.0f}" '
            f'height="{2 * b * scale:.0f}" rx="{round_by:.0f}" fill="#f0f0f0"/>'
            + _text(cx, cy - b * scale - 5, region["name"] or "no region")
        )
    middles = [put(r["x"], r["y"]) for r in network["regions"]]
    spots = [put(x, y) for x, y in at.tolist()]
    strokes: dict[int, list[str]] = defaultdict(list)
    for ends, lines in ((middles, network["bundles"]), (spots, network["links"])):
        for a, b, strength, *_ in lines if ends else ():
            (x0, y0), (x1, y1) = ends[int(a)], ends[int(b)]
            strokes[round(3 * strength)].append(f"M{x0:.0f} {y0:.0f}L{x1:.0f} {y1:.0f}")
    for strength, paths in sorted(strokes.items()):
        parts.append(_path("".join(paths), LINE_GREY, 0.6 + strength, opacity=0.22 + 0.08 * strength))
    parts.append(_dots(spots, BLUE, 5 if len(spots) > 64 else 9))
    if len(spots) <= MOST_IN_RING:
        parts += [_text(x, y + 18, device["name"]) for (x, y), device in zip(spots, devices, strict=True)]
    return "".join(parts)


def _nodes(groups: Sequence[dict[str, Any]], weights: Sequence[Sequence[float]], step: str) -> str:
    """Groups around an open ellipse in stage order, or in rows where there are many."""
    n, size = len(groups), len(groups[0]["devices"])
    places, radius = _places(n)
    parts = []
    if step in "cde" and n <= MOST_IN_RING:
        parts += _edges(places, weights, step)
    stages = range(n)
    for color in dict.fromkeys(stage_color(s) for s in stages):
        middles = [(places[s].x, places[s].y) for s in stages if stage_color(s) == color]
        parts.append(_dots(middles, "#fff", 2 * radius))  # lines end at the rim
        parts.append(_dots(middles, color, 2 * radius, opacity=0.25 if step == "b" else 1))
    if step == "b":
        ring = cluster(size)
        reach = float(np.linalg.norm(ring, axis=1).max()) + 0.5
        unit = 0.9 * radius / reach
        for s in stages:
            spots = [(places[s].x + x * unit, places[s].y + y * unit) for x, y in ring.tolist()]
            parts.append(_dots(spots, stage_color(s), max(2.0, min(12.0, 0.8 * unit))))
    for s, (place, group) in enumerate(zip(places, groups, strict=True)):
        name = str(s) if step == "e" else group.get("letter", str(s))
        if step != "b" and radius >= 8:
            parts.append(_text(place.x, place.y + 4, name, ink_on(stage_color(s)), bold=True))
        if n <= MOST_IN_RING:
            words = format_s(group["cost_s"]) if step != "b" else f"{name}: {format_s(group['cost_s'])}"
            anchor = "start" if place.dx > 0.35 else "end" if place.dx < -0.35 else "middle"
            x, y = place.x + place.dx * (radius + 8), place.y + place.dy * (radius + 12) + 4
            parts.append(_text(x, y, words, anchor=anchor))
    return "".join(parts)


def _places(n: int) -> tuple[list[Place], float]:
    """Where the nodes stand and how large they are."""
    if n <= MOST_IN_RING:
        half = np.array([WIDTH / 2 - 130, HEIGHT / 2 - 70])
        at = open_ellipse(n)
        spots = np.array([WIDTH / 2, HEIGHT / 2]) + at * half * (1, -1)
        gaps = np.linalg.norm(spots[:, None] - spots[None], axis=-1)[np.triu_indices(n, 1)]
        radius = min(40.0, float(gaps.min(initial=120.0)) / 2 - 6)
        return [Place(x, y, dx, -dy) for (x, y), (dx, dy) in zip(spots.tolist(), at.tolist(), strict=True)], radius
    columns = math.ceil(math.sqrt(n * WIDTH / HEIGHT))
    rows = math.ceil(n / columns)
    cell = min((WIDTH - 20) / columns, (HEIGHT - 20) / rows)
    left, top = (WIDTH - cell * columns) / 2, (HEIGHT - cell * rows) / 2
    cells = (divmod(k, columns) for k in range(n))
    return [Place(left + (c + 0.5) * cell, top + (r + 0.5) * cell, 0, 1) for r, c in cells], 0.42 * cell


def _edges(places: Sequence[Place], weights: Sequence[Sequence[float]], step: str) -> list[str]:
    n = len(places)
    pairs = list(combinations(range(n), 2))
    if not pairs:
        return []
    heaviest = max(weights[a][b] for a, b in pairs) or 1.0
    thin: dict[int, list[str]] = defaultdict(list)
    for a, b in pairs:
        share = weights[a][b] / heaviest if step == "d" else 0.0
        if step != "e" or b > a + 1:
            thin[round(4 * share)].append(_line(places[a], places[b]))
    parts = [_path("".join(lines), LINE_GREY, 1 + k, opacity=0.3 + 0.1 * k) for k, lines in sorted(thin.items())]
    if step == "e":
        parts.append(_path("".join(_line(places[s], places[s + 1]) for s in range(n - 1)), BLUE, 4))
        centre_x, centre_y = WIDTH / 2, HEIGHT / 2
        for s in range(n - 1):
            x, y = (places[s].x + places[s + 1].x) / 2, (places[s].y + places[s + 1].y) / 2
            inwards = 0.88 if n > 3 else 1.0
            x, y = centre_x + (x - centre_x) * inwards, centre_y + (y - centre_y) * inwards
            parts.append(_text(x, y - (8 if n <= 3 else -4), format_s(weights[s][s + 1]), bold=True))
    return parts


def _matrix(groups: Sequence[dict[str, Any]], weights: Sequence[Sequence[float]], step: str) -> str:
    """Weights by shade, groups by letter in (d) and by stage in (e)."""
    n = len(groups)
    order = list(range(n))
    if step == "d":
        order.sort(key=lambda s: (len(groups[s].get("letter", "")), groups[s].get("letter", ""), s))
    values = _blocks(np.array(weights, dtype=float)[np.ix_(order, order)])
    rows = len(values)
    side = HEIGHT - 60
    cell, left, top = side / rows, (WIDTH - side) / 2, 34
    off = ~np.eye(rows, dtype=bool)
    low, high = float(values[off].min()), float(values[off].max())
    shades: dict[int, list[str]] = defaultdict(list)
    for a, b in zip(*np.nonzero(off), strict=True):
        share = (values[a, b] - low) / (high - low) if high > low else 0.0
        shades[round(share * (len(SHADES) - 1))].append(
            f"M{left + b * cell:.1f} {top + a * cell:.1f}h{cell:.1f}v{cell:.1f}h-{cell:.1f}z"
        )
    parts = [f'<path d="{"".join(cells)}" fill="{SHADES[k]}"/>' for k, cells in sorted(shades.items())]
    what = "stage" if step == "e" else "group"
    parts.append(_text(WIDTH / 2, 20, f"seconds between any two groups, by {what}"))
    parts.append(_text(WIDTH / 2, HEIGHT - 10, f"{format_s(low)} (light) to {format_s(high)} (dark)"))
    return "".join(parts)


def _blocks(values: FloatArray) -> FloatArray:
    """At most CELLS a side, by the means of blocks."""
    n = len(values)
    if n <= CELLS:
        return values
    edges = np.linspace(0, n, CELLS, endpoint=False).astype(int)
    sizes = np.diff(np.append(edges, n))
    sums = np.add.reduceat(np.add.reduceat(values, edges, axis=0), edges, axis=1)
    return np.asarray(sums / np.outer(sizes, sizes))


def _dots(spots: Sequence[tuple[float, float]], color: str, width: float, opacity: float = 1) -> str:
    """All of one colour as one path: a dot is a line of no length with a round cap."""
    drawn = "".join(f"M{x:.0f} {y:.0f}h0" for x, y in spots)
    return _path(drawn, color, width, opacity=opacity)


def _path(drawn: str, color: str, width: float, opacity: float = 1) -> str:
    return (
        f'<path d="{drawn}" fill="none" stroke="{color}" stroke-width="{width:.1f}" stroke-linecap="round" '
        f'stroke-opacity="{opacity:.2f}"/>'
    )


def _line(a: Place, b: Place) -> str:
    return f"M{a.x:.0f} {a.y:.0f}L{b.x:.0f} {b.y:.0f}"


def _text(x: float, y: float, words: str, color: str = "#222", *, anchor: str = "middle", bold: bool = False) -> str:
    weight = ' font-weight="600"' if bold else ""
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" fill="{color}"{weight}>{escape(words)}</text>'
