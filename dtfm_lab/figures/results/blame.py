"""Where the error of an iteration comes from: the links and devices, and the moment from which they are late."""

import math

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from dtfm_lab.compare import Comparison, Drift
from dtfm_lab.domain.schedule import Lane
from dtfm_lab.domain.units import FloatArray, format_s
from dtfm_lab.figures.palette import BLUE, FAINT, GREEN, GREY, LINE_GREY, ORANGE, SKY, VERMILLION, YELLOW
from dtfm_lab.figures.results.tables import largest, rows_of, what_ran
from dtfm_lab.figures.theme import LEGEND_BELOW, by_name, edged, literal, short, time_unit, titled, with_headings

MOST_ROWS = 14
"""Most rows: suspects first, then those that differ most."""
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
NEGLIGIBLE = 1e-9
"""Share of an iteration up to which a difference counts as none."""
LEADERS = (VERMILLION, BLUE, GREEN)
"""Colours of the devices that leave the prediction first."""
SPARE_PX = 18
"""Space between the subtitle and the headings."""


def blame(comparison: Comparison) -> go.Figure:
    """A bar for each link or device: seconds by which it alone makes an iteration longer (right) or shorter (left)
    than predicted, with a 95 % interval; beside it, how many times as long as predicted its own actions took.

    Raises TraceError for a measured trace that does not hold its schedule.
    """
    found = comparison.blame
    rows = found.table[found.table["named"] | (found.table["longer_s"].abs() > NEGLIGIBLE * found.iteration_s)]
    shown = rows.head(MOST_ROWS)
    unit, scale = time_unit(largest(shown["longer_s"]))
    figure = go.Figure()
    names = [_name(of, name) for of, name in zip(shown["of"], shown["name"], strict=True)]
    for (of, what), (words, color) in PARTS.items():
        which = ((shown["of"] == of) & (shown["what"] == what)).to_numpy()
        if which.any():
            figure.add_trace(_bars(shown[which], [names[i] for i in np.flatnonzero(which)], scale, words, color))
    for name, row in zip(names, rows_of(shown), strict=True):
        figure.add_annotation(
            text=_times(row.ratio, row.what), x=1.0, xref="paper", y=name, xanchor="left", xshift=8, showarrow=False
        )
    if len(shown):
        lows, highs = (shown[end].where(np.isfinite(shown[end]), shown["longer_s"]) for end in ("low_s", "high_s"))
        low, high = min(0.0, float(lows.min())), max(0.0, float(highs.max()))
        room = 0.06 * (high - low)
        figure.update_xaxes(range=[(low - (room if low < 0 else 0)) * scale, (high + room) * scale])
        figure.add_annotation(
            text="× predicted", x=1.0, xref="paper", y=1.0, yref="paper", xanchor="left", xshift=8, yanchor="bottom",
            showarrow=False, font_color=LINE_GREY,
        )  # fmt: skip
    figure.update_xaxes(title_text=f"makes an iteration longer than predicted by ({unit})", zeroline=True)
    figure.update_xaxes(zerolinecolor=LINE_GREY, zerolinewidth=1.5)
    short_names = zip(shown["of"], short(shown["name"]), strict=True)
    ticks = [f"card of {name}" if of == "card" else name for of, name in short_names]
    figure.update_yaxes(**by_name(names, 0.6), tickvals=names, ticktext=ticks)
    suspects = comparison.suspects
    title = (
        str(suspects["sentence"].iloc[0]).replace("->", "→") if len(suspects) else "no link and no device stands out"
    )
    left_out = f" · first {len(shown)} of {len(rows)}" if len(shown) < len(rows) else ""
    figure.update_layout(showlegend=True)
    titled(
        figure,
        title,
        f"{what_ran(comparison)} · {comparison.verdict}{left_out} · whiskers: 95 % confidence",
        alt=f"{comparison.verdict}. {' '.join(f'{s}.' for s in suspects['sentence'].head(3))}",
        height=max(320, len(shown) * ROW_PX + 230),
        legend=LEGEND_BELOW,
        barmode="overlay",
        margin_r=96,
        margin_b=100,
    )
    return with_headings(figure)


def _bars(rows: pd.DataFrame, names: list[str], scale: float, words: str, color: str) -> go.Bar:
    known = np.isfinite(rows["high_s"].to_numpy(float))
    return go.Bar(
        orientation="h",
        x=(rows["longer_s"] * scale).tolist(),
        y=names,
        width=0.7,
        name=words,
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
        marker=edged(color),
    )


def _name(of: str, name: str) -> str:
    return literal(f"card of {name}" if of == "card" else name.replace("->", "→"))


def _times(ratio: float, what: str) -> str:
    return "" if what == "delay" or math.isnan(ratio) else f"{ratio:.2f}" if ratio < 9.95 else f"{ratio:.0f}"


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
    unit, scale = time_unit(largest(late_s))
    across, wide = time_unit(largest(lines["at_s"]))
    others = lines[~lines["device"].isin(list(leaders))]
    if len(others):
        x, y = _broken(others, wide, scale)
        name = "other devices" if leaders else "devices"
        figure.add_scatter(
            x=x, y=y, mode="lines", name=name, line={"width": 1.2, "color": FAINT}, hoverinfo="skip", row=1, col=1
        )
    for device, color in reversed(leaders.items()):
        line = lines[lines["device"] == device]
        figure.add_scatter(
            x=(line["at_s"] * wide).tolist(),
            y=(line["late_s"] * scale).tolist(),
            mode="lines",
            name=literal(device),
            line={"width": 2.2, "color": color},
            hovertext=[f"{literal(device)} · {format_s(s)} late" for s in line["late_s"]],
            hoverinfo="text",
            row=1,
            col=1,
        )
    for row in rows_of(found.devices.head(len(LEADERS))):
        at = (row.at_s - row.late_s) * wide
        figure.add_scatter(
            x=[at],
            y=[row.late_s * scale],
            mode="markers",
            showlegend=False,
            marker={"size": 9, "color": leaders[row.device], "line": {"width": 1.5, "color": "white"}},
            hovertext=f"{row.action} on {literal(row.device)}: {format_s(abs(row.late_s))}",
            hoverinfo="text",
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
    titled(
        figure,
        _begins(found),
        f"{what_ran(comparison)} · grey: within {format_s(found.threshold_s)}, 1 % of the predicted iteration · "
        f"{'medians over iterations' if many else 'one iteration'}{f' · {found.growth}' if found.growth else ''}",
        alt=found.sentence,
        height=460,
        legend=LEGEND_BELOW,
        margin_b=104,
    )
    return with_headings(figure, SPARE_PX)


def _add_iterations(figure: go.Figure, comparison: Comparison, scale: float) -> None:
    """Add each iteration's end, and a line through them where they grow beyond doubt."""
    found = comparison.drift
    late_s = found.iterations["late_s"]
    figure.add_scatter(
        x=late_s.index.tolist(),
        y=(late_s * scale).tolist(),
        mode="markers",
        name="iteration's end",
        showlegend=False,
        marker={"size": 8, "color": BLUE},
        hovertext=[f"iteration {i}: ends {format_s(abs(s))} {'late' if s > 0 else 'early'}" for i, s in late_s.items()],
        hoverinfo="text",
        row=1,
        col=2,
    )
    if found.grows:
        numbers = late_s.index.to_numpy(float)
        middle = float(np.median(late_s - found.growth_s.value * numbers))
        ends = np.array([numbers.min(), numbers.max()])
        line_s: FloatArray = middle + found.growth_s.value * ends
        figure.add_scatter(
            x=ends.tolist(),
            y=(line_s * scale).tolist(),
            mode="lines",
            showlegend=False,
            hoverinfo="skip",
            line={"width": 2, "color": BLUE, "dash": "dash"},
            row=1,
            col=2,
        )
    step = max(1, math.ceil(len(late_s) / 8))
    figure.update_xaxes(title_text="iteration", tickformat="d", dtick=step, row=1, col=2)
    figure.update_yaxes(rangemode="tozero", row=1, col=2)


def _lines(comparison: Comparison) -> pd.DataFrame:
    """For each computation its device, at_s (predicted end) and late_s, as medians over iterations, sorted by time."""
    rows = comparison.rows[comparison.rows["lane"] == Lane.COMPUTE.value]
    by = ["replica", "stage", "kind", "microbatch"]
    lines = rows.groupby(by, sort=False).agg(
        device=("device", "first"), at_s=("end_s_predicted", "median"), late_s=("end_s_error", "median")
    )
    return lines.sort_values(["device", "at_s"], kind="stable", ignore_index=True)


def _broken(lines: pd.DataFrame, wide: float, scale: float) -> tuple[list[float | None], list[float | None]]:
    """The lines of all devices in one plotly trace, with a gap between two devices."""
    x: list[float | None] = []
    y: list[float | None] = []
    for _, line in lines.groupby("device", sort=False):
        x += [*(line["at_s"] * wide), None]
        y += [*(line["late_s"] * scale), None]
    return x, y


def _begins(found: Drift) -> str:
    """A sentence on the first device that leaves the prediction."""
    if not len(found.devices):
        return "every action ends as predicted"
    first = found.devices.iloc[0]
    how = "late" if first["late_s"] > 0 else "early"
    return f"as predicted until {format_s(first['at_s'])}, when {first['action']} ends {how} on {first['device']}"
