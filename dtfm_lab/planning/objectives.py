"""What a search makes least, by name: the communication cost, the seconds of an iteration, or its price.

``steps_within`` turns what a planner yields into steps, until the limits of a request are reached or the best is
proven; ``network_of`` is the network that a job with tensor parallelism is planned on: groups of GPUs of a host, each
one device.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.registry import Registry
from dtfm_lab.planning.background_tasks import BackgroundTasks
from dtfm_lab.planning.step import PROVEN, PlanStep
from dtfm_lab.simulation.efficiency import GivenEfficiency

PAPERS_JOB = "dtfm-gpt3-xl"
"""Name of the preset with the constants of the paper's public code."""


@dataclass(frozen=True, eq=False, kw_only=True)
class SearchRequest:
    """What a search was asked for, checked; the parameters of ``planning.search``."""

    topology: Topology
    job: Job
    planner: str
    seed: int
    steps: int | None
    limit_s: float
    """Seconds after which the search ends, infinite where it counts steps."""
    start: Plan | None = None
    queueing: str = "pairs"
    efficiency: GivenEfficiency = None
    """Of the devices, as ``simulate`` takes it."""
    max_price_per_hour: float | None = None
    max_iteration_s: float | None = None
    background_tasks: BackgroundTasks = field(default_factory=BackgroundTasks)
    improve_bound: bool = True


class Objective(Protocol):
    """What a search makes least. An instance is registered under a name: ``@objectives.register("name")``."""

    @property
    def unit(self) -> str:
        """Unit of its values, as it is shown behind a number."""
        ...

    def value(self, plan: Plan) -> float:
        """What this plan costs, in the unit. Raises PlanError where the plan does not have it."""
        ...

    def search(self, request: SearchRequest) -> Iterator[PlanStep]:
        """Improving plans. What is wrong with the request is raised by the call, before the first step."""
        ...


objectives: Registry[Objective] = Registry(
    "objective",
    group="dtfm_lab.objectives",
    fits=lambda entry: callable(getattr(entry, "search", None)) and callable(getattr(entry, "value", None)),
)


def default_objective(job: Job) -> str:
    """``iteration`` for a job with a model; ``communication`` where message sizes are given, where there is no model to
    simulate, and for the paper's preset in every shape, also where it has no longer the sizes of the public code."""
    given = job.given_gradient_bytes is not None or job.given_hop_bytes is not None or job.name == PAPERS_JOB
    return "communication" if job.model is None or given else "iteration"


INITIAL_POPULATION_S = 1.0
"""Seconds that a search may take beyond its limit to complete its first generation."""


class SearchProgress(Protocol):
    """What a planner yields: a plan, and how far the search is."""

    @property
    def complete(self) -> bool:
        """False for progress within a generation, which is shown but not counted as a step."""
        ...

    @property
    def compiling_s(self) -> float:
        """Seconds waited so far for kernels to be compiled; no time limit counts them."""
        ...


F = TypeVar("F", bound=SearchProgress)
S = TypeVar("S", bound=PlanStep)


def steps_within(
    request: SearchRequest, found: Iterable[F], step_of: Callable[[F, int, Callable[[], float]], S]
) -> Iterator[S]:
    """The steps of a search; ``step_of`` makes one of what was found, of the generations before it, and of a clock.

    The clock tells the seconds since the search began, less those that the caller took between steps: it may show the
    step, pause, or run in slow motion.
    """
    began = time.perf_counter()
    generation, compiling_s, paused_s = 0, 0.0, 0.0

    def spent_s() -> float:
        return time.perf_counter() - began - paused_s

    for each in found:
        step = step_of(each, generation, spent_s)
        yielded = time.perf_counter()
        yield step
        paused_s += time.perf_counter() - yielded
        generation += each.complete
        if step.gap < PROVEN or generation == request.steps:
            return
        compiling_s = max(compiling_s, each.compiling_s)
        if spent_s() - compiling_s - request.limit_s >= (0.0 if generation else INITIAL_POPULATION_S):
            return


def network_of(topology: Topology, job: Job) -> tuple[Topology, Job]:
    """The network of groups that the job's tensor parallelism wants, and the job with what it leaves to a planner.

    A network of single GPUs is grouped; without a planner, the degree is that of the network, and nothing is sharded.
    Raises TopologyError where no host has so many GPUs, or groups are of another size.
    """
    open_ = {"tensor_parallel": topology.devices[0].gpus, "sharding": "none"}
    if chosen := {what: value for what, value in open_.items() if getattr(job, what) is None}:
        job = job.with_fields(**chosen)
    return topology.grouped(job.tensor_parallel or 1), job
