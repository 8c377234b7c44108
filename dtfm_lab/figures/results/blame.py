"""Where the error of an iteration comes from: by whom, and since when."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from dtfm_lab.compare import Comparison, Drift
from dtfm_lab.domain.schedule import Lane
from dtfm_lab.domain.units import FloatArray, format_s
from dtfm_lab.figures.palette import BLUE, EDGES, FAINT, GREEN, GREY, LINE_GREY, ORANGE, SKY, VERMILLION, YELLOW
from dtfm_lab.figures.theme import LEGEND_BELOW, described, literal, short, titled, with_headings

MOST_ROWS = 14
"""suspects, and those who differ most; more would not be read"""
ROW_PX = 26
PARTS = {
    ("device", "duration"): ("computations take longer or shorter", BLUE),
    ("device", "delay"): ("computations begin late", GREY),
    ("link", "duration"): ("messages take longer or shorter", YELLOW),
    ("link", "latency"): ("latency", SKY),
    ("link", "both"): ("messages and their latency", VERMILLION),
    ("link", "delay"): ("messages leave late", ORANGE),
    ("card", "delay"): ("messages come in another order", GREEN),
}
LEADERS = (VERMILLION, BLUE, GREEN)
"""devices that leave the prediction first"""
SPARE_PX = 18
"""between the lines above and the headings"""
NEGLIGIBLE = 1e-9


def blame(comparison: Comparison) -> go.Figure:
    """A bar a link or device: seconds by which it alone makes an iteration longer (right) or shorter (left) than
    predicted, with 95 % intervals; how many times the predicted its own actions took, beside it.

    Raises TraceError for a measured trace that does not hold its schedule.
    """
    found = comparison.blame
    rows = found.table[found.table["named"] | (found.table["longer_s"].abs() > NEGLIGIBLE * found.iteration_s)]
    shown = rows.head(MOST_ROWS)
    unit, scale = _unit(shown["longer_s"])
    figure = go.Figure()
    names = [_name(of, name) for of, name in zip(shown["of"], shown["name"], strict=True)]
    for (of, what), (says, color) in PARTS.items():
        which = ((shown["of"] == of) & (shown["what"] == what)).to_numpy()
        if which.any():
            figure.add_trace(_bars(shown[which], [names[i] for i in np.flatnonzero(which)], scale, says, color))
    for name, row in zip(names, shown.itertuples(index=False), strict=True):
        figure.add_annotation(
            text=_times(row.ratio, row.what), x=1.0, xref="paper", y=name, xanchor="left", xshift=8, showarrow=False
        )
    if len(shown):
        low, high = min(0.0, _lowest(shown)), max(0.0, _highest(shown))
        room = 0.06 * (high - low)
        figure.update_xaxes(range=[(low - (room if low < 0 else 0)) * scale, (high + room) * scale])
        figure.add_annotation(
            text="× predicted", x=1.0, xref="paper", y=1.0, yref="paper", xanchor="left", xshift=8, yanchor="bottom",
            showarrow=False, font_color=LINE_GREY,
        )  # fmt: skip
    figure.update_xaxes(title_text=f"makes an iteration longer than predicted by ({unit})", zeroline=True)
    figure.update_xaxes(zerolinecolor=LINE_GREY, zerolinewidth=1.5)
    figure.update_yaxes(categoryorder="array", categoryarray=names, range=[len(names) - 0.4, -0.6], type="category")
    told = zip(shown["of"], short(shown["name"]), strict=True)
    ticks = [f"card of {name}" if of == "card" else name for of, name in told]
    figure.update_yaxes(showgrid=False, tickvals=names, ticktext=ticks)
    suspects = comparison.suspects
    title = (
        str(suspects["sentence"].iloc[0]).replace("->", "→") if len(suspects) else "no link and no device stands out"
    )
    left_out = f" · first {len(shown)} of {len(rows)}" if len(shown) < len(rows) else ""
    figure.update_layout(showlegend=True)
    titled(
        described(figure, f"{comparison.verdict}. {' '.join(f'{s}.' for s in suspects['sentence'].head(3))}"),
        title,
        f"{_where(comparison)} · {comparison.verdict}{left_out} · whiskers: 95 % confidence",
        height=max(320, len(shown) * ROW_PX + 230),
        legend=LEGEND_BELOW,
        barmode="overlay",
        margin_r=96,
        margin_b=100,
    )
    return with_headings(figure)


def drift(comparison: Comparison) -> go.Figure:
    """How late each device's computations end in the course of an iteration, against the prediction, and how late each
    iteration ends."""
    found = comparison.drift
    many = comparison.measured.n_iterations > 1
    figure = make_subplots(
        rows=1,
        cols=2 if many else 1,
        column_widths=[0.72, 0.28] if many else None,
        horizontal_spacing=0.1,
        subplot_titles=["over an iteration, each device", "over the iterations"][: 2 if many else 1],
    )
    lines = _lines(comparison)
    leaders = dict(zip(found.devices["device"].head(len(LEADERS)), LEADERS, strict=False))
    late_s = pd.concat([lines["late_s"], found.iterations["late_s"], pd.Series([found.threshold_s])])
    unit, scale = _unit(late_s)
    across, wide = _unit(lines["at_s"])
    others = lines[~lines["device"].isin(list(leaders))]
    if len(others):
        x, y = _broken(others, wide, scale)
        name = "other devices" if leaders else "devices"
        figure.add_trace(
            go.Scatter(x=x, y=y, mode="lines", name=name, line={"width": 1.2, "color": FAINT}, hoverinfo="skip"),
            row=1, col=1,
        )  # fmt: skip
    for device, color in reversed(leaders.items()):
        line = lines[lines["device"] == device]
        figure.add_trace(
            go.Scatter(
                x=(line["at_s"] * wide).tolist(),
                y=(line["late_s"] * scale).tolist(),
                mode="lines",
                name=literal(device),
                line={"width": 2.2, "color": color},
                hovertext=[f"{literal(device)} · {format_s(s)} late" for s in line["late_s"]],
                hoverinfo="text",
            ),
            row=1,
            col=1,
        )
    for row in found.devices.head(len(LEADERS)).itertuples(index=False):
        at = (row.at_s - row.late_s) * wide
        figure.add_trace(
            go.Scatter(
                x=[at],
                y=[row.late_s * scale],
                mode="markers",
                showlegend=False,
                marker={"size": 9, "color": leaders[row.device], "line": {"width": 1.5, "color": "white"}},
                hovertext=f"{row.action} on {literal(row.device)}: {format_s(abs(row.late_s))}",
                hoverinfo="text",
            ),
            row=1,
            col=1,
        )
    figure.add_hrect(
        y0=-found.threshold_s * scale, y1=found.threshold_s * scale, fillcolor=GREY, opacity=0.15, line_width=0
    )
    figure.update_xaxes(title_text=f"predicted end of a computation ({across})", rangemode="tozero", row=1, col=1)
    figure.update_yaxes(title_text=f"measured − predicted end ({unit})", row=1, col=1)
    if many:
        _add_iterations(figure, comparison, scale)
    with_headings(
        titled(
            described(figure, found.sentence),
            _begins(found),
            f"{_where(comparison)} · grey: within {format_s(found.threshold_s)}, 1 % of the predicted iteration · "
            f"{'medians over iterations' if many else 'one iteration'}{f' · {found.growth}' if found.growth else ''}",
            height=460,
            legend=LEGEND_BELOW,
            margin_b=104,
        )
    )
    return figure.update_layout(margin_t=figure.layout.margin.t + SPARE_PX)


def _add_iterations(figure: go.Figure, comparison: Comparison, scale: float) -> None:
    """Each iteration's end, and the line through them where it rises or falls for sure."""
    found = comparison.drift
    late_s = found.iterations["late_s"]
    figure.add_trace(
        go.Scatter(
            x=late_s.index.tolist(),
            y=(late_s * scale).tolist(),
            mode="markers",
            name="iteration's end",
            showlegend=False,
            marker={"size": 8, "color": BLUE},
            hovertext=[
                f"iteration {i}: ends {format_s(abs(s))} {'late' if s > 0 else 'early'}" for i, s in late_s.items()
            ],
            hoverinfo="text",
        ),
        row=1,
        col=2,
    )
    if found.grows:
        numbers = late_s.index.to_numpy(float)
        middle = float(np.median(late_s - found.growth_s.value * numbers))
        ends = np.array([numbers.min(), numbers.max()])
        line_s: FloatArray = middle + found.growth_s.value * ends
        figure.add_trace(
            go.Scatter(
                x=ends.tolist(), y=(line_s * scale).tolist(), mode="lines", showlegend=False, hoverinfo="skip",
                line={"width": 2, "color": BLUE, "dash": "dash"},
            ),
            row=1, col=2,
        )  # fmt: skip
    step = max(1, math.ceil(len(late_s) / 8))
    figure.update_xaxes(title_text="iteration", tickformat="d", dtick=step, row=1, col=2)
    figure.update_yaxes(rangemode="tozero", row=1, col=2)


def _lines(comparison: Comparison) -> pd.DataFrame:
    """Per computation device, at_s (predicted end) and late_s, the median over iterations; sorted by time."""
    rows = comparison.rows[comparison.rows["lane"] == Lane.COMPUTE.value]
    by = ["replica", "stage", "kind", "microbatch"]
    lines = rows.groupby(by, sort=False).agg(
        device=("device", "first"), at_s=("end_s_predicted", "median"), late_s=("end_s_error", "median")
    )
    lines["late_s"] = -lines["late_s"]
    return lines.sort_values(["device", "at_s"], kind="stable", ignore_index=True)


def _broken(lines: pd.DataFrame, wide: float, scale: float) -> tuple[list[float | None], list[float | None]]:
    """All devices in one trace, the pen lifted between two."""
    x: list[float | None] = []
    y: list[float | None] = []
    for _, line in lines.groupby("device", sort=False):
        x += [*(line["at_s"] * wide), None]
        y += [*(line["late_s"] * scale), None]
    return x, y


def _begins(found: Drift) -> str:
    if not len(found.devices):
        return "every action ends as predicted"
    first = found.devices.iloc[0]
    how = "late" if first["late_s"] > 0 else "early"
    return f"as predicted until {format_s(first['at_s'])}, when {first['action']} ends {how} on {first['device']}"


def _where(comparison: Comparison) -> str:
    context = comparison.measured.context
    return f"{context.provenance} · {context.schedule} · {context.job} on {context.topology}"


def _bars(rows: pd.DataFrame, names: list[str], scale: float, says: str, color: str) -> go.Bar:
    edge = EDGES.get(color)
    known = np.isfinite(rows["high_s"].to_numpy(float))
    return go.Bar(
        orientation="h",
        x=(rows["longer_s"] * scale).tolist(),
        y=names,
        width=0.7,
        name=says,
        error_x={
            "type": "data",
            "array": np.where(known, (rows["high_s"] - rows["longer_s"]) * scale, 0.0).tolist(),
            "color": LINE_GREY,
            "thickness": 1.4,
            "width": 4,
        },
        hovertext=[
            f"{literal(sentence)}<br>{format_s(low)} to {format_s(high)}" if np.isfinite(high) else literal(sentence)
            for sentence, low, high in zip(rows["sentence"], rows["low_s"], rows["high_s"], strict=True)
        ],
        hoverinfo="text",
        marker={"color": color, "line": {"width": 0.8 if edge else 0, "color": edge}},
    )


def _name(of: str, name: str) -> str:
    return literal(f"card of {name}" if of == "card" else name.replace("->", "→"))


def _times(ratio: float, what: str) -> str:
    return "" if what == "delay" or math.isnan(ratio) else f"{ratio:.2f}" if ratio < 9.95 else f"{ratio:.0f}"


def _lowest(rows: pd.DataFrame) -> float:
    return float(rows["low_s"].where(np.isfinite(rows["low_s"]), rows["longer_s"]).min())


def _highest(rows: pd.DataFrame) -> float:
    return float(rows["high_s"].where(np.isfinite(rows["high_s"]), rows["longer_s"]).max())


def _unit(seconds: pd.Series) -> tuple[str, float]:
    return ("s", 1.0) if len(seconds) and seconds.abs().max() >= 1 else ("ms", 1e3)
