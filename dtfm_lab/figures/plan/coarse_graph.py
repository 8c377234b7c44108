"""A plan's coarsened graph: device groups, the path of the pipelines, and what each hop costs."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations, pairwise
from typing import Any

import networkx as nx
import numpy as np
import plotly.graph_objects as go

from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import FloatArray, format_s
from dtfm_lab.figures.maps.layout import open_ellipse
from dtfm_lab.figures.palette import CHEAP_TO_DEAR, FAINT, MARKER_EDGE, VERMILLION, ink_on, stage_color
from dtfm_lab.figures.strokes import worded
from dtfm_lab.figures.theme import UNBOXED, bare, literal, quality, titled

MOST_NODES = 16
"""Most stages of a plan that is drawn as a graph; one of more is drawn as a matrix."""
FEW_NODES = 8
"""Most stages whose labels also count the devices."""
NAMED_IN_HOVER = 12
"""Most devices of a group, or pairs of a matching, that a hover text names."""


def coarse_graph(plan: Plan) -> go.Figure:
    """Up to 16 stages, a graph of the groups in stage order with a thick path; above, the matrix of weights."""
    graph = plan.coarse_graph()
    figure = _weight_matrix(graph) if len(graph) > MOST_NODES else _graph(graph)
    cost = plan.cost
    title = f"{plan.job.name} on {plan.topology.name}: communication cost {format_s(cost.total_s)}"
    parts = f"slowest synchronisation {format_s(cost.data_parallel_s)} + path {format_s(cost.pipeline_s)}"
    hops = ", ".join(f"stage {s} to {s + 1} {format_s(float(hop_s))}" for s, hop_s in enumerate(cost.hop_s))
    return titled(
        figure,
        title,
        f"{parts} · by {plan.planner}, {quality(plan.gap)}",
        alt=f"Coarsened graph of {title} = {parts}. Path: {hops or 'a single stage'}.",
        height=760 if len(graph) > MOST_NODES else 660 if len(graph) > FEW_NODES else 560,
        hovermode="closest",
    )


def _graph(graph: nx.Graph[int]) -> go.Figure:
    n = len(graph)
    places = open_ellipse(n)
    others = [(a, b) for a, b in combinations(range(n), 2) if b > a + 1]
    path = [(a, a + 1) for a in range(n - 1)]
    figure = go.Figure(
        [
            *_lines("other hops", graph, others, places, {"width": 1, "color": FAINT}),
            *_lines("path", graph, path, places, {"width": 7, "color": VERMILLION}),
            _nodes(graph, places),
        ]
    )
    for a, b in path:
        x, y = (places[[a, b]].mean(axis=0) * (0.86 if n > 3 else 1.0)).tolist()
        text = format_s(graph.edges[a, b]["weight"])
        figure.add_annotation(x=x, y=y, text=f"<b>{text}</b>", showarrow=False, yshift=18 if n <= 3 else 0)
    for stage, place in enumerate(places):
        _label(figure, graph.nodes[stage], stage, place, n)
    bare(figure)
    figure.update_xaxes(range=[-1.5, 1.5])
    reach = float(np.abs(places[:, 1]).max()) + 0.5
    figure.update_yaxes(range=[-reach, reach])
    return figure


def _nodes(graph: nx.Graph[int], places: FloatArray) -> go.Scatter:
    stages = range(len(graph))
    dearest = max(stages, key=lambda s: graph.nodes[s]["cost_s"])
    colors = [stage_color(stage, len(graph)) for stage in stages]
    return go.Scatter(
        x=places[:, 0].tolist(),
        y=places[:, 1].tolist(),
        mode="markers+text",
        name="stages",
        showlegend=False,
        text=[str(stage) for stage in stages],
        textfont={"color": [ink_on(color) for color in colors], "size": 15},
        marker={
            "size": 38,
            "color": colors,
            "opacity": 1,
            "line": {"width": [4 if s == dearest else 1 for s in stages], "color": MARKER_EDGE},
        },
        hovertext=[
            f"stage {s} · synchronisation {format_s(graph.nodes[s]['cost_s'])}"
            f"{', the slowest: all wait for it' if s == dearest else ''}<br>" + _some(graph.nodes[s]["devices"])
            for s in stages
        ],
        hoverinfo="text",
    )


def _label(figure: go.Figure, node: dict[str, Any], stage: int, place: FloatArray, n: int) -> None:
    """Label a stage outside of the ellipse: above or below it where that is nearly level, else beside it."""
    lines = [f"stage {stage}", f"sync {format_s(node['cost_s'])}"]
    if n <= FEW_NODES:
        n_devices = len(node["devices"])
        lines.insert(1, f"{n_devices} device{'' if n_devices == 1 else 's'}")
    x, y = place.tolist()
    above = 1 if y > 0 else -1
    where: dict[str, object] = {"xanchor": "center", "yanchor": "bottom" if above > 0 else "top", "yshift": 22 * above}
    if n > 3 and abs(x) > 0.6:
        where = {"xanchor": "left" if x > 0 else "right", "xshift": 26 if x > 0 else -26, "yshift": 14 * y}
        where |= {"yanchor": "middle", "align": where["xanchor"]}
    figure.add_annotation(x=x, y=y, text="<br>".join(lines), **UNBOXED, **where)


def _lines(
    name: str, graph: nx.Graph[int], pairs: Iterable[tuple[int, int]], places: FloatArray, line: dict[str, object]
) -> list[go.Scatter]:
    """One plotly trace for all pairs, with hover texts all along each line."""
    ways, words = [], []
    for a, b in pairs:
        edge = graph.edges[a, b]
        text = f"stage {a} – stage {b}: {format_s(edge['weight'])}"
        matching = sorted(edge.get("matching", []), key=lambda pair: -pair[2])
        if matching:
            text += ", the slowest pair there and back<br>" + _some(f"{i} – {j}: {format_s(s)}" for i, j, s in matching)
        ways.append(np.linspace(places[a], places[b], 9))
        words.append(text)
    if not ways:
        return []
    return [go.Scatter(**worded(ways, words), mode="lines", name=name, line=line, showlegend=False)]


def _some(words: Iterable[str]) -> str:
    words = [literal(word) for word in words]
    more = [f"and {len(words) - NAMED_IN_HOVER} more"] if len(words) > NAMED_IN_HOVER else []
    return "<br>".join([*words[:NAMED_IN_HOVER], *more])


def _weight_matrix(graph: nx.Graph[int]) -> go.Figure:
    """A heat map of the weights between any two groups. The path runs next to the diagonal, and is outlined."""
    stages = list(graph)
    weights = [[float(graph.edges[a, b]["weight"]) if a != b else None for b in stages] for a in stages]
    hover = [
        ["" if w is None else f"stage {a} – stage {b}: {format_s(w)}" for b, w in enumerate(row)]
        for a, row in enumerate(weights)
    ]
    heat = go.Heatmap(
        z=weights,
        x=stages,
        y=stages,
        xgap=1,
        ygap=1,
        hovertext=hover,
        hoverinfo="text",
        hoverongaps=False,
        colorscale=CHEAP_TO_DEAR,
        colorbar={"title": {"text": "s<br> "}, "outlinewidth": 0, "thickness": 14},
    )
    figure = go.Figure(heat)
    for a, b in pairwise(stages):
        corners = {"x0": b - 0.5, "x1": b + 0.5, "y0": a - 0.5, "y1": a + 0.5}
        figure.add_shape(type="rect", **corners, line={"width": 2.5, "color": VERMILLION})
    axis = {"showgrid": False, "zeroline": False, "constrain": "domain", "tickformat": "d"}
    figure.update_xaxes(title_text="stage (the path is outlined)", **axis)
    figure.update_yaxes(title_text="stage", autorange="reversed", scaleanchor="x", **axis)
    return figure
