"""The marks of a network's map: devices, links with a width for each class of bandwidth, pipelines and regions."""

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from itertools import combinations, pairwise
from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go

from dtfm_lab.domain.network import Device, Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import TERA, FloatArray, GiB, format_gbps, format_s, to_gbps, to_ms
from dtfm_lab.figures.maps.layout import Patch, bent, is_drawn
from dtfm_lab.figures.palette import FAINT, GREY, LINE_GREY, ink_on, stage_color
from dtfm_lab.figures.strokes import worded
from dtfm_lab.figures.theme import UNBOXED, WORDLESS, curve, literal, spots

DASHES = ((30.0, "solid"), (80.0, "longdash"), (150.0, "dash"), (math.inf, "dot"))
"""Plotly's dashes by latency: each applies below this number of milliseconds."""
DASH_WORDS = "dashes: latency, solid below 30 ms, long below 80, short below 150, dotted above"
LAPTOP = re.compile(r"laptop|cpu|mobile|apple|\bm[1-4]\b|none|raspberry|mx\d", re.IGNORECASE)
CONSUMER = re.compile(r"rtx|gtx|geforce|titan|radeon|\brx\b|^\d{4}(\s?ti)?$", re.IGNORECASE)
WORKSTATION = re.compile(r"rtx\s?a\d|rtx\s?pro|ada generation|\brtx\s?\d{4}\s?ada", re.IGNORECASE)

CLASSES = 5
"""Maximum number of line widths on a map, into which the bandwidths of its links are grouped."""
NO_REGION = "no region"
GROUND = "rgba(128, 128, 128, 0.14)"
Way = Callable[[int, int], FloatArray]
"""Returns the (n, 2) points of the line between two devices. A row of NaN interrupts the line."""
PIPELINE_COLOR = "rgba(128, 128, 128, 0.85)"
ROOM_FOR_NUMBER_PX = 12
"""Minimum size of a marker in which a number is readable, in pixels."""
SYMBOLS = {"circle": "circle", "box": "square", "triangle": "triangle-up"}
"""{shape of a kind of GPU, as ``gpu_shape`` returns it: Plotly's name for that marker}."""


class Line(NamedTuple):
    """A drawn link in both directions: points, the slower bandwidth, the longer latency, the hover text."""

    points: FloatArray
    """(n, 2) points. A row of NaN interrupts the line."""
    gbps: float
    latency_ms: float
    text: str


def device_links(topology: Topology, places: FloatArray) -> list[go.Scatter]:
    """Return lines between every pair of devices."""
    lines = []
    for i, j in combinations(range(len(topology)), 2):
        way = bent(places[i], places[j], (place for k, place in enumerate(places) if k not in (i, j)))
        lines.append(_line(topology, [i], [j], way, topology.names[i], topology.names[j]))
    return _drawn(lines)


def region_links(
    topology: Topology, route: Callable[[str, str], FloatArray], each: int | None = None
) -> list[go.Scatter]:
    """Return lines between pairs of regions, each with the median of their links. ``route`` returns the points of a
    line.

    With ``each``, a pair is drawn only if it is among the ``each`` fastest pairs of at least one of its two regions.
    """
    members = {r: [i for i, d in enumerate(topology.devices) if d.region == r] for r in topology.regions}
    lines = {
        (a, b): _line(topology, members[a], members[b], route(a, b), a or NO_REGION, b or NO_REGION)
        for a, b in combinations(topology.regions, 2)
    }
    # Lines between all of many regions would cover the map.
    if each is not None:
        of = {r: sorted((pair for pair in lines if r in pair), key=lambda p: -lines[p].gbps) for r in topology.regions}
        keep = {pair for pairs in of.values() for pair in pairs[:each]}
        lines = {pair: line for pair, line in lines.items() if pair in keep}
    return _drawn(lines.values())


def pipeline_lines(plan: Plan, way: Way) -> list[go.Scatter]:
    """Return a line for each pipeline, with one legend entry for all."""
    hop_s = plan.topology.round_trip_s(plan.job.hop_bytes)
    names = [literal(name) for name in plan.topology.names]
    lines = []
    for pipeline, visited in enumerate(plan.placement.devices.T.tolist()):
        hops = list(pairwise(visited))
        words = [
            f"pipeline {pipeline}, stage {s} to {s + 1}: {format_s(float(hop_s[a, b]))} there and back"
            f"<br>{names[a]} → {names[b]}"
            for s, (a, b) in enumerate(hops)
        ]
        look = {"color": PIPELINE_COLOR, "width": 2.2, "legendgroup": "pipelines", "showlegend": pipeline == 0}
        lines.append(curve(**worded([way(a, b) for a, b in hops], words), name="pipelines", **look))
    return lines


def _line(topology: Topology, a: list[int], b: list[int], points: FloatArray, name_a: str, name_b: str) -> Line:
    words, slower, longer = [], np.inf, 0.0
    name_a, name_b = literal(name_a), literal(name_b)
    for source, target, way in ((a, b, f"{name_a} → {name_b}"), (b, a, f"{name_b} → {name_a}")):
        grid = np.ix_(source, target)
        gbps = float(np.median(to_gbps(topology.bandwidth_bytes_per_s[grid])))
        latency_ms = float(np.median(to_ms(topology.latency_s[grid])))
        # The worse direction counts: it is what a pipeline waits for.
        slower, longer = min(slower, gbps), max(longer, latency_ms)
        words.append(f"{way}: {latency_ms:.4g} ms, {gbps:.4g} Gbit/s")
    return Line(points, slower, longer, "<br>".join(words))


def _drawn(lines: Iterable[Line]) -> list[go.Scatter]:
    """Return one plotly trace for each class of bandwidth and each dash, fastest first, with hover texts along each
    line."""
    lines = list(lines)
    classes = _classes(np.array([line.gbps for line in lines]))
    grouped: dict[int, dict[str, list[Line]]] = defaultdict(lambda: defaultdict(list))
    for line, its_class in zip(lines, classes, strict=True):
        grouped[its_class][link_dash(line.latency_ms)].append(line)
    traces = []
    # One trace per class and dash, because thousands of traces make a page slow.
    for _, dashes in sorted(grouped.items(), reverse=True):
        speeds = [line.gbps for some in dashes.values() for line in some]
        low, high = min(speeds), max(speeds)
        slow, fast = format_gbps(low), format_gbps(high)
        name = fast if slow == fast else f"{slow.removesuffix(' Gbit/s')} to {fast}"
        for at, (dash, some) in enumerate(dashes.items()):
            drawn = worded([line.points for line in some], [line.text for line in some])
            look = {"width": link_width(float(np.sqrt(low * high))), "color": FAINT, "dash": dash}
            traces.append(go.Scatter(**drawn, mode="lines", name=name, legendgroup=name, showlegend=at == 0, line=look))
    return traces


def _classes(gbps: FloatArray) -> list[int]:
    """Return the class of each bandwidth, 0 for the slowest. It is the rank of the bandwidth if there are at most
    ``CLASSES`` different ones. Otherwise the classes are equal steps of its logarithm."""
    rank = np.unique(gbps, return_inverse=True)[1].ravel()
    if not rank.size or rank.max() < CLASSES:
        return [int(r) for r in rank]
    logs = np.log10(np.clip(gbps, None, gbps[np.isfinite(gbps)].max(initial=1.0)))
    steps = (logs - logs.min()) / (logs.max() - logs.min() or 1.0) * CLASSES
    return [int(step) for step in np.minimum(steps, CLASSES - 1)]


def devices(
    topology: Topology, places: FloatArray, plan: Plan | None, *, marker_px: float, named: bool
) -> list[go.Scatter]:
    """Return markers, and names below them if ``named``.

    With a plan, a device has the colour of its stage, and its number if the marker is large enough. An idle one is
    grey.
    """
    grid, n_stages = ((), 1) if plan is None else (plan.placement.devices, plan.job.n_stages)
    task = {int(device): at for at, device in np.ndenumerate(grid)}
    indices = range(len(topology))
    colors = [stage_color(task[i][0], n_stages) if i in task else LINE_GREY if plan is None else GREY for i in indices]
    words = [literal(d.name) + (f" · {literal(d.region)}" if d.region else "") for d in topology.devices]
    if plan is not None:
        roles = [f"stage {task[i][0]}, pipeline {task[i][1]}" if i in task else "idle" for i in indices]
        words = [f"{word}<br>{role}" for word, role in zip(words, roles, strict=True)]
    hardware = [_hardware(device) for device in topology.devices]
    # If all devices have the same hardware, one template names it for all.
    if len(set(hardware)) == 1:
        hover = {"hovertemplate": f"%{{hovertext}}<br>{hardware[0]}<extra></extra>"}
    else:
        words, hover = [f"{w}<br>{h}" for w, h in zip(words, hardware, strict=True)], {"hoverinfo": "text"}
    x, y = places.T.astype(np.float32)
    symbols = [SYMBOLS[gpu_shape(device.gpu)] for device in topology.devices]
    numbers = [str(task[i][0]) if i in task else WORDLESS for i in indices]
    # A number needs room, or it covers the marker.
    look: dict[str, Any] = {"mode": "markers+text" if marker_px >= ROOM_FOR_NUMBER_PX else "markers", "name": "devices"}
    look["textfont"] = {"color": [ink_on(color) for color in colors], "size": 12 if marker_px > 15 else 10}
    look["marker"] = {"symbol": symbols[0] if len(set(symbols)) == 1 else symbols}
    marks = spots(x, y, marker_px, colors, numbers, hovertext=words, **look, **hover)
    return [_names(topology, places, marker_px), marks] if named else [marks]


def _hardware(device: Device) -> str:
    return f"{literal(device.gpu)}, {device.peak_flop_per_s / TERA:.4g} TFLOP/s, {device.memory_bytes / GiB:.4g} GiB"


def _names(topology: Topology, places: FloatArray, marker_px: float) -> go.Scatter:
    """Return names below the devices, or on the outer side of a ring. An invisible marker keeps a name off its
    device."""
    positions = ["bottom center"] * len(topology)
    if not is_drawn(topology):
        for i, device in enumerate(topology.devices):
            ring = places[[other.region == device.region for other in topology.devices]]
            dx, dy = (places[i] - (ring.min(axis=0) + ring.max(axis=0)) / 2).tolist()
            if abs(dx) > 0.3 * abs(dy):
                positions[i] = "middle right" if dx > 0 else "middle left"
            elif dy > 0:
                positions[i] = "top center"
    x, y = places.T.astype(np.float32)
    names, look = [literal(name) for name in topology.names], {"textposition": positions, "name": "names"}
    return spots(x, y, marker_px, None, names, marker={"opacity": 0}, hoverinfo="skip", **look)


def grounds(figure: go.Figure, patches: Mapping[str, Patch]) -> None:
    """Draw a faint patch for each region, with its name above. Nothing is drawn if no device has a region."""
    if list(patches) == [""]:
        return
    shapes, names = [], []
    for region, patch in patches.items():
        (x0, y0), (x1, y1) = ((patch.centre + side * patch.half).round(2).tolist() for side in (-1, 1))
        look = {"line": {"width": 0}, "fillcolor": GROUND, "layer": "below"}
        kind = "circle" if patch.round else "rect"
        shapes.append({"type": kind, "x0": x0, "y0": y0, "x1": x1, "y1": y1, **look})
        at = {"x": round(float(patch.centre[0]), 2), "y": y1, "yanchor": "bottom", "borderpad": 0}
        names.append({"text": f"<b>{literal(region or NO_REGION)}</b>", **at, **UNBOXED})
    figure.update_layout(shapes=shapes, annotations=names)


def link_width(gbps: float) -> float:
    """Return a line's width in pixels by its Gbit/s, on a logarithmic scale: 3.4 for 1 Gbit/s, 6.2 for 100 Gbit/s. It
    is at least 1 and at most 7."""
    return min(7.0, max(1.0, 3.4 + 1.4 * math.log10(max(gbps, 1e-4))))


def link_dash(latency_ms: float) -> str:
    """Return plotly's dash of a line by its latency."""
    return next(dash for below, dash in DASHES if latency_ms < below)


def gpu_shape(name: str) -> str:
    """Return ``circle`` for a data-centre GPU, ``box`` for a laptop or a processor, ``triangle`` for a consumer GPU."""
    if not name or LAPTOP.search(name):
        return "box"
    return "triangle" if CONSUMER.search(name) and not WORKSTATION.search(name) else "circle"
