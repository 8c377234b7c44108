"""What-if tables: a plan simulated under every combination of some settings, with its placement kept."""

import math
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import product
from numbers import Integral
from typing import Any

import numpy as np
import pandas as pd

from dtfm_lab.domain.errors import LabError, PlanError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import QUEUEING, Topology, as_number, shortened
from dtfm_lab.domain.options import Option, options_of
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.registry import unknown
from dtfm_lab.domain.schedule import Schedule
from dtfm_lab.simulation.executors import Executor, Lost, check_executor
from dtfm_lab.simulation.memory import memory
from dtfm_lab.simulation.resuming import Kept, of_plain, plain, resumed
from dtfm_lab.simulation.schedules import peak_activations, schedules
from dtfm_lab.simulation.simulate import simulate

_SIMULATION = (
    Option(name="schedule", help="Pipeline schedule, by name or a Schedule."),
    Option(name="queueing", help="Which messages wait for each other.", choices=QUEUEING),
    Option(name="efficiency", help="Share of its peak that a device reaches.", type=float, above=0, most=1),
)
_JOB = tuple(option for option in options_of(Job) if option.varies)
_LINKS = (
    Option(name="bandwidth", help="Factor on the bandwidth of all links.", type=float, above=0),
    Option(name="latency", help="Factor on the latency of all links.", type=float, least=0),
)
OF_THE_SIMULATION, OF_THE_JOB, OF_THE_LINKS = (tuple(o.name for o in each) for each in (_SIMULATION, _JOB, _LINKS))
"""Names of settings; those of the job are its fields that keep a plan's placement."""
SETTING_OPTIONS = (*_SIMULATION, *_JOB, *_LINKS)
"""What may vary in a sweep. A field that is added to a job is one of them."""
SETTINGS = tuple(option.name for option in SETTING_OPTIONS)


@dataclass(frozen=True, kw_only=True)
class SimulatedOutcome:
    """The results of one simulated iteration. NaN where a number is unknown, such as a price."""

    iteration_s: float
    tokens_per_s: float
    mfu: float
    """The model's FLOP per second as a share of the peak of all devices of the plan."""
    pflops: float
    """The model's FLOP per second, in 1e15."""
    bubble_share: float
    """Share of the time of all devices together in which they do not compute."""
    peak_memory_bytes: float
    """Peak memory of the device that holds most."""
    over_bytes: float
    """Bytes that the worst device lacks; 0 where all fit."""
    fits: bool
    peak_activations: int
    """Most micro-batches, counted once a stage, that a device holds from forward to backward."""
    price_per_million_tokens: float
    iteration_low_s: float = math.nan
    """Beginning of the interval in which the iteration lies with 90 % confidence: see ``Trace.interval``."""
    iteration_high_s: float = math.nan


@dataclass(frozen=True, kw_only=True)
class SweepPoint:
    """One combination of settings, with its outcome or the reason why there is none."""

    settings: Mapping[str, Any]
    outcome: SimulatedOutcome | None
    error: str
    """Reason in one line; empty where there is an outcome."""
    number: int
    """Position of this point among ``total``, from 1, for a progress bar."""
    total: int
    planned: Mapping[str, Any] = field(default_factory=dict)
    """What is known of the plan, where the sweep made one; further columns of the table."""

    @property
    def named(self) -> dict[str, Any]:
        """The settings, a Schedule by its name."""
        return {what: value.name if isinstance(value, Schedule) else value for what, value in self.settings.items()}


def sweep_table(points: Iterable[SweepPoint]) -> pd.DataFrame:
    """One row a point: its settings, the fields of SimulatedOutcome (missing where there is none), what is known of its
    plan where the sweep made one, and error. ``attrs["settings"]`` has the names of the settings."""
    rows, settings = [], []
    for point in points:
        outcome = {column: getattr(point.outcome, column, None) for column in OUTCOMES}
        rows.append({**point.named, **outcome, **point.planned, "error": point.error})
        settings = list(point.settings)
    table = pd.DataFrame(rows, columns=[*rows[0]] if rows else [*OUTCOMES, "error"])
    table = table.astype({column: TYPES.get(column, "float64") for column in OUTCOMES})
    table = table.astype({column: kind for column, kind in TYPES.items() if column in table.columns})
    table.attrs["settings"] = settings
    return table


TYPES = {"fits": "boolean"} | dict.fromkeys(
    ("peak_activations", "plan_stages", "plan_replicas", "plan_devices", "evaluations"), "Int64"
)
"""Types of the columns that are no float."""
OUTCOMES = tuple(each.name for each in fields(SimulatedOutcome))


def sweeps(
    plan: Plan,
    *,
    workers: int | None = None,
    executor: Executor | None = None,
    kept: Kept | None = None,
    **settings: Any,
) -> Iterator[SweepPoint]:
    """Simulate every combination of the settings, the last one varying fastest, and yield each point when it is done.

    An impossible combination, such as a batch that does not divide, is a point with an error. Many points are
    simulated in several processes; nothing but the time depends on that.

    Parameters
    ----------
    workers
        Most processes, one for each core where None; 1 for this one alone.
    executor
        Simulates all points, in place of processes here. A point whose worker is lost twice has that as its error.
    kept
        Rows of a sweep that was interrupted; they are taken as they are, and new ones are added.
    settings
        Values to try, or one to hold. ``schedule`` (names or Schedules), ``queueing`` and ``efficiency`` as
        ``simulate`` takes them; ``microbatch``, ``global_batch``, ``dtype``, ``compression``,
        ``gradient_compression``, ``codec_bytes_per_s``, ``synchronisation``, ``synchronise_every``, ``recompute``
        and ``stages_per_device`` as a Job has them; ``bandwidth`` and ``latency`` as factors on all links.

    Raises
    ------
    LabError
        Before anything runs: an unknown setting or name; a setting without values or with an impossible one; no
        settings.
    """
    listed = {what: values_of(what, values, SETTINGS) for what, values in settings.items()}
    if not listed:
        raise PlanError(f"a sweep of nothing; wanted values for one or more of {', '.join(SETTINGS)}")
    for what, values in listed.items():
        for value in values:
            check_value(plan.job, what, value)
    check_how(workers, executor)
    grid = [dict(zip(listed, values, strict=True)) for values in product(*listed.values())]
    return points(outcome_of, [(plan, settings) for settings in grid], grid, workers, executor, kept)


def points(
    function: Callable[..., tuple[Any, ...] | str],
    tasks: Sequence[tuple[Any, ...]],
    grid: Sequence[Mapping[str, Any]],
    workers: int | None,
    executor: Executor | None,
    kept: Kept | None,
    planned: type[Any] | None = None,
) -> Iterator[SweepPoint]:
    """A point of every task, in order, each with its settings of the grid.

    The function returns a SimulatedOutcome and, where ``planned`` is given, one of that, or why there is none. Rows are
    kept as JSON by the names of what they hold.
    """
    kinds: dict[str, type[Any]] = {"outcome": SimulatedOutcome} | ({} if planned is None else {"planned": planned})

    def to_row(result: tuple[Any, ...] | str) -> dict[str, Any]:
        if isinstance(result, str):
            return {"error": result}
        return {name: plain(each) for name, each in zip(kinds, result, strict=True)}

    def of_row(row: Mapping[str, Any]) -> tuple[Any, ...] | str:
        return str(row["error"]) if "error" in row else tuple(of_plain(kinds[name], row[name]) for name in kinds)

    def named(number: int) -> str:
        words = {what: getattr(value, "name", value) for what, value in grid[number].items()}
        return f"point {', '.join(f'{what} {value}' for what, value in words.items())}"

    how: dict[str, Any] = {"workers": workers, "executor": executor, "kept": kept}
    done = resumed(function, tasks, named=named, to_row=to_row, of_row=of_row, **how)
    for number, (settings, result) in enumerate(zip(grid, done, strict=True), start=1):
        outcome = facts = None
        error = result.reason if isinstance(result, Lost) else result if isinstance(result, str) else ""
        if isinstance(result, tuple):
            outcome, facts = result if len(result) > 1 else (*result, None)
        known = {} if planned is None else {each.name: getattr(facts, each.name, None) for each in fields(planned)}
        yield SweepPoint(settings=settings, outcome=outcome, error=error, number=number, total=len(grid), planned=known)


def outcome_of(plan: Plan, settings: Mapping[str, Any]) -> tuple[SimulatedOutcome] | str:
    """The outcome of one combination of settings, or the reason in one line why there is none."""
    given = {what: settings[what] for what in OF_THE_SIMULATION if what in settings}
    try:
        changed = _changed(plan, settings)
        trace = simulate(changed, **given)
        report = memory(changed, trace=trace)
    except LabError as error:
        return str(error)
    low_s, high_s = trace.interval()
    metrics = {what: math.nan if value is None else float(value) for what, value in trace.metrics.items()}
    outcome = SimulatedOutcome(
        iteration_s=trace.iteration_s,
        tokens_per_s=metrics["tokens_per_s"],
        mfu=metrics["mfu"],
        pflops=metrics["pflops"],
        bubble_share=1 - trace.compute_share if trace.iteration_s > 0 else 0.0,
        peak_memory_bytes=float(report.peak_bytes.max()),
        over_bytes=float(report.over_bytes.max()),
        fits=report.fits,
        peak_activations=max(peak_activations(trace.context.recorded_schedule)),
        price_per_million_tokens=metrics["price_per_million_tokens"],
        iteration_low_s=low_s,
        iteration_high_s=high_s,
    )
    return (outcome,)


def _changed(plan: Plan, settings: Mapping[str, Any]) -> Plan:
    """The placement with another job on another network; its cost is not computed anew, as a simulation needs none."""
    job = plan.job.with_fields(**{what: settings[what] for what in OF_THE_JOB if what in settings})
    return plan.changed(job=job, topology=network_at(plan.topology, settings))


def network_at(topology: Topology, settings: Mapping[str, Any]) -> Topology:
    """The network with the factors on its links, if any."""
    latency, bandwidth = (float(settings.get(what, 1.0)) for what in ("latency", "bandwidth"))
    if (latency, bandwidth) == (1.0, 1.0):
        return topology
    with np.errstate(over="ignore"):  # infinite results are refused by Topology
        return topology.scaled(latency, bandwidth)


def check_count(what: str, given: Any) -> None:
    """Raises PlanError unless a number of workers or repeats is a whole number from 1, or None."""
    counts = isinstance(given, Integral) and not isinstance(given, bool) and int(given) >= 1
    if given is not None and not counts:
        raise PlanError(f"{what} of a sweep are {shortened(given)}; wanted a whole number from 1")


def check_how(workers: int | None, executor: Executor | None) -> None:
    """Raises LabError unless workers are a count, and an executor is one and does not come with workers."""
    check_count("workers", workers)
    if executor is not None:
        check_executor(executor)
        if workers is not None:
            raise PlanError("a sweep has workers and an executor, which has its own; wanted one of them")


def values_of(what: str, given: Any, known: Collection[str]) -> list[Any]:
    """The values of a setting as plain Python ones. Raises UnknownName, or PlanError where there are none."""
    if what not in known:
        raise unknown("setting of a sweep", what, known)
    given = given.tolist() if isinstance(given, np.ndarray) else given
    one = isinstance(given, str | bytes | Schedule) or not isinstance(given, Iterable)
    values = [given] if one else list(given)
    if not values:
        raise PlanError(f"{what} of a sweep has no values; wanted one or more")
    return [value.item() if isinstance(value, np.generic) else value for value in values]


def check_value(job: Job, what: str, value: Any) -> None:
    """Raise for a value that is wrong in every combination; values that do not go together are found at each point."""
    if what == "schedule" and not (value is None or isinstance(value, Schedule) or _among(value, schedules)):
        raise unknown("pipeline schedule", value, schedules)
    if what == "queueing" and not (value is None or _among(value, QUEUEING)):
        raise unknown("queueing", value, QUEUEING)
    if what in OF_THE_LINKS:
        factor = as_number(value)
        if factor is None or not math.isfinite(factor) or factor < 0 or (factor == 0 and what == "bandwidth"):
            wanted = "a number from 0" if what == "latency" else "a number above 0"
            raise PlanError(f"{what} of a sweep, a factor on that of all links, is {shortened(value)}; wanted {wanted}")
    if what == "efficiency" and not ((share := as_number(value)) is not None and 0 < share <= 1):
        raise PlanError(f"efficiency of a sweep is {shortened(value)}; wanted more than 0 and at most 1")
    if what in OF_THE_JOB:  # without a model, which would check that batch and micro-batches go together
        job.with_fields(model=None, given_gradient_bytes=0.0, given_hop_bytes=0.0, **{what: value})


def _among(value: Any, names: Container[str]) -> bool:
    return isinstance(value, str) and value in names
