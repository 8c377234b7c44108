"""A network, and a plan on it, as an abstract picture and on the map of the world."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import plotly.graph_objects as go

from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import FloatArray, format_s
from dtfm_lab.figures.maps.atlas import Atlas, atlas, mapped, without_place
from dtfm_lab.figures.maps.layout import Patch, bent, device_places, is_drawn, region_patches, rim_to_rim
from dtfm_lab.figures.maps.marks import (
    DASH_WORDS,
    ROOM_FOR_NUMBER_PX,
    Way,
    device_links,
    devices,
    grounds,
    pipeline_lines,
    region_links,
)
from dtfm_lab.figures.theme import bare, count, titled

FEW_DEVICES = 16
"""Most devices of a network in which every link is drawn and every device is named."""
USUAL_PX = 900
"""Least width of a notebook cell for which markers are sized."""
WIDTH_WORDS = "line width: bandwidth, of the slower direction"
NO_MAP = "no region has a known place on Earth, so without a map"
FEW_REGIONS = 10
"""Most regions of a network whose links are all drawn."""
FASTEST = 2
"""Links of each region that are drawn where there are more regions."""


class Scene(NamedTuple):
    """Places and sizes of all that the abstract picture of a network holds."""

    places: FloatArray
    patches: dict[str, Patch]
    few: bool
    """Whether every link is drawn and every device is named."""
    height: int
    marker_px: float

    def way(self, a: int, b: int) -> FloatArray:
        """The line between two devices, bent around others."""
        others = (place for i, place in enumerate(self.places) if i not in (a, b))
        return bent(self.places[a], self.places[b], others)


def scene(topology: Topology) -> Scene:
    """The layout of a network's abstract picture."""
    places = device_places(topology)
    few = len(topology) <= FEW_DEVICES
    patches = region_patches(topology, places, margin=1.1 if few and not is_drawn(topology) else 0.65)
    height = 520 if few else 760
    unit_px = min((height - 180) / (np.ptp(places[:, 1]) + 2), (USUAL_PX - 100) / (np.ptp(places[:, 0]) + 2))
    return Scene(places, patches, few, height, float(np.clip(0.75 * unit_px, 7, 26 if few else 18)))


def network(topology: Topology, plan: Plan | None = None) -> go.Figure:
    """The map of a topology: wide lines are fast links; between regions only, above 16 devices.

    With a plan, a device has the colour and number of its stage, and lines follow the pipelines.

    Raises PlanError for a plan that was made for another network.
    """
    if plan is not None:
        require_same(topology, plan)
    drawn = scene(topology)
    few, patches = drawn.few, drawn.patches
    lines = device_links(topology, drawn.places) if few else region_links(topology, partial(rim_to_rim, patches))
    figure = _abstract(topology, plan, drawn, lines)
    size = count(len(topology), "device") + " in " + count(len(topology.regions), "region")
    note = f"{WIDTH_WORDS}; {DASH_WORDS}" if plan is None else _plan_words(plan, drawn.marker_px)
    title = f"{topology.name}: {size}" if plan is None else _plan_title(plan)
    return _titled(figure, title, note, drawn.height, alt=f"Network {title}; {note}.")


def network_map(topology: Topology) -> go.Figure:
    """Regions at their places on Earth, joined by curves like flight paths; wide lines are fast links.

    Devices stand around their region's place, or beside it where clusters would cover each other. Regions
    without a known place stand below the map. Where no region has one, this is the abstract picture, with a note.
    """
    where = atlas(topology)
    if where is None:
        figure = network(topology)
        return figure.update_layout(title_subtitle_text=f"{figure.layout.title.subtitle.text} · {NO_MAP}")
    many = len(topology.regions) > FEW_REGIONS
    lines = region_links(topology, where.route, FASTEST if many else None)
    marks = devices(topology, where.places, None, marker_px=where.marker_px, named=False)
    figure = mapped(go.Figure([*lines, *marks]), where)
    title = f"{topology.name}: {count(len(topology), 'device')} in {count(len(topology.regions), 'region')}"
    only = f"the {FASTEST} fastest links of each region" if many else ""
    note = " · ".join(filter(None, [f"{WIDTH_WORDS}; {DASH_WORDS}", only, without_place(where)]))
    return _titled(figure, title, note, where.height, alt=f"World map of the network {title}; {note}.")


def plan_map(plan: Plan) -> go.Figure:
    """Devices in the colour of their stage and with its number, and pipelines as lines between them.

    Where no region has a known place, the picture is the abstract one, with a note.
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
    return _titled(figure, title, subtitle, height, alt=f"Map of a plan, {title}: {note}.")


def _titled(figure: go.Figure, title: str, note: str, height: int, *, alt: str) -> go.Figure:
    return titled(figure, title, note, alt=alt, height=height)


def _abstract(topology: Topology, plan: Plan | None, drawn: Scene, links: Sequence[go.Scatter]) -> go.Figure:
    """The picture without a map: regions as patches, links, pipelines and devices."""
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
    """Lines between two devices: straight within a region and to a region without a place, else like flight paths."""
    regions = [device.region for device in plan.topology.devices]

    def way(a: int, b: int) -> FloatArray:
        near = regions[a] == regions[b] or not {regions[a], regions[b]} <= set(where.homes)
        return where.way(where.places[a], where.places[b], straight=near)

    return way


def _plan_title(plan: Plan) -> str:
    size = f"{count(plan.job.n_stages, 'stage')} × {count(plan.job.n_replicas, 'pipeline')}"
    return f"{plan.job.name} on {plan.topology.name}: {size}"


def _plan_words(plan: Plan, marker_px: float) -> str:
    """What the plan costs, and how markers of this size show the stage."""
    key = "numbers are stages" if marker_px >= ROOM_FOR_NUMBER_PX else "colours, from indigo to rose, are stages"
    idle = f", {count(len(plan.idle_devices), 'device')} idle" if plan.idle_devices else ""
    return f"communication cost {format_s(plan.cost.total_s)}, by {plan.planner} · {key}{idle}"
