"""How the best cost of a search, or of several, approached the lower bound."""

from __future__ import annotations

import html
import itertools
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import plotly.graph_objects as go

from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.registry import unknown
from dtfm_lab.domain.units import format_s
from dtfm_lab.figures.palette import CATEGORIES, DASHES
from dtfm_lab.figures.plan.curves import Axis, Bounds, Searches, bound_line, curve, diversities, gap_to, medians
from dtfm_lab.figures.theme import LEGEND_BELOW, quality, titled
from dtfm_lab.figures.ticks import log_ticks
from dtfm_lab.planning import PlanStep

FEW = 100
"""Evaluations, or multiples of the time of the first step, up to which the axis of a search is linear."""
AXES = {"evaluations": "placements priced", "seconds": "time of search (s)", "generation": "generation"}
CURVES = 0.68
"""Share of the height that the costs have, where diversity has a panel of its own."""


class Task(NamedTuple):
    """What a lower bound holds for."""

    name: str
    fingerprint: str
    job: Job


def convergence(
    steps: Iterable[PlanStep] | Mapping[str, Iterable[PlanStep]],
    *,
    against: str = "evaluations",
    log: bool | None = None,
    diversity: bool = False,
) -> go.Figure:
    """Best communication cost of one search, or of several by name, with the medians of their populations.

    The bound is the largest that any of the searches had proved by then. The legend names the gap between it and the
    end of each search.

    Parameters
    ----------
    against
        "evaluations" (placements priced), "seconds" or "generation".
    log
        Whether that axis is logarithmic; None makes it so where the search is long enough.
    diversity
        Whether a second panel shows the diversity of each population, from 0, all alike, to 1, nothing in common.

    Raises PlanError where a search has no step, or none of them a diversity that is asked for; UnknownName for
    another axis.
    """
    if against not in AXES:
        raise unknown("axis", against, AXES)
    if not isinstance(steps, Mapping):
        alone = list(steps)
        steps = {alone[0].planner if alone else "": alone}
    searches = {name: list(some) for name, some in steps.items()}
    if empty := [name or "the search" for name, some in searches.items() if not some]:
        raise PlanError(f"{empty[0]} has no steps to draw; wanted at least one")
    if not searches:
        raise PlanError("no searches to draw; wanted at least one")
    axis = _axis([float(getattr(step, against)) for some in searches.values() for step in some], against, log)
    bounds = _bounds(searches, axis)
    looks = [{"color": CATEGORIES[i % len(CATEGORIES)], "dash": DASHES[i % len(DASHES)]} for i in range(len(searches))]
    figure = go.Figure()
    for (name, some), look in zip(searches.items(), looks, strict=True):
        bound_s = bounds[_task(some[-1])][-1][1]
        figure.add_trace(curve(name, some, axis, look, bound_s))
        figure.add_traces(medians(name, some, axis, look))
    for task, found in bounds.items():
        figure.add_trace(bound_line(found, axis, f" of {task.name}" if len(bounds) > 1 else ""))
    if diversity:
        figure.add_traces(diversities(searches, axis, looks))
    _axes(figure, searches, bounds, axis, diversity)
    return _worded(figure, searches, bounds, axis, diversity)


def _task(step: PlanStep) -> Task:
    return Task(f"{step.job.name} on {step.topology.name}", step.topology.fingerprint, step.job)


def _axis(values: list[float], against: str, log: bool | None) -> Axis:
    """The axis for these values. A linear one begins at 0, a logarithmic one extends a little beyond both ends."""
    least = min((value for value in values if value > 0), default=1.0)
    whole = against != "seconds"
    last = max(*values, least)
    if log is None:
        log = against != "generation" and last > FEW * (1.0 if whole else least)
    if log:
        return Axis(against, least / 1.5, last * 1.5, True)
    return Axis(against, 0.0, last + max(last / 20, 1.0 if whole else 0.0), False)


def _bounds(searches: Searches, axis: Axis) -> dict[Task, Bounds]:
    """The bounds of each task: every place on the axis where a search proved more than any had before."""
    bounds: dict[Task, Bounds] = {}
    for step in sorted(itertools.chain.from_iterable(searches.values()), key=axis.of):
        found = bounds.setdefault(_task(step), [])
        if not found or step.bound_s > found[-1][1]:
            found.append((axis.of(step), step.bound_s))
    return bounds


def _axes(figure: go.Figure, searches: Searches, bounds: Mapping[Task, Bounds], axis: Axis, diversity: bool) -> None:
    ends = [some[-1] for some in searches.values()]
    low = min([*(found[0][1] for found in bounds.values()), *(step.best_s for step in ends)])
    medians_s = [step.median_s for step in ends if step.median_s is not None]
    high = max([*(some[0].best_s for some in searches.values()), *medians_s])
    room = 0.08 * (high - low) or 0.1 * high or 1.0
    if not axis.log:
        ticks: dict[str, object] = {"range": [0, axis.high]}
        if axis.field != "seconds":
            ticks |= {"tickformat": "d", "nticks": int(min(axis.high, 10)) + 1}
    else:
        far = axis.high > 100 * axis.low
        ticks = {"type": "log", "tickformat": "~s" if axis.field != "seconds" else "~g"}
        ticks |= {"dtick": 1} if far else {"tickvals": log_ticks(axis.low, axis.high)}
    figure.update_xaxes(title_text=AXES[axis.field], **ticks)
    figure.update_yaxes(
        title_text="best communication cost (s)", range=[low - room, high + room], exponentformat="none"
    )
    if diversity:
        figure.update_layout(
            yaxis_domain=[1 - CURVES + 0.04, 1],
            yaxis2={"domain": [0, 1 - CURVES - 0.04], "range": [-0.03, 1.03], "title": {"text": "diversity (0 to 1)"}},
            xaxis_anchor="y2",
        )


def _worded(
    figure: go.Figure, searches: Searches, bounds: Mapping[Task, Bounds], axis: Axis, diversity: bool
) -> go.Figure:
    lasts = [some[-1] for some in searches.values()]
    networks = " and ".join(dict.fromkeys(_task(step).name for step in lasts))
    best = min(lasts, key=lambda step: step.best_s)
    bound_s = bounds[_task(best)][-1][1]
    title = f"{networks}: {format_s(best.best_s)} found"
    note = f"by {best.planner}, {quality(gap_to(best.best_s, bound_s))}"
    if any(step.median_s is not None for step in lasts):
        note += " · thin lines: medians of the populations"
    entries = len(searches) + len(bounds)
    curves = html.unescape("; ".join(trace.name for trace in figure.data if trace.showlegend is not False))
    return titled(
        figure,
        title,
        note,
        alt=f"Best cost against {AXES[axis.field]}. {title}, {note}. {curves}.",
        height=(620 if diversity else 440) + 20 * entries,
        legend={**LEGEND_BELOW, "orientation": "v"},
        margin_b=76 + 20 * entries,
    )
