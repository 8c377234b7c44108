"""What a search makes least, by name: the communication cost, the seconds of an iteration, or its price."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.registry import Registry
from dtfm_lab.planning.background_tasks import BackgroundTasks
from dtfm_lab.planning.step import PlanStep
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
