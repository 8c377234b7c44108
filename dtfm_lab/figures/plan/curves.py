"""The lines of a search's convergence."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go

from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.units import IntArray, format_s
from dtfm_lab.figures.palette import LINE_GREY
from dtfm_lab.figures.strokes import Drawn
from dtfm_lab.figures.theme import literal, quality
from dtfm_lab.planning import PlanStep

ALL_SHOWN_UP_TO = 400
"""Most points of a line that are all drawn; of more, those that would not be visible are left out."""
STRIPS = 300
"""Strips of the axis, two or three pixels wide, of which each needs a few points only."""
Searches = dict[str, list[PlanStep]]
Bounds = list[tuple[float, float]]
"""The places on the axis at which a search proved more than any had before, and the seconds that it proved."""


class Axis(NamedTuple):
    """The horizontal axis: a field of PlanStep, and its range."""

    field: str
    low: float
    high: float
    log: bool

    def of(self, step: PlanStep) -> float:
        """The place of a step. A value of 0 is at the left end of a logarithmic axis."""
        return max(float(getattr(step, self.field)), self.low)


def gap_to(best_s: float, bound_s: float) -> float:
    """Gap of a cost to its lower bound, as a share of the cost."""
    return max(0.0, (best_s - bound_s) / best_s) if best_s > 0 else 0.0


def seen(axis: Axis, steps: Sequence[PlanStep], values: Sequence[float]) -> IntArray:
    """Rows of a stepped line that are visible in a picture.

    Of many rows, these are the lowest, the highest and the last of each narrow strip, without repeated values.
    """
    if len(values) <= ALL_SHOWN_UP_TO:
        return np.arange(len(values))
    at, value = np.array([axis.of(step) for step in steps]), np.array(values)
    along, low, high = (np.log(v) if axis.log else np.asarray(v) for v in (at, axis.low, axis.high))
    strip = np.clip((along - low) / (high - low) * STRIPS, 0, STRIPS - 1).astype(int)
    first, last = np.flatnonzero(np.diff(strip, prepend=-1)), np.flatnonzero(np.diff(strip, append=STRIPS))
    lowest_first = np.lexsort((value, strip))
    rows = np.unique([0, *lowest_first[first], *lowest_first[last], *last])
    visible: IntArray = rows[(np.diff(value[rows], prepend=np.nan) != 0) | (rows == len(value) - 1)]
    return visible


def _at(axis: Axis, steps: Sequence[PlanStep]) -> Drawn:
    return np.array([axis.of(step) for step in steps], dtype=np.float32)


def curve(name: str, steps: list[PlanStep], axis: Axis, look: dict[str, str], bound_s: float) -> go.Scatter:
    """The best cost of a search: a point wherever it fell, and the last one."""
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


def medians(name: str, steps: list[PlanStep], axis: Axis, look: dict[str, str]) -> list[go.Scatter]:
    """The median cost of the population, faint; nothing where the planner has no population."""
    label = f"median of {literal(name)}"
    line = {"shape": "hv", "width": 1.3, "color": look["color"]}
    hover = f"{label}'s population: %{{y:.4g}} s"
    return _of_population("median_s", name, steps, axis, label, hover, opacity=0.7, line=line)


def bound_line(found: Bounds, axis: Axis, of: str) -> go.Scatter:
    """The lower bound as a stepped line over the whole axis; ``of`` names its task in the legend."""
    bounds_s = [bound_s for _, bound_s in found]
    return go.Scatter(
        x=np.array([axis.low, *(at for at, _ in found[1:]), axis.high], dtype=np.float32),
        y=np.array([*bounds_s, bounds_s[-1]], dtype=np.float32),
        mode="lines",
        name=f"lower bound{literal(of)} {format_s(bounds_s[-1])}",
        line={"shape": "hv", "dash": "dash", "width": 1.5, "color": LINE_GREY},
        hovertemplate="no placement costs less than %{y:.4g} s<extra></extra>",
    )


def diversities(searches: Searches, axis: Axis, looks: list[dict[str, str]]) -> list[go.Scatter]:
    """The diversity of each population, on the second y axis; raises PlanError where no planner has a population."""
    lines: list[go.Scatter] = []
    for (name, steps), look in zip(searches.items(), looks, strict=True):
        label = f"diversity of {literal(name)}"
        line = {"shape": "hv", "width": 1.8, **look}
        hover = f"{label}'s population: %{{y:.2f}}"
        lines += _of_population("diversity", name, steps, axis, label, hover, yaxis="y2", line=line)
    if not lines:
        raise PlanError(f"{' and '.join(searches)}: no step has a diversity; wanted a planner with a population")
    return lines


def _of_population(
    field: str, legendgroup: str, steps: list[PlanStep], axis: Axis, name: str, hover: str, **look: Any
) -> list[go.Scatter]:
    """The line of a step's field over the steps that have a value; nothing where none has."""
    kept = [step for step in steps if getattr(step, field) is not None]
    values = [float(getattr(step, field)) for step in kept]
    if not kept:
        return []
    rows = seen(axis, kept, values)
    return [
        go.Scatter(
            x=_at(axis, [kept[row] for row in rows]),
            y=np.array(values, dtype=np.float32)[rows],
            mode="lines",
            name=name,
            legendgroup=legendgroup,
            showlegend=False,
            hovertemplate=f"{hover}<extra></extra>",
            **look,
        )
    ]
