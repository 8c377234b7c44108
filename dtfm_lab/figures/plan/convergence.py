"""How the best cost of a search, or of several, approached the lower bound."""

import html
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go

from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.registry import unknown
from dtfm_lab.domain.units import IntArray, format_s
from dtfm_lab.figures.palette import CATEGORIES, DASHES, LINE_GREY
from dtfm_lab.figures.strokes import Drawn
from dtfm_lab.figures.theme import LEGEND_BELOW, literal, log_ticks, percent, quality, titled
from dtfm_lab.planning import PlanStep
from dtfm_lab.planning.step import PROVEN

ALL_SHOWN_UP_TO = 400
"""Most points of a line that are all drawn; of more, those that would not be visible are left out."""
STRIPS = 300
"""Strips of the axis, two or three pixels wide, of which each needs a few points only."""
Searches = dict[str, list[PlanStep]]
Bounds = list[tuple[float, float]]
"""The places on the axis at which a search proved more than any had before, and the seconds that it proved."""
FEW = 100
"""Evaluations, or multiples of the time of the first step, up to which the axis of a search is linear."""
AXES = {"evaluations": "placements priced", "seconds": "time of search (s)", "generation": "generation"}
CURVES = 0.68
"""Share of the height that the costs have, where diversity has a panel of its own."""


class Quantity(NamedTuple):
    """What a search makes least, in words."""

    noun: str
    unit: str
    better: str
    """What no plan is, beyond the bound."""

    def words(self, value: float) -> str:
        """A value with its unit."""
        return f"${value:,.4g}" if self.unit == "$" else format_s(value)

    def proof(self, gap: float) -> str:
        """What the gap to the bound proves."""
        if self.noun == QUANTITIES["communication"].noun:
            return quality(gap)
        return f"no plan is {self.better}" if gap < PROVEN else f"at most {percent(gap)} of it could be saved"


QUANTITIES = {
    "communication": Quantity("communication cost", "s", "cheaper"),
    "iteration": Quantity("iteration", "s", "faster"),
    "price": Quantity("price of a billion tokens", "$", "cheaper"),
}
"""By the name of the objective; one that somebody registered is in seconds, by its name."""


def quantity_of(objective: str) -> Quantity:
    """The words of an objective."""
    return QUANTITIES.get(objective, Quantity(objective, "s", "better"))


class SearchAxis(NamedTuple):
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


def seen(axis: SearchAxis, steps: Sequence[PlanStep], values: Sequence[float]) -> IntArray:
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


def _at(axis: SearchAxis, steps: Sequence[PlanStep]) -> Drawn:
    return np.array([axis.of(step) for step in steps], dtype=np.float32)


def curve(name: str, steps: list[PlanStep], axis: SearchAxis, look: dict[str, str], bound_s: float) -> go.Scatter:
    """The best cost of a search: a point wherever it fell, and the last one."""
    falls = [b for a, b in itertools.pairwise(steps) if b.best_s < a.best_s]
    kept = list(dict.fromkeys([steps[0], *falls, steps[-1]]))
    kept = [kept[row] for row in seen(axis, kept, [step.best_s for step in kept])]
    last_s, quantity = steps[-1].best_s, quantity_of(steps[-1].objective)
    return go.Scatter(
        x=_at(axis, kept),
        y=np.array([step.best_s for step in kept], dtype=np.float32),
        mode="lines+markers" if len(kept) <= 40 else "lines",
        name=f"{literal(name)}: {quantity.words(last_s)}, {quantity.proof(gap_to(last_s, bound_s))}",
        legendgroup=name,
        line={"shape": "hv", "width": 2.5, **look},
        marker={"size": 5},
        customdata=np.array([(step.evaluations, step.seconds) for step in kept], dtype=float),
        hovertemplate=f"{literal(name)} · %{{y:.4~g}} {quantity.unit} after %{{customdata[0]:,}} placements, "
        "%{customdata[1]:.3~r} s<extra></extra>",
    )


def medians(name: str, steps: list[PlanStep], axis: SearchAxis, look: dict[str, str]) -> list[go.Scatter]:
    """The median cost of the population, faint; nothing where the planner has no population."""
    label = f"median of {literal(name)}"
    line = {"shape": "hv", "width": 1.3, "color": look["color"]}
    hover = f"{label}'s population: %{{y:.4g}} {quantity_of(steps[-1].objective).unit}"
    return _of_population("median_s", name, steps, axis, label, hover, opacity=0.7, line=line)


def bound_line(found: Bounds, axis: SearchAxis, of: str, quantity: Quantity) -> go.Scatter:
    """The lower bound as a stepped line over the whole axis; ``of`` names its task in the legend."""
    bounds_s = [bound_s for _, bound_s in found]
    return go.Scatter(
        x=np.array([axis.low, *(at for at, _ in found[1:]), axis.high], dtype=np.float32),
        y=np.array([*bounds_s, bounds_s[-1]], dtype=np.float32),
        mode="lines",
        name=f"lower bound{literal(of)} {quantity.words(bounds_s[-1])}",
        line={"shape": "hv", "dash": "dash", "width": 1.5, "color": LINE_GREY},
        hovertemplate=f"no plan is {quantity.better} than %{{y:.4g}} {quantity.unit}<extra></extra>",
    )


def diversities(searches: Searches, axis: SearchAxis, looks: list[dict[str, str]]) -> list[go.Scatter]:
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
    field: str, legendgroup: str, steps: list[PlanStep], axis: SearchAxis, name: str, hover: str, **look: Any
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


class SearchedTask(NamedTuple):
    """What a lower bound holds for."""

    name: str
    fingerprint: str
    job: Job | None
    """None where the search chooses the job's shape, so that one bound holds for all shapes."""
    objective: str


def convergence(
    steps: Iterable[PlanStep] | Mapping[str, Iterable[PlanStep]],
    *,
    against: str = "evaluations",
    log: bool | None = None,
    diversity: bool = False,
) -> go.Figure:
    """Best cost of one search, or of several by name, with the medians of their populations, in the objective's words.

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

    Raises PlanError where a search has no step, or ``diversity`` is set and no planner has one; UnknownName for
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
        of = f" of {task.name}" if len(bounds) > 1 else ""
        figure.add_trace(bound_line(found, axis, of, quantity_of(task.objective)))
    if diversity:
        figure.add_traces(diversities(searches, axis, looks))
    _axes(figure, searches, bounds, axis, diversity)
    return _worded(figure, searches, bounds, axis, diversity)


def _task(step: PlanStep) -> SearchedTask:
    job = step.job if step.objective == "communication" else None
    return SearchedTask(f"{step.job.name} on {step.topology.name}", step.topology.fingerprint, job, step.objective)


def _axis(values: list[float], against: str, log: bool | None) -> SearchAxis:
    """The axis for these values. A linear one begins at 0, a logarithmic one extends a little beyond both ends."""
    least = min((value for value in values if value > 0), default=1.0)
    whole = against != "seconds"
    last = max(*values, least)
    if log is None:
        log = against != "generation" and last > FEW * (1.0 if whole else least)
    if log:
        return SearchAxis(against, least / 1.5, last * 1.5, True)
    return SearchAxis(against, 0.0, last + max(last / 20, 1.0 if whole else 0.0), False)


def _bounds(searches: Searches, axis: SearchAxis) -> dict[SearchedTask, Bounds]:
    """The bounds of each task: every place on the axis where a search proved more than any had before."""
    bounds: dict[SearchedTask, Bounds] = {}
    for step in sorted(itertools.chain.from_iterable(searches.values()), key=axis.of):
        found = bounds.setdefault(_task(step), [])
        if not found or step.bound_s > found[-1][1]:
            found.append((axis.of(step), step.bound_s))
    return bounds


def _axes(
    figure: go.Figure, searches: Searches, bounds: Mapping[SearchedTask, Bounds], axis: SearchAxis, diversity: bool
) -> None:
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
    quantities = {quantity_of(step.objective) for step in ends}
    named = " or ".join(sorted({f"{quantity.noun} ({quantity.unit})" for quantity in quantities}))
    figure.update_yaxes(title_text=f"best {named}", range=[low - room, high + room], exponentformat="none")
    if diversity:
        figure.update_layout(
            yaxis_domain=[1 - CURVES + 0.04, 1],
            yaxis2={"domain": [0, 1 - CURVES - 0.04], "range": [-0.03, 1.03], "title": {"text": "diversity (0 to 1)"}},
            xaxis_anchor="y2",
        )


def _worded(
    figure: go.Figure, searches: Searches, bounds: Mapping[SearchedTask, Bounds], axis: SearchAxis, diversity: bool
) -> go.Figure:
    lasts = [some[-1] for some in searches.values()]
    networks = " and ".join(dict.fromkeys(_task(step).name for step in lasts))
    best = min(lasts, key=lambda step: step.best_s)
    bound_s = bounds[_task(best)][-1][1]
    quantity = quantity_of(best.objective)
    noun = "" if best.objective == "communication" else f"{quantity.noun} "
    title = f"{networks}: {noun}{quantity.words(best.best_s)} found"
    note = f"by {best.planner}, {quantity.proof(gap_to(best.best_s, bound_s))}"
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
