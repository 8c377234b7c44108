"""A coarsened graph of many groups as a heat map."""

from __future__ import annotations

from itertools import pairwise

import networkx as nx
import plotly.graph_objects as go

from dtfm_lab.domain.units import format_s
from dtfm_lab.figures.palette import CHEAP_TO_DEAR, VERMILLION


def weight_matrix(graph: nx.Graph[int]) -> go.Figure:
    """Weights between any two groups; the path runs next to the diagonal, and is outlined."""
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
