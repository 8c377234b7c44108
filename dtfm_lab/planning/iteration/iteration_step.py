"""A step of a search for seconds or dollars.

What the search yields: a plan as arrays, not yet a Plan.
"""

from dataclasses import dataclass, field
from functools import cached_property

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.plan import Placement, Plan
from dtfm_lab.domain.units import IntArray
from dtfm_lab.planning.bounds.lower_bound import lower_bound_s
from dtfm_lab.planning.cost import price_placement
from dtfm_lab.planning.step import PlanStep
from dtfm_lab.simulation.efficiency import GivenEfficiency
from dtfm_lab.simulation.simulate import iteration_seconds


@dataclass(frozen=True, eq=False, kw_only=True)
class Candidate:
    """The best plan so far of a search for seconds or dollars, and how far the search is."""

    grid: IntArray = field(repr=False)
    """(S, R) device indices of the topology."""
    blocks: IntArray
    """(S,) blocks of each stage."""
    shares: IntArray
    """(R,) micro-batches of each pipeline."""
    warmups: IntArray | None
    """(S,) forwards that each stage runs ahead; None where the schedule says it."""
    schedule: str
    microbatch: int
    """Sequences of a micro-batch."""
    checkpointing: str
    value: float
    """The objective: seconds, or dollars, of an iteration."""
    iteration_s: float
    """Seconds of an iteration."""
    evaluations: int
    """Number of plans priced so far, those that annealing only tried included."""
    operator: str = ""
    """What made the newest plan tried, and of which shape."""
    complete: bool = True
    """False for progress that is shown but not counted as a step."""
    compiling_s: float = 0.0
    """Seconds waited so far for kernels to be compiled; no time limit counts them."""

    def job(self, job: Job) -> Job:
        """The job with all that the plan chose."""
        n_stages, n_replicas = self.grid.shape
        return job.with_fields(
            n_stages=n_stages,
            n_replicas=n_replicas,
            microbatch=self.microbatch,
            recompute=self.checkpointing == "stage",
            checkpointing=job.checkpointing or ("none" if self.checkpointing == "stage" else self.checkpointing),
            schedule=self.schedule,
            blocks_per_stage=tuple(self.blocks.tolist()),
            microbatches_per_replica=tuple(self.shares.tolist()),
            warmups=None if self.warmups is None else tuple(self.warmups.tolist()),
        )


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
