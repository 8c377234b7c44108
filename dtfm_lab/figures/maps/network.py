"""The abstract picture of a network: devices, the links between them, and a plan's pipelines."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import numpy as np
import plotly.graph_objects as go

from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import FloatArray, format_s
from dtfm_lab.figures.maps.devices import ROOM_FOR_NUMBER_PX, devices
from dtfm_lab.figures.maps.layout import Patch, bent, device_places, is_drawn, region_patches, rim_to_rim
from dtfm_lab.figures.maps.links import NO_REGION, device_links, pipeline_lines, region_links
from dtfm_lab.figures.theme import LEGEND_BELOW, UNBOXED, bare, count, literal, titled

FEW_DEVICES = 16
"""Most devices of a network in which every link is drawn and every device is named."""
USUAL_PX = 900
"""Least width of a notebook cell for which markers are sized."""
NO_MAP = "no region has a known place on Earth, so without a map"
ANCHOR_X = {1: "left", 0: "center", -1: "right"}
ANCHOR_Y = {1: "bottom", 0: "middle", -1: "top"}


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
    subtitle = "line width: bandwidth, of the slower direction"
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
    return "numbers are stages" if marker_px >= ROOM_FOR_NUMBER_PX else "colours, six in turn, are stages"


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
