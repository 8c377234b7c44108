"""How a search, or several, came down towards the lower bound."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

import plotly.graph_objects as go

from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.units import format_s
from dtfm_lab.figures.palette import CATEGORIES, DASHES
from dtfm_lab.figures.theme import LEGEND_BELOW, quality, titled
from dtfm_lab.figures.ticks import log_ticks
from dtfm_lab.planning import PlanStep

BOUND_COLOR = "#808080"
FEW = 100
"""evaluations; a search this short is read on a linear axis"""


def convergence(steps: Iterable[PlanStep] | Mapping[str, Iterable[PlanStep]]) -> go.Figure:
    """Best communication cost against placements priced, of one search or of several by name.

    Raises PlanError where a search has no step.
    """
    searches = {name: list(some) for name, some in steps.items()} if isinstance(steps, Mapping) else _named(list(steps))
    if empty := [name or "the search" for name, some in searches.items() if not some]:
        raise PlanError(f"{empty[0]} has no steps to draw; wanted at least one")
    if not searches:
        raise PlanError("no searches to draw; wanted at least one")
    figure = go.Figure()
    for i, (name, some) in enumerate(searches.items()):
        figure.add_trace(_curve(name, some, CATEGORIES[i % len(CATEGORIES)], DASHES[i % len(DASHES)]))
    lasts = [some[-1] for some in searches.values()]
    evaluations = [step.evaluations for some in searches.values() for step in some]
    last = max(1, *evaluations)
    few, many = (0, last + max(1, last / 20)) if last <= FEW else (max(1, min(evaluations)) / 1.5, last * 1.5)
    bounds_s = sorted({step.bound_s for step in lasts})
    for bound_s in bounds_s:
        figure.add_trace(
            go.Scatter(
                x=[few, many],
                y=[bound_s, bound_s],
                mode="lines",
                name=f"lower bound {format_s(bound_s)}",
                line={"dash": "dash", "width": 1.5, "color": BOUND_COLOR},
                hovertemplate="no placement costs less than %{y:.4g} s<extra></extra>",
            )
        )
    low = min(*bounds_s, *(step.best_s for step in lasts))
    high = max(some[0].best_s for some in searches.values())
    room = 0.08 * (high - low) or 0.1 * high or 1.0
    figure.update_xaxes(title_text="placements priced", **_placements_axis(few, many))
    figure.update_yaxes(
        title_text="best communication cost (s)", range=[low - room, high + room], exponentformat="none"
    )
    networks = " and ".join(dict.fromkeys(f"{step.job.name} on {step.topology.name}" for step in lasts))
    best = min(lasts, key=lambda step: step.best_s)
    title = f"{networks}: {format_s(best.best_s)} found"
    return titled(
        figure, title, f"by {best.planner}, {quality(best.gap)}", height=460, legend=LEGEND_BELOW, margin_b=96
    )


def _placements_axis(few: float, many: float) -> dict[str, object]:
    """Linear from 0, else in powers of ten, else with numbers between."""
    if few == 0:
        return {"range": [0, many], "tickformat": "d", "nticks": int(min(many, 10)) + 1}
    ticks = {"dtick": 1} if many > 100 * few else {"tickvals": log_ticks(few, many)}
    return {"type": "log", "tickformat": "~s", **ticks}


def _named(steps: list[PlanStep]) -> dict[str, list[PlanStep]]:
    return {steps[0].planner if steps else "": steps}


def _curve(name: str, steps: list[PlanStep], color: str, dash: str) -> go.Scatter:
    """A point where the best fell, and the last."""
    falls = [b for a, b in itertools.pairwise(steps) if b.best_s < a.best_s]
    kept = list(dict.fromkeys([steps[0], *falls, steps[-1]]))
    last = steps[-1]
    return go.Scatter(
        x=[max(1, step.evaluations) for step in kept],
        y=[step.best_s for step in kept],
        mode="lines+markers" if len(kept) <= 40 else "lines",
        name=f"{name}: {format_s(last.best_s)}",
        line={"shape": "hv", "width": 2.5, "color": color, "dash": dash},
        marker={"size": 5},
        hovertext=[
            f"{name} · {format_s(step.best_s)} after {step.evaluations:,} placements, {format_s(step.seconds)}"
            for step in kept
        ],
        hoverinfo="text",
    )
