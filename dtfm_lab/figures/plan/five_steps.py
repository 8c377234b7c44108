"""The paper's five steps from a network to a plan, with the numbers of the plan in their captions."""

from __future__ import annotations

import plotly.graph_objects as go

from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.registry import unknown
from dtfm_lab.domain.units import format_s
from dtfm_lab.figures.panels import Room, joined
from dtfm_lab.figures.plan.graph_steps import coarsened, path, weighed
from dtfm_lab.figures.plan.network_steps import communication_graph, partition
from dtfm_lab.figures.theme import quality, titled

PANELS = {"a": communication_graph, "b": partition, "c": coarsened, "d": weighed, "e": path}
WIDTH_PX = 836
"""Width of a notebook cell without margins."""
SMALL = Room(400, 340)
LARGE = Room(WIDTH_PX, 460)
TOP_PX = 84


def five_steps(plan: Plan) -> go.Figure:
    """(a) communication graph, (b) groups, (c) coarsened graph, (d) its weights, (e) the path: five panels.

    Groups have letters until step (e) gives each its stage; their colours are those of their stages throughout.

    Source: DT-FM section 3, the steps from its communication graph to an assignment of the layers.
    """
    a, b, c, d, e = (make(plan, SMALL if letter != "e" else LARGE) for letter, make in PANELS.items())
    figure, height = joined([[a, b], [c, d], [e]], WIDTH_PX)
    return titled(
        figure,
        f"{plan.job.name} on {plan.topology.name}: from network to plan in five steps",
        f"communication cost {format_s(plan.cost.total_s)}, by {plan.planner}, {quality(plan.gap)}",
        alt=" ".join(f"{panel.heading}: {panel.caption}" for panel in (a, b, c, d, e)),
        height=int(height + TOP_PX),
        hovermode="closest",
        margin={"t": TOP_PX, "b": 0},
    )


def step(plan: Plan, letter: str) -> go.Figure:
    """One of the five steps at full size; raises UnknownName for a letter other than a to e."""
    if letter not in PANELS:
        raise unknown("step", letter, PANELS)
    panel = PANELS[letter](plan, LARGE)
    figure = titled(
        panel.figure,
        panel.heading,
        panel.caption,
        alt=f"{plan.job.name} on {plan.topology.name}, {panel.heading}: {panel.caption}",
        hovermode="closest",
        showlegend=False,
        margin_b=24,
    )
    return figure.update_layout(height=int(panel.height_px + figure.layout.margin.t + figure.layout.margin.b))
