"""The last three of the paper's five steps: the coarsened graph, its weights, and the path through it."""

from itertools import accumulate, combinations, pairwise
from typing import NamedTuple

import numpy as np
import plotly.graph_objects as go

from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import FloatArray, format_s
from dtfm_lab.figures.maps.layout import circle, cluster
from dtfm_lab.figures.palette import CHEAP_TO_DEAR, FAINT, MARKER_EDGE, VERMILLION, ink_on, stage_color
from dtfm_lab.figures.panels import Room, Subfigure
from dtfm_lab.figures.strokes import strokes
from dtfm_lab.figures.theme import UNBOXED, bare, count, literal, quality
from dtfm_lab.planning.path import EXACT_UP_TO, path_cost, shortest_path

NODES_WITH_DEVICES = 16
"""Most groups whose nodes have room for a dot for each device."""
WRITTEN_UP_TO = 10
"""Most groups for which the cells of the matrix have room for their seconds."""
ROW_UP_TO = 8
"""Most stages side by side in the path."""
NODE_PX = 84
ROW_PX, CROWDED_ROW_PX = 128, 74


class Lettered(NamedTuple):
    """The letters of a plan's groups: A is the group with the first device of all, then B, C and so on."""

    order: tuple[int, ...]
    """Stages in the order of their groups' letters."""

    def letter(self, stage: int) -> str:
        """The letter of a stage's group: ``A`` to ``Z``, then ``AA``."""
        letters, at = "", self.order.index(stage) + 1
        while at:
            at, letter = divmod(at - 1, 26)
            letters = chr(ord("A") + letter) + letters
        return letters


def lettered(plan: Plan) -> Lettered:
    """The letters of a plan's groups."""
    grid = plan.placement.devices
    return Lettered(tuple(sorted(range(len(grid)), key=lambda stage: int(grid[stage].min()))))


def coarsened(plan: Plan, room: Room) -> Subfigure:
    """Groups as nodes on a circle, with their devices inside; every two are joined."""
    groups = lettered(plan)
    s, d = plan.placement.devices.shape
    name_px = 26
    radius_px = room.height / 2 - name_px
    apart = 1.7 * np.sin(np.pi / max(2, s))
    node_px = float(np.clip(apart * radius_px / (1 + apart / 2), 8, NODE_PX))
    radius_px -= node_px / 2
    places = circle(s, 1.0)
    colors = [stage_color(stage, s) for stage in groups.order]
    ways = []
    rim = node_px / 2 / radius_px
    for a, b in combinations(range(s), 2):
        inwards = (places[b] - places[a]) * rim / np.linalg.norm(places[b] - places[a])
        ways.append(np.array([places[a] + inwards, places[b] - inwards]))
    line = {"width": 1, "color": FAINT if s <= NODES_WITH_DEVICES else "rgba(128, 128, 128, 0.12)"}
    edges = go.Scatter(**strokes(ways), mode="lines", name="edges", line=line, hoverinfo="skip")
    whole = s <= NODES_WITH_DEVICES
    marker = {
        "size": node_px,
        "color": colors,
        "opacity": 0.3 if whole else 1,
        "line": {"width": 1, "color": MARKER_EDGE},
    }
    words = [f"group {groups.letter(stage)}: {count(d, 'device')}" for stage in groups.order]
    look = {"mode": "markers", "marker": marker, "hovertext": words, "hoverinfo": "text"}
    nodes = go.Scatter(x=places[:, 0].tolist(), y=places[:, 1].tolist(), name="groups", **look)
    figure = go.Figure([edges, nodes])
    if whole:
        figure.add_trace(_dots(plan, groups, places, node_px, radius_px))
    if s <= 2 * NODES_WITH_DEVICES:
        out = 1 + (node_px / 2 + 12) / radius_px
        notes = []
        for stage, place in zip(groups.order, places, strict=True):
            at = {"x": float(place[0] * out), "y": float(place[1] * out if s > 1 else out - 1)}
            notes.append({"text": f"<b>{groups.letter(stage)}</b>", **at, **UNBOXED})
        figure.update_layout(annotations=notes)
    bare(figure, square=True)
    figure.update_xaxes(range=[-room.width / 2 / radius_px, room.width / 2 / radius_px], constrain="domain")
    figure.update_yaxes(range=[-room.height / 2 / radius_px, room.height / 2 / radius_px], constrain="domain")
    n = s * d
    caption = (
        f"{count(n, 'device')} and {n * (n - 1) // 2:,} pairs of them become "
        f"{count(s, 'node')} and {count(s * (s - 1) // 2, 'edge')}."
    )
    return Subfigure(figure, "(c) each group collapses into a node", caption, room.height)


def _dots(plan: Plan, groups: Lettered, places: FloatArray, node_px: float, radius_px: float) -> go.Scatter:
    """A dot for each device, within its group's node."""
    d = plan.job.n_replicas
    ring = cluster(d)
    reach = float(np.linalg.norm(ring, axis=1).max()) + 0.5
    unit_px = 0.42 * node_px / reach
    names = plan.topology.names
    spots = (places[:, None] + ring[None] * unit_px / radius_px).reshape(-1, 2)
    devices = plan.placement.devices[list(groups.order)].ravel()
    colors = np.repeat([stage_color(stage, plan.job.n_stages) for stage in groups.order], d).tolist()
    letters = np.repeat([groups.letter(stage) for stage in groups.order], d)
    return go.Scatter(
        x=spots[:, 0].astype(np.float32),
        y=spots[:, 1].astype(np.float32),
        mode="markers",
        name="devices",
        marker={
            "size": float(np.clip(0.8 * unit_px, 2.5, 14)),
            "color": colors,
            "opacity": 1,
            "line": {"width": 0.8, "color": MARKER_EDGE},
        },
        hovertext=[f"{literal(names[i])} · group {letter}" for i, letter in zip(devices, letters, strict=True)],
        hoverinfo="text",
    )


def weighed(plan: Plan, room: Room) -> Subfigure:
    """The weights as a matrix; with few groups, each cell holds its seconds."""
    groups = lettered(plan)
    s = plan.job.n_stages
    weights = plan.cost.weights_s[np.ix_(groups.order, groups.order)]
    letters = [groups.letter(stage) for stage in groups.order]
    written = s <= WRITTEN_UP_TO
    rows = range(s)
    above = weights[np.triu_indices(s, 1)]
    low_s, high_s = (float(above.min()), float(above.max())) if s > 1 else (0.0, 0.0)
    apart = [[float(weights[a, b]) if a != b else None for b in rows] for a in rows]
    texts = [[format_s(weights[a, b]) if a != b else "" for b in rows] for a in rows]
    hover = [[f"{letters[a]} – {letters[b]}: {texts[a][b]}" if a != b else "" for b in rows] for a in rows]
    heat = go.Heatmap(
        z=apart,
        x=list(rows),
        y=list(rows),
        text=texts if written else None,
        texttemplate="%{text}" if written else None,
        textfont_size=10,
        hovertext=hover,
        hoverinfo="text",
        hoverongaps=False,
        xgap=1 if s <= 32 else 0,
        ygap=1 if s <= 32 else 0,
        colorscale=CHEAP_TO_DEAR,
        showscale=not written and low_s < high_s,
        colorbar={"title": {"text": "s<br> "}, "outlinewidth": 0, "thickness": 12},
    )
    figure = go.Figure(heat)
    every = max(1, s // 16)
    axis = {
        "tickvals": list(rows)[::every], "ticktext": letters[::every], "tickangle": 0,
        "showgrid": False, "zeroline": False, "constrain": "domain", "range": [-0.5, s - 0.5],
    }  # fmt: skip
    figure.update_xaxes(**axis, title_text="group")
    figure.update_yaxes(**{**axis, "range": [s - 0.5, -0.5]}, title_text="group", scaleanchor="x")
    if s == 1:
        bare(figure)
        caption = "One group, so no edge to weigh."
    else:
        pairs = list(combinations(letters, 2))
        cheap, dear = pairs[int(above.argmin())], pairs[int(above.argmax())]
        caption = f"{format_s(low_s)} ({'–'.join(cheap)}) to {format_s(high_s)} ({'–'.join(dear)})"
        if len(pairs) == 1 or low_s == high_s:
            caption = f"{format_s(low_s)}{' each' if len(pairs) > 1 else ''}"
        caption = f"An edge weighs the slowest pair of the best matching of its two groups: {caption}."
    return Subfigure(figure, "(d) edge weights of the coarsened graph", caption, room.height)


def path(plan: Plan, room: Room) -> Subfigure:
    """Groups in stage order, in rows of alternating direction, with the seconds of each hop."""
    groups, cost = lettered(plan), plan.cost
    s = plan.job.n_stages
    across = min(s, ROW_UP_TO)
    row, column = np.divmod(np.arange(s), ROW_UP_TO)
    column = np.where(row % 2, ROW_UP_TO - 1 - column, column)
    x, y = (column + 0.0).tolist(), (-row + 0.0).tolist()
    colors = [stage_color(stage, s) for stage in range(s)]
    n_rows = int(row.max()) + 1
    roomy = n_rows <= 2
    row_px = ROW_PX if roomy else CROWDED_ROW_PX
    node_px = 40.0 if roomy else 24.0
    layers = _layers(plan)
    hover = [f"group {groups.letter(k)} is stage {k}{layers[k]}" for k in range(s)]
    figure = go.Figure(
        [
            go.Scatter(x=x, y=y, mode="lines", name="path", line={"width": 6, "color": VERMILLION}, hoverinfo="skip"),
            go.Scatter(
                x=x, y=y, mode="markers+text", name="stages",
                text=[groups.letter(stage) for stage in range(s)],
                textfont={"color": [ink_on(color) for color in colors], "size": 14 if roomy else 10},
                marker={"size": node_px, "color": colors, "opacity": 1, "line": {"width": 1, "color": MARKER_EDGE}},
                hovertext=hover, hoverinfo="text",
            ),
        ]
    )  # fmt: skip
    size = 12 if roomy else 10
    notes: list[dict[str, object]] = []
    for k, (a, b) in enumerate(pairwise(range(s))):
        level = y[a] == y[b]
        where: dict[str, object] = (
            {"yanchor": "bottom", "yshift": 5} if level else {"xanchor": "right" if x[a] else "left"}
        )
        if not level:
            where["xshift"] = -8 if x[a] else 8
        text = f"<b>{format_s(float(cost.hop_s[k]))}</b>"
        at = {"x": (x[a] + x[b]) / 2, "y": (y[a] + y[b]) / 2}
        notes.append({"text": text, "font": {"size": size}, **at, **where, **UNBOXED})
    for k in range(s):
        words = f"stage {k}" + (f"<br>{layers[k].removeprefix(', ')}" if layers[k] and roomy else "")
        under = {"yanchor": "top", "yshift": -node_px / 2 - 2}
        if k + 1 < s and row[k + 1] > row[k]:  # the path continues where the words would be
            under |= {"xanchor": "right" if column[k] else "left", "xshift": -10 if column[k] else 10}
        notes.append({"text": words, "font": {"size": size}, "x": x[k], "y": y[k], **under, **UNBOXED})
    bare(figure).update_layout(annotations=notes)
    figure.update_xaxes(range=[-0.55, across - 0.45])
    figure.update_yaxes(range=[-n_rows + 0.35, 0.35])
    return Subfigure(figure, "(e) the path assigns layers to groups", _caption(plan, groups), n_rows * row_px)


def _layers(plan: Plan) -> list[str]:
    """For each stage a text such as ``, layers 4 to 6``, which is empty where the job has no model."""
    counts = plan.layers
    if counts is None:
        return [""] * plan.job.n_stages
    ends = list(accumulate(counts))
    return [
        f", layer {end}" if n == 1 else f", layers {end - n + 1} to {end}" for n, end in zip(counts, ends, strict=True)
    ]


def _caption(plan: Plan, groups: Lettered) -> str:
    cost, s = plan.cost, plan.job.n_stages
    total = f"{format_s(cost.total_s)}, {quality(plan.gap)}"
    if s == 1:
        return f"A single stage needs no path; the plan costs its synchronisation, {total}."
    letters = [groups.letter(stage) for stage in range(s)]
    shown = " ".join(letters if s <= 16 else [*letters[:8], "…", letters[-1]])
    hops = count(s - 1, "hop")
    words = f"The path {shown} takes {format_s(cost.pipeline_s)} in {hops}; "
    if s <= EXACT_UP_TO:
        shortest_s = path_cost(cost.weights_s, shortest_path(cost.weights_s))
        if cost.pipeline_s <= shortest_s * (1 + 1e-9):
            words = f"The shortest path, {shown}, takes {format_s(cost.pipeline_s)} in {hops}; "
        else:
            words += f"the shortest would take {format_s(shortest_s)}; "
    return words + f"with the slowest group's {format_s(cost.data_parallel_s)} the plan costs {total}."
