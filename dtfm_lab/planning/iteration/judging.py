"""Who says what a plan costs: the compiled replay where it covers the job, else the simulator."""

from __future__ import annotations

from dataclasses import replace

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job.system import MEMORY_ONLY, chosen
from dtfm_lab.planning.iteration.arms import Arm, KernelPlan
from dtfm_lab.planning.iteration.candidate import unpriced_plan
from dtfm_lab.planning.iteration.problem import IterationProblem
from dtfm_lab.planning.iteration.tables_of import REPLAYED, Aim
from dtfm_lab.simulation.memory import memory
from dtfm_lab.simulation.simulate import iteration_seconds

REPLAYED_SCHEDULES = (None, "1f1b", "gpipe", "adaptive-1f1b")


class Judge:
    """Prices what the estimate found: the replay where it covers the problem's job, else the simulator."""

    def __init__(self, problem: IterationProblem, aim: Aim) -> None:
        self._problem, self._aim, job = problem, aim, problem.job
        covered = problem.queueing == "pairs" and job.synchronisation in REPLAYED and job.schedule in REPLAYED_SCHEDULES
        # the replay knows no other choice of a system but the default
        self.polishes = covered and not chosen(job).keys() - set(MEMORY_ONLY)
        """Whether plans are annealed by the replay, too."""
        # cards that hosts share only delay what the replay plays: it polishes, and the simulator judges
        self.replays = self.polishes and not problem.links.has_cards
        """Whether it is the replay itself, so that what it polished is judged."""

    def __call__(self, arm: Arm, found: KernelPlan) -> KernelPlan:
        if self.replays:
            exact = arm.assessed(found.row, found.blocks, 0.0, shares=found.shares, ahead=found.ahead, exact=True)
            return replace(exact, judged=True, operator=found.operator)
        problem, grid = self._problem, arm.grid(found)
        try:
            plan = unpriced_plan(problem.topology, arm.job(found, problem.job), grid)
            report = memory(plan)
            seconds = iteration_seconds(plan, queueing=problem.queueing, efficiency=problem.efficiency)
        except LabError:  # a schedule that these counts cannot have
            return replace(found, lacks=1.0, judged=True)
        price = float(problem.price_per_hour[grid].sum())
        lacks = float((report.over_bytes / report.limit_bytes).sum())
        lacks += max(seconds / self._aim.max_iteration_s - 1, 0.0) + max(price / self._aim.max_price_per_hour - 1, 0.0)
        value = seconds * price / 3600 if self._aim.dollars else seconds
        return replace(found, value=value, lacks=lacks, judged=True)
