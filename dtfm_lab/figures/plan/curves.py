"""The lines of a search's convergence."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import plotly.graph_objects as go

from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.units import IntArray, format_s
from dtfm_lab.figures.strokes import Drawn
from dtfm_lab.figures.theme import literal, quality
from dtfm_lab.planning import PlanStep

ALL_SHOWN_UP_TO = 400
"""points of a line; of more, those are left out that nobody would see"""
STRIPS = 300
"""that a line is looked at in, each two or three pixels wide"""
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


def seen(axis: Axis, steps: Sequence[PlanStep], values: Sequence[float]) -> IntArray:
    """Rows of a stepped line that a picture can show: of many, each narrow strip's lowest, highest and last one,
    and of equal ones in a row the first."""
    if len(values) <= ALL_SHOWN_UP_TO:
        return np.arange(len(values))
    at, value = np.array([axis.of(step) for step in steps]), np.array(values)
    along, low, high = (np.log(v) if axis.log else np.asarray(v) for v in (at, axis.low, axis.high))
    strip = np.clip((along - low) / (high - low) * STRIPS, 0, STRIPS - 1).astype(int)
    first, last = np.flatnonzero(np.diff(strip, prepend=-1)), np.flatnonzero(np.diff(strip, append=STRIPS))
    lowest_first = np.lexsort((value, strip))
    rows = np.unique([0, *lowest_first[first], *lowest_first[last], *last])
    return rows[(np.diff(value[rows], prepend=np.nan) != 0) | (rows == len(value) - 1)]


def _at(axis: Axis, steps: Sequence[PlanStep]) -> Drawn:
    return np.array([axis.of(step) for step in steps], dtype=np.float32)


def curve(name: str, steps: list[PlanStep], axis: Axis, look: dict[str, str], bound_s: float) -> go.Scatter:
    """A point where the best fell, and the last."""
    falls = [b for a, b in itertools.pairwise(steps) if b.best_s < a.best_s]
    kept = list(dict.fromkeys([steps[0], *falls, steps[-1]]))
    kept = [kept[row] for row in seen(axis, kept, [step.best_s for step in kept])]
    last_s = steps[-1].best_s
    return go.Scatter(
        x=_at(axis, kept),
        y=np.array([step.best_s for step in kept], dtype=np.float32),
        mode="lines+markers" if len(kept) <= 40 else "lines",
        name=f"{literal(name)}: {format_s(last_s)}, {quality(gap_to(last_s, bound_s))}",
        legendgroup=name,
        line={"shape": "hv", "width": 2.5, **look},
        marker={"size": 5},
        customdata=np.array([(step.evaluations, step.seconds) for step in kept], dtype=float),
        hovertemplate=f"{literal(name)} · %{{y:.4~g}} s after %{{customdata[0]:,}} placements, "
        "%{customdata[1]:.3~r} s<extra></extra>",
    )


def median(name: str, steps: list[PlanStep], axis: Axis, look: dict[str, str]) -> list[go.Scatter]:
    """Of the population, faint; nothing where the planner keeps none."""
    kept = [step for step in steps if step.median_s is not None]
    medians_s = [step.median_s for step in kept if step.median_s is not None]
    if not kept:
        return []
    rows = seen(axis, kept, medians_s)
    return [
        go.Scatter(
            x=_at(axis, [kept[row] for row in rows]),
            y=np.array(medians_s, dtype=np.float32)[rows],
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
        x=np.array([axis.low, *(at for at, _ in found[1:]), axis.high], dtype=np.float32),
        y=np.array([*bounds_s, bounds_s[-1]], dtype=np.float32),
        mode="lines",
        name=f"lower bound{literal(of)} {format_s(bounds_s[-1])}",
        line={"shape": "hv", "dash": "dash", "width": 1.5, "color": BOUND_COLOR},
        hovertemplate="no placement costs less than %{y:.4g} s<extra></extra>",
    )


def diversities(searches: Searches, axis: Axis, looks: list[dict[str, str]]) -> list[go.Scatter]:
    curves = []
    for (name, steps), look in zip(searches.items(), looks, strict=True):
        kept = [step for step in steps if step.diversity is not None]
        diversity = [step.diversity for step in kept if step.diversity is not None]
        if kept:
            rows = seen(axis, kept, diversity)
            curves.append(
                go.Scatter(
                    x=_at(axis, [kept[row] for row in rows]),
                    y=np.array(diversity, dtype=np.float32)[rows],
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
