"""A network, and a plan on it, as an abstract picture and on the map of the world."""

from collections.abc import Mapping
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
    NO_REGION,
    ROOM_FOR_NUMBER_PX,
    Way,
    device_links,
    devices,
    group_lines,
    pipeline_lines,
    region_links,
)
from dtfm_lab.figures.theme import LEGEND_BELOW, UNBOXED, bare, count, literal, titled

FEW_DEVICES = 16
"""Most devices of a network in which every link is drawn and every device is named."""
USUAL_PX = 900
"""Least width of a notebook cell for which markers are sized."""
WIDTH_WORDS = "line width: bandwidth, of the slower direction"
NO_MAP = "no region has a known place on Earth, so without a map"
ANCHOR_X = {1: "left", 0: "center", -1: "right"}
ANCHOR_Y = {1: "bottom", 0: "middle", -1: "top"}
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
    pipelines = [] if plan is None else pipeline_lines(plan, drawn.way)
    marks = devices(topology, drawn.places, plan, marker_px=drawn.marker_px, named=few)
    figure = go.Figure([*lines, *pipelines, *marks])
    grounds(figure, patches)
    title = f"{topology.name}: {count(len(topology), 'device')} in {count(len(topology.regions), 'region')}"
    subtitle = f"{WIDTH_WORDS}; {DASH_WORDS}"
    if plan is not None:
        title = f"{plan.job.name} on {topology.name}: {plan.job.n_stages} stages × {plan.job.n_replicas} pipelines"
        subtitle = f"communication cost {format_s(plan.cost.total_s)}, by {plan.planner} · {numbers(drawn.marker_px)}"
    alt = f"Network {title}; {subtitle}."
    titled(figure, title, subtitle, alt=alt, height=drawn.height, hovermode="closest", legend=LEGEND_BELOW)
    return bare(figure, square=True)


def require_same(topology: Topology, plan: Plan) -> None:
    """Raise PlanError for a plan that was made for another network."""
    if plan.topology.fingerprint != topology.fingerprint:
        raise PlanError(
            f"the plan is for network {plan.topology.fingerprint} ({plan.topology.name}), "
            f"{topology.name} is {topology.fingerprint}; wanted a plan for this one"
        )


def numbers(marker_px: float) -> str:
    """A note on how markers of this size show the stage."""
    return "numbers are stages" if marker_px >= ROOM_FOR_NUMBER_PX else "colours, from indigo to rose, are stages"


def grounds(figure: go.Figure, patches: Mapping[str, Patch]) -> None:
    """Draw a faint patch for each region, with its name on the side that faces away from the others."""
    if list(patches) == [""]:
        return
    shapes, names = [], []
    middle = np.mean([patch.centre for patch in patches.values()], axis=0)
    for region, patch in patches.items():
        (x0, y0), (x1, y1) = (patch.centre - patch.half).tolist(), (patch.centre + patch.half).tolist()
        corners = {"x0": x0, "y0": y0, "x1": x1, "y1": y1}
        look = {"line": {"width": 0}, "fillcolor": "rgba(128, 128, 128, 0.10)", "layer": "below"}
        shapes.append({"type": "circle" if patch.round else "rect", **corners, **look})
        away = patch.centre - middle
        if np.linalg.norm(away) < 1e-9:
            away = np.array([0.0, 1.0])
        side = np.where(np.abs(away) > 0.35 * np.abs(away).max(), np.sign(away), 0)
        if not patch.round:  # on the middle of an edge
            beside = abs(away[0]) > 2 * abs(away[1])
            side[1 if beside else 0] = 0
        reach = away / np.linalg.norm(away) if patch.round else side
        x, y = (patch.centre + patch.half * reach).tolist()
        anchors = {"xanchor": ANCHOR_X[int(side[0])], "yanchor": ANCHOR_Y[int(side[1])]}
        names.append({"x": x, "y": y, "text": f"<b>{literal(region or NO_REGION)}</b>", **anchors, **UNBOXED})
    figure.update_layout(shapes=shapes, annotations=names)


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
    size = f"{count(len(topology), 'device')} in {count(len(topology.regions), 'region')}"
    width = f"{WIDTH_WORDS}; {DASH_WORDS}"
    only = f"the {FASTEST} fastest links of each region" if many else ""
    note = " · ".join(filter(None, [width, only, without_place(where)]))
    return titled(
        figure,
        f"{topology.name}: {size}",
        note,
        alt=f"World map of the network {topology.name}: {size}; {note}.",
        height=where.height,
        hovermode="closest",
        legend=LEGEND_BELOW,
    )


def plan_map(plan: Plan, *, pipeline: int | None = None, group: int | None = None) -> go.Figure:
    """Devices in the colour of their stage and with its number, and pipelines as lines between them.

    Parameters
    ----------
    pipeline
        Number of a pipeline to emphasise.
    group
        Stage whose data-parallel group to emphasise: lines join all of its members.

    Raises PlanError for a pipeline or a group that the plan does not have. Where no region has a known place,
    the picture is the abstract one, with a note.
    """
    _require("pipeline", pipeline, plan.job.n_replicas)
    _require("group", group, plan.job.n_stages)
    where = atlas(plan.topology, [*plan.placement.devices.T.ravel().tolist(), *plan.idle_devices])
    if where is None:
        flat = scene(plan.topology)
        marker_px, height = flat.marker_px, flat.height
        figure = _overlay(plan, flat.places, flat.way, marker_px, pipeline, group, named=flat.few)
        grounds(bare(figure, square=True), flat.patches)
    else:
        marker_px, height = where.marker_px, where.height
        figure = mapped(_overlay(plan, where.places, _flights(plan, where), marker_px, pipeline, group), where)
    title, note = _words(plan, pipeline, group, numbers(marker_px))
    missing = NO_MAP if where is None else without_place(where)
    return titled(
        figure,
        title,
        " · ".join(filter(None, [note, missing])),
        alt=f"Map of a plan, {title}: {note}.",
        height=height,
        hovermode="closest",
        legend=LEGEND_BELOW,
    )


def _overlay(
    plan: Plan,
    places: FloatArray,
    way: Way,
    marker_px: float,
    pipeline: int | None,
    group: int | None,
    *,
    named: bool = False,
) -> go.Figure:
    grid = plan.placement.devices
    strong = None
    if pipeline is not None or group is not None:
        strong = {*grid[:, [] if pipeline is None else [pipeline]].ravel().tolist()}
        strong |= {*grid[[] if group is None else [group]].ravel().tolist()}
    lines = pipeline_lines(plan, way, strong=pipeline, background=group is not None)
    if group is not None:
        lines.insert(0 if pipeline is None else len(lines) - 1, group_lines(plan, way, group))
    marks = devices(plan.topology, places, plan, marker_px=marker_px, named=named, strong=strong)
    return go.Figure([*lines, *marks])


def _flights(plan: Plan, where: Atlas) -> Way:
    """Lines between two devices: straight within a region and to a region without a place, else like flight paths."""
    regions = [device.region for device in plan.topology.devices]

    def way(a: int, b: int) -> FloatArray:
        near = regions[a] == regions[b] or not {regions[a], regions[b]} <= set(where.homes)
        return where.way(where.places[a], where.places[b], straight=near)

    return way


def _words(plan: Plan, pipeline: int | None, group: int | None, key: str) -> tuple[str, str]:
    """Title, and a note on what is emphasised, with its seconds."""
    job, topology, cost = plan.job, plan.topology, plan.cost
    size = f"{count(job.n_stages, 'stage')} × {count(job.n_replicas, 'pipeline')}"
    notes = []
    if group is not None:
        members = plan.placement.devices[group]
        regions = count(len({topology.devices[i].region for i in members}), "region")
        notes.append(
            f"group of stage {group}: {count(len(members), 'device')} in {regions}, "
            f"synchronises in {format_s(float(cost.group_s[group]))}"
        )
    if pipeline is not None:
        visited = plan.placement.devices[:, pipeline]
        hops_s = topology.round_trip_s(job.hop_bytes)[visited[:-1], visited[1:]]
        regions = count(len({topology.devices[i].region for i in visited}), "region")
        notes.append(f"pipeline {pipeline}: {regions}, hops of {format_s(float(hops_s.sum()))} in all")
    idle = len(plan.idle_devices)
    if not notes:
        notes.append(f"communication cost {format_s(cost.total_s)}, by {plan.planner}")
    notes.append(key + (f", {count(idle, 'device')} idle" if idle else ""))
    return f"{job.name} on {topology.name}: {size}", " · ".join(notes)


def _require(noun: str, number: int | None, n: int) -> None:
    if number is None:
        return
    whole = isinstance(number, int | np.integer) and not isinstance(number, bool)
    if not whole or not 0 <= number < n:
        raise PlanError(f"{noun} is {number!r}; wanted a whole number from 0 to {n - 1}")
