"""What a search for seconds or dollars yields: a plan as arrays, not yet a Plan."""

from dataclasses import dataclass, field

import numpy as np

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import CostBreakdown, Placement, Plan
from dtfm_lab.domain.units import IntArray
from dtfm_lab.planning.problem import Generation
from dtfm_lab.simulation.efficiency import GivenEfficiency


@dataclass(frozen=True, eq=False, kw_only=True)
class Candidate(Generation):
    """The best plan so far of a search for seconds or dollars, and how far the search is.

    ``best`` is an (S, R) grid of device indices of the topology, ``best_s`` the objective: seconds, or dollars, of an
    iteration.
    """

    job: Job = field(repr=False)
    """The job with all that the plan chose."""
    iteration_s: float
    """Seconds of an iteration."""


def chosen_job(
    job: Job, blocks: IntArray, shares: IntArray, ahead: IntArray | None, microbatch: int, checkpointing: str
) -> Job:
    """The job with the (S,) blocks of each stage, the (R,) micro-batches of each pipeline and the (S,) forwards that
    each stage runs ahead, where it leaves the schedule or these open."""
    schedule = job.schedule or "adaptive-1f1b"
    return job.with_fields(
        n_stages=len(blocks),
        n_replicas=len(shares),
        microbatch=microbatch,
        recompute=checkpointing == "stage",
        checkpointing=job.checkpointing or ("none" if checkpointing == "stage" else checkpointing),
        schedule=schedule,
        blocks_per_stage=tuple(blocks.tolist()),
        microbatches_per_replica=tuple(shares.tolist()),
        warmups=tuple(ahead.tolist()) if ahead is not None and schedule == "adaptive-1f1b" else None,
    )


def unpriced_plan(
    topology: Topology, job: Job, grid: IntArray, queueing: str = "pairs", efficiency: GivenEfficiency = None
) -> Plan:
    """A plan to be simulated: its communication cost is not counted."""
    n = len(grid)
    nothing = CostBreakdown(group_s=np.zeros(n), hop_s=np.zeros(n - 1), weights_s=np.zeros((n, n)))
    return Plan(
        topology=topology,
        job=job,
        placement=Placement(grid),
        cost=nothing,
        lower_bound_s=0.0,
        planner="given",
        queueing=queueing,
        efficiency=efficiency,
    )
