"""Places of a network's devices on the world map, and the map below them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from dtfm_lab.domain.network import Topology, find_place
from dtfm_lab.domain.units import FloatArray
from dtfm_lab.figures.maps.layout import apart, cluster
from dtfm_lab.figures.maps.marks import NO_REGION
from dtfm_lab.figures.maps.world import POINTS, MapWindow, flight, land, plane, view_of
from dtfm_lab.figures.palette import LINE_GREY
from dtfm_lab.figures.strokes import spaced
from dtfm_lab.figures.theme import UNBOXED, bare, literal

PLOT_PX = 840
"""Usual width of the map in pixels. Markers and labels do not overlap at this width, and at any larger one."""
NAME_PX = 15
"""Height of a region's name."""
LETTER_PX = 7.6
"""Mean width of a letter of a region's name."""
ROOMY, TIGHT = 1.4, 1.15
"""Distance of neighbouring markers in multiples of their size. In a roomy cluster, lines between them are visible."""
ROOM_UP_TO = 12
"""Most regions whose clusters are roomy."""
VIEW_ROUNDS = 8
"""Rounds in which clusters and view are fitted to each other."""
POINTS_PX = 32
"""Distance of two points of a line; hover texts show at points only, so these must be near each other."""
COAST_PX = 1.5
"""Largest error of a coast line."""
GROUND = "rgba(128, 128, 128, 0.16)"


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
    """Middle of each region's cluster, (2,)."""
    homes: dict[str, FloatArray]
    """True place of each region that has a known one, (2,)."""
    radii_px: dict[str, float]

    @property
    def height(self) -> int:
        """Height of the figure in pixels, with title and legend."""
        view = self.view
        return int(PLOT_PX * (view.north - view.south) * view.stretch / (view.east - view.west)) + 176

    def px(self, pixels: float) -> FloatArray:
        """(2,) degrees of longitude and latitude that this many pixels cover."""
        per_degree = PLOT_PX / (self.view.east - self.view.west)
        return np.array([pixels / per_degree, pixels / per_degree / self.view.stretch])

    def route(self, a: str, b: str) -> FloatArray:
        """(n, 2) points of the line between the rims of two regions' clusters; rows of NaN separate its pieces."""
        way = self._way(self.regions[a], self.regions[b], straight=not {a, b} <= set(self.homes))
        inside = np.zeros(len(way), dtype=bool)
        for region in (a, b):
            inside |= np.linalg.norm((way - self.regions[region]) / self.px(self.radii_px[region]), axis=1) < 1
        return self._drawn(way[~inside] if (~inside).sum() > 1 else way)

    def way(self, start: FloatArray, end: FloatArray, *, straight: bool = False) -> FloatArray:
        """(n, 2) points of the line that a flight would take; rows of NaN separate its pieces."""
        return self._drawn(self._way(start, end, straight=straight))

    def _drawn(self, way: FloatArray) -> FloatArray:
        return spaced(way, self.px(POINTS_PX))

    def _way(self, start: FloatArray, end: FloatArray, *, straight: bool) -> FloatArray:
        pieces = [np.linspace(start, end, POINTS)] if straight else flight(start, end)
        return np.vstack([part for piece in pieces for part in (piece, np.full((1, 2), np.nan))][:-1])


def atlas(topology: Topology, order: Sequence[int] | None = None) -> Atlas | None:
    """The network on the map; None where no region has a known place.

    Devices of a region stand next to each other in the ``order`` given, else in the network's.
    """
    regions = topology.regions
    known = {region: place for region in regions if (place := find_place(region)) is not None}
    if not known:
        return None
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
    """(R, 2) middles of the clusters and (R, 2) half the room that each needs, in degrees.

    Regions without a known place stand in rows below the map.
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
        if x > west and x + width > west + PLOT_PX:
            x, row = west, np.array([row.min()])
        middles[r] = np.array([x + width / 2, row[0] - height / 2])
        x, row = x + width + 10, np.append(row, row[0] - height - 10)
    centres = np.array([middles[r] for r in regions]) / per_degree
    return centres, (np.array([half[r] for r in regions]) + 6) / per_degree


def mapped(figure: go.Figure, atlas: Atlas) -> go.Figure:
    """The figure over land, with a disc and a name for each region, and a line to its true place if it had to move."""
    shapes, names = [], []
    leaders: tuple[list[float | None], list[float | None]] = ([], [])
    for region, centre in atlas.regions.items():
        home = atlas.homes.get(region)
        half = atlas.px(atlas.radii_px[region])
        if home is not None and (far := float(np.linalg.norm((home - centre) / half))) > 1:
            rim = centre + (home - centre) / far
            for axis, along in enumerate(leaders):
                along += [float(home[axis]), float(rim[axis]), None]
        (x0, y0), (x1, y1) = (centre - half).round(2).tolist(), (centre + half).round(2).tolist()
        corners = {"x0": x0, "y0": y0, "x1": x1, "y1": y1}
        shapes.append({"type": "circle", **corners, "line": {"width": 0}, "fillcolor": GROUND, "layer": "below"})
        at = {"x": round(float(centre[0]), 2), "y": y1, "yanchor": "bottom", "borderpad": 0}
        names.append({"text": f"<b>{literal(region or NO_REGION)}</b>", **at, **UNBOXED})
    look = {"line": {"width": 1, "color": LINE_GREY}, "hoverinfo": "skip", "showlegend": False}
    marks = {"opacity": 1, "size": [6, 0, 0] * (len(leaders[0]) // 3), "color": LINE_GREY}
    leader = go.Scatter(x=leaders[0], y=leaders[1], mode="lines+markers", name="true places", marker=marks, **look)
    ground = land(atlas.world, float(atlas.px(COAST_PX)[0]))
    figure = go.Figure([ground, *([leader] if leaders[0] else []), *figure.data])
    bare(figure).update_layout(shapes=shapes, annotations=names)
    view = atlas.view
    figure.update_xaxes(range=[view.west, view.east], constrain="domain")
    figure.update_yaxes(range=[view.south, view.north], constrain="domain", scaleanchor="x", scaleratio=view.stretch)
    return figure


def without_place(atlas: Atlas) -> str:
    """A note on the regions without a known place; empty where there are none."""
    names = [region or NO_REGION for region in atlas.regions if region not in atlas.homes]
    if not names:
        return ""
    listed = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
    return f"no known place, so below the map: {listed}"
