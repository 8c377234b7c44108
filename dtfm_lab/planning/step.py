"""A step of a search: the best plan so far, and what is known about it."""

import math
from dataclasses import dataclass, field, replace
from functools import cached_property

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Placement, Plan
from dtfm_lab.domain.units import IntArray
from dtfm_lab.planning.bounds.lower_bound import lower_bound_s, quick_bound_s
from dtfm_lab.planning.cost import price_placement
from dtfm_lab.planning.problem import Generation, Population
from dtfm_lab.simulation.efficiency import GivenEfficiency
from dtfm_lab.simulation.simulate import iteration_seconds

PROVEN = 1e-9
"""Relative gap between a plan's cost and its lower bound at which the plan counts as proven best."""

OF_THE_SEARCH = (
    *("planner", "objective", "queueing", "efficiency", "seed"),
    *("generation", "evaluations", "seconds", "left_open"),
)
"""Fields that a plan takes over from its step."""


@dataclass(frozen=True, eq=False, kw_only=True)
class PlanStep(Generation):
    """A generation of a search, with device indices of the topology: ``best`` is the incumbent.

    ``best_s`` and ``bound_s`` are in the unit of the objective: seconds, or dollars for a billion tokens.
    """

    topology: Topology = field(repr=False)
    job: Job = field(repr=False)
    """The job of the incumbent, with all that was chosen for it."""
    planner: str
    seed: int
    generation: int
    """Number of complete generations before this step."""
    seconds: float
    """Seconds since the search began, less those that the caller took between steps."""
    bound_s: float
    """Lower bound: no plan costs less. It may rise from step to step."""
    objective: str = "communication"
    """Name of what the search makes least."""
    left_open: tuple[str, ...] = ()
    """Fields of the job that the search chose."""
    iteration_s: float = math.nan
    """Seconds of the incumbent's iteration, by the search; NaN in one for low communication cost."""
    iteration_bound_s: float = 0.0
    """Seconds of an iteration that no plan is faster than."""
    queueing: str = "pairs"
    efficiency: GivenEfficiency = None
    population: Population | None = field(default=None, repr=False)
    """What the search held, where that was taken, see ``with_population``."""

    @property
    def devices(self) -> IntArray:
        """(S, D) device indices of the incumbent."""
        return self.best

    @property
    def gap(self) -> float:
        """(incumbent - bound) / incumbent; at 0 the incumbent is proven best, by the objective."""
        return max(0.0, (self.best_s - self.bound_s) / self.best_s) if self.best_s > 0 else 0.0

    def with_population(self) -> "PlanStep":
        """The same step with what the search holds now; called before the search goes on."""
        return replace(self, population=None if self.held is None else self.held(), held=None)

    @cached_property
    def plan(self) -> Plan:
        """The incumbent as a plan, constructed, priced in full and, in a search for seconds or dollars, simulated; on
        first use."""
        if math.isnan(self.iteration_s):
            return self._unsimulated(self.bound_s)
        plan = self._unsimulated(lower_bound_s(self.topology, self.job))
        return self._with_seconds(plan, iteration_seconds(plan))

    def replayed_plan(self, grid: IntArray, iteration_s: float) -> Plan:
        """The same plan with another (S, D) grid of devices, whose seconds are known, and the quick bound."""
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
