"""Sweeps over all combinations of some settings. Either one plan is simulated with each combination, or each
combination is planned and simulated."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy

from dtfm_lab.domain.errors import LabError, PlanError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology, shortened
from dtfm_lab.domain.options import Option, refuse_unknown, whole
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.registry import unknown
from dtfm_lab.domain.schedule import Schedule
from dtfm_lab.planning.problem import planners
from dtfm_lab.planning.search import default_objective, objectives, plan
from dtfm_lab.simulation.executors import Executor, InProcessExecutor, TaskLost
from dtfm_lab.simulation.task_runner import StoredRows, of_plain, plain, results
from dtfm_lab.simulation.variations import OF_THE_JOB, OUTCOMES, VARIED, SimulatedOutcome, Variation, checked_value

if TYPE_CHECKING:
    import pandas as pd

LIMITS = ("max_price_per_hour", "max_iteration_s", "steps")
OF_THE_SHAPE = ("n_stages", "n_replicas")
PLANNING = {
    option.name: option
    for option in (
        Option(name="network", help="Networks to plan on.", type=Topology),
        Option(name="shape", help="Stages x replicas, such as (8, 4) or 8x4.", type=tuple),
        Option(name="n_stages", help="Pipeline stages.", type=int, least=1),
        Option(name="n_replicas", help="Data-parallel replicas.", type=int, least=1),
        Option(name="planner", help="Planner of the search.", choices=planners),
        Option(name="objective", help="What the search minimises.", choices=objectives),
        Option(name="max_price_per_hour", help="Maximum dollars per hour that a plan may cost.", type=float, above=0),
        Option(name="max_iteration_s", help="Maximum seconds that an iteration may take.", type=float, above=0),
        Option(name="steps", help="Generations of each search.", type=int, least=1),
        Option(name="seed", help="Seed of the search.", type=int, least=0),
    )
}
"""Settings that need a new plan at every point."""
SETTINGS = PLANNING | VARIED
"""All settings that may vary in a sweep."""
CONFIDENCE = 0.95
"""Confidence level of the interval of a mean over seeds."""


@dataclass(frozen=True, kw_only=True)
class Planned:
    """The columns of a sweep's row that describe its plan."""

    plan_stages: int
    plan_replicas: int
    plan_devices: int
    """Number of devices in use."""
    communication_cost_s: float
    iteration_lower_bound_s: float
    """Lower bound on the seconds of an iteration, which no plan beats; NaN if the search gives none."""
    evaluations: int
    planning_s: float
    """Seconds that the search took."""

    @classmethod
    def of(cls, found: Plan) -> Planned:
        bound_s = found.iteration_lower_bound_s
        return cls(
            plan_stages=found.job.n_stages,
            plan_replicas=found.job.n_replicas,
            plan_devices=found.job.n_tasklets,
            communication_cost_s=found.cost.total_s,
            iteration_lower_bound_s=np.nan if bound_s is None else bound_s,
            evaluations=found.evaluations,
            planning_s=found.seconds,
        )


PLANNED = tuple(each.name for each in fields(Planned))
TYPES = {"fits": "boolean", "basis": "object"} | dict.fromkeys(
    ("peak_activations", "plan_stages", "plan_replicas", "plan_devices", "evaluations"), "Int64"
)
"""Column -> pandas type, for the columns that are not floats."""


@dataclass(frozen=True, kw_only=True)
class SweepPoint:
    """One combination of settings with its outcome, or the reason why it has none."""

    settings: Mapping[str, Any]
    """Name of each setting -> its value as the table shows it."""
    outcome: SimulatedOutcome | None
    planned: Planned | None
    """Columns about the plan, if the sweep made one."""
    plans: bool
    """True if the sweep searches for a plan for each combination."""
    error: str
    """Reason in one line; empty if there is an outcome."""
    number: int
    """Position of this point among ``total``, from 1, for a progress bar."""
    total: int


def sweep_table(points: Iterable[SweepPoint]) -> pd.DataFrame:
    """Return one row per point.

    Columns: its settings, the fields of SimulatedOutcome (missing without an outcome), the columns of its plan if the
    sweep made one, and error. ``attrs["settings"]`` has the names of the settings.
    """
    import pandas as pd  # takes a while to load

    rows, settings = [], []
    for point in points:
        row = dict(point.settings) | {column: getattr(point.outcome, column, None) for column in OUTCOMES}
        row |= {column: getattr(point.planned, column, None) for column in (PLANNED if point.plans else ())}
        rows.append(row | {"error": point.error})
        settings = list(point.settings)
    table = pd.DataFrame(rows, columns=[*rows[0]] if rows else [*OUTCOMES, "error"])
    table = table.astype({column: TYPES.get(column, "float64") for column in OUTCOMES})
    table = table.astype({column: kind for column, kind in TYPES.items() if column in table.columns})
    table.attrs["settings"] = settings
    return table


def sweep_summary(table: pd.DataFrame, y: str = "iteration_s") -> pd.DataFrame:
    """Return one row per combination of settings other than the seed.

    Columns:

    - the settings
    - n and failed: the number of runs with and without a result
    - mean; low and high, Student's interval of the mean with 95 % confidence (missing for a single run)
    - least and most: the minimum and maximum over the runs

    Mean, interval and extremes are in the unit of the column ``y``. Runs with the same seed give the same result, so an
    interval needs several seeds. Raises UnknownName if the table has no such column of results.
    """
    import pandas as pd  # takes a while to load

    cells = [name for name in table.attrs["settings"] if name != "seed"]
    known = [name for name in table.columns if name not in (*table.attrs["settings"], "error")]
    if y not in known:
        raise unknown("result of a sweep", y, known)
    rows = []
    # without dropna=False, pandas drops the runs in which a setting is None
    for key, runs in table.groupby(cells, dropna=False, sort=False) if cells else [((), table)]:
        named = dict(zip(cells, key if isinstance(key, tuple) else (key,), strict=True))
        values = runs[y].dropna().astype(float)
        n = len(values)
        widths = float(scipy.special.stdtrit(n - 1, (1 + CONFIDENCE) / 2)) if n > 1 else math.nan
        half = widths * values.std(ddof=1) / np.sqrt(n)
        ends = {"low": values.mean() - half, "high": values.mean() + half}
        extremes = {"least": values.min(), "most": values.max()}
        rows.append(named | {"n": n, "failed": len(runs) - n, "mean": values.mean()} | ends | extremes)
    summary = pd.DataFrame(rows, columns=[*cells, "n", "failed", "mean", "low", "high", "least", "most"])
    summary.attrs["settings"] = cells
    return summary


def sweep_points(
    what: Plan | Topology,
    job_for: Callable[[Topology], Job] | None = None,
    /,
    *,
    repeats: int | None = None,
    seconds: float | None = None,
    executor: Executor | None = None,
    kept: StoredRows | None = None,
    **varied: Any,
) -> Iterator[SweepPoint]:
    """Simulate every combination of the settings, the last one varying fastest (the seed, if combinations are planned).
    Yield the points in this order, as they are done.

    An impossible combination, such as a batch that does not divide, is a point with an error.

    Parameters
    ----------
    what, job_for
        A plan, whose placement is kept; or a network, and a function that returns the job for a network. With a
        network, every combination is planned. With a plan, every combination is planned too if any of ``PLANNING``,
        ``job_for``, ``repeats`` or ``seconds`` is given.
    repeats
        Plan every combination this many times, with consecutive seeds from the given one, or from 0.
    seconds
        Limit of each search, as in ``search``. Searches that are limited by time would slow each other down, so without
        ``steps`` they run one after the other. An ``executor`` still gets them all at once.
    executor
        Computes all points, instead of local processes. A point whose worker is lost twice has that as its error.
    kept
        Rows of a sweep that was interrupted. They are kept as they are, and new ones are added.
    varied
        Values to try for each of ``SETTINGS``, or one value to use for all points.

    Raises
    ------
    LabError
        Before anything runs: for an unknown setting or name, a setting without values or with an impossible one, and
        for a plan with nothing to vary.
    """
    refuse_unknown(varied, SETTINGS, "setting of a sweep")
    plans = isinstance(what, Topology) or job_for is not None or repeats is not None or seconds is not None
    plans = plans or not PLANNING.keys().isdisjoint(varied)
    listed = {name: _values(name, values) for name, values in varied.items()}
    if not (listed or plans):
        raise PlanError(f"a sweep of nothing; wanted values for one or more of {', '.join(VARIED)}")
    if plans:
        seeds = _seeds(listed, repeats)
        # the seed last, so that runs that differ in nothing else follow each other
        listed = {name: values for name, values in listed.items() if name != "seed"} | {"seed": seeds}
    grid = [dict(zip(listed, values, strict=True)) for values in product(*listed.values())]
    shown = [{name: _shown(value) for name, value in point.items()} for point in grid]
    found = results(
        planned_outcome if plans else outcome_of,
        _planning_tasks(what, job_for, grid, seconds) if plans else [(what, point) for point in grid],
        executor=InProcessExecutor() if plans and "steps" not in listed and executor is None else executor,
        named=lambda number: f"point {', '.join(f'{name} {value}' for name, value in shown[number].items())}",
        kept=kept,
        to_row=_to_row,
        of_row=_of_row,
    )
    return (
        SweepPoint(
            settings=settings,
            outcome=result[0] if isinstance(result, tuple) else None,
            planned=result[1] if isinstance(result, tuple) else None,
            plans=plans,
            error=result.reason if isinstance(result, TaskLost) else result if isinstance(result, str) else "",
            number=number,
            total=len(grid),
        )
        for number, (settings, result) in enumerate(zip(shown, found, strict=True), start=1)
    )


def _planning_tasks(
    what: Plan | Topology,
    job_for: Callable[[Topology], Job] | None,
    grid: list[dict[str, Any]],
    seconds: float | None,
) -> list[tuple[Any, ...]]:
    """Return the arguments of ``planned_outcome`` for each point. A job is made once per network."""
    network, own = (what, None) if isinstance(what, Topology) else (what.topology, what.job)
    jobs: dict[int, Job | None] = {}
    tasks = []
    for point in grid:
        one = point.get("network", network)
        if id(one) not in jobs:
            jobs[id(one)] = own if job_for is None else job_for(one)
        settings = {name: value for name, value in point.items() if name != "network"}
        tasks.append((one, jobs[id(one)], settings, seconds))
    return tasks


Found = tuple[SimulatedOutcome, Planned | None] | str
"""The outcome of a point, with its plan's columns if the sweep made a plan. If it has no outcome, one line that says
why."""


def outcome_of(plan: Plan, settings: Mapping[str, Any]) -> Found:
    """Return the outcome of a plan under one combination of settings."""
    try:
        return Variation(settings).outcome(plan), None
    except LabError as error:
        return str(error)


def planned_outcome(topology: Topology, job: Job, settings: Mapping[str, Any], seconds: float | None) -> Found:
    """Plan with one combination of settings, simulate the plan and return the outcome."""
    changes = {name: settings[name] for name in (*OF_THE_SHAPE, *OF_THE_JOB) if name in settings}
    changes |= dict(zip(OF_THE_SHAPE, settings.get("shape", ()), strict=False))
    if isinstance(schedule := settings.get("schedule"), str):
        changes["schedule"] = schedule
    try:
        job = job.with_fields(**changes) if changes else job
        found = plan(
            Variation(settings).network(topology),
            job,
            settings.get("planner", "evolutionary"),
            objective=settings.get("objective") or default_objective(job),
            seed=settings["seed"],
            queueing=settings.get("queueing") or "pairs",
            seconds=seconds,
            **{name: settings[name] for name in LIMITS if name in settings},
        )
        simulated = {name: settings[name] for name in ("queueing", "efficiency") if name in settings}
        if isinstance(schedule, Schedule):  # a schedule by name is already in the job
            simulated["schedule"] = schedule
        return Variation(simulated).outcome(found), Planned.of(found)
    except LabError as error:
        return str(error)


def _seeds(listed: Mapping[str, list[Any]], repeats: int | None) -> list[int]:
    seeds = listed.get("seed", [0])
    if "shape" in listed and set(OF_THE_SHAPE) & listed.keys():
        raise PlanError("a sweep has shape and n_stages or n_replicas; wanted one of them")
    if repeats is None:
        return seeds
    n = whole("a sweep", "repeats", repeats)
    if len(seeds) > 1:
        raise PlanError(f"a sweep has {len(seeds)} seeds and {n} repeats; wanted one of them")
    return [seeds[0] + number for number in range(n)]


def _values(name: str, given: Any) -> list[Any]:
    """Return the values of a setting as plain Python values, checked. Raises PlanError if it has no values."""
    given = given.tolist() if isinstance(given, np.ndarray) else given
    # (8, 4) is one shape, not two values
    is_shape = name == "shape" and isinstance(given, tuple) and all(isinstance(n, int | np.integer) for n in given)
    one = is_shape or isinstance(given, str | bytes | Schedule | Topology) or not isinstance(given, Iterable)
    values = [given] if one else list(given)
    if not values:
        raise PlanError(f"{name} of a sweep has no values; wanted one or more")
    return [_checked(SETTINGS[name], value) for value in values]


def _checked(option: Option, value: Any) -> Any:
    if option.name == "shape":
        return _shape(value)
    if option.name == "network" and not isinstance(value, Topology):
        raise PlanError(f"network of a sweep is {shortened(value)}; wanted a Topology")
    return checked_value(option, value)


def _shape(given: Any) -> tuple[int, int]:
    """Return (stages, replicas), given as a pair or as text such as ``8x4``."""
    pair = given
    if isinstance(given, str):
        pair = re.split(r"\s*[x×]\s*", given.strip()) if re.fullmatch(r"\s*\d+\s*[x×]\s*\d+\s*", given) else ()
        pair = [int(number) for number in pair]
    if not isinstance(pair, tuple | list | np.ndarray) or len(pair) != 2:
        raise PlanError(f"shape of a sweep is {shortened(given)}; wanted stages x replicas, such as (8, 4) or 8x4")
    n_stages, n_replicas = (whole("a sweep", what, number) for what, number in zip(OF_THE_SHAPE, pair, strict=True))
    return n_stages, n_replicas


def _shown(value: Any) -> Any:
    """Return a setting's value as the table shows it."""
    if isinstance(value, Topology | Schedule):
        return value.name
    return f"{value[0]} x {value[1]}" if isinstance(value, tuple) else value


def _to_row(found: Found) -> dict[str, Any]:
    """Return the result of a point as JSON values."""
    if isinstance(found, str):
        return {"error": found}
    outcome, planned = found
    return {"outcome": plain(outcome), "planned": None if planned is None else plain(planned)}


def _of_row(row: Mapping[str, Any]) -> Found:
    """Return the result that ``_to_row`` wrote. Raises LabError if the row is malformed."""
    if row.keys() == {"error"} and isinstance(row["error"], str):
        return row["error"]
    if row.keys() != {"outcome", "planned"}:
        raise LabError(
            f"a row of {shortened(', '.join(sorted(row)))}; wanted outcome and planned, or an error in words"
        )
    planned = row["planned"]
    return of_plain(SimulatedOutcome, row["outcome"]), None if planned is None else of_plain(Planned, planned)
