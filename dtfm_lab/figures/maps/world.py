"""The world in an equirectangular plane: longitudes to the right, latitudes upwards, in degrees.

Land is drawn as plain polygons, because plotly's own maps fetch their outlines from a network.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import NamedTuple

import numpy as np
import plotly.graph_objects as go

from dtfm_lab.domain.network import Place
from dtfm_lab.domain.units import FloatArray
from dtfm_lab.figures.strokes import outline, strokes

LAND = "rgba(128, 128, 128, 0.24)"
WORTH_TURNING = 60.0
"""degrees of longitude that a map must get narrower by, to give up the usual cut through the Pacific"""
FLATTEST, TALLEST = 0.4, 0.62
"""heights of a view against its width, in degrees"""
NARROWEST = 20.0
"""degrees of longitude; in less, nobody would know the coast"""
NORTH = 78.0
"""no need to see further, unless somebody is there"""
POINTS = 65
"""of a line: so many that one cut off at a cluster's rim ends there"""
SPECK = 3
"""points of a ring that has no inside"""
BOW = 0.12
"""height of a line's bow against its width"""


class View(NamedTuple):
    """The part of the plane that is shown, in degrees."""

    west: float
    east: float
    south: float
    north: float

    @property
    def stretch(self) -> float:
        """A degree of latitude against one of longitude, so that shapes at mid-height look right."""
        return float(1 / np.cos(np.radians(min(abs(self.south + self.north) / 2, 45.0))))

    def with_points(self, points: FloatArray, margin: float = 0.0) -> View:
        """Wide enough for (n, 2) longitudes and latitudes too."""
        (west, south), (east, north) = points.min(axis=0) - margin, points.max(axis=0) + margin
        return View(min(self.west, west), max(self.east, east), min(self.south, south), max(self.north, north))


@cache
def land_rings() -> tuple[FloatArray, ...]:
    """Outlines of the continents and islands, (n, 2) longitude and latitude each; the file names its source."""
    text = resources.files("dtfm_lab.figures").joinpath("land_110m.json").read_text("utf-8")
    return tuple(np.array(ring) for ring in json.loads(text)["rings"])


def land(view: View, tolerance: float) -> go.Scatter:
    """What of the land lies in the view, repeated every 360 degrees, as exactly as the tolerance, in degrees, wants."""
    rings = []
    for turn in (-360.0, 0.0, 360.0):
        for ring in land_rings():
            longitudes, latitudes = ring[:, 0] + turn, ring[:, 1]
            if longitudes.max() < view.west or longitudes.min() > view.east:
                continue
            if latitudes.max() < view.south or latitudes.min() > view.north:
                continue
            # to press a polygon flat against an edge is to cut it off there
            pressed = [longitudes.clip(view.west, view.east), latitudes.clip(view.south, view.north)]
            drawn = outline(np.column_stack(pressed), tolerance)
            if len(drawn) > SPECK:
                rings.append(drawn)
    look = {"fill": "toself", "fillcolor": LAND, "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False}
    return go.Scatter(**strokes(rings), mode="lines", name="land", **look)


def plane(places: Sequence[Place]) -> FloatArray:
    """(n, 2) longitudes and latitudes; eastern places 360 degrees further west where that is much nearer."""
    points = np.array([(place.longitude, place.latitude) for place in places], dtype=float)
    longitudes = np.sort(points[:, 0])
    gaps = np.diff(longitudes, append=longitudes[0] + 360)
    widest = int(gaps.argmax())
    if gaps[-1] + WORTH_TURNING < gaps[widest]:
        points[points[:, 0] > longitudes[widest], 0] -= 360
    return points


def view_of(points: FloatArray) -> View:
    """Around the points, neither too near to know the coast, nor a ribbon nor a tower."""
    margin = float(np.clip(0.12 * np.ptp(points, axis=0).max(), 3.0, 9.0))
    (west, south), (east, north) = points.min(axis=0) - margin, points.max(axis=0) + margin
    width = max(NARROWEST, east - west, (north - south) / TALLEST)
    height = max(north - south, FLATTEST * width)
    top = max(north, min((south + north + height) / 2, NORTH))
    middle = (west + east) / 2
    return View(middle - width / 2, middle + width / 2, top - height, top)


def flight(a: FloatArray, b: FloatArray) -> list[FloatArray]:
    """The way round the globe that is shorter between two points of the plane, bowed towards the nearer pole
    as a flight would go, (n, 2).

    Two pieces where it leaves the plane on one side and comes back on the other: one begins at a, one ends at b.
    """
    eastwards = (b[0] - a[0] + 180) % 360 - 180
    end = np.array([a[0] + eastwards, b[1]])
    bow = BOW * abs(eastwards) * (1 if a[1] + b[1] >= 0 else -1)
    middle = (a + end) / 2 + (0, 2 * bow)
    t = np.linspace(0, 1, POINTS)[:, None]
    way = (1 - t) ** 2 * a + 2 * t * (1 - t) * middle + t**2 * end
    turn = b[0] - end[0]
    return [way] if abs(turn) < 1.0 else [way, way + np.array([turn, 0.0])]
