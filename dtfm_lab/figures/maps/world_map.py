"""A network, or a plan on it, on the map of the world."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import FloatArray, format_s
from dtfm_lab.figures.maps.atlas import Atlas, atlas, mapped, without_place
from dtfm_lab.figures.maps.devices import devices
from dtfm_lab.figures.maps.links import Way, group_lines, pipeline_lines, region_links
from dtfm_lab.figures.maps.network import NO_MAP, grounds, network, numbers, scene
from dtfm_lab.figures.theme import LEGEND_BELOW, bare, count, titled

FEW_REGIONS = 10
"""Most regions of a network whose links are all drawn."""
FASTEST = 2
"""Links of each region that are drawn where there are more regions."""


def network_map(topology: Topology) -> go.Figure:
    """Regions at their places on Earth, joined by curves like flight paths; wide lines are fast links.

    Devices stand around their region's place, or beside it where clusters would cover each other. Regions
    without a known place stand below the map. Where no region has one, this is the abstract picture, and says so.
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
    width = "line width: bandwidth, of the slower direction"
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
    the picture is the abstract one, and says so.
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
