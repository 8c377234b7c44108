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
from dtfm_lab.figures.measures import ObjectiveWords, measure_of
from dtfm_lab.figures.palette import CATEGORIES, DASHES, LINE_GREY
from dtfm_lab.figures.strokes import Drawn
from dtfm_lab.figures.theme import curve, figure_of, literal, log_ticks, percent, quality, titled
from dtfm_lab.planning import PlanStep
from dtfm_lab.planning.search import PROVEN

ALL_SHOWN_UP_TO = 400
"""Maximum number of points of a line that are all drawn. With more, invisible ones are left out."""
STRIPS = 300
"""Number of strips of the axis, each two or three pixels wide. A strip needs only a few points."""
Searches = dict[str, list[PlanStep]]
Bounds = list[tuple[float, float]]
"""(place on the axis, bound) wherever a search proved a higher bound than any search before."""
FEW = 100
"""The axis becomes logarithmic above this number of evaluations, or above this multiple of the first step's seconds. An
axis of generations is always linear."""
AXES = {"evaluations": "placements priced", "seconds": "time of search (s)", "generation": "generation"}


class SearchAxis(NamedTuple):
    """The horizontal axis: a field of PlanStep, and its range."""

    field: str
    low: float
    high: float
    log: bool

    def of(self, step: PlanStep) -> float:
        """Return the place of a step. A value of 0 is at the left end of a logarithmic axis."""
        return max(float(getattr(step, self.field)), self.low)


class SearchedTask(NamedTuple):
    """The task that a lower bound holds for."""

    name: str
    fingerprint: str
    job: Job | None
    """The job if communication cost is minimised, because its bound holds for one shape. None for other objectives, so
    that searches of all shapes share a bound."""
    objective: str


@figure_of(Iterable, wanted="the steps of a search, as lab.search yields them")
def convergence(
    steps: Iterable[PlanStep] | Mapping[str, Iterable[PlanStep]], *, against: str = "evaluations"
) -> go.Figure:
    """The best cost so far of one search, or of several by name, and the median cost of their populations.

    The bound is the largest that any of the searches had proved by then. The legend names the gap between the bound and
    the end of each search. A long axis is logarithmic.

    Parameters
    ----------
    against
        "evaluations" (placements priced), "seconds" or "generation".

    Raises PlanError if a search has no step, UnknownName for another axis.
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
    axis = _axis([float(getattr(step, against)) for some in searches.values() for step in some], against)
    bounds = _bounds(searches, axis)
    figure = go.Figure()
    for number, (name, some) in enumerate(searches.items()):
        look = {"color": CATEGORIES[number % len(CATEGORIES)], "dash": DASHES[number % len(DASHES)]}
        figure.add_trace(_curve(name, some, axis, look, bounds[_task(some[-1])][-1][1]))
        figure.add_traces(_medians(name, some, axis, look["color"]))
    for task, found in bounds.items():
        of = f" of {task.name}" if len(bounds) > 1 else ""
        # Searches of one task share one bound.
        figure.add_trace(_bound_line(found, axis, of, measure_of(task.objective)))
    _axes(figure, searches, bounds, axis)
    return _worded(figure, searches, bounds, axis)


def _proof(step: PlanStep, bound_s: float) -> str:
    """Return what the gap from a step's best to the bound proves. The gap is a share of the best."""
    measure = measure_of(step.objective)
    gap = max(0.0, (step.best_s - bound_s) / step.best_s) if step.best_s > 0 else 0.0
    if measure.objective == "communication":
        return quality(gap)
    return f"no plan is {measure.better}" if gap < PROVEN else f"at most {percent(gap)} of it could be saved"


def _seen(axis: SearchAxis, steps: Sequence[PlanStep], field: str) -> tuple[list[PlanStep], dict[str, Drawn]]:
    """Return the steps that are visible when a field is drawn as a stepped line, and their ``x`` and ``y``.

    Up to ``ALL_SHOWN_UP_TO`` steps are all kept. Of more, only the first one, and the lowest and the last one of each
    narrow strip are kept, without repeated values.
    """
    at, value = np.array([(axis.of(step), getattr(step, field)) for step in steps], dtype=float).T
    rows = np.arange(len(steps))
    if len(steps) > ALL_SHOWN_UP_TO:
        along, low, high = (np.log(v) if axis.log else np.asarray(v) for v in (at, axis.low, axis.high))
        strip = np.clip((along - low) / (high - low) * STRIPS, 0, STRIPS - 1).astype(int)
        first, last = np.flatnonzero(np.diff(strip, prepend=-1)), np.flatnonzero(np.diff(strip, append=STRIPS))
        lowest_first = np.lexsort((value, strip))
        # The lowest and the last of each strip, which is all that a strip's pixels can show.
        rows = np.unique([0, *lowest_first[first], *lowest_first[last], *last])
        rows = rows[(np.diff(value[rows], prepend=np.nan) != 0) | (rows == len(value) - 1)]
    points = {"x": at[rows].astype(np.float32), "y": value[rows].astype(np.float32)}
    return [steps[row] for row in rows.tolist()], points


def _curve(name: str, steps: list[PlanStep], axis: SearchAxis, look: dict[str, str], bound_s: float) -> go.Scatter:
    """Return the best cost of a search as a curve, with a point at each improvement and one at the end."""
    # The curve is level between improvements.
    falls = [b for a, b in itertools.pairwise(steps) if b.best_s < a.best_s]
    kept, points = _seen(axis, list(dict.fromkeys([steps[0], *falls, steps[-1]])), "best_s")
    last, measure = steps[-1], measure_of(steps[-1].objective)
    return go.Scatter(
        **points,
        mode="lines+markers" if len(kept) <= 40 else "lines",
        name=f"{literal(name)}: {measure.words(last.best_s)}, {_proof(last, bound_s)}",
        legendgroup=name,
        line={"shape": "hv", "width": 2.5, **look},
        marker={"size": 5},
        customdata=np.array([(step.evaluations, step.seconds) for step in kept], dtype=float),
        hovertemplate=f"{literal(name)} · %{{y:.4~g}} {measure.unit} after %{{customdata[0]:,}} placements, "
        "%{customdata[1]:.3~r} s<extra></extra>",
    )


def _medians(name: str, steps: list[PlanStep], axis: SearchAxis, color: str) -> list[go.Scatter]:
    """Return the median cost of the population, faint; nothing if the planner has no population."""
    kept = [step for step in steps if step.median_s is not None]
    if not kept:
        return []
    label, unit = f"median of {literal(name)}", measure_of(kept[-1].objective).unit
    hover = f"{label}'s population: %{{y:.4g}} {unit}<extra></extra>"
    look: dict[str, Any] = {"legendgroup": name, "showlegend": False, "opacity": 0.7, "steps": True}
    return [curve(**_seen(axis, kept, "median_s")[1], name=label, color=color, width=1.3, hovertemplate=hover, **look)]


def _bound_line(found: Bounds, axis: SearchAxis, of: str, measure: ObjectiveWords) -> go.Scatter:
    """Return the lower bound as a stepped line over the whole axis. ``of`` names its task in the legend."""
    bounds_s = [bound_s for _, bound_s in found]
    x = np.array([axis.low, *(at for at, _ in found[1:]), axis.high], dtype=np.float32)
    y = np.array([*bounds_s, bounds_s[-1]], dtype=np.float32)
    name = f"lower bound{literal(of)} {measure.words(bounds_s[-1])}"
    hover = f"no plan is {measure.better} than %{{y:.4g}} {measure.unit}<extra></extra>"
    return curve(x, y, name, LINE_GREY, 1.5, dash="dash", steps=True, hovertemplate=hover)


def _task(step: PlanStep) -> SearchedTask:
    job = step.job if step.objective == "communication" else None
    return SearchedTask(f"{step.job.name} on {step.topology.name}", step.topology.fingerprint, job, step.objective)


def _axis(values: list[float], against: str) -> SearchAxis:
    """Return the axis for these values. A linear one begins at 0, a logarithmic one extends a little beyond both
    ends."""
    least = min((value for value in values if value > 0), default=1.0)
    whole = against != "seconds"
    last = max(*values, least)
    if against != "generation" and last > FEW * (1.0 if whole else least):
        return SearchAxis(against, least / 1.5, last * 1.5, True)
    return SearchAxis(against, 0.0, last + max(last / 20, 1.0 if whole else 0.0), False)


def _bounds(searches: Searches, axis: SearchAxis) -> dict[SearchedTask, Bounds]:
    """Return the bounds of each task: every place on the axis where a search proved more than any had before."""
    bounds: dict[SearchedTask, Bounds] = {}
    for step in sorted(itertools.chain.from_iterable(searches.values()), key=axis.of):
        found = bounds.setdefault(_task(step), [])
        if not found or step.bound_s > found[-1][1]:
            found.append((axis.of(step), step.bound_s))
    return bounds


def _axes(figure: go.Figure, searches: Searches, bounds: Mapping[SearchedTask, Bounds], axis: SearchAxis) -> None:
    ends = [some[-1] for some in searches.values()]
    low = min([*(found[0][1] for found in bounds.values()), *(step.best_s for step in ends)])
    medians_s = [step.median_s for step in ends if step.median_s is not None]
    high = max([*(some[0].best_s for some in searches.values()), *medians_s])
    # A flat curve still needs some height.
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
    measures = {measure_of(step.objective) for step in ends}
    named = " or ".join(sorted({f"{measure.noun} ({measure.unit})" for measure in measures}))
    figure.update_yaxes(title_text=f"best {named}", range=[low - room, high + room], exponentformat="none")


def _worded(
    figure: go.Figure, searches: Searches, bounds: Mapping[SearchedTask, Bounds], axis: SearchAxis
) -> go.Figure:
    lasts = [some[-1] for some in searches.values()]
    networks = " and ".join(dict.fromkeys(_task(step).name for step in lasts))
    best = min(lasts, key=lambda step: step.best_s)
    bound_s = bounds[_task(best)][-1][1]
    measure = measure_of(best.objective)
    noun = "" if best.objective == "communication" else f"{measure.noun} "
    title = f"{networks}: {noun}{measure.words(best.best_s)} found"
    note = f"by {best.planner}, {_proof(best, bound_s)}"
    if any(step.median_s is not None for step in lasts):
        note += " · thin lines: medians of the populations"
    entries = len(searches) + len(bounds)
    curves = html.unescape("; ".join(trace.name for trace in figure.data if trace.showlegend is not False))
    alt = f"Best cost against {AXES[axis.field]}. {title}, {note}. {curves}."
    look = {"height": 440 + 20 * entries, "legend_orientation": "v", "margin_b": 76 + 20 * entries}
    return titled(figure, title, note, alt=alt, **look)
