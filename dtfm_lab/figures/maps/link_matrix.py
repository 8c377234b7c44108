"""The links of a network as a heat map."""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go

from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.registry import unknown
from dtfm_lab.domain.units import FloatArray, counted, to_gbps, to_ms
from dtfm_lab.figures.maps.marks import NO_REGION
from dtfm_lab.figures.palette import CHEAP_TO_DEAR
from dtfm_lab.figures.theme import figure_of, literal, log_ticks, titled

NAMED_UP_TO = 32
"""Maximum number of devices that are named on the axes. With more, the regions are named."""
WRITTEN_UP_TO = 12
"""Maximum number of devices for which numbers fit into the cells."""
MOST_DISPLAYED = 512
"""Maximum number of devices for which every link is drawn. A picture of 512 devices takes 3 MB."""
REGIONS_NAMED_UP_TO = 40
"""Maximum number of region names on an axis."""
ALIKE = 1.001
"""Up to this ratio, the two directions of a pair count as equal."""


@figure_of(Topology)
def link_matrix(topology: Topology, of: str = "bandwidth") -> go.Figure:
    """A heat map of the links from row to column, in logarithmic colours: light is cheap, dark is expensive.

    Devices are in order of region. For a network of more than 512 devices, it draws one device per host. With more than
    512 hosts, it draws evenly spaced devices, because a page cannot show millions of cells. ``of`` is "bandwidth"
    (Gbit/s) or "latency" (ms). Raises UnknownName for anything else.
    """
    if of not in ("bandwidth", "latency"):
        raise unknown("link property", of, ("bandwidth", "latency"))
    # More devices than pixels would only blur.
    topology, only = _few(topology)
    blocks = {r: [i for i, d in enumerate(topology.devices) if d.region == r] for r in topology.regions}
    sorted_ = topology.subset([i for devices in blocks.values() for i in devices])
    n = len(sorted_)
    values = to_gbps(sorted_.bandwidth_bytes_per_s) if of == "bandwidth" else to_ms(sorted_.latency_s)
    unit = "Gbit/s" if of == "bandwidth" else "ms"
    logs = _logs(values)
    apart = ~np.eye(n, dtype=bool)
    names = [_category(name) for name in sorted_.names]
    shown = [literal(name) for name in names]
    heat = go.Heatmap(
        x=shown,
        y=shown,
        z=np.where(apart, logs, np.nan).astype(np.float32),
        text=np.where(apart, np.char.mod("%.3g", values), "") if n <= WRITTEN_UP_TO else values.astype(np.float32),
        texttemplate="%{text}" if n <= WRITTEN_UP_TO else None,
        hovertemplate=f"%{{y}} → %{{x}}: %{{text{'' if n <= WRITTEN_UP_TO else ':.4~g'}}} {unit}<extra></extra>",
        hoverongaps=False,
        xgap=1 if n <= NAMED_UP_TO else 0,
        ygap=1 if n <= NAMED_UP_TO else 0,
        colorscale=CHEAP_TO_DEAR if of == "latency" else CHEAP_TO_DEAR.removesuffix("_r"),
        colorbar=_colorbar(logs[apart], unit),
    )
    figure = go.Figure(heat)
    _name_axes(figure, shown, blocks)
    title = f"{topology.name}: {of} from row to column ({unit})"
    size = f"{counted(n, 'device')} by {counted(len(blocks), 'region')}"
    size = only or size
    note = f"{size} · logarithmic colours, light is cheap · {_directions(values, names, of)}"
    alt = f"Heat map of the links of {title}; {note}."
    return titled(figure, title, note, alt=alt, height=max(420, min(800, 220 + 40 * n)), margin_b=60)


def _few(topology: Topology) -> tuple[Topology, str]:
    """Return the network with as many of its devices as a matrix shows, and a note on which these are."""
    if (n := len(topology)) <= MOST_DISPLAYED:
        return topology, ""
    firsts = {device.host or f"\0{i}": i for i, device in reversed(list(enumerate(topology.devices)))}
    if len(firsts) <= MOST_DISPLAYED:
        return topology.subset(sorted(firsts.values())), f"one device of each of {counted(len(firsts), 'host')}"
    every = -(-n // MOST_DISPLAYED)
    return topology.subset(range(0, n, every)), f"one in {every} of {counted(n, 'device')}"


def _category(name: str) -> str:
    """Return a device's name for an axis. A name that is a number gets a prefix, because plotly would take it for a
    position."""
    try:
        float(name)
    except ValueError:
        return name
    return f"device {name}"


def _directions(values: FloatArray, names: list[str], of: str) -> str:
    """Return a note on the pair whose two directions differ most, or that all directions are alike."""
    if len(values) == 1:
        return "no link"
    # The diagonal holds no link.
    values = np.where(np.eye(len(values), dtype=bool), 1.0, values)
    low, high = np.minimum(values, values.T), np.maximum(values, values.T)
    # Links without bandwidth would divide by zero.
    ratio = np.divide(high, low, out=np.ones_like(high), where=low > 0)
    more = "faster" if of == "bandwidth" else "longer"
    i, j = np.unravel_index(int(np.where(values >= values.T, ratio, 0).argmax()), ratio.shape)
    if ratio[i, j] > ALIKE:
        return f"directions differ: {names[i]} → {names[j]} is {ratio[i, j]:.3g} times {more} than back"
    if (one_way := np.argwhere((low == 0) & (high > 0) & (values > 0))).size:
        i, j = one_way[0]
        return f"directions differ: {names[i]} → {names[j]} is {more} than back"
    return "both directions alike"


def _logs(values: FloatArray) -> FloatArray:
    """Return common logarithms. A latency of 0 counts as the smallest of the others, an infinite bandwidth as the
    largest."""
    usable = values[np.isfinite(values) & (values > 0)]
    low, high = (usable.min(), usable.max()) if usable.size else (1.0, 1.0)
    return np.log10(np.clip(values, low, high))


def _colorbar(logs: FloatArray, unit: str) -> dict[str, object]:
    low, high = (float(logs.min()), float(logs.max())) if logs.size else (0.0, 0.0)
    ticks = log_ticks(10**low, 10**high)
    named = {"tickvals": np.log10(ticks).tolist(), "ticktext": [f"{tick:.3g}" for tick in ticks]}
    return {"title": {"text": f"{unit}<br> "}, **named, "outlinewidth": 0, "thickness": 14}


def _name_axes(figure: go.Figure, names: list[str], blocks: Mapping[str, Sequence[int]]) -> None:
    """Name the devices, or each region at its middle, and draw lines between regions."""
    n = len(names)
    ends = list(itertools.accumulate(map(len, blocks.values())))
    ticks: list[float] = list(range(n))
    words = names
    # The names of this many devices would overlap, so region names replace them.
    if n > NAMED_UP_TO and len(blocks) > 1:
        every = max(1, -(-len(blocks) // REGIONS_NAMED_UP_TO))
        middles = [end - len(devices) / 2 - 0.5 for end, devices in zip(ends, blocks.values(), strict=True)]
        ticks, words = middles[::every], [literal(region or NO_REGION) for region in blocks][::every]
    elif n > NAMED_UP_TO:
        every = -(-n // NAMED_UP_TO)
        ticks, words = ticks[::every], names[::every]
    width = 2.0 if n <= 128 else 1.0
    lines = []
    for edge in (end - 0.5 for end in ends[:-1]):
        for across, along in ("xy", "yx"):
            ends_at = {f"{across}0": edge, f"{across}1": edge, f"{along}0": -0.5, f"{along}1": n - 0.5}
            lines.append({"type": "line", **ends_at, "line": {"width": width, "color": "#ffffff"}})
    figure.update_layout(shapes=lines)
    axis = {"type": "category", "tickvals": ticks, "ticktext": words, "showgrid": False, "constrain": "domain"}
    figure.update_xaxes(**axis, title_text="to", range=[-0.5, n - 0.5])
    figure.update_yaxes(**axis, title_text="from", range=[n - 0.5, -0.5], scaleanchor="x")
