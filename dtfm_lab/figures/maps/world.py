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
"""Least degrees of longitude by which a map must get narrower to be cut elsewhere than in the Pacific."""
FLATTEST, TALLEST = 0.4, 0.62
"""Least and greatest height of a view against its width, both in degrees."""
NARROWEST = 20.0
"""Least degrees of longitude of a view; in a smaller one the coast is not recognisable."""
NORTH = 78.0
"""Northern edge of a view, in degrees, unless a region lies beyond it."""
POINTS = 65
"""Points of a line, enough for one that is cut off at a cluster's rim to end near it."""
SPECK = 3
"""Most points of a ring that has no area."""
BOW = 0.12
"""Height of a line's bow against its width."""


class MapWindow(NamedTuple):
    """The part of the plane that is shown, in degrees."""

    west: float
    east: float
    south: float
    north: float

    @property
    def stretch(self) -> float:
        """A degree of latitude against one of longitude, so that shapes at mid-height look right."""
        return float(1 / np.cos(np.radians(min(abs(self.south + self.north) / 2, 45.0))))

    def with_points(self, points: FloatArray, margin: float = 0.0) -> MapWindow:
        """The view, extended to hold (n, 2) longitudes and latitudes, too."""
        (west, south), (east, north) = points.min(axis=0) - margin, points.max(axis=0) + margin
        return MapWindow(min(self.west, west), max(self.east, east), min(self.south, south), max(self.north, north))


@cache
def land_rings() -> tuple[FloatArray, ...]:
    """Outlines of the continents and islands, (n, 2) longitude and latitude each; the file names its source."""
    text = resources.files("dtfm_lab.figures").joinpath("land_110m.json").read_text("utf-8")
    return tuple(np.array(ring) for ring in json.loads(text)["rings"])


def land_outlines(view: MapWindow, tolerance: float) -> list[FloatArray]:
    """Rings of the land in the view, repeated every 360 degrees of longitude, with errors up to so many degrees."""
    rings = []
    for turn in (-360.0, 0.0, 360.0):
        for ring in land_rings():
            longitudes, latitudes = ring[:, 0] + turn, ring[:, 1]
            if longitudes.max() < view.west or longitudes.min() > view.east:
                continue
            if latitudes.max() < view.south or latitudes.min() > view.north:
                continue
            # a polygon whose points are clipped to the edge is cut off there
            clipped = [longitudes.clip(view.west, view.east), latitudes.clip(view.south, view.north)]
            drawn = outline(np.column_stack(clipped), tolerance)
            if len(drawn) > SPECK:
                rings.append(drawn)
    return rings


def land(view: MapWindow, tolerance: float) -> go.Scatter:
    """The land in the view, with errors up to the tolerance in degrees."""
    look = {"fill": "toself", "fillcolor": LAND, "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False}
    return go.Scatter(**strokes(land_outlines(view, tolerance)), mode="lines", name="land", **look)


def plane(places: Sequence[Place]) -> FloatArray:
    """(n, 2) longitudes and latitudes; eastern places are moved 360 degrees west where that makes the map narrower."""
    points = np.array([(place.longitude, place.latitude) for place in places], dtype=float)
    longitudes = np.sort(points[:, 0])
    gaps = np.diff(longitudes, append=longitudes[0] + 360)
    widest = int(gaps.argmax())
    if gaps[-1] + WORTH_TURNING < gaps[widest]:
        points[points[:, 0] > longitudes[widest], 0] -= 360
    return points


def view_of(points: FloatArray) -> MapWindow:
    """A view around the points, neither too close to recognise the coast nor too flat or too tall."""
    margin = float(np.clip(0.12 * np.ptp(points, axis=0).max(), 3.0, 9.0))
    (west, south), (east, north) = points.min(axis=0) - margin, points.max(axis=0) + margin
    width = max(NARROWEST, east - west, (north - south) / TALLEST)
    height = max(north - south, FLATTEST * width)
    top = max(north, min((south + north + height) / 2, NORTH))
    middle = (west + east) / 2
    return MapWindow(middle - width / 2, middle + width / 2, top - height, top)


def flight(a: FloatArray, b: FloatArray) -> list[FloatArray]:
    """The shorter way round the globe between two points of the plane, (n, 2), bowed towards the nearer pole like a
    flight path.

    A way that leaves the plane on one side and returns on the other has two pieces: one begins at a, one ends at b.
    """
    eastwards = (b[0] - a[0] + 180) % 360 - 180
    end = np.array([a[0] + eastwards, b[1]])
    bow = BOW * abs(eastwards) * (1 if a[1] + b[1] >= 0 else -1)
    middle = (a + end) / 2 + (0, 2 * bow)
    t = np.linspace(0, 1, POINTS)[:, None]
    way = (1 - t) ** 2 * a + 2 * t * (1 - t) * middle + t**2 * end
    turn = b[0] - end[0]
    return [way] if abs(turn) < 1.0 else [way, way + np.array([turn, 0.0])]
