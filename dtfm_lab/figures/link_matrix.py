"""The links of a network as a heat map."""

from __future__ import annotations

import itertools

import numpy as np
import plotly.graph_objects as go

from dtfm_lab.domain.registry import unknown
from dtfm_lab.domain.topology import Topology
from dtfm_lab.domain.units import FloatArray, to_gbps, to_ms
from dtfm_lab.figures.palette import CHEAP_TO_DEAR
from dtfm_lab.figures.theme import titled
from dtfm_lab.figures.ticks import log_ticks

NAMED_UP_TO = 32
"""devices; of more, only the regions are named"""
WRITTEN_UP_TO = 12
"""devices; in more, cells have no room for their number"""


def link_matrix(topology: Topology, of: str = "bandwidth") -> go.Figure:
    """Row to column, devices sorted by region, logarithmic colours: light is cheap, dark is dear.

    ``of`` is "bandwidth" (Gbit/s) or "latency" (ms); raises UnknownName for anything else.
    """
    if of not in ("bandwidth", "latency"):
        raise unknown("link property", of, ("bandwidth", "latency"))
    order = sorted(range(len(topology)), key=lambda i: topology.regions.index(topology.devices[i].region))
    sorted_ = topology.subset(order)
    n = len(sorted_)
    values = to_gbps(sorted_.bandwidth_bytes_per_s) if of == "bandwidth" else to_ms(sorted_.latency_s)
    unit = "Gbit/s" if of == "bandwidth" else "ms"
    logs = _logs(values)
    apart = ~np.eye(n, dtype=bool)
    written = [[f"{values[i, j]:.3g}" if i != j else "" for j in range(n)] for i in range(n)]
    names = sorted_.names
    hover = [[f"{names[i]} → {names[j]}: {values[i, j]:.4g} {unit}" for j in range(n)] for i in range(n)]
    figure = go.Figure(
        go.Heatmap(
            z=[[float(logs[i, j]) if i != j else None for j in range(n)] for i in range(n)],
            text=written if n <= WRITTEN_UP_TO else None,
            texttemplate="%{text}" if n <= WRITTEN_UP_TO else None,
            hovertext=hover,
            hoverinfo="text",
            hoverongaps=False,
            xgap=1 if n <= NAMED_UP_TO else 0,
            ygap=1 if n <= NAMED_UP_TO else 0,
            colorscale=CHEAP_TO_DEAR if of == "latency" else CHEAP_TO_DEAR.removesuffix("_r"),
            colorbar=_colorbar(logs[apart], unit),
        )
    )
    _name_axes(figure, sorted_)
    return titled(
        figure,
        f"{topology.name}: {of} from row to column ({unit})",
        f"{n} devices in {len(topology.regions)} regions · logarithmic colours, light is cheap",
        height=max(420, min(760, 220 + 40 * n)),
    )


def _logs(values: FloatArray) -> FloatArray:
    """log10; a latency of 0 or an endless bandwidth as the least or greatest of the others."""
    usable = values[np.isfinite(values) & (values > 0)]
    low, high = (usable.min(), usable.max()) if usable.size else (1.0, 1.0)
    return np.log10(np.clip(values, low, high))


def _colorbar(logs: FloatArray, unit: str) -> dict[str, object]:
    low, high = (float(logs.min()), float(logs.max())) if logs.size else (0.0, 0.0)
    ticks = log_ticks(10**low, 10**high)
    return {
        "title": {"text": f"{unit}<br> "},
        "tickvals": np.log10(ticks).tolist(),
        "ticktext": [f"{tick:.3g}" for tick in ticks],
        "outlinewidth": 0,
        "thickness": 14,
    }


def _name_axes(figure: go.Figure, topology: Topology) -> None:
    """Device names, or a region's name at its middle and a line at its end."""
    n = len(topology)
    ticks, words = list(range(n)), list(topology.names)
    edges = np.flatnonzero([a.region != b.region for a, b in zip(topology.devices, topology.devices[1:], strict=False)])
    if n > NAMED_UP_TO and topology.regions != ("",):
        bounds = [-0.5, *(edges + 0.5).tolist(), n - 0.5]
        ticks = [(a + b) / 2 for a, b in itertools.pairwise(bounds)]
        words = [region or "no region" for region in topology.regions]
    for edge in (edges + 0.5).tolist():
        for across, along in ("xy", "yx"):
            ends = {f"{across}0": edge, f"{across}1": edge, f"{along}0": -0.5, f"{along}1": n - 0.5}
            figure.add_shape(type="line", **ends, line={"width": 1.5, "color": "#ffffff"})
    axis = {"tickvals": ticks, "ticktext": words, "showgrid": False, "zeroline": False, "constrain": "domain"}
    figure.update_xaxes(**axis, title_text="to", range=[-0.5, n - 0.5])
    figure.update_yaxes(**axis, title_text="from", range=[n - 0.5, -0.5], scaleanchor="x")
