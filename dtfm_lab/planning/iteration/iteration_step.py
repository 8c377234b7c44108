"""A step of a search for seconds or dollars."""

from dataclasses import dataclass, field
from functools import cached_property

from dtfm_lab.domain.plan import Placement, Plan
from dtfm_lab.planning.bounds.lower_bound import lower_bound_s
from dtfm_lab.planning.cost import price_placement
from dtfm_lab.planning.iteration.candidate import Candidate
from dtfm_lab.planning.step import PlanStep
from dtfm_lab.simulation.efficiency import GivenEfficiency
from dtfm_lab.simulation.simulate import iteration_seconds


@dataclass(frozen=True, eq=False, kw_only=True)
class IterationStep(PlanStep):
    """A step of a search for seconds or dollars; ``best_s`` and ``bound_s`` are in the unit of the objective."""

    candidate: Candidate = field(repr=False)
    iteration_bound_s: float
    """Seconds of an iteration that no plan is faster than."""
    queueing: str = "pairs"
    efficiency: GivenEfficiency = None

    @property
    def iteration_s(self) -> float:
        """Seconds of the incumbent's iteration, by the search."""
        return self.candidate.iteration_s

    @cached_property
    def plan(self) -> Plan:
        """The incumbent as a plan, its iteration simulated; constructed on first use."""
        plan = Plan(
            topology=self.topology,
            job=self.job,
            placement=Placement(self.devices),
            cost=price_placement(self.topology, self.job, self.devices),
            lower_bound_s=lower_bound_s(self.topology, self.job),
            planner=self.planner,
            objective=self.objective,
            queueing=self.queueing,
            efficiency=self.efficiency,
            seed=self.seed,
            generation=self.generation,
            evaluations=self.evaluations,
            seconds=self.seconds,
            left_open=self.left_open,
        )
        iteration_s = iteration_seconds(plan)
        # bound and simulation may differ by rounding
        bound_s = min(self.iteration_bound_s, iteration_s)
        return plan.changed(iteration_s=iteration_s, iteration_lower_bound_s=bound_s)
