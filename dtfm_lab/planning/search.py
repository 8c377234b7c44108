"""A search for plans: its request, its objective, and the steps that it yields.

``search`` yields ``PlanStep``s, each with the best plan so far. ``plan`` returns the plan of the last step.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol, TypeVar

import numpy as np

from dtfm_lab.costs.efficiency import GivenEfficiency
from dtfm_lab.costs.seconds import tensor_gpus
from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import QUEUEING, Topology, shortened
from dtfm_lab.domain.plan import Placement, Plan
from dtfm_lab.domain.registry import Registry, current_name, unknown
from dtfm_lab.domain.units import IntArray, counted
from dtfm_lab.planning.background_tasks import BackgroundTasks
from dtfm_lab.planning.bounds.search_bound import search_bound
from dtfm_lab.planning.cost import PairCosts, lower_bound_s, pair_costs, price_placement, quick_bound_s
from dtfm_lab.planning.problem import Generation, Population, Problem, canonical_order, planners
from dtfm_lab.simulation.schedules import schedules
from dtfm_lab.simulation.simulate import iteration_seconds

PROVEN = 1e-9
"""A plan counts as proven best if its relative gap to the lower bound is below this, because that is only rounding."""

OF_THE_SEARCH = (
    *("planner", "objective", "queueing", "efficiency", "seed"),
    *("generation", "evaluations", "seconds", "left_open"),
)
"""Fields that a plan copies from its step."""


@dataclass(frozen=True, eq=False, kw_only=True)
class PlanStep(Generation):
    """A step of a search. ``best`` is the best placement so far, the incumbent. Grids have device indices of the
    topology.

    ``best_s`` and ``bound_s`` are in the unit of the objective: seconds, or dollars per billion tokens.
    """

    topology: Topology = field(repr=False)
    job: Job = field(repr=False)
    """The incumbent's job, with every open field set to the search's choice."""
    planner: str
    seed: int
    generation: int
    """Number of complete generations before this step."""
    seconds: float
    """Seconds since the search began, without the seconds that the caller took between steps."""
    bound_s: float
    """Lower bound in the unit of the objective: no plan costs less. It may rise from step to step."""
    objective: str = "communication"
    """Name of the objective."""
    left_open: tuple[str, ...] = ()
    """Names of the job's fields that the search chose."""
    iteration_s: float = math.nan
    """Seconds of the incumbent's iteration as computed by the search; NaN if the objective is the communication cost.
    """
    iteration_bound_s: float = 0.0
    """Lower bound on the seconds of an iteration: no plan is faster."""
    queueing: str = "pairs"
    efficiency: GivenEfficiency = None
    population: Population | None = field(default=None, repr=False)
    """The placements that the search held at this step. None unless ``with_population`` recorded them."""

    @property
    def devices(self) -> IntArray:
        """(S, D) device indices of the incumbent."""
        return self.best

    @property
    def gap(self) -> float:
        """(incumbent - bound) / incumbent, both in the unit of the objective. At 0, the incumbent is proven best."""
        # a plan that sends nothing costs 0, and nothing can be cheaper
        return max(0.0, (self.best_s - self.bound_s) / self.best_s) if self.best_s > 0 else 0.0

    def with_population(self) -> "PlanStep":
        """Return the same step with the placements that the search holds now. Call it before the search continues."""
        return replace(self, population=None if self.held is None else self.held(), held=None)

    @cached_property
    def plan(self) -> Plan:
        """The incumbent as a plan with its costs. It is simulated too unless the objective is the communication cost.
        Built on first use."""
        if math.isnan(self.iteration_s):
            return self._unsimulated(self.bound_s)
        plan = self._unsimulated(lower_bound_s(self.topology, self.job))
        return self._with_seconds(plan, iteration_seconds(plan))

    def replayed_plan(self, grid: IntArray, iteration_s: float) -> Plan:
        """Return the same plan with another (S, D) grid of devices, given the seconds of its iteration. Its lower bound
        on the communication cost is ``quick_bound_s``."""
        other = replace(self, best=grid)
        return other._with_seconds(other._unsimulated(quick_bound_s(self.topology, self.job)), iteration_s)

    def _unsimulated(self, least_s: float) -> Plan:
        return Plan(
            topology=self.topology,
            job=self.job,
            placement=Placement(self.devices),
            cost=price_placement(self.topology, self.job, self.devices),
            lower_bound_s=least_s,
            **{name: getattr(self, name) for name in OF_THE_SEARCH},
        )

    def _with_seconds(self, plan: Plan, iteration_s: float) -> Plan:
        # bound and simulation may differ by rounding
        return plan.changed(iteration_s=iteration_s, iteration_lower_bound_s=min(self.iteration_bound_s, iteration_s))


# ---------------------------------------------------------------------------------------------------------------------
# Objectives by name: the communication cost, here, and the seconds of an iteration or its price, elsewhere.
#
# ``steps_within`` turns what a planner yields into steps, until the limits of a request are reached or the best is
# proven. A job with tensor parallelism is planned on the network that ``network_of`` returns: each group of GPUs of a
# host is one device.


PAPERS_JOB = "dtfm-gpt3-xl"
"""Name of the preset with the constants of the paper's public code."""


DEFAULT_SECONDS = 2.0
"""Default seconds of a search that has no limit of steps or seconds."""


@dataclass(frozen=True, eq=False, kw_only=True)
class SearchRequest:
    """What to search for and how long, with the options of ``planning.search``.

    Raises PlanError for a seed, steps, seconds or a limit out of range and for a start that is not a plan, UnknownName
    for a queueing.
    """

    topology: Topology
    job: Job
    planner: str
    """A name in ``planners``. For the objectives iteration and price, ``evolutionary`` searches over everything that
    the job leaves open. Any other planner searches each shape by communication cost, and the placement that is best by
    the objective is kept."""
    seed: int = 0
    """Seed of all random numbers. The same seed and ``steps`` give the same plan, bit for bit."""
    steps: int | None = None
    seconds: float | None = None
    """Stop after ``steps`` generations or this many seconds; by default after 2 seconds. A plan that is proven best
    ends the search early."""
    start: Plan | None = None
    """A plan to improve. Its devices are matched by name. If the job names a shape, the plan must have it."""
    nearby: tuple[Plan, ...] = ()
    """Search only near these plans, with the planner ``evolutionary`` and the objectives iteration or price. This is
    for very short searches. With the objective communication and no ``start``, the search begins with the first of them
    that has the job's shape."""
    queueing: str = "pairs"
    """Which messages wait for each other in the simulated iteration: messages of one pair (``pairs``) or of one NIC
    (``nics``). Messages of a NIC that several devices of a host share always do."""
    efficiency: GivenEfficiency = None
    """Share of their peak that devices reach, as in ``simulate``."""
    max_price_per_hour: float | None = None
    max_iteration_s: float | None = None
    """Accept only plans whose iteration takes at most this many seconds. With ``max_price_per_hour``, accept only plans
    that cost at most that many US dollars per hour."""
    background_tasks: BackgroundTasks = field(default_factory=BackgroundTasks)
    """Runs the threads that the planner starts. Pass your own to read their CPU time."""
    improve_bound: bool = True
    """True to spend a share of the time on raising the lower bound. False is for the shortest searches."""

    def __post_init__(self) -> None:
        if not _whole(self.seed) or self.seed < 0:
            raise PlanError(f"seed is {self.seed!r}; wanted a whole number, 0 or more")
        if self.steps is not None and (not _whole(self.steps) or self.steps < 1):
            raise PlanError(f"steps is {self.steps!r}; wanted a whole number, 1 or more")
        for what in ("seconds", "max_price_per_hour", "max_iteration_s"):
            most = getattr(self, what)
            if most is not None and not (_number(most) and most > 0):
                raise PlanError(f"{what} is {shortened(most)}; wanted a number above 0")
        if self.start is not None and not isinstance(self.start, Plan):
            raise PlanError(f"start is {shortened(self.start)}; wanted a Plan")
        object.__setattr__(self, "queueing", current_name("queueing", self.queueing))
        if self.queueing not in QUEUEING:
            raise unknown("queueing", self.queueing, QUEUEING)
        object.__setattr__(self, "seed", int(self.seed))  # a plain int, because a plan is saved with it

    @property
    def limit_s(self) -> float:
        """Seconds after which the search ends; inf if only steps limit it."""
        if self.seconds is not None:
            return float(self.seconds)
        return DEFAULT_SECONDS if self.steps is None else math.inf


def _whole(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _number(value: object) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool) and math.isfinite(value)


class Objective(Protocol):
    """A quantity that a search minimises. An instance is registered under a name: ``@objectives.register("name")``."""

    @property
    def unit(self) -> str:
        """Unit of its values, as shown behind a number."""
        ...

    def value(self, plan: Plan) -> float:
        """Return the value of a plan, in the unit. Raises PlanError if the plan does not have this value."""
        ...

    def search(self, request: SearchRequest) -> Iterator[PlanStep]:
        """Return an iterator over steps with improving plans. Errors in the request are raised by the call, before the
        first step."""
        ...


objectives: Registry[Objective] = Registry(
    "objective",
    group="dtfm_lab.objectives",
    fits=lambda entry: callable(getattr(entry, "search", None)) and callable(getattr(entry, "value", None)),
)


def value_of(plan: Plan) -> float:
    """Return the value of a plan's objective: seconds of its iteration or communication cost, or dollars per billion
    tokens."""
    return objectives[plan.objective].value(plan)


def default_objective(job: Job) -> str:
    """Return the default objective: ``iteration`` for a job with a model, else ``communication``.

    It is also ``communication`` if the job states message sizes, and for the paper's preset (``PAPERS_JOB``) in any
    shape.
    """
    given = job.given_gradient_bytes is not None or job.given_hop_bytes is not None or job.name == PAPERS_JOB
    return "communication" if job.model is None or given else "iteration"


INITIAL_POPULATION_S = 1.0
"""Maximum seconds by which a search may exceed its limit to complete its first generation."""


class Stopwatch:
    """Counts the seconds of a search, without the seconds that the caller takes between two steps.

    Between two steps, the caller may show a step, pause, or run in slow motion.
    """

    def __init__(self) -> None:
        self._began, self._paused_s = time.perf_counter(), 0.0

    def spent_s(self) -> float:
        """Return the seconds so far."""
        return time.perf_counter() - self._began - self._paused_s

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Do not count the time within this block: ``with stopwatch.paused(): yield step``."""
        began = time.perf_counter()
        yield
        self._paused_s += time.perf_counter() - began


F = TypeVar("F", bound=Generation)


def steps_within(
    request: SearchRequest, found: Iterable[F], step_of: Callable[[F, int, Callable[[], float]], PlanStep]
) -> Iterator[PlanStep]:
    """Yield a step for each generation in ``found``, until a limit is reached or the best is proven. ``step_of`` makes
    a step from a generation, the number of generations before it, and a function that returns the seconds spent."""
    stopwatch, generation, compiling_s = Stopwatch(), 0, 0.0
    for each in found:
        step = step_of(each, generation, stopwatch.spent_s)
        with stopwatch.paused():
            yield step
        generation += each.complete
        if step.gap < PROVEN or generation == request.steps:
            return
        # later generations report 0, so the largest value is the whole wait
        compiling_s = max(compiling_s, each.compiling_s)
        if stopwatch.spent_s() - compiling_s - request.limit_s >= (0.0 if generation else INITIAL_POPULATION_S):
            return


def network_of(topology: Topology, job: Job) -> tuple[Topology, Job]:
    """Return the network of device groups that the job's tensor parallelism needs, and the job with its degree set.

    A network of single GPUs is grouped. If the job leaves its degree of tensor parallelism, its sharding or its
    averaging open, it gets the network's degree, no sharding and the paper's averaging. Raises TopologyError if no host
    has enough GPUs, or if groups have another size.
    """
    if job.tensor_parallel is None:
        job = job.with_fields(tensor_parallel=tensor_gpus(job, topology.devices[0].gpus), warmups=job.warmups)
    return topology.grouped(job.group_gpus), job.settled


def check_start(job: Job, start: Plan) -> None:
    """Raise PlanError if the job names stages or replicas and the start has others."""
    shape = start.placement.devices.shape
    wanted = job.n_stages, job.n_replicas
    if any(asked not in (None, found) for asked, found in zip(wanted, shape, strict=True)):
        asked = " x ".join("any" if n is None else str(n) for n in wanted)
        raise PlanError(f"start is a placement of {shape[0]} x {shape[1]}; the job wants {asked}")


def require_prices(topology: Topology) -> None:
    """Raise PlanError if no device has a price."""
    if not any(device.price_per_hour for device in topology.devices):
        raise PlanError(
            f"no device of {topology.name} has a price; wanted price_per_hour, or typical prices "
            f"(topology.with_typical_prices(), --typical-prices, or typical_prices: true in a file)"
        )


SHAPES_NAMED = 8
"""Maximum number of shapes that the error about too few devices names."""


class CommunicationCost:
    """The paper's communication cost: synchronisation of the slowest group plus the path through the groups."""

    unit = "s"

    def value(self, plan: Plan) -> float:
        """Return the seconds of the plan, equations 1 to 4 of the paper."""
        return plan.cost.total_s

    def search(self, request: SearchRequest) -> Iterator[PlanStep]:
        """Search placements in one shape: the job's, or the most square one that uses all devices, or as many as the
        model and the batch allow (``Job.fitted``)."""
        if request.max_price_per_hour is not None or request.max_iteration_s is not None:
            raise PlanError("objective communication has no limit of price or seconds; wanted iteration or price")
        topology, job = network_of(request.topology, request.job)
        request = replace(request, topology=topology, job=job)
        if not job.shaped:
            job = job.fitted(len(topology))
        require_fit(topology, job)
        near = (one for one in request.nearby if one.placement.devices.shape == (job.n_stages, job.n_replicas))
        begun = request.start or next(near, None)
        start = None
        if begun is not None:
            check_start(job, begun)
            start = np.array([[topology.index(name) for name in group] for group in begun.stages])
        return _communication_steps(request, job, start)


objectives.register("communication")(CommunicationCost())


def _communication_steps(request: SearchRequest, job: Job, start: IntArray | None) -> Iterator[PlanStep]:
    """Run the planner on the devices in canonical order and translate its grids back.

    The result then does not depend on how the devices are numbered.
    """
    topology, run = request.topology, planners[request.planner]
    pair = pair_costs(topology, job)
    # equal networks give equal plans, however their devices are numbered
    order = canonical_order(pair)
    square = np.ix_(order, order)
    problem = Problem(
        # numba compiles once per memory layout; the kernels are compiled for C order
        pair=PairCosts(np.ascontiguousarray(pair.group_s[square]), np.ascontiguousarray(pair.hop_s[square])),
        n_stages=job.n_stages,
        n_replicas=job.n_replicas,
        bound_s=lower_bound_s(topology, job),
        # the inverse of the order: from the topology's device numbers to the problem's
        start=None if start is None else np.argsort(order)[start],
        background_tasks=request.background_tasks,
    )
    bound = search_bound(problem, timed=request.steps is None, enabled=request.improve_bound)

    def step_of(found: Generation, generation: int, spent_s: Callable[[], float]) -> PlanStep:
        held = found.held
        in_topology = {
            "best": order[found.best],
            "bound_s": bound.update(found, generation, spent_s()),
            "held": None if held is None else lambda: held().changed(order.__getitem__),
        }
        return PlanStep(
            **vars(found) | in_topology,
            topology=topology,
            job=job,
            planner=request.planner,
            seed=request.seed,
            generation=generation,
            seconds=spent_s(),
        )

    return steps_within(request, run(problem, np.random.default_rng(request.seed)), step_of)


def require_fit(topology: Topology, job: Job) -> None:
    """Raise PlanError if the job needs more devices than the topology has."""
    n = len(topology)
    if job.n_tasklets <= n:
        return
    shapes = [f"{n_stages} x {n_replicas}" for n_stages, n_replicas in job.shapes(n)][:SHAPES_NAMED]
    listed = " or ".join(filter(None, [", ".join(shapes[:-1]), *shapes[-1:]]))
    advice = f"{listed} would use all of them" if shapes else "fewer stages or replicas are needed"
    raise PlanError(
        f"{counted(job.n_stages, 'stage')} x {counted(job.n_replicas, 'replica')} need "
        f"{counted(job.n_tasklets, 'device')}, {topology.name} has {n}; {advice}"
    )


# ---------------------------------------------------------------------------------------------------------------------
# Runs a search for plans by an objective, step by step, until its limits are reached or the best is proven.


def search(
    topology: Topology, job: Job, planner: str = "evolutionary", *, objective: str = "communication", **options: Any
) -> Iterator[PlanStep]:
    """Yield improving plans of the job: at least one step per generation.

    ``objective`` is a name in ``objectives``: communication, iteration or price. ``options`` are the fields of
    ``SearchRequest``. The call itself checks the arguments, before the first step is computed.

    Raises
    ------
    PlanError
        The job needs more devices than there are, or no plan fits their memory or the limits; a seed, steps, seconds or
        limit is out of range; a start has another shape.
    JobError
        The objective needs a model, and the job has none.
    TopologyError
        No host has enough GPUs for the job's tensor parallelism.
    UnknownName
        No such planner, objective, schedule or queueing, or the topology lacks a device of the start.
    """
    planners[planner]  # raises UnknownName
    if job.schedule is not None:
        schedules[job.schedule]
    steps = objectives[objective].search(SearchRequest(topology=topology, job=job, planner=planner, **options))
    # no `yield` in this function, so that the checks above run at the call
    return (replace(step, left_open=job.left_open) for step in steps)


def last_step(topology: Topology, job: Job, planner: str = "evolutionary", **options: Any) -> PlanStep:
    """Return the last step of ``search`` within the limits in ``options``. Ctrl-C keeps the last one so far."""
    best: PlanStep | None = None
    try:
        for step in search(topology, job, planner, **options):
            best = step
    except KeyboardInterrupt:
        if best is None:
            raise
    assert best is not None, "a search yields at least one step"
    return best


def plan(topology: Topology, job: Job, planner: str = "evolutionary", **options: Any) -> Plan:
    """Return the best plan that ``search`` finds within its limits, see ``last_step``."""
    return last_step(topology, job, planner, **options).plan
