"""Seconds against dollars: the plans of a frontier, their step line, and the bound that no plan can beat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import FloatArray, counted, format_s, money
from dtfm_lab.figures.palette import BLUE, CATEGORIES, DASHES, LINE_GREY, SYMBOLS
from dtfm_lab.figures.theme import curve, figure_of, literal, log_axis, titled
from dtfm_lab.planning.iteration.frontier import Frontier, gpus, iteration_s, price_of_tokens

X_TITLE = "US dollars an hour of all devices that serve"
LOG_FROM = 6.0
"""From this ratio of the largest to the smallest value on, an axis is logarithmic."""


@figure_of(Frontier)
def frontier(frontier: Frontier) -> go.Figure:
    """Seconds against dollars: a point for each plan. Its shape, GPUs and idle devices appear on hover.

    A hollow point is a plan that costs more per token than a faster one. It only suits a small hourly budget. The
    dashed line is a lower bound for every hourly budget. Frontiers of several batches have one line each, and no bound.
    They show hours per billion tokens instead of seconds per iteration, because iterations of different batches cannot
    be compared. The customdata of each point is its index in ``frontier.plans``.

    Raises PlanError for a frontier without plans.
    """
    if not frontier.plans:
        raise PlanError("frontier of no plans; wanted one at least")
    several = len(frontier.batches) > 1
    table = frontier.to_frame()
    figure = go.Figure()
    for number, batch in enumerate(frontier.batches):
        rows = table.index[table["global_batch"] == batch].tolist()
        look = {"color": CATEGORIES[number % len(CATEGORIES)], "dash": DASHES[number % len(DASHES)]}
        symbol = SYMBOLS[number % len(SYMBOLS)]
        name = f"{batch:,} {samples_of(frontier.job)} an iteration" if several else "plans"
        figure.add_trace(_points(frontier, rows, several, name, look if several else {"color": BLUE}, symbol))
    prices = np.concatenate([np.array(trace.x, dtype=float) for trace in figure.data])
    x = _axis(prices, "$")
    # Each batch has its own bound.
    if not several:
        figure.add_trace(_bound(frontier, x))
    heights = np.concatenate([np.array(trace.y, dtype=float) for trace in figure.data])
    y = _axis(heights[np.isfinite(heights)])
    figure.update_xaxes(title_text=X_TITLE, **x)
    figure.update_yaxes(
        title_text=f"hours a billion {frontier.job.counted}" if several else "seconds an iteration", **y
    )
    return _worded(figure, frontier)


def _points(
    frontier: Frontier, rows: Sequence[int], several: bool, name: str, look: dict[str, str], symbol: str
) -> go.Scatter:
    plans = [frontier.plans[row] for row in rows]
    pays = frontier.to_frame()["cheaper_by_token"]
    # Hollow where a faster plan is also cheaper by the token.
    symbols = [symbol if pays[row] else f"{symbol}-open" for row in rows]
    edge = {"width": 1.6, "color": look["color"]}
    return go.Scatter(
        x=[plan.price_per_hour for plan in plans],
        y=[_height(plan, several) for plan in plans],
        customdata=list(rows),
        mode="lines+markers",
        name=name,
        # Steps: with a budget between two plans, one can still only afford the cheaper.
        line={"shape": "vh", "width": 1.6, **look},
        marker={"symbol": symbols, "size": 9, "color": look["color"], "line": edge},
        hovertext=[_hover(plan) for plan in plans],
        hovertemplate="%{hovertext}<extra></extra>",
    )


def samples_of(job: Job) -> str:
    """Return what a batch consists of: sequences of tokens, or the samples that the job counts."""
    return "sequences" if job.counted == "tokens" else job.counted


def _height(plan: Plan, several: bool) -> float:
    """Return seconds per iteration or, if ``several`` batches are compared, hours per billion tokens."""
    return iteration_s(plan) * (1e9 / plan.job.tokens / 3600 if several else 1.0)


def _hover(plan: Plan) -> str:
    """Return the plan in a few lines: its seconds and dollars, its shape, its GPUs and its idle devices."""
    job = plan.job
    lines = [
        f"{format_s(iteration_s(plan))} an iteration of {job.global_batch:,} {samples_of(job)}",
        f"${plan.price_per_hour:,.2f} an hour, {money(price_of_tokens(plan))} a billion {job.counted}",
        f"{counted(job.n_stages, 'stage')} x {counted(job.n_replicas, 'replica')}, micro-batches of {job.microbatch}",
        gpus(plan),
        plan.idle_words or "no device idle",
    ]
    return "<br>".join(literal(line) for line in lines)


def _bound(frontier: Frontier, x: dict[str, Any]) -> go.Scatter:
    """Return a lower bound on the seconds of plans at each hourly price, along the whole axis."""
    low, high = (10**end if x.get("type") == "log" else end for end in x["range"])
    # A linear axis begins at 0, where no geometric series can.
    at = np.geomspace(max(low, high / 1e4), high, 200)
    seconds = np.array([frontier.lower_bound_s(float(price)) for price in at])
    kept = np.isfinite(seconds)
    hover = "with $%{x:,.2f} an hour no plan is faster than %{y:.4g} s<extra></extra>"
    return curve(at[kept], seconds[kept], "no plan is below", LINE_GREY, 1.5, dash="dash", hovertemplate=hover)


def _axis(values: FloatArray, unit: str = "") -> dict[str, Any]:
    """Return an axis: logarithmic if the values span a wide range, else from 0. The unit precedes each tick."""
    positive = values[values > 0]
    if not len(positive):
        return {"range": [0, 1]}
    low, high = float(positive.min()), float(positive.max())
    # A free plan has no place on a logarithmic axis.
    if high < LOG_FROM * low or (values == 0).any():
        return {"range": [0, high * 1.08], "tickprefix": unit}
    return log_axis(low, high, 1.25, lambda tick: unit + (f"{tick:,.0f}" if tick >= 1 else f"{tick:g}"))


def _worded(figure: go.Figure, frontier: Frontier) -> go.Figure:
    fastest, cheapest = frontier.fastest, frontier.cheapest
    title = f"{frontier.job.name} on {frontier.topology.name}: {format_s(iteration_s(fastest))} at best, "
    title += f"{money(price_of_tokens(cheapest))} a billion {frontier.job.counted} at least"
    if len(frontier.batches) > 1:
        title = f"{frontier.job.name} on {frontier.topology.name}: seconds against dollars for each batch"
    note = f"{counted(len(frontier), 'plan')} for which no other plan found is as fast and as cheap"
    if not frontier.to_frame()["cheaper_by_token"].all():
        note += f" · hollow: a faster plan is cheaper by the {frontier.job.counted.removesuffix('s')}"
    if frontier.note:
        note += f" · {frontier.note}"
    return titled(
        figure, title, note, alt=f"Seconds against {X_TITLE}. {title}; {note}. {frontier.sentence}.", height=460
    )
