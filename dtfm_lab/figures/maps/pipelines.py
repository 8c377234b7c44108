"""The lines of a plan over a network: pipelines, and the links within one group."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, pairwise

import plotly.graph_objects as go

from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import FloatArray, format_s
from dtfm_lab.figures.palette import VERMILLION, YELLOW, YELLOW_EDGE, stage_color
from dtfm_lab.figures.strokes import worded
from dtfm_lab.figures.theme import literal

Way = Callable[[int, int], FloatArray]
"""Gives the (n, 2) points of the line between two devices; a row of NaN interrupts the line."""
USUAL_COLOR = "rgba(213, 94, 0, 0.6)"
BACKGROUND_COLOR = "rgba(128, 128, 128, 0.25)"


def pipeline_lines(plan: Plan, way: Way, *, strong: int | None = None, background: bool = False) -> list[go.Scatter]:
    """A line for each pipeline, with one legend entry for all. The ``strong`` one is in front and has its own entry.

    ``background`` draws the others in grey, as if there were a strong one.
    """
    hop_s = plan.topology.round_trip_s(plan.job.hop_bytes)
    names = [literal(name) for name in plan.topology.names]
    lines: list[go.Scatter] = []
    for pipeline, visited in enumerate(plan.placement.devices.T.tolist()):
        hops = [
            (way(a, b), f"pipeline {pipeline}, stage {s} to {s + 1}: {format_s(float(hop_s[a, b]))} there and back"
             f"<br>{names[a]} → {names[b]}")
            for s, (a, b) in enumerate(pairwise(visited))
        ]  # fmt: skip
        look = {"width": 2.2, "color": BACKGROUND_COLOR if background or strong is not None else USUAL_COLOR}
        if pipeline == strong:
            look = {"width": 4.5, "color": VERMILLION}
        name = f"pipeline {pipeline}" if pipeline == strong else "pipelines" if strong is None else "other pipelines"
        lines.append(_line(hops, name, look, legend=not any(line.name == name for line in lines)))
    return sorted(lines, key=lambda line: line.name == f"pipeline {strong}")


def group_lines(plan: Plan, way: Way, stage: int) -> go.Scatter:
    """A line between every two members of a data-parallel group, which exchange a shard in both directions."""
    shard_s = plan.topology.round_trip_s(plan.job.gradient_bytes / plan.job.n_replicas)
    names = [literal(name) for name in plan.topology.names]
    pairs = [
        (way(a, b), f"group of stage {stage}: a shard there and back takes {format_s(float(shard_s[a, b]))}"
         f"<br>{names[a]} – {names[b]}")
        for a, b in combinations(plan.placement.devices[stage].tolist(), 2)
    ]  # fmt: skip
    color = stage_color(stage)
    look = {"width": 2.2, "color": YELLOW_EDGE if color == YELLOW else color}
    return _line(pairs, f"links within the group of stage {stage}", look, legend=bool(pairs))


def _line(ways: list[tuple[FloatArray, str]], name: str, look: dict[str, object], *, legend: bool) -> go.Scatter:
    drawn = worded([points for points, _ in ways], [words for _, words in ways])
    return go.Scatter(**drawn, mode="lines", name=name, legendgroup=name, showlegend=legend, line=look)
