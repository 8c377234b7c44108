"""Runs a planner on a topology and a job, step by step, until its limits are reached or the best is proven."""

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
from dtfm_lab.planning.background_tasks import BackgroundTasks
from dtfm_lab.planning.bounds.bound_search import IncrementalBound
from dtfm_lab.planning.bounds.lower_bound import lower_bound_s
from dtfm_lab.planning.cost import PairCosts, pair_costs, price_placement
from dtfm_lab.planning.problem import Generation, Problem, canonical_order, planners

DEFAULT_SECONDS = 2.0
"""Seconds of a search that is given neither steps nor seconds."""
PROVEN = 1e-9
"""Relative gap between a plan's cost and its lower bound at which the plan counts as proven best."""
INITIAL_POPULATION_S = 1.0
"""Seconds that a search may take beyond its limit to complete its first generation."""
SHAPES_NAMED = 8


@dataclass(frozen=True, eq=False, kw_only=True)
class PlanStep(Generation):
    """A generation of a search, with device indices of the topology: ``best`` is the incumbent."""

    topology: Topology = field(repr=False)
    job: Job = field(repr=False)
    planner: str
    seed: int
    generation: int
    """Number of complete generations before this step."""
    seconds: float
    """Seconds since the search began, less those that the caller took between steps."""
    bound_s: float
    """Lower bound: no placement costs less. It may rise from step to step."""

    @property
    def devices(self) -> IntArray:
        """(S, D) device indices of the incumbent."""
        return self.best

    @property
    def gap(self) -> float:
        """(incumbent - bound) / incumbent; at 0 the incumbent is proven best."""
        return max(0.0, (self.best_s - self.bound_s) / self.best_s) if self.best_s > 0 else 0.0

    @cached_property
    def plan(self) -> Plan:
        """The incumbent as a plan, constructed and priced in full on first use."""
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
    background_tasks: BackgroundTasks | None = None,
    improve_bound: bool = True,
) -> Iterator[PlanStep]:
    """Improving placements of the job: at least one step, one or more for each generation.

    Arguments are checked by the call itself, before the first step is computed.

    Parameters
    ----------
    planner
        A name in ``planners``.
    seed
        Seed of all random numbers. The same seed and ``steps`` give the same plan, bit for bit.
    steps, seconds
        Stop after so many generations or so much time; without either, after 2 seconds. A plan that
        is proven best ends the search early.
    start
        A plan of the same shape to improve on, its devices found by name.
    background_tasks
        Runs the threads that the planner starts, for a caller that counts their CPU time.
    improve_bound
        Whether a share of the time is spent on a tighter lower bound; False for the shortest searches.

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
    start_devices = None if start is None else _start_devices(topology, job, start)
    limit_s = math.inf if seconds is None else seconds
    if steps is None and seconds is None:
        limit_s = DEFAULT_SECONDS

    def run_planner() -> Iterator[PlanStep]:
        """Runs the planner on the devices in canonical order and translates its grids back."""
        began = time.perf_counter()
        pair = pair_costs(topology, job)
        order = canonical_order(pair)
        square = np.ix_(order, order)
        problem = Problem(
            pair=PairCosts(np.ascontiguousarray(pair.group_s[square]), np.ascontiguousarray(pair.hop_s[square])),
            n_stages=job.n_stages,
            n_replicas=job.n_replicas,
            bound_s=lower_bound_s(topology, job),
            start=None if start_devices is None else np.argsort(order)[start_devices],
            background_tasks=background_tasks or BackgroundTasks(),
        )
        bound = IncrementalBound(problem, timed=steps is None, enabled=improve_bound)
        generation, compiling_s, paused_s = 0, 0.0, 0.0
        for found in run(problem, np.random.default_rng(seed)):
            bound_s = bound.update(found, generation, time.perf_counter() - began - paused_s)
            in_topology = {"best": order[found.best], "bound_s": bound_s}
            step = PlanStep(
                **vars(found) | in_topology,
                topology=topology,
                job=job,
                planner=planner,
                seed=int(seed),
                generation=generation,
                seconds=time.perf_counter() - began - paused_s,
            )
            yielded = time.perf_counter()
            yield step
            paused_s += time.perf_counter() - yielded  # the caller may show the step, pause or run in slow motion
            generation += found.complete
            if step.gap < PROVEN or generation == steps:
                return
            compiling_s = max(compiling_s, found.compiling_s)
            over_s = time.perf_counter() - began - paused_s - compiling_s - limit_s
            if over_s >= (0.0 if generation else INITIAL_POPULATION_S):
                return

    return run_planner()


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
    """Raise PlanError where the job has more tasklets than the topology has devices."""
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


def _start_devices(topology: Topology, job: Job, start: Plan) -> IntArray:
    shape = start.placement.devices.shape
    if shape != (job.n_stages, job.n_replicas):
        raise PlanError(
            f"start is a placement of {shape[0]} x {shape[1]}; the job wants {job.n_stages} x {job.n_replicas}"
        )
    return np.array([[topology.index(name) for name in group] for group in start.stages])
