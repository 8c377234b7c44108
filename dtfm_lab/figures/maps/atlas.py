"""Places of a network's devices on the world map, and the map below them.

The world is an equirectangular plane in degrees: longitude to the right, latitude upwards. Land is drawn as plain
polygons, because plotly's own maps download their outlines.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import NamedTuple

import numpy as np
import plotly.graph_objects as go

from dtfm_lab.domain.network import Place, Topology, find_place
from dtfm_lab.domain.registry import in_a_row
from dtfm_lab.domain.units import FloatArray
from dtfm_lab.figures.maps.layout import Patch, apart, cluster
from dtfm_lab.figures.maps.marks import NO_REGION, grounds
from dtfm_lab.figures.palette import LINE_GREY
from dtfm_lab.figures.strokes import outline, spaced, strokes
from dtfm_lab.figures.theme import bare

PLOT_PX = 840
"""Usual width of the map in pixels. Markers and labels do not overlap at this width or any larger one."""
NAME_PX = 15
"""Height of a region's name in pixels."""
LETTER_PX = 7.6
"""Average width of a letter of a region's name in pixels."""
ROOMY = 1.4
"""Distance of neighbouring markers in a roomy cluster, in multiples of their size. Lines between them are visible."""
TIGHT = 1.15
"""Distance of neighbouring markers in a tight cluster, in multiples of their size, on a map with many regions."""
ROOM_UP_TO = 12
"""Maximum number of regions whose clusters are roomy."""
VIEW_ROUNDS = 8
"""Number of rounds in which clusters and view are fitted to each other."""
POINTS_PX = 32
"""Distance of two points of a line in pixels. Hover texts appear only at points, so these must be close together."""
COAST_PX = 1.5
"""Maximum error of a coast line in pixels."""


@dataclass(frozen=True, eq=False)
class Atlas:
    """A network on the world map: each region's devices are a cluster near the region's place."""

    topology: Topology
    view: MapWindow
    world: MapWindow
    """The part of the view with the map. Regions without a known place are below it."""
    marker_px: float
    places: FloatArray
    """(N, 2) longitude and latitude at which each device is drawn."""
    regions: dict[str, FloatArray]
    """Longitude and latitude of the middle of each region's cluster, (2,)."""
    homes: dict[str, FloatArray]
    """Longitude and latitude of each region with a known place, (2,)."""
    radii_px: dict[str, float]

    @property
    def height(self) -> int:
        """Height of the figure in pixels, including title and legend."""
        return int(self.per_degree_px * (self.view.north - self.view.south) * self.view.stretch) + 176

    @property
    def per_degree_px(self) -> float:
        """Pixels per degree of longitude."""
        return PLOT_PX / (self.view.east - self.view.west)

    def px(self, pixels: float) -> FloatArray:
        """Return (2,) the degrees of longitude and latitude that this many pixels cover."""
        return pixels / self.per_degree_px / np.array([1, self.view.stretch])

    def route(self, a: str, b: str) -> FloatArray:
        """Return (n, 2) points of the line between the rims of two regions' clusters. Rows of NaN separate its
        pieces."""
        way = self._way(self.regions[a], self.regions[b], straight=not {a, b} <= set(self.homes))
        inside = np.zeros(len(way), dtype=bool)
        for region in (a, b):
            inside |= np.linalg.norm((way - self.regions[region]) / self.px(self.radii_px[region]), axis=1) < 1
        return self._drawn(way[~inside] if (~inside).sum() > 1 else way)

    def way(self, start: FloatArray, end: FloatArray, *, straight: bool = False) -> FloatArray:
        """Return (n, 2) points of the line that a flight would take, or of a straight line. Rows of NaN separate its
        pieces."""
        return self._drawn(self._way(start, end, straight=straight))

    def _drawn(self, way: FloatArray) -> FloatArray:
        return spaced(way, self.px(POINTS_PX))

    def _way(self, start: FloatArray, end: FloatArray, *, straight: bool) -> FloatArray:
        pieces = [np.linspace(start, end, POINTS)] if straight else flight(start, end)
        return np.vstack([part for piece in pieces for part in (piece, np.full((1, 2), np.nan))][:-1])


def atlas(topology: Topology, order: Sequence[int] | None = None) -> Atlas | None:
    """Return the network on the map; None if no region has a known place.

    Devices of a region are drawn next to each other in the given ``order``, else in the network's order.
    """
    regions = topology.regions
    known = {region: place for region in regions if (place := find_place(region)) is not None}
    if not known:
        return None
    # Smaller markers where many devices share a map.
    marker_px = 15.0 if len(topology) <= 80 else 12.0 if len(topology) <= 128 else 8.0
    members = {r: [i for i in order or range(len(topology)) if topology.devices[i].region == r] for r in regions}
    spacing = ROOMY if len(regions) <= ROOM_UP_TO else TIGHT
    clusters = {region: cluster(len(of_it)) * marker_px * spacing for region, of_it in members.items()}
    radii_px = {r: float(np.linalg.norm(c, axis=1).max()) + 0.5 * marker_px + 4 for r, c in clusters.items()}
    homes = dict(zip(known, plane(list(known.values())), strict=True))
    view = world = view_of(np.array(list(homes.values())))
    for _ in range(VIEW_ROUNDS):  # the view must hold all clusters, whose sizes in degrees depend on the view
        centres, margin = _centres(regions, homes, radii_px, view, world.south)
        on_map = [region in homes for region in regions]
        low, high = centres - margin, centres + margin
        world = view_of(np.array(list(homes.values()))).with_points(np.vstack([low[on_map], high[on_map]]))
        view = world.with_points(np.vstack([low, high]))
    per_degree = PLOT_PX / (view.east - view.west)
    places = np.empty((len(topology), 2))
    middles = dict(zip(regions, centres, strict=True))
    for region, of_it in members.items():
        places[of_it] = middles[region] + clusters[region] / per_degree / (1, view.stretch)
    return Atlas(topology, view, world, marker_px, places, middles, homes, radii_px)


def _centres(
    regions: Sequence[str], homes: dict[str, FloatArray], radii_px: dict[str, float], view: MapWindow, south: float
) -> tuple[FloatArray, FloatArray]:
    """Return (R, 2) middles of the clusters and (R, 2) half the room that each needs, in degrees.

    Regions without a known place are in rows below the map.
    """
    per_degree = PLOT_PX / (view.east - view.west) * np.array([1, view.stretch])
    label_px = {r: LETTER_PX * len(r or NO_REGION) + 6 for r in regions}
    half = {r: np.array([max(radii_px[r], label_px[r] / 2) + 2, radii_px[r] + NAME_PX / 2 + 2]) for r in regions}
    room = np.array([half[r] for r in homes])
    # a box holds the disc and the name above it
    boxes = apart(np.array(list(homes.values())) * per_degree + (0, NAME_PX / 2), room)
    middles = dict(zip(homes, boxes - (0, NAME_PX / 2), strict=True))
    west, top = view.west * per_degree[0], min(float((boxes - room)[:, 1].min()), south * per_degree[1]) - 10
    x, row = west, np.array([top])
    for r in (r for r in regions if r not in homes):
        width, height = 2 * half[r]
        # Regions without a place stand below the map, in rows as wide as it.
        if x > west and x + width > west + PLOT_PX:
            x, row = west, np.array([row.min()])
        middles[r] = np.array([x + width / 2, row[0] - height / 2])
        x, row = x + width + 10, np.append(row, row[0] - height - 10)
    centres = np.array([middles[r] for r in regions]) / per_degree
    return centres, (np.array([half[r] for r in regions]) + 6) / per_degree


def mapped(figure: go.Figure, atlas: Atlas) -> go.Figure:
    """Return the figure over land, with a disc and a name for each region. If a disc had to move, a line leads to the
    region's true place."""
    patches = {r: Patch(centre, atlas.px(atlas.radii_px[r]), True) for r, centre in atlas.regions.items()}
    leaders: tuple[list[float | None], list[float | None]] = ([], [])
    for region, home in atlas.homes.items():
        patch = patches[region]
        # Farther than its own disc: a line shows where it really is.
        if (far := float(np.linalg.norm((home - patch.centre) / patch.half))) > 1:
            rim = patch.centre + (home - patch.centre) / far
            for axis, along in enumerate(leaders):
                along += [float(home[axis]), float(rim[axis]), None]
    look = {"line": {"width": 1, "color": LINE_GREY}, "hoverinfo": "skip", "showlegend": False}
    marks = {"opacity": 1, "size": [6, 0, 0] * (len(leaders[0]) // 3), "color": LINE_GREY}
    leader = go.Scatter(x=leaders[0], y=leaders[1], mode="lines+markers", name="true places", marker=marks, **look)
    ground = land(atlas.world, float(atlas.px(COAST_PX)[0]))
    figure = go.Figure([ground, *([leader] if leaders[0] else []), *figure.data])
    grounds(bare(figure), patches)
    view = atlas.view
    figure.update_xaxes(range=[view.west, view.east], constrain="domain")
    figure.update_yaxes(range=[view.south, view.north], constrain="domain", scaleanchor="x", scaleratio=view.stretch)
    return figure


def without_place(atlas: Atlas) -> str:
    """Return a note on the regions without a known place; empty if there are no such regions."""
    names = [region or NO_REGION for region in atlas.regions if region not in atlas.homes]
    if not names:
        return ""
    return f"no known place, so below the map: {in_a_row(names, 6)}"


LAND = "rgba(128, 128, 128, 0.24)"
WORTH_TURNING = 60.0
"""A map is cut elsewhere than in the Pacific only if that makes it narrower by this many degrees of longitude."""
FLATTEST = 0.4
"""Minimum height of a view relative to its width, both in degrees."""
TALLEST = 0.62
"""Maximum height of a view relative to its width, both in degrees."""
NARROWEST = 20.0
"""Minimum width of a view in degrees of longitude. In a smaller one, the coast is not recognisable."""
NORTH = 78.0
"""Maximum latitude of a view's northern edge in degrees, unless a region lies beyond it."""
POINTS = 65
"""Number of points of a line: enough that a line cut off at a cluster's rim ends near it."""
SPECK = 3
"""An outline of at most this many points is not drawn: it is closed, so it has no area."""
BOW = 0.12
"""Height of a line's bow relative to the degrees of longitude that the line spans."""


class MapWindow(NamedTuple):
    """The visible part of the plane, in degrees."""

    west: float
    east: float
    south: float
    north: float

    @property
    def stretch(self) -> float:
        """Length of a degree of latitude relative to one of longitude, so that shapes at mid-height look right.

        The latitude at mid-height counts as at most 45°, which limits the stretch to 1.41.
        """
        return float(1 / np.cos(np.radians(min(abs(self.south + self.north) / 2, 45.0))))

    def with_points(self, points: FloatArray) -> MapWindow:
        """Return the view extended to hold (n, 2) further longitudes and latitudes."""
        (west, south), (east, north) = points.min(axis=0), points.max(axis=0)
        return MapWindow(min(self.west, west), max(self.east, east), min(self.south, south), max(self.north, north))


@cache
def land_rings() -> tuple[FloatArray, ...]:
    """Return the outlines of continents and islands, (n, 2) longitude and latitude each. The file names its source."""
    text = resources.files("dtfm_lab.figures").joinpath("land_110m.json").read_text("utf-8")
    return tuple(np.array(ring) for ring in json.loads(text)["rings"])


def land_outlines(view: MapWindow, tolerance: float) -> list[FloatArray]:
    """Return the rings of land in the view, repeated every 360 degrees of longitude, with errors up to ``tolerance``
    degrees."""
    rings = []
    # A view across the date line shows land from both sides of it.
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
            # Smaller outlines are specks at this size.
            if len(drawn) > SPECK:
                rings.append(drawn)
    return rings


def land(view: MapWindow, tolerance: float) -> go.Scatter:
    """Return the land in the view, with errors up to the tolerance in degrees."""
    look = {"fill": "toself", "fillcolor": LAND, "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False}
    return go.Scatter(**strokes(land_outlines(view, tolerance)), mode="lines", name="land", **look)


def plane(places: Sequence[Place]) -> FloatArray:
    """Return (n, 2) longitudes and latitudes. Eastern places move 360 degrees west if that makes the map narrower."""
    points = np.array([(place.longitude, place.latitude) for place in places], dtype=float)
    longitudes = np.sort(points[:, 0])
    gaps = np.diff(longitudes, append=longitudes[0] + 360)
    widest = int(gaps.argmax())
    if gaps[-1] + WORTH_TURNING < gaps[widest]:
        points[points[:, 0] > longitudes[widest], 0] -= 360
    return points


def view_of(points: FloatArray) -> MapWindow:
    """Return a view around the points, neither too close to recognise the coast nor too flat or too tall."""
    margin = float(np.clip(0.12 * np.ptp(points, axis=0).max(), 3.0, 9.0))
    (west, south), (east, north) = points.min(axis=0) - margin, points.max(axis=0) + margin
    width = max(NARROWEST, east - west, (north - south) / TALLEST)
    height = max(north - south, FLATTEST * width)
    top = max(north, min((south + north + height) / 2, NORTH))
    middle = (west + east) / 2
    return MapWindow(middle - width / 2, middle + width / 2, top - height, top)


def flight(a: FloatArray, b: FloatArray) -> list[FloatArray]:
    """Return the shorter way round the globe between two points of the plane, (n, 2), bowed towards the nearer pole
    like a flight path.

    If the way leaves the plane on one side and returns on the other, it has two pieces. One begins at a, the other
    ends at b.
    """
    # The shorter way round, which may cross the date line.
    eastwards = (b[0] - a[0] + 180) % 360 - 180
    end = np.array([a[0] + eastwards, b[1]])
    bow = BOW * abs(eastwards) * (1 if a[1] + b[1] >= 0 else -1)
    middle = (a + end) / 2 + (0, 2 * bow)
    t = np.linspace(0, 1, POINTS)[:, None]
    way = (1 - t) ** 2 * a + 2 * t * (1 - t) * middle + t**2 * end
    turn = b[0] - end[0]
    # Drawn at both edges of the map if it leaves at one.
    return [way] if abs(turn) < 1.0 else [way, way + np.array([turn, 0.0])]
