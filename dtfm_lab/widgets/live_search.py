"""What a search has shown of itself, kept to be drawn: its steps, thinned, and its population at some of them.

It contains no widget. A search's thread adds, the page's loop reads.
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

EVERY_S, EVERY_SHARE = 0.12, 0.03
"""Seconds between two populations that are taken of a search, and the least share of its time: an hour of search has
some 250, as one of three seconds has 25."""
MOST_SHARE = 0.015
"""Share of a search's time that taking them may cost: after a dear one, the next is the later."""
OF_BESTS = "This planner keeps no population: these are the best that it has found, one after the other."
OF_A_PLAN = "This is the plan at hand; its search was not watched. Plan searches, and draws what it holds."


class PopulationSampler:
    """Takes a search's population now and then, on its thread, by the search's own clock."""

    def __init__(self) -> None:
        self._due_s = 0.0

    def sampled(self, step: PlanStep, *, last: bool = False) -> PlanStep:
        """The step, with the search's population where one is due, or where it is the last step."""
        if step.held is None or (step.seconds < self._due_s and not last):
            return step
        began_s = time.perf_counter()
        taken = step.with_population()
        took_s = time.perf_counter() - began_s
        self._due_s = step.seconds + max(EVERY_S, EVERY_SHARE * step.seconds, took_s / MOST_SHARE)
        return taken


class SearchFrames:
    """Makes frames of steps. Individuals are numbered in the order in which they are first shown."""

    def __init__(self) -> None:
        self._shown: dict[tuple[object, ...], Individual] = {}
        self._bests: deque[Individual] = deque(maxlen=SHOWN)
        self._best_s = math.inf
        self._has_population = False

    def of(self, step: PlanStep, search: int = 0) -> PopulationFrame | None:
        """The frame of a step; None for a step without anything new to show.

        ``search`` is the number of the step's search where one follows another.
        """
        improved = step.best_s < self._best_s
        if improved:
            self._best_s = step.best_s
            words = f"the best of generation {step.generation}"
            one = Individual(number=0, grid=step.devices, cost_s=step.best_s, operator=step.operator, words=words)
            self._bests.appendleft(self._numbered(one, (search, "best", step.best_s)))
        if step.population is not None:
            self._has_population = True
            job = step.job
            choice = search, job.tensor_parallel, job.sharding, job.synchronisation, job.overlap
            people = tuple(self._numbered(one, choice) for one in step.population.individuals)
            return _frame(step, people, step.population.rule)
        return None if self._has_population or not improved else _frame(step, tuple(self._bests), OF_BESTS)

    def _numbered(self, one: Individual, whose: tuple[object, ...]) -> Individual:
        key = (*whose, one.number, one.cost_s)
        if key not in self._shown:
            parents = tuple(self._numbered(parent, whose) for parent in one.parents)
            self._shown[key] = replace(one, number=len(self._shown), parents=tuple(each.childless for each in parents))
        return self._shown[key]


class Shown(NamedTuple):
    """A step, and the frame of its population; None where it has nothing new to show."""

    step: PlanStep
    frame: PopulationFrame | None


class LiveSearch:
    """The searches that follow one edit, each from the plan before it, as one search: they count on."""

    def __init__(self) -> None:
        self.shown: list[Shown] = []
        """Steps that improved or have a population, and the last of each search."""
        self.is_over = False
        self.n_searches = 0
        self._before: PlanStep | None = None
        self._sampler, self._frames = PopulationSampler(), SearchFrames()

    @property
    def newest(self) -> PlanStep | None:
        return self.shown[-1].step if self.shown else None

    def begin(self) -> None:
        """Another search begins."""
        self.n_searches += 1
        self._before, self._sampler = self.newest, PopulationSampler()

    def add(self, step: PlanStep, *, last: bool = False) -> None:
        """Keep what is new in a step, before its search goes on."""
        step, newest = self._sampler.sampled(step, last=last), self.newest
        improved = newest is None or step.best_s < newest.best_s or step.bound_s > newest.bound_s
        if improved or step.population is not None or last:
            frame, counted = self._frames.of(step, self.n_searches), self._counted_on(step)
            if frame is not None:
                frame = replace(frame, generation=counted.generation, evaluations=counted.evaluations)
            self.shown.append(Shown(counted, frame))

    def _counted_on(self, step: PlanStep) -> PlanStep:
        """The step with the counts of the searches before, or the best of these where it is better."""
        before, newest = self._before, self.newest
        if before is None or newest is None:
            return replace(step, held=None, population=None)
        best = step if step.best_s <= newest.best_s else newest
        counts = {
            name: getattr(before, name) + getattr(step, name) for name in ("generation", "evaluations", "seconds")
        }
        bound_s = min(max(step.bound_s, newest.bound_s), best.best_s)
        return replace(best, bound_s=bound_s, median_s=step.median_s, held=None, population=None, **counts)


def frame_of_plan(plan: Plan) -> PopulationFrame:
    """The frame of a plan whose search was not watched."""
    cost_s = objectives[plan.objective].value(plan)
    words = f"the plan at hand, {plan.job.n_stages} x {plan.job.n_replicas}"
    one = Individual(number=0, grid=plan.placement.devices, cost_s=cost_s, operator=plan.planner, words=words)
    count: dict[str, Any] = {"generation": plan.generation, "evaluations": plan.evaluations}
    return PopulationFrame(individuals=(one,), best=one, median_s=one.cost_s, rule=OF_A_PLAN, **count)


def _frame(step: PlanStep, people: tuple[Individual, ...], rule: str) -> PopulationFrame:
    count: dict[str, Any] = {"generation": step.generation, "evaluations": step.evaluations}
    median_s = float(np.median([one.cost_s for one in people]))
    return PopulationFrame(individuals=people, best=people[0], median_s=median_s, rule=rule, **count)
