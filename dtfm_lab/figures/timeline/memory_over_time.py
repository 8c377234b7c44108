"""Figure of the memory that each device holds in the course of an iteration, and of its limit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from dtfm_lab.domain.registry import unknown
from dtfm_lab.domain.units import FloatArray, counted, format_bytes
from dtfm_lab.figures.palette import BLUE, CRIMSON, GREEN, ORANGE, PURPLE, SKY, VERMILLION
from dtfm_lab.figures.strokes import strokes
from dtfm_lab.figures.theme import curve, figure_of, literal, time_unit, titled, with_headings
from dtfm_lab.simulation.memory import MemoryReport

MOST_DEVICES = 8
"""Maximum number of devices that are shown by default, each in its own panel."""
PANEL_PX = 132
HEADING_PX = 40
MOST_POINTS = 160
"""Maximum number of points of a curve. A panel is some 400 pixels wide."""
IN_SIGHT = 2.0
"""A limit is drawn if it is at most this multiple of the highest peak that is shown. A higher one would flatten the
curves."""
BANDS = {"parameters": GREEN, "gradients": PURPLE, "optimiser states": BLUE, "activations": ORANGE, "messages": SKY}
UNITS = (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("bytes", 1))


class Curve(NamedTuple):
    """Bytes that one device holds from each time on, by band, such as parameters or activations. Without durations, a
    time is the number of the device's computations so far."""

    time: FloatArray
    bands: dict[str, FloatArray]
    limit_bytes: float

    @property
    def total(self) -> FloatArray:
        """Bytes of all bands together."""
        total_bytes: FloatArray = np.sum(list(self.bands.values()), axis=0)
        return total_bytes


class Axes(NamedTuple):
    """Ranges and units that all panels share."""

    until: float
    x_scale: float
    x_title: str
    top_bytes: float
    y_unit: tuple[str, int]

    @classmethod
    def of(cls, curves: Sequence[Curve], until: float, *, timed: bool) -> Axes:
        peak_bytes = max(float(curve.total.max()) for curve in curves)
        in_sight = [curve.limit_bytes for curve in curves if curve.limit_bytes <= IN_SIGHT * peak_bytes]
        top_bytes = 1.08 * max([peak_bytes, *in_sight]) or 1.0
        unit, x_scale = time_unit(until) if timed else ("s", 1.0)
        x_title = f"time since the iteration began ({unit})" if timed else "computations of the device"
        y_unit = next(((name, n) for name, n in UNITS if top_bytes >= n), UNITS[-1])
        return cls(until, x_scale, x_title, top_bytes, y_unit)


@figure_of(MemoryReport)
def memory_over_time(report: MemoryReport, *, devices: Sequence[str] | None = None) -> go.Figure:
    """A panel for each device: what it holds in an iteration, stacked, and its limit. What exceeds the limit is
    hatched.

    Parameters
    ----------
    devices
        Names. None or an empty list means all devices, or the eight with least memory to spare if there are more.

    Raises UnknownName for a device that the plan does not have.
    """
    chosen = _chosen(report, devices)
    first = report.levels.device < report.limit_bytes.size
    until = float(report.levels.time[first].max(initial=0.0))
    curves = {at: _curve(report, at) for at in chosen}
    axes = Axes.of(list(curves.values()), until, timed=report.timed)
    n_columns = 1 if len(chosen) == 1 else 2
    n_rows = -(-len(chosen) // n_columns)
    total_px = n_rows * PANEL_PX + (n_rows - 1) * HEADING_PX
    between = {"vertical_spacing": HEADING_PX / total_px if n_rows > 1 else 0.0, "horizontal_spacing": 0.04}
    headings = [_heading(report, at) for at in chosen]
    # Shared axes, so that devices can be compared.
    figure = make_subplots(n_rows, n_columns, shared_xaxes=True, shared_yaxes=True, subplot_titles=headings, **between)
    has_limit = False
    for number, at in enumerate(chosen):
        row, column = (n + 1 for n in divmod(number, n_columns))
        traces = _drawn(curves[at], axes, first=number == 0)
        # One entry in the legend for the limits of all panels.
        if traces[-1].legendgroup == "limit":
            traces[-1].showlegend, has_limit = not has_limit, True
        figure.add_traces(traces, rows=row, cols=column)
        if number >= len(chosen) - n_columns:
            figure.update_xaxes(title_text=axes.x_title, showticklabels=True, row=row, col=column)
    figure.update_xaxes(range=[0, axes.until * axes.x_scale or 1.0], showgrid=False)
    figure.update_yaxes(range=[0, axes.top_bytes / axes.y_unit[1]])
    figure.update_yaxes(title_text=axes.y_unit[0], col=1)
    look = {"height": max(320, total_px + 214), "legend_traceorder": "normal", "hovermode": "x unified"}
    note = _subtitle(report, len(chosen), asked=devices is not None)
    titled(figure, report.sentence, note, alt=_alt(report), **look)
    return with_headings(figure)


def _chosen(report: MemoryReport, devices: Sequence[str] | None) -> list[tuple[int, int]]:
    """Return (position in the pipeline, replica) of the devices to draw, in stage order."""
    all_positions = list(np.ndindex(report.limit_bytes.shape))
    if devices is None:
        # The devices with least to spare are the ones that decide whether it fits.
        spare = (report.limit_bytes - report.peak_bytes).astype(float)
        tightest = sorted(all_positions, key=lambda at: (spare[at], at))[:MOST_DEVICES]
        return sorted(tightest)
    names = {report.devices[position][replica]: (position, replica) for position, replica in all_positions}
    wanted = [devices] if isinstance(devices, str) else list(devices)
    for name in wanted:
        if name not in names:
            raise unknown("device of this plan", name, names)
    return sorted({names[name] for name in wanted}) or _chosen(report, None)


def _curve(report: MemoryReport, at: tuple[int, int]) -> Curve:
    position, replica = at
    levels, index = report.levels, position * report.limit_bytes.shape[1] + replica
    begin, end = np.searchsorted(levels.device, [index, index + 1])
    time = np.append(0.0, levels.time[begin:end])
    moving = {
        "activations": np.append(0.0, levels.activations_bytes[begin:end]),
        "messages": np.append(0.0, levels.messages_bytes[begin:end]),
    }
    # More points than pixels only make the page slow.
    if len(time) > MOST_POINTS:
        time, moving = _thinned(time, moving)
    fixed = {
        "parameters": report.static.weights,
        "gradients": report.static.gradients,
        "optimiser states": report.static.optimizer,
    }
    bands = {name: np.full(len(time), float(of[position])) for name, of in fixed.items()} | moving
    return Curve(time, bands, float(report.limit_bytes[at]))


def _thinned(time: FloatArray, moving: dict[str, FloatArray]) -> tuple[FloatArray, dict[str, FloatArray]]:
    """Return the curve at the fullest moment of each of MOST_POINTS equal intervals."""
    total = np.sum(list(moving.values()), axis=0)
    slot = np.minimum((time / time[-1] * MOST_POINTS).astype(int), MOST_POINTS - 1)
    fullest = np.lexsort((total, slot))
    keep = np.sort(fullest[np.flatnonzero(np.diff(slot[fullest], append=MOST_POINTS))])
    return time[keep], {name: of[keep] for name, of in moving.items()}


def _drawn(held: Curve, axes: Axes, *, first: bool) -> list[go.Scatter]:
    """Return the bands. If the limit is in the range of the axis, what exceeds it and the limit itself follow."""
    x = np.append(held.time, axes.until) * axes.x_scale
    unit, per_unit = axes.y_unit
    # a band that never changes only needs its two ends
    ends = {name: slice(None) if np.ptp(of) else slice(None, None, len(of)) for name, of in held.bands.items()}
    traces = []
    for name, of in held.bands.items():
        hover = {"legendgroup": name, "hovertemplate": f"{name} %{{y:.3g}} {unit}<extra></extra>"}
        look = {"stackgroup": "held", "stackgaps": "interpolate", "fillcolor": BANDS[name]}
        y = (np.append(of, of[-1]) / per_unit).astype(np.float32)
        at = ends[name]
        traces.append(
            curve(x.astype(np.float32)[at], y[at], name, BANDS[name], 0, steps=True, showlegend=first, **hover, **look)
        )
    if held.limit_bytes > axes.top_bytes:
        return traces
    limit, total = held.limit_bytes / per_unit, np.append(held.total, held.total[-1]) / per_unit
    if (total > limit).any():
        steps = np.repeat(np.maximum(total, limit), 2)[:-1]
        outline = strokes([np.column_stack([[*np.repeat(x, 2)[1:], x[-1], x[0]], [*steps, limit, limit]])])
        pattern = {"shape": "/", "size": 6, "fgcolor": CRIMSON, "bgcolor": "rgba(255, 255, 255, 0.35)"}
        over = {"name": "over the limit", "color": CRIMSON, "width": 0}
        traces.append(curve(**outline, **over, fill="toself", fillpattern=pattern, showlegend=False))
    group: dict[str, Any] = {"name": "what a plan may use", "legendgroup": "limit", "showlegend": False}
    group |= {"hovertemplate": f"limit %{{y:.3g}} {unit}<extra></extra>", "dash": "dash"}
    return [*traces, curve([0, axes.until * axes.x_scale], [limit, limit], color=CRIMSON, width=2, **group)]


def _heading(report: MemoryReport, at: tuple[int, int]) -> str:
    name = f"<b>{at[0]} · {literal(report.devices[at[0]][at[1]])}</b>"
    needs, has = format_bytes(report.peak_bytes[at]), format_bytes(report.limit_bytes[at])
    if over := int(report.over_bytes[at]):
        return f'{name} {needs} of {has}, <span style="color:{VERMILLION}"><b>{format_bytes(over)} over</b></span>'
    return f"{name} {needs} of {has}"


def _subtitle(report: MemoryReport, n_shown: int, *, asked: bool) -> str:
    n = report.limit_bytes.size
    which = f"{n_shown} of {counted(n, 'device')}" + ("" if asked else ", those with least to spare")
    parts = [which] * (n_shown < n) + ["above each panel: peak memory of the device, of its limit"]
    parts += [] if report.timed else ["by the order of computations, without a simulation"]
    return " · ".join(parts)


def _alt(report: MemoryReport) -> str:
    n, n_over = report.limit_bytes.size, int(np.count_nonzero(report.over_bytes))
    begin = f"Memory held over time by {counted(n, 'device')}; {n_over or 'none'} of them need more than they may use"
    return f"{begin}. {report.sentence}."
