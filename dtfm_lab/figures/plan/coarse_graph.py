"""What a plan's communication costs: the coarsened graph with the path of the pipelines, the pairs behind a hop, and
the cost's parts as a bar."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from typing import Any

import networkx as nx
import numpy as np
import plotly.graph_objects as go

from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import FloatArray, IntArray, counted, format_s
from dtfm_lab.figures.maps.layout import open_ellipse
from dtfm_lab.figures.palette import BLUE, FAINT, LINE_GREY, SKY, VERMILLION, ink_on, stage_color
from dtfm_lab.figures.strokes import strokes, worded
from dtfm_lab.figures.theme import (
    UNBOXED,
    WORDLESS,
    bare,
    curve,
    figure_of,
    literal,
    numbered_rows,
    percent,
    quality,
    row_bars,
    spots,
    titled,
)
from dtfm_lab.planning.cost import bottleneck_matching
from dtfm_lab.planning.search import PROVEN

ALL_HOPS_UP_TO = 16
"""Maximum number of stages for which all hops and labels are drawn. With more, only the path is drawn."""
MARKERS_PX = 1000
"""Maximum width of all stage markers together in pixels. With many stages, each is smaller."""
FEW_NODES = 8
"""Maximum number of stages whose labels also count the devices."""
NAMED_IN_HOVER = 12
"""Maximum number of devices of a stage, or pairs of a matching, that a hover text names."""


@figure_of(Plan)
def coarse_graph(plan: Plan) -> go.Figure:
    """The coarsened graph: a node for each stage's devices, in stage order, with a thick line along the pipelines.

    Up to 16 stages, thin lines show the seconds that a hop between any other two stages would take.
    """
    graph = plan.coarse_graph()
    figure = _graph(graph)
    cost = plan.cost
    title = f"{plan.job.name} on {plan.topology.name}: communication cost {format_s(cost.total_s)}"
    parts = f"slowest synchronisation {format_s(cost.data_parallel_s)} + path {format_s(cost.pipeline_s)}"
    hops = ", ".join(f"stage {s} to {s + 1} {format_s(float(hop_s))}" for s, hop_s in enumerate(cost.hop_s))
    return titled(
        figure,
        title,
        f"{parts} · by {plan.planner}, {quality(plan.gap)}",
        alt=f"Coarsened graph of {title} = {parts}. Path: {hops or 'a single stage'}.",
        height=760 if len(graph) > ALL_HOPS_UP_TO else 660 if len(graph) > FEW_NODES else 560,
    )


def _graph(graph: nx.Graph[int]) -> go.Figure:
    n = len(graph)
    places = open_ellipse(n)
    # With more stages, lines between all pairs would hide the path.
    all_shown = n <= ALL_HOPS_UP_TO
    others = [(a, b) for a, b in combinations(range(n), 2) if b > a + 1 and all_shown]
    path = [(a, a + 1) for a in range(n - 1)]
    faint = _lines("other hops", graph, others, places, {"width": 1, "color": FAINT})
    thick = _lines("path", graph, path, places, {"width": 7, "color": VERMILLION})
    figure = go.Figure([*faint, *thick, _nodes(graph, places)])
    for a, b in path if all_shown else ():
        x, y = (places[[a, b]].mean(axis=0) * (0.86 if n > 3 else 1.0)).tolist()
        text = format_s(graph.edges[a, b]["weight"])
        figure.add_annotation(x=x, y=y, text=f"<b>{text}</b>", showarrow=False, yshift=18 if n <= 3 else 0)
    for stage, place in enumerate(places) if all_shown else ():
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
    hover = [
        f"stage {s} · synchronisation {format_s(graph.nodes[s]['cost_s'])}"
        f"{', the slowest: all wait for it' if s == dearest else ''}<br>" + _some(graph.nodes[s]["devices"])
        for s in stages
    ]
    font = {"color": [ink_on(color) for color in colors], "size": 15}
    look = {"edge_px": [4 if s == dearest else 1 for s in stages], "textfont": font, "name": "stages"}
    size, (x, y) = min(38, MARKERS_PX / len(graph)), places.T.tolist()
    return spots(x, y, size, colors, list(map(str, stages)), hovertext=hover, hoverinfo="text", **look)


def _label(figure: go.Figure, node: dict[str, Any], stage: int, place: FloatArray, n: int) -> None:
    """Label a stage outside the ellipse: next to it at the left and right ends of the ellipse, else above or below."""
    lines = [f"stage {stage}", f"sync {format_s(node['cost_s'])}"]
    if n <= FEW_NODES:
        lines.insert(1, counted(len(node["devices"]), "device"))
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
    """Return one plotly trace for all pairs, with hover texts all along each line."""
    ways, words = [], []
    for a, b in pairs:
        edge = graph.edges[a, b]
        text = f"stage {a} – stage {b}: {format_s(edge['weight'])}"
        # The slowest pair first, since the hop waits for it.
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


NAMED_UP_TO = 32
"""Maximum number of pairs that are all labelled. With more, only the slowest is labelled."""
ROW_PX = 34
"""Height of a pair's row in pixels."""
CROWDED_ROW_PX = 18
"""Height of a pair's row in pixels if there are more than ``FEW_PAIRS`` pairs."""
HEADING_PX = 44
FEW_PAIRS = 12
"""Maximum number of pairs that are drawn with wide lines and large markers."""
CANDIDATE = "rgba(128, 128, 128, 0.30)"
MANY_CANDIDATES = "rgba(128, 128, 128, 0.10)"


@figure_of(Plan)
def matching(plan: Plan, edge: int | tuple[int, int]) -> go.Figure:
    """The devices of two stages as columns: faint lines join all pairs, strong ones matched pairs. The slowest is red.

    ``edge`` is a hop of the pipelines, given by its first stage, or any two stages. Neighbouring stages are paired as
    in the plan. Two others are paired by their bottleneck matching, whose slowest pair is the weight of their edge.
    Raises PlanError for stages that the plan does not have.
    """
    a, b = _stages(plan, edge)
    left, right = plan.placement.devices[[a, b]]
    pair_s = plan.topology.round_trip_s(plan.job.hop_bytes)
    best_s, columns = bottleneck_matching(pair_s[np.ix_(left, right)])
    # Pipelines are in order already; only other stages need a matching.
    if on_path := abs(a - b) == 1:
        columns = np.arange(len(left))
    order = _by_region(plan, left)
    left, right = left[order], right[columns[order]]
    pairs_s = pair_s[left, right]
    figure = go.Figure([_candidates(plan, left, right, pair_s), *_matched(plan, left, right, pairs_s)])
    for column, stage, devices in ((0, a, left), (1, b, right)):
        figure.add_trace(_devices(plan, column, stage, devices))
        figure.add_annotation(x=column, y=0, text=f"<b>stage {stage}</b>", showarrow=False, yshift=26)
    bare(figure)
    n = len(left)
    row_px = ROW_PX if n <= FEW_PAIRS else CROWDED_ROW_PX
    figure.update_xaxes(range=[-0.42, 1.42])
    figure.update_yaxes(range=[n - 0.4, -HEADING_PX / row_px])
    slowest = int(pairs_s.argmax())
    names = plan.topology.names
    title = f"stage {a} – stage {b}: {counted(n, 'matched pair')}, the slowest in {format_s(float(pairs_s[slowest]))}"
    note = f"{names[left[slowest]]} – {names[right[slowest]]}, activations there and gradients back"
    if not on_path:
        note += " · not a hop of the pipelines"
    elif pairs_s[slowest] > best_s * (1 + 1e-9):
        # A pipeline visits several hops, so one of them may be worse matched than it could be.
        note += f" · the best matching would need {format_s(best_s)}"
    else:
        note += f" · no perfect matching of these {n * n:,} pairs has a faster slowest pair"
    height = int(190 + HEADING_PX + max(2, n) * row_px)
    alt = f"{plan.job.name} on {plan.topology.name}, {title}; {note}."
    return titled(figure, title, note, alt=alt, height=height)


def _stages(plan: Plan, edge: int | tuple[int, int]) -> tuple[int, int]:
    """Return both stages of an edge. Raises PlanError for stages that the plan does not have."""
    n = plan.job.n_stages
    pair = (edge, edge + 1) if isinstance(edge, int | np.integer) else tuple(edge)
    whole = all(isinstance(stage, int | np.integer) and 0 <= stage < n for stage in pair)
    if len(pair) != 2 or not whole or pair[0] == pair[1]:
        hops = f"a hop from 0 to {n - 2} or two of the stages 0 to {n - 1}" if n > 1 else "a plan of two stages or more"
        raise PlanError(f"edge is {edge!r}; wanted {hops}")
    return int(pair[0]), int(pair[1])


def _by_region(plan: Plan, devices: IntArray) -> IntArray:
    """Return positions in ``devices``, sorted by region. Pipelines keep their order within a region."""
    regions = plan.topology.regions
    at = [regions.index(plan.topology.devices[i].region) for i in devices]
    return np.argsort(at, kind="stable")


def _candidates(plan: Plan, left: IntArray, right: IntArray, pair_s: FloatArray) -> go.Scatter:
    """Return all pairs that are not matched, with hover texts at a third of the way, where fewer lines cross than
    midway."""
    names = [literal(name) for name in plan.topology.names]
    n = len(left)
    rows = [(i, j) for i in range(n) for j in range(n) if i != j]
    ways = [np.array([(0.0, i), (0.33, i + 0.33 * (j - i)), (1.0, j)]) for i, j in rows]
    drawn: dict[str, Any] = {**strokes(ways), "hoverinfo": "skip"}
    if n <= NAMED_UP_TO:
        ends = [(left[i], right[j]) for i, j in rows]
        drawn = worded(
            ways, [f"{names[a]} – {names[b]}: {format_s(float(pair_s[a, b]))}, not matched" for a, b in ends]
        )
    color = CANDIDATE if n <= FEW_PAIRS else MANY_CANDIDATES
    return curve(**drawn, name=f"other {n * (n - 1):,} candidates", showlegend=n > 1, color=color, width=1)


def _matched(plan: Plan, left: IntArray, right: IntArray, pairs_s: FloatArray) -> Iterable[go.Scatter]:
    """Return the matched pairs, and the slowest in a separate trace. A row shows its seconds if there is room."""
    names = [literal(name) for name in plan.topology.names]
    n = len(left)
    # Several may be as slow as the slowest.
    slowest = np.flatnonzero(pairs_s >= pairs_s.max() * (1 - 1e-9)).tolist()
    others = [row for row in range(n) if row not in slowest]
    for name, rows, color, width in (
        ("matched pairs", others, BLUE, 3.0),
        ("slowest pair" if len(slowest) == 1 else f"slowest, {len(slowest)} alike", slowest, VERMILLION, 5.0),
    ):
        words = [f"{names[left[r]]} – {names[right[r]]}: {format_s(float(pairs_s[r]))}, matched" for r in rows]
        labels = [format_s(float(pairs_s[r])) if n <= NAMED_UP_TO or r == slowest[0] else WORDLESS for r in rows]
        if rows is slowest:
            labels = [f"<b>{label}</b>" for label in labels]
        if rows:
            yield go.Scatter(
                **worded([np.array([(0.0, row), (0.5, row), (1.0, row)]) for row in rows], words),
                mode="lines+markers+text",
                name=name,
                line={"width": width if n <= FEW_PAIRS else width / 2, "color": color},
                text=[t for label in labels for t in (WORDLESS, label, WORDLESS, WORDLESS)],
                textposition="top center",
                # an invisible marker keeps the text off the line
                marker={"size": 2 * width, "color": "rgba(0, 0, 0, 0)"},
                textfont={"size": 12 if n <= FEW_PAIRS else 10, **({"color": color} if rows is slowest else {})},
            )


def _devices(plan: Plan, column: int, stage: int, devices: IntArray) -> go.Scatter:
    color = stage_color(stage, plan.job.n_stages)
    few = len(devices) <= FEW_PAIRS
    names = [plan.topology.names[i] for i in devices]
    regions = [plan.topology.devices[i].region for i in devices]
    labels = [
        literal(name if region in ("", name) or name.startswith(region) else f"{name} ({region})")
        for name, region in zip(names, regions, strict=True)
    ]
    look = {"textposition": "middle left" if column == 0 else "middle right", "textfont_size": 12 if few else 10}
    hover = {"name": f"group of stage {stage}", "hovertext": labels, "hoverinfo": "text"}
    x, y = [column] * len(devices), list(range(len(devices)))
    return spots(x, y, 18 if few else 11, color, [f" {label} " for label in labels], **look, **hover)


OUTLINE = {"width": 1, "color": "#ffffff"}


@figure_of(Plan)
def cost_breakdown(*plans: Plan) -> go.Figure:
    """A stacked bar for each plan: the slowest stage's synchronisation, then each hop. Marks show the lower bound,
    words the gap. Raises PlanError if no plan is given."""
    if not plans:
        raise PlanError("no plans to draw; wanted at least one")
    rows = list(range(len(plans)))
    slowest = [int(plan.cost.group_s.argmax()) for plan in plans]
    synchronising_s = [plan.cost.data_parallel_s for plan in plans]
    words = [
        f"data-parallel synchronisation {format_s(seconds)}<br>stage {stage} is the slowest"
        for seconds, stage in zip(synchronising_s, slowest, strict=True)
    ]
    labels = [f"sync {format_s(seconds)}" for seconds in synchronising_s]
    figure = go.Figure(_bar(synchronising_s, rows, labels, words, name="slowest synchronisation", color=VERMILLION))
    for hop in range(max(len(plan.cost.hop_s) for plan in plans)):
        here = [row for row in rows if hop < len(plans[row].cost.hop_s)]
        costs_s = [float(plans[row].cost.hop_s[hop]) for row in here]
        words = [f"stage {hop} to {hop + 1}, slowest pair there and back: {format_s(s)}" for s in costs_s]
        labels = [f"{hop}→{hop + 1}<br>{format_s(s)}" for s in costs_s]
        # Two alternating colours, so that neighbouring hops differ.
        bar = _bar(costs_s, here, labels, words, name="hops along the pipeline", color=BLUE if hop % 2 else SKY)
        figure.add_trace(bar.update(legendgroup="hops", showlegend=hop == 0))
    # marks at the bound are above and below each bar, because its texts are inside
    marks = [
        np.array([(plan.lower_bound_s, row + end), (plan.lower_bound_s, row + 0.7 * end)])
        for row, plan in enumerate(plans)
        for end in (-0.47, 0.47)
    ]
    bound = {"name": "lower bound: no placement costs less", "color": LINE_GREY, "width": 3}
    figure.add_trace(curve(**strokes(marks), **bound, hovertemplate="lower bound %{x:.4g} s<extra></extra>"))
    names = [f"{plan.planner}<br>{format_s(plan.cost.total_s)}" for plan in plans]
    figure.update_yaxes(**numbered_rows(names))
    longest_s = max(plan.cost.total_s for plan in plans)
    # Room for the gap at the end of the longest bar.
    figure.update_xaxes(title_text="communication cost (s)", range=[0, 1.16 * longest_s or 1.0], exponentformat="none")
    for row, plan in enumerate(plans):
        gap = "proven best communication cost" if plan.gap < PROVEN else f"gap {percent(plan.gap)}"
        figure.add_annotation(
            x=plan.cost.total_s, y=row, text=gap, showarrow=False, xanchor="left", xshift=4,
            hovertext=f"cost {format_s(plan.cost.total_s)}, lower bound {format_s(plan.lower_bound_s)}",
        )  # fmt: skip
    networks = " and ".join(dict.fromkeys(f"{plan.job.name} on {plan.topology.name}" for plan in plans))
    best = min(plans, key=lambda plan: plan.cost.total_s)
    note = f"by {best.planner}, {quality(best.gap)} · no placement takes less than {format_s(best.lower_bound_s)}"
    look = {
        "height": 250 + 80 * len(plans),
        "legend_traceorder": "normal",
        "uniformtext": {"minsize": 9, "mode": "hide"},
    }
    title = f"{networks}: communication cost {format_s(best.cost.total_s)}"
    return titled(figure, title, note, alt=_alt(plans), barmode="stack", **look)


def _alt(plans: tuple[Plan, ...]) -> str:
    each = (
        f"{plan.planner} on {plan.topology.name} {format_s(plan.cost.total_s)}: slowest synchronisation "
        f"{format_s(plan.cost.data_parallel_s)}, hops {format_s(plan.cost.pipeline_s)}, {quality(plan.gap)}"
        for plan in plans
    )
    return f"Communication cost, stacked: {'; '.join(each)}."


def _bar(
    seconds: list[float], rows: list[int], labels: list[str], words: list[str], *, name: str, color: str
) -> go.Bar:
    inside = {"textposition": "inside", "insidetextanchor": "middle", "textangle": 0}
    marker = {"color": color, "line": OUTLINE}
    return row_bars(seconds, rows, words, width=0.7, name=name, text=labels, marker=marker, **inside)
