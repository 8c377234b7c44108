"""The parts of a plan's communication cost."""

import numpy as np
import plotly.graph_objects as go

from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import format_s
from dtfm_lab.figures.palette import BLUE, LINE_GREY, SKY, VERMILLION
from dtfm_lab.figures.strokes import strokes
from dtfm_lab.figures.theme import numbered_rows, percent, quality, row_bars, titled
from dtfm_lab.planning.step import PROVEN

OUTLINE = {"width": 1, "color": "#ffffff"}


def cost_breakdown(*plans: Plan) -> go.Figure:
    """A stacked bar for each plan: the slowest group's synchronisation, then each hop; marks at the lower bound, and
    the gap in words."""
    if not plans:
        raise PlanError("no plans to draw; wanted at least one")
    rows = list(range(len(plans)))
    slowest = [int(plan.cost.group_s.argmax()) for plan in plans]
    figure = go.Figure(
        _bar(
            [plan.cost.data_parallel_s for plan in plans],
            rows,
            [f"sync {format_s(plan.cost.data_parallel_s)}" for plan in plans],
            [
                f"data-parallel synchronisation {format_s(plan.cost.data_parallel_s)}<br>stage {stage} is the slowest"
                for plan, stage in zip(plans, slowest, strict=True)
            ],
            name="slowest synchronisation",
            color=VERMILLION,
        )
    )
    for hop in range(max(len(plan.cost.hop_s) for plan in plans)):
        here = [row for row in rows if hop < len(plans[row].cost.hop_s)]
        costs_s = [float(plans[row].cost.hop_s[hop]) for row in here]
        words = [f"stage {hop} to {hop + 1}, slowest pair there and back: {format_s(s)}" for s in costs_s]
        labels = [f"{hop}→{hop + 1}<br>{format_s(s)}" for s in costs_s]
        bar = _bar(costs_s, here, labels, words, name="hops along the pipeline", color=BLUE if hop % 2 else SKY)
        figure.add_trace(bar.update(legendgroup="hops", showlegend=hop == 0))
    # marks at the bound stand above and below each bar, and not across it, where its texts are
    marks = [
        np.array([(plan.lower_bound_s, row + end), (plan.lower_bound_s, row + 0.7 * end)])
        for row, plan in enumerate(plans)
        for end in (-0.47, 0.47)
    ]
    figure.add_scatter(
        **strokes(marks),
        mode="lines",
        name="lower bound: no placement costs less",
        line={"width": 3, "color": LINE_GREY},
        hovertemplate="lower bound %{x:.4g} s<extra></extra>",
    )
    names = [f"{plan.planner}<br>{format_s(plan.cost.total_s)}" for plan in plans]
    figure.update_yaxes(**numbered_rows(names))
    longest_s = max(plan.cost.total_s for plan in plans)
    figure.update_xaxes(title_text="communication cost (s)", range=[0, 1.16 * longest_s or 1.0], exponentformat="none")
    for row, plan in enumerate(plans):
        gap = "proven best communication cost" if plan.gap < PROVEN else f"gap {percent(plan.gap)}"
        figure.add_annotation(
            x=plan.cost.total_s, y=row, text=gap, showarrow=False, xanchor="left", xshift=4,
            hovertext=f"cost {format_s(plan.cost.total_s)}, lower bound {format_s(plan.lower_bound_s)}",
        )  # fmt: skip
    networks = " and ".join(dict.fromkeys(f"{plan.job.name} on {plan.topology.name}" for plan in plans))
    best = min(plans, key=lambda plan: plan.cost.total_s)
    return titled(
        figure,
        f"{networks}: communication cost {format_s(best.cost.total_s)}",
        f"by {best.planner}, {quality(best.gap)} · no placement takes less than {format_s(best.lower_bound_s)}",
        alt=_alt(plans),
        barmode="stack",
        height=250 + 80 * len(plans),
        legend_traceorder="normal",
        uniformtext={"minsize": 9, "mode": "hide"},
    )


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
