"""Who says what a plan costs: the compiled replay where it covers the job, else the simulator.

Beside a search, a whole plan in the replay: its seconds, and whether it fits, in a millisecond (``ReplayedPlan``)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Self

import numpy as np

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job.options import MEMORY_ONLY, PASSED_ON, chosen
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import FloatArray
from dtfm_lab.planning.iteration.candidate import Candidate, unpriced_plan
from dtfm_lab.planning.iteration.problem import IterationProblem
from dtfm_lab.planning.iteration.shape_searches import KernelPlan, ShapeSearch
from dtfm_lab.planning.iteration.tables_of import REPLAYED, SearchTarget, tables_of
from dtfm_lab.simulation.memory import memory
from dtfm_lab.simulation.simulate import iteration_seconds

if TYPE_CHECKING:
    from dtfm_lab.planning.iteration.kernels.tables import Tables

REPLAYED_SCHEDULES = (None, "1f1b", "gpipe", "adaptive-1f1b")
REPLAYED_CHOICES = (*MEMORY_ONLY, "tensor_parallel", "checkpointing", "sharding", "attention", "gradient_dtype")
"""Choices of a system that the replay plays as the simulator does. Not those whose messages go beside the passes."""


class PlanPricer:
    """Prices what the estimate found: the replay where it covers the problem's job, else the simulator."""

    def __init__(self, problem: IterationProblem, target: SearchTarget) -> None:
        self._problem, self._target, job = problem, target, problem.job
        gathers = job.sharding in PASSED_ON
        covered = (
            problem.queueing == "pairs"
            and not gathers
            and job.synchronisation in REPLAYED
            and job.schedule in REPLAYED_SCHEDULES
        )
        self.polishes = covered and not chosen(job).keys() - set(REPLAYED_CHOICES)
        """Whether plans are annealed by the replay, too."""
        # cards that hosts share only delay what the replay plays: it polishes, and the simulator judges
        self.replays = self.polishes and not problem.links.has_cards
        """Whether it is the replay itself, so that what it polished is judged."""
        self.refusal = ""
        """Why the newest plan that cannot be simulated cannot be."""

    def __call__(self, shape_search: ShapeSearch, found: KernelPlan) -> KernelPlan:
        if self.replays:
            exact = shape_search.assessed(
                found.row, found.blocks, 0.0, shares=found.shares, ahead=found.ahead, exact=True
            )
            return replace(exact, judged=True, operator=found.operator)
        problem = self._problem
        job, how = shape_search.job(found, problem.job), (problem.queueing, problem.efficiency)
        try:
            _, value, lacks = simulated_value(
                unpriced_plan(problem.topology, job, shape_search.grid(found), *how), self._target
            )
        except LabError as error:  # a schedule that these counts cannot have
            self.refusal = str(error)
            return replace(found, lacks=1.0, judged=True)
        return replace(found, value=value, lacks=lacks, judged=True)


def simulated_value(plan: Plan, target: SearchTarget) -> tuple[float, float, float]:
    """Simulated seconds of a plan's iteration, the objective, and what it lacks in memory and below the limits.

    Raises LabError for a plan that cannot be simulated.
    """
    report, seconds, price = memory(plan), iteration_seconds(plan), plan.price_per_hour
    lacks = float((report.over_bytes / report.limit_bytes).sum())
    lacks += max(seconds / target.max_iteration_s - 1, 0.0) + max(price / target.max_price_per_hour - 1, 0.0)
    return seconds, seconds * price / 3600 if target.dollars else seconds, lacks


def candidate_of(
    plan: Plan, target: SearchTarget, evaluations: int, operator: str, *, complete: bool = True
) -> Candidate | None:
    """The plan as the simulator judges it; None where it lacks memory, is beyond a limit, or cannot be simulated."""
    try:
        seconds, value, lacks = simulated_value(plan, target)
    except LabError:  # such as a schedule that does not divide
        return None
    if lacks > 0:
        return None
    return Candidate(
        best=plan.placement.devices,
        best_s=value,
        evaluations=evaluations,
        operator=operator,
        complete=complete,
        job=plan.job,
        iteration_s=seconds,
    )


class ReplayedPlan:
    """A plan, and what the replay says of it; its seconds are those of ``simulate``, to rounding."""

    def __init__(self, plan: Plan, problem: IterationProblem) -> None:
        job, grid = plan.job, plan.placement.devices
        assert job.microbatch is not None
        assert plan.blocks_per_stage is not None
        n_stages, n_replicas = grid.shape
        sharing = 1 if job.sharding in (None, "none") else n_replicas
        self._tables = tables_of(problem, job.microbatch, SearchTarget(), None, sharing)
        self._arm = ShapeSearch(self._tables, (n_stages, n_replicas), job.microbatch, job)
        self._row = problem.row(grid)
        self._blocks = np.array(plan.blocks_per_stage, dtype=np.int64)
        self._shares = np.array(job.microbatch_counts, dtype=np.int64)
        self._ahead = None if job.warmups is None else np.array(job.warmups, dtype=np.int64)
        self.codes = problem.codes_gradients or self._tables.passes.coding_s.max() > 0
        """Whether messages are coded: these computations are as long on every device."""
        found = self._replayed()
        self.iteration_s, self.fits = found.value, found.lacks == 0

    @classmethod
    def of(cls, plan: Plan) -> Self | None:
        """None where the replay does not cover the plan, as where the order of its passes follows the network."""
        if plan.job.schedule not in ("1f1b", "gpipe") and plan.job.warmups is None:
            return None
        problem = IterationProblem.of(plan.topology, plan.job, plan.queueing, efficiency=plan.efficiency)
        return cls(plan, problem) if PlanPricer(problem, SearchTarget()).replays else None

    def seconds(self, bandwidth: FloatArray, latency: FloatArray, speed: FloatArray) -> float:
        """Seconds with factors on the bandwidth and the latency of every link, (N, N), and on every device's speed."""
        link, device = self._tables.link.copy(), self._tables.device.copy()
        link[0] *= latency
        link[1:] /= bandwidth
        device[0] *= speed
        return self._replayed(self._tables._replace(link=link, device=device)).value

    def _replayed(self, tables: Tables | None = None) -> KernelPlan:
        given = {"shares": self._shares, "ahead": self._ahead}
        return self._arm.assessed(self._row, self._blocks, 0.0, **given, exact=True, tables=tables)
