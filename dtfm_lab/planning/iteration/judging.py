"""Who says what a plan costs: the compiled replay where it covers the job, else the simulator."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job.system import MEMORY_ONLY, chosen
from dtfm_lab.domain.plan import Placement, Plan
from dtfm_lab.planning.cost import price_placement
from dtfm_lab.planning.iteration.arms import Arm, KernelPlan
from dtfm_lab.planning.iteration.iteration_step import Candidate
from dtfm_lab.planning.iteration.problem import IterationProblem
from dtfm_lab.planning.iteration.tables_of import REPLAYED, Aim
from dtfm_lab.simulation.memory import memory
from dtfm_lab.simulation.simulate import iteration_seconds

REPLAYED_SCHEDULES = (None, "1f1b", "gpipe", "adaptive-1f1b")


class Judge(Protocol):
    """Prices what the estimate found."""

    polishes: bool
    """Whether plans are annealed by the replay, too."""
    replays: bool
    """Whether it is the replay itself, so that what it polished is judged."""

    def __call__(self, arm: Arm, found: KernelPlan) -> KernelPlan: ...


def judge_for(problem: IterationProblem, aim: Aim) -> Judge:
    """The judge of a problem's plans."""
    job = problem.job
    covered = problem.queueing == "pairs" and job.synchronisation in REPLAYED and job.schedule in REPLAYED_SCHEDULES
    # the replay knows no other choice of a system but the default
    covered = covered and not chosen(job).keys() - set(MEMORY_ONLY)
    # cards that hosts share only delay what the replay plays: it polishes, and the simulator judges
    return _Replay() if covered and not problem.links.has_cards else _Simulator(problem, aim, polishes=covered)


class _Replay:
    polishes = replays = True

    def __call__(self, arm: Arm, found: KernelPlan) -> KernelPlan:
        exact = arm.assessed(found.row, found.blocks, 0.0, shares=found.shares, ahead=found.ahead, exact=True)
        return replace(exact, judged=True)


class _Simulator:
    replays = False

    def __init__(self, problem: IterationProblem, aim: Aim, *, polishes: bool) -> None:
        self._problem, self._aim, self.polishes = problem, aim, polishes

    def __call__(self, arm: Arm, found: KernelPlan) -> KernelPlan:
        candidate = arm.candidate(found, self._problem, dollars=False, evaluations=0)
        try:
            plan = plan_of(self._problem, candidate)
            report = memory(plan)
            seconds = iteration_seconds(plan, queueing=self._problem.queueing, efficiency=self._problem.efficiency)
        except LabError:  # a schedule that these counts cannot have
            return replace(found, lacks=1.0, judged=True)
        price = float(self._problem.price_per_hour[candidate.grid].sum())
        lacks = float((report.over_bytes / report.limit_bytes).sum())
        lacks += max(seconds / self._aim.max_iteration_s - 1, 0.0) + max(price / self._aim.max_price_per_hour - 1, 0.0)
        value = seconds * price / 3600 if self._aim.dollars else seconds
        return replace(found, value=value, lacks=lacks, judged=True)


def plan_of(problem: IterationProblem, candidate: Candidate) -> Plan:
    """A candidate as a plan."""
    job = candidate.job(problem.job)
    return Plan(
        topology=problem.topology,
        job=job,
        placement=Placement(candidate.grid),
        cost=price_placement(problem.topology, job, candidate.grid),
        lower_bound_s=0.0,
        planner="evolutionary",
    )
