"""Devices, the links between them, and what a plan does with them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np
import plotly.graph_objects as go

from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.topology import Topology
from dtfm_lab.domain.units import FloatArray, format_s
from dtfm_lab.figures.devices import devices
from dtfm_lab.figures.layout import Patch, bent, device_places, is_drawn, region_patches
from dtfm_lab.figures.links import NO_REGION, device_links, region_links
from dtfm_lab.figures.theme import LEGEND_BELOW, bare, titled

FEW_DEVICES = 16
"""up to so many, every link is drawn and every device named"""
USUAL_PX = 900
"""width of a notebook cell: marker sizes count on no less"""
PIPELINE_COLOR = "rgba(213, 94, 0, 0.7)"
ANCHOR_X = {1: "left", 0: "center", -1: "right"}
ANCHOR_Y = {1: "bottom", 0: "middle", -1: "top"}


def network(topology: Topology, plan: Plan | None = None) -> go.Figure:
    """The map of a topology: wide lines are fast links; between regions only, above 16 devices.

    With a plan, a device wears the colour and number of its stage, and lines follow the pipelines.

    Raises PlanError for a plan that was made for another network.
    """
    if plan is not None and plan.topology.fingerprint != topology.fingerprint:
        raise PlanError(
            f"the plan is for network {plan.topology.fingerprint} ({plan.topology.name}), "
            f"{topology.name} is {topology.fingerprint}; wanted a plan for this one"
        )
    places = device_places(topology)
    few = len(topology) <= FEW_DEVICES
    patches = region_patches(topology, places, margin=1.1 if few and not is_drawn(topology) else 0.65)
    lines = device_links(topology, places) if few else region_links(topology, patches)
    pipelines = [] if plan is None else _pipelines(plan, places)
    height = 520 if few else 760
    unit_px = min((height - 180) / (np.ptp(places[:, 1]) + 2), (USUAL_PX - 100) / (np.ptp(places[:, 0]) + 2))
    marks = devices(topology, places, plan, marker_px=float(np.clip(0.75 * unit_px, 7, 26 if few else 18)), named=few)
    figure = go.Figure([*lines, *pipelines, *marks])
    _grounds(figure, patches)
    title = f"{topology.name}: {_count(len(topology), 'device')} in {_count(len(topology.regions), 'region')}"
    subtitle = "line width: bandwidth, of the slower direction"
    if plan is not None:
        title = f"{plan.job.name} on {topology.name}: {plan.job.n_stages} stages × {plan.job.n_replicas} pipelines"
        subtitle = f"communication cost {format_s(plan.cost.total_s)}, by {plan.planner} · numbers are stages"
    titled(figure, title, subtitle, height=height, hovermode="closest", legend=LEGEND_BELOW)
    return bare(figure, square=True)


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def _pipelines(plan: Plan, places: FloatArray) -> list[go.Scatter]:
    """One line a pipeline, bent around devices that it does not visit; one legend entry for all."""
    lines = []
    for pipeline, visited in enumerate(plan.placement.devices.T.tolist()):
        x: list[float | None] = []
        y: list[float | None] = []
        for a, b in itertools.pairwise(visited):
            points = bent(places[a], places[b], (p for i, p in enumerate(places) if i not in (a, b)))
            x += [*points[:, 0].tolist(), None]
            y += [*points[:, 1].tolist(), None]
        lines.append(
            go.Scatter(
                x=x,
                y=y,
                mode="lines",
                name="pipelines",
                legendgroup="pipelines",
                showlegend=pipeline == 0,
                line={"width": 2.5, "color": PIPELINE_COLOR},
                hoverinfo="skip",
            )
        )
    return lines


def _grounds(figure: go.Figure, patches: Mapping[str, Patch]) -> None:
    """A faint patch for each region, its name on the side that faces away from the others."""
    if list(patches) == [""]:
        return
    middle = np.mean([patch.centre for patch in patches.values()], axis=0)
    for region, patch in patches.items():
        (x0, y0), (x1, y1) = (patch.centre - patch.half).tolist(), (patch.centre + patch.half).tolist()
        figure.add_shape(
            type="circle" if patch.round else "rect",
            **{"x0": x0, "y0": y0, "x1": x1, "y1": y1},
            line_width=0,
            fillcolor="rgba(128, 128, 128, 0.10)",
            layer="below",
        )
        away = patch.centre - middle
        direction = np.array([0, 1 if away[1] > -1e-9 else -1])
        if abs(away[0]) > 2 * abs(away[1]):
            direction = np.array([1 if away[0] > 0 else -1, 0])
        x, y = (patch.centre + patch.half * direction).tolist()
        anchors = {"xanchor": ANCHOR_X[int(direction[0])], "yanchor": ANCHOR_Y[int(direction[1])]}
        figure.add_annotation(x=x, y=y, text=f"<b>{region or NO_REGION}</b>", showarrow=False, **anchors)
