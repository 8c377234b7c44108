"""A search's history for display: its steps, thinned, and its population at some of them.

It contains no widget. The search's thread adds to it, the page's loop reads it.
"""

import math
import time
from collections import deque
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from dtfm_lab.domain.plan import Plan
from dtfm_lab.planning import PlanStep, objectives
from dtfm_lab.planning.problem import SHOWN, Individual, PopulationFrame

EVERY_S = 0.12
"""Minimum seconds between two samples of a population. Three seconds of search have 25 samples."""
EVERY_SHARE = 0.03
"""Minimum time between two samples, as a share of the search's time so far. An hour of search has about 250 samples."""
MOST_SHARE = 0.015
"""Share of a search's time that sampling may cost. After a slow sample, the next one comes later."""
OF_BESTS = "These are the best plans so far, the newest first."
OF_A_PLAN = "This is the current plan. Its search was not recorded: press Plan to search and watch."


class PopulationSampler:
    """Samples a search's population on its thread, timed by the search's own clock."""

    def __init__(self) -> None:
        self._due_s = 0.0

    def sampled(self, step: PlanStep, *, last: bool = False) -> PlanStep:
        """Return the step, with the search's population if a sample is due or the step is the last."""
        if step.held is None or (step.seconds < self._due_s and not last):
            return step
        began_s = time.perf_counter()
        taken = step.with_population()
        took_s = time.perf_counter() - began_s
        self._due_s = step.seconds + max(EVERY_S, EVERY_SHARE * step.seconds, took_s / MOST_SHARE)
        return taken


class SearchFrames:
    """Turns steps of a search into frames of a PopulationView. Individuals are numbered as they are first shown."""

    def __init__(self) -> None:
        self._shown: dict[tuple[object, ...], Individual] = {}
        self._bests: deque[Individual] = deque(maxlen=SHOWN)
        self._best_s = math.inf
        self._has_population = False

    def of(self, step: PlanStep, search: int = 0) -> PopulationFrame | None:
        """Return the frame of a step. None if the step has nothing new to show.

        ``search`` numbers the searches that follow each other, so that their individuals are not confused.
        """
        improved = step.best_s < self._best_s
        if improved:
            self._best_s = step.best_s
            words = f"the best of generation {step.generation}"
            one = Individual(number=0, grid=step.devices, cost_s=step.best_s, operator=step.operator, words=words)
            self._bests.appendleft(self._numbered(one, (search, "best", step.best_s)))
        # Planners without a population show their best ones so far.
        if step.population is not None:
            self._has_population = True
            job = step.job
            choice = search, job.tensor_parallel, job.sharding, job.synchronisation, job.overlap
            people = tuple(self._numbered(one, choice) for one in step.population.individuals)
            return _frame(step, people, step.population.rule, has_generations=True)
        return None if self._has_population or not improved else _frame(step, tuple(self._bests), OF_BESTS)

    def _numbered(self, one: Individual, whose: tuple[object, ...]) -> Individual:
        key = (*whose, one.number, one.cost_s)
        if key not in self._shown:
            parents = tuple(self._numbered(parent, whose) for parent in one.parents)
            # Parents lose their own parents, or each individual would keep its whole ancestry in memory.
            self._shown[key] = replace(one, number=len(self._shown), parents=tuple(each.childless for each in parents))
        return self._shown[key]


class Shown(NamedTuple):
    """A step of a search, and its frame. A step with nothing new to show has no frame (None)."""

    step: PlanStep
    frame: PopulationFrame | None


class LiveSearch:
    """The searches that follow one edit, shown as one search. Each starts from the plan of the one before.

    Counts of generations and evaluations continue from search to search.
    """

    def __init__(self) -> None:
        self.shown: list[Shown] = []
        """Steps that improved the plan or the bound, or that have a population, and the last step of each search."""
        self.is_over = False
        self.n_searches = 0
        self._before: PlanStep | None = None
        self._sampler, self._frames = PopulationSampler(), SearchFrames()

    @property
    def newest(self) -> PlanStep | None:
        return self.shown[-1].step if self.shown else None

    def begin(self) -> None:
        """Start another search."""
        self.n_searches += 1
        self._before, self._sampler = self.newest, PopulationSampler()

    def add(self, step: PlanStep, *, last: bool = False) -> None:
        """Keep a step if it has something new to show. Call it before the search continues."""
        step, newest = self._sampler.sampled(step, last=last), self.newest
        improved = newest is None or step.best_s < newest.best_s or step.bound_s > newest.bound_s
        if improved or step.population is not None or last:
            frame, counted = self._frames.of(step, self.n_searches), self._counted_on(step)
            if frame is not None:
                frame = replace(frame, generation=counted.generation, evaluations=counted.evaluations)
            self.shown.append(Shown(counted, frame))

    def _counted_on(self, step: PlanStep) -> PlanStep:
        """Return the step with the counts of the previous searches added, and their best plan if that is better."""
        before, newest = self._before, self.newest
        if before is None or newest is None:
            # Without what the search holds, or all its populations would stay in memory.
            return replace(step, held=None, population=None)
        best = step if step.best_s <= newest.best_s else newest
        counts = {
            name: getattr(before, name) + getattr(step, name) for name in ("generation", "evaluations", "seconds")
        }
        bound_s = min(max(step.bound_s, newest.bound_s), best.best_s)
        return replace(best, bound_s=bound_s, median_s=step.median_s, held=None, population=None, **counts)


def frame_of_plan(plan: Plan) -> PopulationFrame:
    """Return the frame of a plan whose search was not recorded."""
    cost_s = objectives[plan.objective].value(plan)
    words = f"the current plan, {plan.job.n_stages} x {plan.job.n_replicas}"
    one = Individual(number=0, grid=plan.placement.devices, cost_s=cost_s, operator=plan.planner, words=words)
    count: dict[str, Any] = {"generation": plan.generation, "evaluations": plan.evaluations}
    return PopulationFrame(
        individuals=(one,), best=one, median_s=one.cost_s, rule=OF_A_PLAN, has_generations=False, **count
    )


def _frame(
    step: PlanStep, people: tuple[Individual, ...], rule: str, *, has_generations: bool = False
) -> PopulationFrame:
    count: dict[str, Any] = {"generation": step.generation, "evaluations": step.evaluations}
    median_s = float(np.median([one.cost_s for one in people]))
    return PopulationFrame(
        individuals=people, best=people[0], median_s=median_s, rule=rule, has_generations=has_generations, **count
    )
