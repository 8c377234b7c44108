"""Training systems run for real: seconds an iteration beside their predictions, and losses over the run's seconds."""

from collections.abc import Mapping
from typing import NamedTuple

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from dtfm_lab.domain.errors import TraceError
from dtfm_lab.domain.units import format_s
from dtfm_lab.figures.palette import CATEGORIES, DASHES, LINE_GREY
from dtfm_lab.figures.theme import CLEAR, LEGEND_BELOW, literal, log_ticks, short, titled, with_headings
from dtfm_lab.systems.strategy_run import SMOOTHED, StrategyRun
from dtfm_lab.systems.strategy_runs import StrategyRuns

OFFSETS = {"measured": -0.19, "predicted": 0.19}
REASON_LETTERS = 90
"""Most letters of a reason in the figure; its hover text has all."""
BAR_PX, LOSSES_PX, GAP_PX = 50, 300, 96
ROOM = 1.16
"""Length of the axis against the longest bar; the rest is for the bar's number."""
COLORS = CATEGORIES[:5]
"""Those that lines of two pixels show on a light and on a dark page; red says wrong."""
HATCHES = ("", "/", "x", ".", "+")
"""Patterns of bars, as ``DASHES`` of lines, where there are more systems than colours."""
UNLIKE = 4.0
"""Ratio of the longest run to the shortest from which on the seconds of losses are on a logarithmic axis."""


class SystemLook(NamedTuple):
    """The colour, the dashes of the line and the pattern of the bars of a system."""

    color: str
    dash: str
    hatch: str


def strategy_runs(runs: StrategyRuns) -> go.Figure:
    """Measured and predicted seconds of each system's iteration, and below them its losses over the run's seconds.

    Systems are in the order of their measurements, the fastest on top; below them those that were not run, with the
    reason in place of bars. Raises TraceError where there is none at all.
    """
    if not len(runs):
        raise TraceError("no system was asked for a real run; wanted one at least")
    rows = [*runs.measured, *(one for one in runs if one.measured is None)]
    looks = {
        one.name: SystemLook(COLORS[i % len(COLORS)], DASHES[turn % len(DASHES)], HATCHES[turn % len(HATCHES)])
        for i, one in enumerate(rows)
        for turn in [i // len(COLORS)]
    }
    bars_px = BAR_PX * len(rows) + 40
    inner = bars_px + (GAP_PX + LOSSES_PX if runs.measured else 0)
    figure = make_subplots(
        rows=2 if runs.measured else 1,
        cols=1,
        row_heights=[bars_px, LOSSES_PX] if runs.measured else [1],
        vertical_spacing=GAP_PX / inner if runs.measured else 0,
        subplot_titles=["an iteration", "training loss"][: 2 if runs.measured else 1],
    )
    figure.update_annotations(x=0, xanchor="left")
    for row, one in enumerate(rows):
        _add_bars(figure, row, one, looks[one.name])
    longest_s = max([s for one in runs.measured for s in (one.measured_s, one.predicted_s) if s], default=1.0)
    figure.update_xaxes(range=[0, ROOM * longest_s], exponentformat="none", ticksuffix=" s", row=1, col=1)
    names = short([one.name for one in rows])
    figure.update_yaxes(
        tickvals=list(range(len(rows))), ticktext=names, range=[len(rows) - 0.4, -0.6], showgrid=False, row=1, col=1
    )
    if runs.measured:
        _add_losses(figure, runs, looks)
    titled(
        figure,
        runs.headline,
        f"{runs.topology.name}; seconds of an iteration, filled: measured, hollow: predicted from the profile taken "
        f"before; losses are means of {SMOOTHED} iterations, points where each is below the loss that all reach",
        alt=_alt(runs),
        height=inner + 230,
        legend=LEGEND_BELOW,
        margin_b=120,
    )
    return with_headings(figure, spare_px=14)


def _add_bars(figure: go.Figure, row: int, one: StrategyRun, look: SystemLook) -> None:
    pattern = {"shape": look.hatch, "solidity": 0.35} if look.hatch else {}
    filled = {"color": look.color, "pattern": pattern}
    hollow = {"color": CLEAR, "line": {"color": look.color, "width": 2}}
    for what, seconds, marker in (
        ("measured", one.measured_s, filled),
        ("predicted", one.predicted_s, hollow),
    ):
        if seconds is None:
            continue
        figure.add_bar(
            orientation="h",
            x=[seconds],
            y=[row + OFFSETS[what]],
            width=0.32,
            text=[format_s(seconds)],
            textposition="outside",
            cliponaxis=False,
            hovertext=[f"{literal(one.outcome.title)}, {what}: {format_s(seconds)} an iteration"],
            hoverinfo="text",
            marker=marker,
            showlegend=False,
            row=1,
            col=1,
        )
    if one.measured is None:
        shown = one.reason if len(one.reason) <= REASON_LETTERS else one.reason[: REASON_LETTERS - 3] + "..."
        figure.add_annotation(
            x=0,
            y=row,
            text=literal(shown),
            hovertext=literal(one.reason),
            showarrow=False,
            xanchor="left",
            row=1,
            col=1,
        )


def _add_losses(figure: go.Figure, runs: StrategyRuns, looks: Mapping[str, SystemLook]) -> None:
    reached = runs.time_to_loss()
    ends = [float(one.seconds[-1]) for one in runs.measured if len(one.seconds)]
    starts = [float(one.seconds[0]) for one in runs.measured if len(one.seconds)]
    for one in runs.measured:
        look = looks[one.name]
        changes = " (changes the training)" if one.outcome.strategy.mathematics else ""
        figure.add_scatter(
            x=one.seconds.tolist(),
            y=one.losses.tolist(),
            mode="lines",
            line={"color": look.color, "width": 2.5, "dash": look.dash},
            name=literal(one.name) + changes,
            hovertemplate=f"{literal(one.name)}, %{{x:.3~g}} s: loss %{{y:.4f}}<extra></extra>",
            row=2,
            col=1,
        )
    if runs.common_loss is not None:
        common = runs.common_loss
        figure.add_hline(common, line={"dash": "dash", "width": 1.5, "color": LINE_GREY}, row=2, col=1)
        figure.add_scatter(
            x=[float(reached[one.name]) for one in runs.measured],
            y=[common] * len(runs.measured),
            mode="markers",
            marker={
                "size": 10,
                "color": [looks[one.name].color for one in runs.measured],
                "line": {"width": 1.5, "color": LINE_GREY},
            },
            hovertext=[
                f"{literal(one.name)}: {format_s(float(reached[one.name]))} to loss {common:.3f}"
                for one in runs.measured
            ],
            hoverinfo="text",
            showlegend=False,
            row=2,
            col=1,
        )
    if ends and max(ends) > UNLIKE * min(ends) and min(starts) > 0:
        ticks = log_ticks(min(starts), max(ends))
        figure.update_xaxes(type="log", tickvals=ticks, ticktext=[f"{t:g}" for t in ticks], row=2, col=1)
    figure.update_xaxes(title_text=f"seconds of the {runs.clock} clock", row=2, col=1)
    figure.update_yaxes(title_text="nats per token", row=2, col=1)


def _alt(runs: StrategyRuns) -> str:
    each = [
        f"{one.name} {format_s(one.measured_s)} measured, {format_s(one.predicted_s)} predicted"
        for one in runs.measured
        if one.measured_s is not None and one.predicted_s is not None
    ]
    idle = [f"{one.name} not run ({one.reason})" for one in runs if one.measured is None]
    return f"Seconds an iteration takes, by system: {'; '.join([*each, *idle])}."
