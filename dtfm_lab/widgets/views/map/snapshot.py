"""A network on the world map as SVG that stands alone, on a light and on a dark page."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from html import escape
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from dtfm_lab.domain.network import Place, find_place
from dtfm_lab.domain.units import FloatArray
from dtfm_lab.figures.maps.layout import apart
from dtfm_lab.figures.maps.world import View, flight, land_rings, plane, view_of
from dtfm_lab.figures.palette import BLUE, LINE_GREY, ink_on, stage_color
from dtfm_lab.widgets.views.matrix.snapshot import shortened

WIDTH_PX = 860
MOST_NAMED = 40
MOST_LINES = 66
NAME_PX, LETTER_PX = 14, 7.2


def land_tenths() -> npt.NDArray[np.int16]:
    """The outline as one row of whole tenths of degrees: for each ring its length, then its points."""
    parts = [np.concatenate([[len(ring)], np.rint(ring * 10).ravel()]) for ring in land_rings()]
    return np.concatenate(parts).astype("<i2")


def map_picture(document: dict[str, Any], filled: list[dict[str, Any]], stages: dict[str, int]) -> str:
    """Regions as discs with their numbers of devices, lines between them; empty where no region is a known place.

    A disc has the colour of its devices' commonest stage, where stages are known. ``filled`` pairs are dotted.
    """
    members: dict[str, list[str]] = {}
    for device in document["devices"]:
        members.setdefault(device["region"], []).append(device["name"])
    found = {name: find_place(name) for name in members}
    known = {name: place for name, place in found.items() if place is not None}
    if not known:
        return ""
    points = plane(list(known.values()))
    view = view_of(points)
    px = WIDTH_PX / (view.east - view.west)
    scale = np.array([px, px * view.stretch])
    height = int((view.north - view.south) * scale[1])
    homes = (points - (view.west, view.north)) * scale * (1, -1)
    radii = np.array([8 + min(len(members[name]), 64) ** 0.5 for name in known])
    named = len(known) <= MOST_NAMED
    middles = _apart([shortened(name) for name in known], homes, radii) if named else homes
    by_rule = {frozenset(pair["regions"]) for pair in filled}
    drawn = [
        f'<path d="{_land(view)}" fill="{LINE_GREY}" fill-opacity=".24"/>',
        *_lines(known, points, view, scale, by_rule),
        *(
            _disc(shortened(name) if named else "", home, middle, radius, members[name], stages)
            for name, home, middle, radius in zip(known, homes, middles, radii, strict=True)
        ),
    ]
    if lost := sum(len(inside) for name, inside in members.items() if name not in known):
        told = f"{lost} device{'s' * (lost != 1)} in no known place"
        drawn.append(f'<text x="8" y="{height + 16}" font-size="12" fill="{LINE_GREY}">{told}</text>')
        height += 24
    title = escape(str(document.get("name", "")))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH_PX} {height}" width="{WIDTH_PX}" role="img" '
        f'font-family="sans-serif"><title>{title}</title>{"".join(drawn)}</svg>'
    )


@lru_cache(maxsize=8)
def _land(view: View) -> str:
    """The land in the view as a path in whole pixels, points that fall together left out."""
    scale = np.array([1.0, view.stretch]) * WIDTH_PX / (view.east - view.west)
    parts = []
    for turn in (-360.0, 0.0, 360.0):
        for ring in land_rings():
            x, y = ring[:, 0] + turn, ring[:, 1]
            if x.max() < view.west or x.min() > view.east or y.max() < view.south or y.min() > view.north:
                continue
            inside = np.column_stack([x.clip(view.west, view.east), y.clip(view.south, view.north)])
            whole = np.rint((inside - (view.west, view.north)) * scale * (1, -1)).astype(int)
            kept = whole[np.r_[True, (np.diff(whole, axis=0) != 0).any(axis=1)]]
            if len(kept) > 2:
                parts.append("M" + "L".join(f"{a} {b}" for a, b in kept.tolist()) + "Z")
    return "".join(parts)


def _lines(
    known: dict[str, Place], points: FloatArray, view: View, scale: FloatArray,
    by_rule: set[frozenset[str]],
) -> list[str]:  # fmt: skip
    pairs = list(combinations(range(len(points)), 2))
    if len(pairs) > MOST_LINES:
        return []
    names, drawn = list(known), []
    for i, j in pairs:
        dots = ' stroke-dasharray="1 4" stroke-linecap="round"' if frozenset((names[i], names[j])) in by_rule else ""
        for piece in flight(points[i], points[j]):
            pixels = (piece[::8] - (view.west, view.north)) * scale * (1, -1)
            path = "M" + "L".join(f"{x:.0f} {y:.0f}" for x, y in pixels)
            drawn.append(f'<path d="{path}" fill="none" stroke="{LINE_GREY}" stroke-opacity=".5"{dots}/>')
    return drawn


def _apart(names: list[str], homes: FloatArray, radii: FloatArray) -> FloatArray:
    """(R, 2) middles of discs, moved so that no disc and no name covers another."""
    lift = np.array([0.0, NAME_PX / 2])  # a box holds the disc and the name above it
    half = [
        (max(radius, LETTER_PX * len(name) / 2) + 2, radius + NAME_PX / 2 + 1)
        for name, radius in zip(names, radii, strict=True)
    ]
    middles: FloatArray = apart(homes - lift, np.array(half)) + lift
    return middles


def _disc(
    name: str, home: FloatArray, middle: FloatArray, radius: float, members: list[str], stages: dict[str, int]
) -> str:
    """With its name above, where it has one, and a line to its true place where it had to move off it."""
    counted = Counter(stages[device] for device in members if device in stages)
    color = stage_color(counted.most_common(1)[0][0]) if counted else BLUE
    (x, y), (home_x, home_y) = middle.tolist(), home.tolist()
    drawn = ""
    if np.hypot(x - home_x, y - home_y) > radius:
        drawn = f'<path d="M{home_x:.0f} {home_y:.0f}L{x:.0f} {y:.0f}" stroke="{LINE_GREY}"/>'
    drawn += f'<circle cx="{x:.0f}" cy="{y:.0f}" r="{radius:.1f}" fill="{color}" stroke="#fff"/>'
    look = 'text-anchor="middle"'
    drawn += f'<text x="{x:.0f}" y="{y + 4:.0f}" font-size="11" fill="{ink_on(color)}" {look}>{len(members)}</text>'
    if name:
        top = f'x="{x:.0f}" y="{y - radius - 4:.0f}" font-size="12" font-weight="600" fill="{LINE_GREY}"'
        drawn += f"<text {top} {look}>{escape(name)}</text>"
    return drawn
