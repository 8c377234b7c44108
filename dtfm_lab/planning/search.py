"""Topology + Job -> Plan, step by step."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Placement, Plan
from dtfm_lab.domain.units import IntArray
from dtfm_lab.planning.background_tasks import Errands
from dtfm_lab.planning.bounds.incremental_bound import RaisedBound
from dtfm_lab.planning.bounds.lower_bound import lower_bound_s
from dtfm_lab.planning.cost import PairCosts, pair_costs, price_placement
from dtfm_lab.planning.problem import Planner, Problem, canonical_order, planners

DEFAULT_SECONDS = 2.0
PROVEN = 1e-9
"""relative gap to the lower bound at which nothing is left to find"""
FOUNDING_S = 1.0
"""that a search may take beyond its seconds until its first generation stands"""
SHAPES_NAMED = 8


@dataclass(frozen=True, eq=False, kw_only=True)
class PlanStep:
    """The best placement after so many generations."""

    topology: Topology = field(repr=False)
    job: Job = field(repr=False)
    planner: str
    seed: int
    generation: int
    evaluations: int
    """placements priced so far, neighbours of a placement included"""
    seconds: float
    """since the search began"""
    best_s: float
    median_s: float | None
    """of the living population; None where the planner keeps none"""
    bound_s: float
    """no placement costs less; may rise from step to step"""
    diversity: float | None = None
    """of the living population, 0 all alike, 1 nothing in common; None where the planner keeps none"""
    operator: str = ""
    """what made the newest individual"""
    parents: tuple[int, ...] = ()
    """birth numbers of its parents"""
    devices: IntArray = field(repr=False)
    """(S, D) device indices of the best"""

    @property
    def gap(self) -> float:
        """(best - bound) / best; 0 is proven best."""
        return max(0.0, (self.best_s - self.bound_s) / self.best_s) if self.best_s > 0 else 0.0

    @cached_property
    def plan(self) -> Plan:
        """Made, and priced in full, when asked for."""
        return Plan(
            topology=self.topology,
            job=self.job,
            placement=Placement(self.devices),
            cost=price_placement(self.topology, self.job, self.devices),
            lower_bound_s=self.bound_s,
            planner=self.planner,
            seed=self.seed,
            generation=self.generation,
            evaluations=self.evaluations,
            seconds=self.seconds,
        )


def search(
    topology: Topology,
    job: Job,
    planner: str = "evolutionary",
    *,
    seed: int = 0,
    steps: int | None = None,
    seconds: float | None = None,
    start: Plan | None = None,
    errands: Errands | None = None,
    raising: bool = True,
) -> Iterator[PlanStep]:
    """Improving placements of the job, one step a generation, at least one.

    Parameters
    ----------
    planner
        A name in ``planners``.
    seed
        The same seed and ``steps`` give the same plan, bit for bit.
    steps, seconds
        Stop after so many generations or so much time; without either, after 2 seconds. A plan that
        is proven best ends the search early.
    start
        A plan of the same shape to improve on, its devices found by name.
    errands
        Where the search is to run threads of its own, for who counts their CPU time.
    raising
        Whether a share of the time goes to raising the bound; not where every tenth of a second counts.

    Raises
    ------
    PlanError
        The job needs more devices than there are; a seed, steps or seconds out of range; a start of
        another shape.
    UnknownName
        No such planner; a device of the start that the topology does not have.
    """
    run = planners[planner]
    _check_limits(seed, steps, seconds)
    require_fit(topology, job)
    begin = None if start is None else _start(topology, job, start)
    if steps is None and seconds is None:
        seconds = DEFAULT_SECONDS
    return _steps(topology, job, planner, run, seed, steps, seconds, begin, errands or Errands(), raising)


def plan(
    topology: Topology,
    job: Job,
    planner: str = "evolutionary",
    *,
    seed: int = 0,
    steps: int | None = None,
    seconds: float | None = None,
    start: Plan | None = None,
) -> Plan:
    """The best plan that ``search`` finds within its limits; an interrupt keeps the best so far."""
    best: PlanStep | None = None
    try:
        for step in search(topology, job, planner, seed=seed, steps=steps, seconds=seconds, start=start):
            best = step
    except KeyboardInterrupt:
        if best is None:
            raise
    assert best is not None, "a search yields at least one step"
    return best.plan


def require_fit(topology: Topology, job: Job) -> None:
    """PlanError where the job has more tasklets than the topology has devices."""
    n = len(topology)
    if job.n_tasklets <= n:
        return
    shapes = [f"{n_stages} x {n_replicas}" for n_stages, n_replicas in job.shapes(n)][:SHAPES_NAMED]
    listed = " or ".join(filter(None, [", ".join(shapes[:-1]), *shapes[-1:]]))
    advice = f"{listed} would use all of them" if shapes else "fewer stages or replicas are needed"
    raise PlanError(
        f"{job.n_stages} stages x {job.n_replicas} replicas need {job.n_tasklets} devices, "
        f"{topology.name} has {n}; {advice}"
    )


def _check_limits(seed: int, steps: int | None, seconds: float | None) -> None:
    if not _whole(seed) or seed < 0:
        raise PlanError(f"seed is {seed!r}; wanted a whole number, 0 or more")
    if steps is not None and (not _whole(steps) or steps < 1):
        raise PlanError(f"steps is {steps!r}; wanted a whole number, 1 or more")
    number = isinstance(seconds, int | float | np.number) and not isinstance(seconds, bool)
    if seconds is not None and not (number and math.isfinite(seconds) and seconds > 0):
        raise PlanError(f"seconds is {seconds!r}; wanted a number above 0")


def _whole(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _start(topology: Topology, job: Job, start: Plan) -> IntArray:
    shape = start.placement.devices.shape
    if shape != (job.n_stages, job.n_replicas):
        raise PlanError(
            f"start is a placement of {shape[0]} x {shape[1]}; the job wants {job.n_stages} x {job.n_replicas}"
        )
    return np.array([[topology.index(name) for name in group] for group in start.stages])


def _steps(
    topology: Topology,
    job: Job,
    planner: str,
    run: Planner,
    seed: int,
    steps: int | None,
    seconds: float | None,
    start: IntArray | None,
    errands: Errands,
    raising: bool,
) -> Iterator[PlanStep]:
    """Runs the planner on the devices in canonical order and names them as the topology does."""
    began = time.perf_counter()
    pair = pair_costs(topology, job)
    order = canonical_order(pair)
    grid = np.ix_(order, order)
    problem = Problem(
        pair=PairCosts(np.ascontiguousarray(pair.group_s[grid]), np.ascontiguousarray(pair.hop_s[grid])),
        n_stages=job.n_stages,
        n_replicas=job.n_replicas,
        bound_s=lower_bound_s(topology, job),
        start=None if start is None else np.argsort(order)[start],
        errands=errands,
    )
    bound = RaisedBound(problem, timed=steps is None, raising=raising)
    generation, waited_s, held_s = 0, 0.0, 0.0
    for found in run(problem, np.random.default_rng(seed)):
        bound_s = bound.after(found, generation, time.perf_counter() - began - held_s)
        step = PlanStep(
            topology=topology,
            job=job,
            planner=planner,
            seed=int(seed),
            generation=generation,
            evaluations=found.evaluations,
            seconds=time.perf_counter() - began - held_s,
            best_s=found.best_s,
            median_s=found.median_s,
            bound_s=bound_s,
            diversity=found.diversity,
            operator=found.operator,
            parents=found.parents,
            devices=order[found.best],
        )
        out = time.perf_counter()
        yield step
        held_s += time.perf_counter() - out  # by whoever watches: paused, or in slow motion
        generation += found.whole
        if step.gap < PROVEN or generation == steps:
            return
        waited_s = max(waited_s, found.waited_s)
        begun = found.whole or generation > 0
        over_s = time.perf_counter() - began - held_s - waited_s - (math.inf if seconds is None else seconds)
        if over_s >= (0.0 if begun else FOUNDING_S):
            return
