"""What makes a network compute-bound: the share of computing against each knob."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from dtfm_lab.domain.job import COMPRESSIONS
from dtfm_lab.domain.units import format_s
from dtfm_lab.figures.palette import BLUE, LINE_GREY
from dtfm_lab.figures.theme import literal, log_ticks, titled, with_headings
from dtfm_lab.systems import CoDesign, Design
from dtfm_lab.systems.codesign import Turned

COLUMNS = 3
ROW_PX, GAP_PX, SPARE_PX = 190, 92, 30
TITLES = {
    "batch": "global batch (sequences)",
    "width": "width of the model",
    "sequence": "tokens a sequence",
    "compression": "what messages are rounded to",
    "every": "iterations between averages",
    "bandwidth": "between hosts (Gbit/s, median)",
}
MOST_TICKS = 5


def codesign(codesign: CoDesign) -> go.Figure:
    """A panel for each knob: the share of an iteration that would remain with free messages, in per cent.

    The dashed line is the target; the diamond is the job as it is; hollow markers do not fit the devices' memory.
    """
    shown = [one for one in codesign.turned if len(one.designs) > 1]
    n_rows = max(1, -(-len(shown) // COLUMNS))
    headings = [literal(_heading(codesign, one)) for one in shown]
    total_px = n_rows * ROW_PX + (n_rows - 1) * GAP_PX
    figure = make_subplots(
        rows=n_rows,
        cols=COLUMNS,
        subplot_titles=headings,
        horizontal_spacing=0.09,
        vertical_spacing=GAP_PX / total_px if n_rows > 1 else 0.0,
    )
    for number, one in enumerate(shown):
        row, column = (n + 1 for n in divmod(number, COLUMNS))
        figure.add_trace(_curve(codesign, one), row=row, col=column)
        figure.add_hline(y=100 * codesign.target, line=_target(), row=row, col=column)
        figure.update_xaxes(title_text=TITLES[one.knob.name], **_across(one), row=row, col=column)
        figure.update_yaxes(range=[0, 105], tickvals=[0, 25, 50, 75, 100], row=row, col=column)
        if column == 1:
            figure.update_yaxes(title_text="computing (%)", row=row, col=column)
    titled(
        figure,
        f"What makes {codesign.plan.topology.name} compute-bound for {codesign.plan.job.name}",
        codesign.headline,
        alt=f"Share of an iteration that would remain with free messages. {codesign.sentence}.",
        height=max(380, total_px + 250),
        margin_b=120,
    )
    return with_headings(figure, spare_px=SPARE_PX)


def _heading(codesign: CoDesign, one: Turned) -> str:
    """The knob, and the value that reaches the target."""
    design, name = one.least(codesign.target), "averaging" if one.knob.name == "every" else one.knob.name
    if design is None:
        return f"{name}: not alone"
    if design is codesign.base:
        return f"{name}: as it is"
    return f"{name}: {_text(one, design)}" + ("" if design.fits else ", not in memory")


def _text(one: Turned, design: Design) -> str:
    value = one.value(design)
    if one.knob.name == "compression":
        return COMPRESSIONS[int(value)]
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def _target() -> dict[str, Any]:
    return {"color": LINE_GREY, "width": 1.2, "dash": "dash"}


def _curve(codesign: CoDesign, one: Turned) -> go.Scatter:
    symbols = []
    for design in one.designs:
        symbol = "diamond" if design is codesign.base else "circle"
        symbols.append(symbol if design.fits else f"{symbol}-open")
    by_name = one.knob.name == "compression"
    return go.Scatter(
        x=[_text(one, design) if by_name else one.value(design) for design in one.designs],
        y=[100 * design.computing for design in one.designs],
        mode="lines+markers",
        line={"color": BLUE, "width": 1.8},
        marker={
            "symbol": symbols,
            "size": [11 if design is codesign.base else 7 for design in one.designs],
            "color": BLUE,
            "line": {"width": 1.6, "color": BLUE},
        },
        hovertext=[_hover(one, design) for design in one.designs],
        hoverinfo="text",
        showlegend=False,
    )


def _across(one: Turned) -> dict[str, Any]:
    """The x axis of a knob: names for compressions, else logarithmic with round numbers."""
    if one.knob.name == "compression":
        return {"type": "category"}
    values = [one.value(design) for design in one.designs]
    low, high = min(values), max(values)
    if one.knob.name == "bandwidth":
        ticks = log_ticks(low, high)
        ticks = [low, float(np.sqrt(low * high)), high] if high < 10 * low else ticks
    else:
        ticks = [one.knob.own * 2.0**i for i in range(-32, 33)]
        ticks = [tick for tick in ticks if low <= tick <= high and tick == int(tick)]
    ticks = ticks[:: -(-len(ticks) // MOST_TICKS)] if ticks else [low]
    pad = (high / low) ** 0.06 if high > low else 1.5
    texts = [f"{tick:,.12g}" if tick >= 100 else f"{tick:.3g}" for tick in ticks]
    return {"type": "log", "range": [np.log10(low / pad), np.log10(high * pad)], "tickvals": ticks, "ticktext": texts}


def _hover(one: Turned, design: Design) -> str:
    job = design.plan.job
    lines = [
        one.text(design),
        f"{design.computing:.1%} would remain with free messages",
        f"{format_s(design.share.iteration_s)} an iteration, {design.tokens_per_s:,.0f} tokens/s",
        f"batch {job.global_batch:,}, averages every {job.synchronise_every:,}, messages: {job.compression}",
    ]
    lines += [] if design.fits else [f"does not fit: {design.memory}"]
    return "<br>".join(literal(line) for line in lines)
