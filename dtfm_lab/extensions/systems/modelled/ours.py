"""This lab's own system: the plan that its search finds."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from dtfm_lab.domain.job import LEFT_TO_PLANNERS, Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.extensions.systems.strategy import Budget, Strategy, described, strategies
from dtfm_lab.planning import plan


@strategies.register("dtfm-lab")
@described
@dataclass(frozen=True, kw_only=True)
class Ours(Strategy):
    """This lab: the plan of ``lab.plan``, free to choose everything that a planner can choose."""

    name: ClassVar[str] = "dtfm-lab"
    searches: ClassVar[bool] = True

    def plans(self, topology: Topology, job: Job, budget: Budget) -> Iterator[Plan]:
        """Yield the plan of the search."""
        limit = {"seconds": budget.seconds} if budget.steps is None else {"steps": budget.steps}
        yield plan(
            topology,
            job.freed(*LEFT_TO_PLANNERS),
            objective="iteration",
            seed=budget.seed,
            queueing=budget.queueing,
            efficiency=budget.efficiency,
            **limit,
        )
