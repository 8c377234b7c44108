"""The lines of a search's convergence."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import plotly.graph_objects as go

from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.units import format_s
from dtfm_lab.figures.theme import literal, quality
from dtfm_lab.planning import PlanStep

BOUND_COLOR = "#808080"
Searches = dict[str, list[PlanStep]]
Bounds = list[tuple[float, float]]
"""where on the axis a search proved more than any before, and the seconds that it proved"""


class Axis(NamedTuple):
    """The horizontal one: a field of PlanStep, and what it covers."""

    field: str
    low: float
    high: float
    log: bool

    def of(self, step: PlanStep) -> float:
        """Generation 0 and the like stand at the left end of a logarithmic axis."""
        return max(float(getattr(step, self.field)), self.low)


def gap_to(best_s: float, bound_s: float) -> float:
    return max(0.0, (best_s - bound_s) / best_s) if best_s > 0 else 0.0


def curve(name: str, steps: list[PlanStep], axis: Axis, look: dict[str, str], bound_s: float) -> go.Scatter:
    """A point where the best fell, and the last."""
    falls = [b for a, b in itertools.pairwise(steps) if b.best_s < a.best_s]
    kept = list(dict.fromkeys([steps[0], *falls, steps[-1]]))
    last_s = steps[-1].best_s
    return go.Scatter(
        x=[axis.of(step) for step in kept],
        y=[step.best_s for step in kept],
        mode="lines+markers" if len(kept) <= 40 else "lines",
        name=f"{literal(name)}: {format_s(last_s)}, {quality(gap_to(last_s, bound_s))}",
        legendgroup=name,
        line={"shape": "hv", "width": 2.5, **look},
        marker={"size": 5},
        hovertext=[
            f"{literal(name)} · {format_s(step.best_s)} after {step.evaluations:,} placements, {format_s(step.seconds)}"
            for step in kept
        ],
        hoverinfo="text",
    )


def median(name: str, steps: list[PlanStep], axis: Axis, look: dict[str, str]) -> list[go.Scatter]:
    """Of the population, faint; nothing where the planner keeps none."""
    kept = [(step, step.median_s) for step in steps if step.median_s is not None]
    if not kept:
        return []
    return [
        go.Scatter(
            x=[axis.of(step) for step, _ in kept],
            y=[median_s for _, median_s in kept],
            mode="lines",
            name=f"median of {literal(name)}",
            legendgroup=name,
            showlegend=False,
            opacity=0.7,
            line={"shape": "hv", "width": 1.3, "color": look["color"]},
            hovertemplate=f"median of {literal(name)}'s population: %{{y:.4g}} s<extra></extra>",
        )
    ]


def bound_line(found: Bounds, axis: Axis, of: str) -> go.Scatter:
    bounds_s = [bound_s for _, bound_s in found]
    return go.Scatter(
        x=[axis.low, *(at for at, _ in found[1:]), axis.high],
        y=[*bounds_s, bounds_s[-1]],
        mode="lines",
        name=f"lower bound{literal(of)} {format_s(bounds_s[-1])}",
        line={"shape": "hv", "dash": "dash", "width": 1.5, "color": BOUND_COLOR},
        hovertemplate="no placement costs less than %{y:.4g} s<extra></extra>",
    )


def diversities(searches: Searches, axis: Axis, looks: list[dict[str, str]]) -> list[go.Scatter]:
    curves = []
    for (name, steps), look in zip(searches.items(), looks, strict=True):
        kept = [step for step in steps if step.diversity is not None]
        if kept:
            curves.append(
                go.Scatter(
                    x=[axis.of(step) for step in kept],
                    y=[step.diversity for step in kept],
                    yaxis="y2",
                    mode="lines",
                    name=f"diversity of {literal(name)}",
                    legendgroup=name,
                    showlegend=False,
                    line={"shape": "hv", "width": 1.8, **look},
                    hovertemplate=f"diversity of {literal(name)}'s population: %{{y:.2f}}<extra></extra>",
                )
            )
    if not curves:
        raise PlanError(f"{' and '.join(searches)}: no step has a diversity; wanted a planner with a population")
    return curves
