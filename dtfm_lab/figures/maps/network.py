"""A network, and a plan on it: as an abstract picture, on the world map, and small for a gallery."""

from collections.abc import Sequence
from functools import partial
from html import escape
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import plotly.graph_objects as go

from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import FloatArray, by_key, counted, format_s
from dtfm_lab.figures.maps.atlas import ROOMY, Atlas, atlas, land_outlines, mapped, without_place
from dtfm_lab.figures.maps.layout import Patch, bent, device_places, is_drawn, region_patches, rim_to_rim
from dtfm_lab.figures.maps.marks import (
    DASH_WORDS,
    ROOM_FOR_NUMBER_PX,
    Way,
    device_links,
    devices,
    gpu_shape,
    grounds,
    pipeline_lines,
    region_links,
)
from dtfm_lab.figures.palette import stage_color
from dtfm_lab.figures.theme import bare, figure_of, titled

FEW_DEVICES = 16
"""Maximum number of devices for which every link is drawn and every device is named."""
USUAL_PX = 900
"""Width in pixels of a narrow notebook cell, for which markers are sized."""
WIDTH_WORDS = "line width: bandwidth, of the slower direction"
NO_MAP = "no region has a known place on Earth, so there is no map"
FEW_REGIONS = 10
"""Maximum number of regions of a network for which the links of all pairs of regions are drawn."""
FASTEST = 2
"""Number of each region's fastest links that are drawn if a network has more than ``FEW_REGIONS`` regions."""


class Scene(NamedTuple):
    """Places and sizes of everything in the abstract picture of a network."""

    places: FloatArray
    patches: dict[str, Patch]
    few: bool
    """True if every link is drawn and every device is named."""
    height: int
    marker_px: float

    def way(self, a: int, b: int) -> FloatArray:
        """Return the line between two devices, bent around others."""
        others = (place for i, place in enumerate(self.places) if i not in (a, b))
        return bent(self.places[a], self.places[b], others)


def scene(topology: Topology) -> Scene:
    """Return the layout of a network's abstract picture."""
    places = device_places(topology)
    few = len(topology) <= FEW_DEVICES
    patches = region_patches(topology, places, margin=1.1 if few and not is_drawn(topology) else 0.65)
    height = 520 if few else 760
    unit_px = min((height - 180) / (np.ptp(places[:, 1]) + 2), (USUAL_PX - 100) / (np.ptp(places[:, 0]) + 2))
    return Scene(places, patches, few, height, float(np.clip(0.75 * unit_px, 7, 26 if few else 18)))


@figure_of(Topology)
def network(topology: Topology, plan: Plan | None = None) -> go.Figure:
    """The map of a topology: wide lines are fast links. Above 16 devices, only links between regions are drawn.

    With a plan, a device has the colour and number of its stage, and lines follow the pipelines. Raises PlanError for a
    plan that was made for another network.
    """
    if plan is not None:
        require_same(topology, plan)
    drawn = scene(topology)
    few, patches = drawn.few, drawn.patches
    lines = device_links(topology, drawn.places) if few else region_links(topology, partial(rim_to_rim, patches))
    figure = _abstract(topology, plan, drawn, lines)
    size = counted(len(topology), "device") + " in " + counted(len(topology.regions), "region")
    note = f"{WIDTH_WORDS}; {DASH_WORDS}" if plan is None else _plan_words(plan, drawn.marker_px)
    title = f"{topology.name}: {size}" if plan is None else _plan_title(plan)
    return titled(figure, title, note, alt=f"Network {title}; {note}.", height=drawn.height)


@figure_of(Topology)
def network_map(topology: Topology) -> go.Figure:
    """Regions at their places on Earth, joined by curves like flight paths. Wide lines are fast links.

    Of more than 10 regions, only the two fastest links of each are drawn.
    Devices are around their region's place, or next to it if clusters would cover each other. Regions without a known
    place are below the map. If no region has a known place, this is the abstract picture, with a note.
    """
    where = atlas(topology)
    if where is None:
        figure = network(topology)
        return figure.update_layout(title_subtitle_text=f"{figure.layout.title.subtitle.text} · {NO_MAP}")
    many = len(topology.regions) > FEW_REGIONS
    lines = region_links(topology, where.route, FASTEST if many else None)
    marks = devices(topology, where.places, None, marker_px=where.marker_px, named=False)
    figure = mapped(go.Figure([*lines, *marks]), where)
    title = f"{topology.name}: {counted(len(topology), 'device')} in {counted(len(topology.regions), 'region')}"
    only = f"the {FASTEST} fastest links of each region" if many else ""
    note = " · ".join(filter(None, [f"{WIDTH_WORDS}; {DASH_WORDS}", only, without_place(where)]))
    return titled(figure, title, note, alt=f"World map of the network {title}; {note}.", height=where.height)


@figure_of(Plan)
def plan_map(plan: Plan) -> go.Figure:
    """Devices in the colour of their stage and with its number, and pipelines as lines between them.

    If no region has a known place, the picture is the abstract one, with a note.
    """
    where = atlas(plan.topology, [*plan.placement.devices.T.ravel().tolist(), *plan.idle_devices])
    if where is None:
        flat = scene(plan.topology)
        figure, marker_px, height = _abstract(plan.topology, plan, flat, []), flat.marker_px, flat.height
    else:
        marker_px, height = where.marker_px, where.height
        marks = devices(plan.topology, where.places, plan, marker_px=marker_px, named=False)
        figure = mapped(go.Figure([*pipeline_lines(plan, _flights(plan, where)), *marks]), where)
    title, note = _plan_title(plan), _plan_words(plan, marker_px)
    missing = NO_MAP if where is None else without_place(where)
    subtitle = " · ".join(filter(None, [note, missing]))
    return titled(figure, title, subtitle, alt=f"Map of a plan, {title}: {note}.", height=height)


def _abstract(topology: Topology, plan: Plan | None, drawn: Scene, links: Sequence[go.Scatter]) -> go.Figure:
    """Return the picture without a map: regions as patches, links, pipelines and devices."""
    pipelines = [] if plan is None else pipeline_lines(plan, drawn.way)
    marks = devices(topology, drawn.places, plan, marker_px=drawn.marker_px, named=drawn.few)
    figure = go.Figure([*links, *pipelines, *marks])
    grounds(figure, drawn.patches)
    return bare(figure, square=True)


def require_same(topology: Topology, plan: Plan) -> None:
    """Raise PlanError for a plan that was made for another network."""
    if plan.topology.fingerprint != topology.fingerprint:
        raise PlanError(
            f"the plan is for network {plan.topology.fingerprint} ({plan.topology.name}), "
            f"{topology.name} is {topology.fingerprint}; wanted a plan for this one"
        )


def _flights(plan: Plan, where: Atlas) -> Way:
    """Return the lines between two devices: straight within a region and to a region without a place, else like flight
    paths."""
    regions = [device.region for device in plan.topology.devices]

    def way(a: int, b: int) -> FloatArray:
        near = regions[a] == regions[b] or not {regions[a], regions[b]} <= set(where.homes)
        return where.way(where.places[a], where.places[b], straight=near)

    return way


def _plan_title(plan: Plan) -> str:
    size = f"{counted(plan.job.n_stages, 'stage')} × {counted(plan.job.n_replicas, 'pipeline')}"
    return f"{plan.job.name} on {plan.topology.name}: {size}"


def _plan_words(plan: Plan, marker_px: float) -> str:
    """Return what the plan costs, and how markers of this size show the stage."""
    key = "numbers are stages" if marker_px >= ROOM_FOR_NUMBER_PX else "colours, from indigo to rose, are stages"
    idle = f", {counted(len(plan.idle_devices), 'device')} idle" if plan.idle_devices else ""
    return f"communication cost {format_s(plan.cost.total_s)}, by {plan.planner} · {key}{idle}"


WIDTH = 224
"""Width of the small picture in pixels."""
HEIGHT = 130
"""Height of the small picture in pixels."""
MARGIN = 14


def thumbnail_svg(topology: Topology, plan: Plan | None = None, *, dark: bool = False, times: int = 1) -> str:
    """Return devices in their places as standalone SVG of 224 x 130 pixels: shapes by kind of GPU, colours by stage.

    If a region has a known place, this is a map. Otherwise regions are faint boxes. Everything except the stages has
    the colour of the text around the picture. ``dark`` brightens the stages for a dark page. ``times`` scales the
    picture on a page that sets no size.
    """
    where = atlas(topology)
    ground, places, cell = _drawn_freely(topology) if where is None else _on_map(where)
    stages = {} if plan is None else {name: s for s, names in enumerate(plan.stages) for name in names}
    shapes = []
    for device, (x, y) in zip(topology.devices, places.tolist(), strict=True):
        stage = stages.get(device.name)
        color = "currentColor" if stage is None or plan is None else stage_color(stage, plan.job.n_stages, dark=dark)
        look = f'fill="{color}"' + ("" if stage is not None else ' fill-opacity="0.5"')
        shapes.append(_shape(device.gpu, x, y, 0.42 * cell, look))
    lines = "" if plan is None else _hops(plan, places)
    title = escape(f"{topology.name}: {counted(len(topology), 'device')}", quote=True)
    size = "" if times == 1 else f' width="{times * WIDTH}" height="{times * HEIGHT}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"{size} role="img" aria-label="{title}">'
        f"{ground}{lines}{''.join(shapes)}</svg>"
    )


def _on_map(where: Atlas) -> tuple[str, FloatArray, float]:
    """Return the land, (N, 2) places in pixels as on the large map, and the pixels that a device may fill."""
    view = where.view
    scale = min(WIDTH / (view.east - view.west), HEIGHT / ((view.north - view.south) * view.stretch))
    per_degree = scale * np.array([1.0, -view.stretch])
    middle = np.array([view.west + view.east, view.south + view.north]) / 2
    half = np.array([WIDTH, HEIGHT]) / 2
    # More of the world than the view, so that land fills the whole picture.
    shown = where.world.with_points(middle + half / per_degree * [[-1, -1], [1, 1]])
    rings = ((ring - middle) * per_degree + half for ring in land_outlines(shown, 0.6 / scale))
    paths = ["M" + "L".join(f"{x:.0f} {y:.0f}" for x, y in ring.tolist()) + "Z" for ring in rings]
    ground = f'<path d="{"".join(paths)}" fill="currentColor" fill-opacity="0.1" fill-rule="evenodd"/>'
    return ground, (where.places - middle) * per_degree + half, ROOMY * where.marker_px * scale / where.per_degree_px


def _drawn_freely(topology: Topology) -> tuple[str, FloatArray, float]:
    """Return boxes of regions, (N, 2) places in pixels as on the canvas, and the pixels that a device may fill."""
    places = device_places(topology)
    low, high = places.min(axis=0), places.max(axis=0)
    scale = float(np.min((np.array([WIDTH, HEIGHT]) - 2 * MARGIN - 6) / np.maximum(high - low, 1.0)))
    # Few devices would otherwise be drawn far too large.
    scale = min(scale, 26.0)
    to_px = np.array([scale, -scale])
    middle = np.array([WIDTH / 2, HEIGHT / 2]) - (low + high) / 2 * to_px
    boxes = []
    for patch in region_patches(topology, places, margin=0.6).values() if len(topology.regions) > 1 else ():
        x, y = (patch.centre * to_px + middle - patch.half * scale).tolist()
        width, height = (2 * patch.half * scale).tolist()
        corner = min(width, height) / 2 if patch.round else 5
        boxes.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{corner:.1f}"/>')
    ground = f'<g fill="currentColor" fill-opacity="0.08">{"".join(boxes)}</g>'
    return ground, places * to_px + middle, min(scale, 18.0)


def _shape(gpu: str, x: float, y: float, radius: float, look: str) -> str:
    """Return a circle for a data-centre GPU, a box for a laptop or a processor, a triangle for a consumer GPU."""
    shape = gpu_shape(gpu)
    if shape == "box":
        side = 1.8 * radius
        return (
            f'<rect x="{x - side / 2:.1f}" y="{y - side / 2:.1f}" width="{side:.1f}" height="{side:.1f}" '
            f'rx="{side / 4:.1f}" {look}/>'
        )
    if shape == "triangle":
        wide, tall = 1.1 * radius, radius
        return f'<path d="M{x:.1f} {y - tall:.1f}l{wide:.1f} {1.9 * tall:.1f}h{-2 * wide:.1f}z" {look}/>'
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" {look}/>'


def _hops(plan: Plan, places: FloatArray) -> str:
    """Return the pipelines' hops between regions as an SVG path: one line per pair of regions. It joins the mean places
    of the devices that hop between these two."""
    regions = [device.region for device in plan.topology.devices]
    # In order of the regions, so that both directions of a pair share one line.
    hops = [
        sorted(hop, key=lambda i: regions[i]) for each in plan.placement.devices.T.tolist() for hop in pairwise(each)
    ]
    ends = by_key(((regions[a], regions[b]), (a, b)) for a, b in hops if regions[a] != regions[b])
    ways = []
    for pairs in ends.values():
        (x0, y0), (x1, y1) = (places[[pair[end] for pair in pairs]].mean(axis=0).tolist() for end in (0, 1))
        ways.append(f"M{x0:.1f} {y0:.1f}L{x1:.1f} {y1:.1f}")
    return f'<path d="{"".join(ways)}" fill="none" stroke="currentColor" stroke-opacity="0.4" stroke-width="1.2"/>'
