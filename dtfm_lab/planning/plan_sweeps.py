"""Sweeps that plan: every combination of networks, shapes, planners, seeds and settings is planned and simulated."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import product
from typing import Any

import numpy as np

from dtfm_lab.domain.errors import LabError, PlanError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology, as_number, shortened
from dtfm_lab.domain.options import Option, whole
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.registry import unknown
from dtfm_lab.domain.schedule import Schedule
from dtfm_lab.planning.objectives import default_objective, objectives
from dtfm_lab.planning.problem import planners
from dtfm_lab.planning.search import plan
from dtfm_lab.simulation.executors import Executor
from dtfm_lab.simulation.resuming import Kept
from dtfm_lab.simulation.sweeps import (
    OF_THE_JOB,
    OF_THE_SIMULATION,
    SETTING_OPTIONS,
    SETTINGS,
    SimulatedOutcome,
    SweepPoint,
    check_count,
    check_how,
    check_value,
    network_at,
    outcome_of,
    points,
    values_of,
)

PLANNING_OPTIONS = (
    Option(name="network", help="Networks to plan on."),
    Option(name="shape", help="Stages x replicas, such as (8, 4) or 8x4."),
    Option(name="n_stages", help="Pipeline stages.", type=int, least=1),
    Option(name="n_replicas", help="Data-parallel replicas.", type=int, least=1),
    Option(name="planner", help="Planner of the search.", choices=planners),
    Option(name="objective", help="What the search makes least.", choices=objectives),
    Option(name="max_price_per_hour", help="Dollars an hour that a plan may cost.", type=float, above=0),
    Option(name="max_iteration_s", help="Seconds that an iteration may take.", type=float, above=0),
    Option(name="seed", help="Seed of the search.", type=int, least=0),
)
PLANNING_SETTINGS = tuple(option.name for option in PLANNING_OPTIONS)
"""Settings of a sweep for which every point is planned anew."""
ALL_SETTINGS = (*PLANNING_SETTINGS, *SETTINGS)
LIMITS = ("max_price_per_hour", "max_iteration_s")
OF_THE_SHAPE = ("n_stages", "n_replicas")


@dataclass(frozen=True, kw_only=True)
class Planned:
    """What a row of a sweep says of its plan."""

    plan_stages: int
    plan_replicas: int
    plan_devices: int
    """Devices that serve."""
    communication_cost_s: float
    iteration_lower_bound_s: float
    """No plan is faster; NaN where the search gives no such bound."""
    evaluations: int
    planning_s: float
    """Seconds that the search took."""

    @classmethod
    def of(cls, found: Plan) -> "Planned":
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


def plan_sweeps(
    topology: Topology,
    job_for: Callable[[Topology], Job],
    /,
    *,
    repeats: int | None = None,
    steps: int | None = None,
    seconds: float | None = None,
    workers: int | None = None,
    executor: Executor | None = None,
    kept: Kept | None = None,
    **settings: Any,
) -> Iterator[SweepPoint]:
    """Plan and simulate every combination of the settings, the last one varying fastest, and yield each when done.

    A combination that cannot be planned or simulated is a point with an error.

    Parameters
    ----------
    topology, job_for
        The network where none is among the settings, and the job for a network.
    repeats
        Plan every combination so many times, with seeds that follow each other from the given one, or from 0.
    steps, seconds
        Limits of each search, as in ``search``.
    workers
        Most processes, as in ``simulation.sweeps``. Searches that are limited by time, not by steps, would disturb each
        other, so they run one after the other.
    executor, kept
        As in ``simulation.sweeps``. An executor gets searches that are limited by time, too, all at once: a worker of
        it should have a core for itself.
    settings
        Those of ``simulation.sweeps``, which the planner takes into account where it knows them (efficiency it does
        not), and ``network``, Topologies; ``shape``, pairs such as ``(8, 4)`` or texts such as ``8x4``, or ``n_stages``
        and ``n_replicas``; ``planner``, ``objective``, ``max_price_per_hour``, ``max_iteration_s`` and ``seed``.

    Raises
    ------
    LabError
        Before anything runs: an unknown setting or name, or an impossible value.
    """
    listed = {what: _values(what, values) for what, values in settings.items()}
    check_count("repeats", repeats)
    check_how(workers, executor)
    if "shape" in listed and set(OF_THE_SHAPE) & listed.keys():
        raise PlanError("a sweep has shape and n_stages or n_replicas; wanted one of them")
    if repeats is not None and len(listed.get("seed", ())) > 1:
        raise PlanError(f"a sweep has {len(listed['seed'])} seeds and {repeats} repeats; wanted one of them")
    seeds = [whole("a sweep", "seed", seed, least=0) for seed in listed.pop("seed", [0])]
    seeds = seeds if repeats is None else [seeds[0] + number for number in range(repeats)]
    for what, values in listed.items():
        for value in values:
            check_planning_value(job_for(topology), what, value)
    grid = [dict(zip([*listed, "seed"], values, strict=True)) for values in product(*listed.values(), seeds)]
    limits = {"steps": steps, "seconds": seconds}
    networks = [point.get("network", topology) for point in grid]
    jobs = {id(one): job_for(one) for one in networks}
    sent = [{what: value for what, value in point.items() if what != "network"} for point in grid]
    named = [{what: _named(value) for what, value in point.items()} for point in grid]
    tasks = [(one, jobs[id(one)], point, limits) for one, point in zip(networks, sent, strict=True)]
    alone = 1 if steps is None and executor is None else workers
    return points(planned_outcome, tasks, named, alone, executor, kept, Planned)


def planned_outcome(
    topology: Topology, job: Job, settings: Mapping[str, Any], limits: Mapping[str, Any]
) -> tuple[SimulatedOutcome, Planned] | str:
    """The outcome and the plan of one combination of settings, or the reason in one line why there is none."""
    try:
        found = plan(
            network_at(topology, settings),
            job := _job(job, settings),
            settings.get("planner", "evolutionary"),
            objective=settings.get("objective") or default_objective(job),
            seed=settings["seed"],
            queueing=settings.get("queueing") or "pairs",
            **limits,
            **{what: settings[what] for what in LIMITS if what in settings},
        )
        simulated = {what: settings[what] for what in OF_THE_SIMULATION if what in settings}
        if not isinstance(simulated.get("schedule"), Schedule):
            simulated.pop("schedule", None)  # the plan's job has it
        outcome = outcome_of(found, simulated)
    except LabError as error:
        return str(error)
    return outcome if isinstance(outcome, str) else (*outcome, Planned.of(found))


def _job(job: Job, settings: Mapping[str, Any]) -> Job:
    changes = {what: settings[what] for what in (*OF_THE_SHAPE, *OF_THE_JOB) if what in settings}
    if "shape" in settings:
        changes |= dict(zip(OF_THE_SHAPE, settings["shape"], strict=True))
    if isinstance(settings.get("schedule"), str):
        changes["schedule"] = settings["schedule"]
    return job.with_fields(**changes) if changes else job


def _values(what: str, given: Any) -> list[Any]:
    if what == "network" and isinstance(given, Topology):
        return [given]
    if what != "shape":
        return values_of(what, given, ALL_SETTINGS)
    one = isinstance(given, str) or (isinstance(given, tuple) and all(isinstance(n, int | np.integer) for n in given))
    return [_shape(each) for each in values_of(what, [given] if one else given, ALL_SETTINGS)]


def _shape(given: Any) -> tuple[int, int]:
    """(stages, replicas) of a pair, or of a text such as ``8x4``."""
    pair = given
    if isinstance(given, str):
        pair = re.split(r"\s*[x×]\s*", given.strip()) if re.fullmatch(r"\s*\d+\s*[x×]\s*\d+\s*", given) else ()
        pair = [int(number) for number in pair]
    if not isinstance(pair, tuple | list | np.ndarray) or len(pair) != 2:
        raise PlanError(f"shape of a sweep is {shortened(given)}; wanted stages x replicas, such as (8, 4) or 8x4")
    n_stages, n_replicas = (whole("a sweep", what, number) for what, number in zip(OF_THE_SHAPE, pair, strict=True))
    return n_stages, n_replicas


def check_planning_value(job: Job, what: str, value: Any) -> None:
    """Raise for a value that is wrong in every combination."""
    if what == "network" and not isinstance(value, Topology):
        raise PlanError(f"network of a sweep is {shortened(value)}; wanted a Topology")
    if what in LIMITS and value is not None and not ((number := as_number(value)) is not None and number > 0):
        raise PlanError(f"{what} of a sweep is {shortened(value)}; wanted a number above 0")
    if what in OF_THE_SHAPE:
        whole("a sweep", what, value)
    for name, known in (("planner", planners), ("objective", objectives)):
        if what == name and not (isinstance(value, str) and value in known):
            raise unknown(name, value, known)
    if what in SETTINGS:
        check_value(job, what, value)


def _named(value: Any) -> Any:
    """A setting's value as the table shows it."""
    if isinstance(value, Topology):
        return value.name
    return f"{value[0]} x {value[1]}" if isinstance(value, tuple) else value


SWEEP_OPTIONS = (*PLANNING_OPTIONS, *SETTING_OPTIONS)
"""All that may vary in a sweep that plans."""
