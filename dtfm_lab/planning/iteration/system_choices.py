"""Searches that leave tensor parallelism or sharding open: one search for each choice, the best of them go on.

Successive halving (Jamieson and Talwalkar 2016): in each round the choices left share the round's time, and the better
half of them goes on. A choice is a search of its own, on the network of its groups; it is paused, never begun anew.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from dtfm_lab.domain.errors import LabError, PlanError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.planning.iteration.iteration_step import Candidate, IterationStep
from dtfm_lab.planning.iteration.problem import open_microbatches
from dtfm_lab.planning.objectives import SearchRequest
from dtfm_lab.planning.step import PROVEN

SHARDINGS = ("none", "zero-1", "zero-3", "zero-2")
"""In the order in which they are begun: where time is short, the last may not be."""
FIRST_ROUND = 0.4
"""Share of the time after which no further choice is begun, once there is a plan."""


def leaves_open(job: Job) -> bool:
    """Whether the job leaves tensor parallelism or sharding to the planner."""
    return job.tensor_parallel is None or job.sharding is None


def choices_of(topology: Topology, job: Job) -> list[tuple[Topology, Job]]:
    """The networks and jobs of all choices, large groups first. Raises PlanError where none is possible."""
    heads = job.modelled().n_heads
    given = job.tensor_parallel
    degrees = [n for n in topology.group_sizes if heads % n == 0] if given is None else [given]
    if not degrees:
        sizes = " or ".join(map(str, topology.group_sizes))
        raise PlanError(
            f"{topology.name} has groups of {sizes} GPUs, which do not divide the {heads} heads of job {job.name}"
        )
    shardings: tuple[str, ...] = SHARDINGS if job.sharding is None else (job.sharding,)
    if job.sharding is None and (job.n_replicas == 1 or job.synchronise_every > 1 or job.fragments > 1):
        shardings = ("none",)
    networks = {n: topology.grouped(n) for n in degrees}
    found = []
    for degree in sorted(degrees, reverse=True):  # fewer, larger devices: these searches are the quickest, too
        for sharding in shardings:
            try:
                chosen = job.with_fields(tensor_parallel=degree, sharding=sharding)
                if job.sharding is None:
                    chosen.with_fields(microbatch=open_microbatches(chosen)[0])
            except LabError:  # such as shares that are not equal, with replicas that pass micro-batches together
                continue
            found.append((networks[degree], chosen))
    return found


@dataclass(eq=False)
class _Choice:
    """One choice and how far its search is."""

    begin: Callable[[], Iterator[IterationStep]]
    dollars: float = 0.0
    """No plan of the choice takes fewer, of a search for dollars; dollars for a billion tokens."""
    steps: Iterator[IterationStep] | None = None
    latest: IterationStep | None = None
    done: bool = False
    taken: int = 0
    """Complete steps so far."""

    def advance(self) -> bool:
        """Take one step; False where there is none left or nothing fits."""
        if self.steps is None:
            self.steps = self.begin()
        step = next(self.steps, None)
        if step is None:
            self.done = True
            return False
        self.latest = step
        self.taken += step.complete
        self.dollars = max(self.dollars, step.bound_s)
        return True

    @property
    def value(self) -> float:
        """The objective of its best plan; infinite where it has none."""
        return math.inf if self.latest is None else self.latest.best_s


class RisingBound(Protocol):
    """What no plan of any choice is faster than; it rises when told of the best plan and the time."""

    iteration_s: float

    def update(self, candidate: Candidate, generation: int, spent_s: Callable[[], float]) -> None: ...


def search_choices(
    request: SearchRequest,
    search: Callable[[SearchRequest], Iterator[IterationStep]],
    bound: RisingBound,
    *,
    dollars: bool,
) -> Iterator[IterationStep]:
    """The steps of all choices, each with the best plan of any and a bound that holds for all.

    ``search`` searches one choice. Raises PlanError, by the first step, where no choice has a plan.
    """
    choices = []
    for network, job in choices_of(request.topology, request.job):
        start = request.start
        if start is not None and (start.job.tensor_parallel, start.job.sharding) != (job.tensor_parallel, job.sharding):
            start = None
        own = replace(request, topology=network, job=job, start=start, improve_bound=False)
        choices.append(_Choice(lambda own=own: search(own)))  # type: ignore[misc]
    return _Halving(request, choices, bound, dollars).steps()


class _Halving:
    def __init__(self, request: SearchRequest, choices: list[_Choice], bound: RisingBound, dollars: bool) -> None:
        self.request, self.choices, self.bound, self.dollars = request, choices, bound, dollars
        self.spent_s = 0.0
        self.error: PlanError | None = None

    def steps(self) -> Iterator[IterationStep]:
        """Rounds over fewer and fewer choices; the last one goes on to the end."""
        alive = self.choices
        rounds = math.ceil(math.log2(max(len(alive), 1))) + 1
        for number in range(rounds):
            for i, choice in enumerate(alive):
                if number == 0 and i and self.best is not None and self.spent_s > FIRST_ROUND * self.request.limit_s:
                    break
                yield from self._advanced(choice, number, rounds, len(alive) - i)
                if self.finished:
                    return
            alive = sorted((one for one in alive if one.latest is not None), key=lambda one: one.value)
            if not alive:
                raise self.error or PlanError(f"no plan of {self.request.job.name} fits {self.request.topology.name}")
            alive = alive[: max(1, (len(alive) + 1) // 2)]

    @property
    def best(self) -> _Choice | None:
        found = min(self.choices, key=lambda one: one.value, default=None)
        return None if found is None or found.latest is None else found

    @property
    def finished(self) -> bool:
        """Whether the time is up or the best plan is proven."""
        best = self.best
        if best is None or best.latest is None:
            return False
        return self.spent_s >= self.request.limit_s or self._merged(best.latest, best.latest).gap < PROVEN

    def _advanced(self, choice: _Choice, number: int, rounds: int, left: int) -> Iterator[IterationStep]:
        """The steps of a choice in its share of the round."""
        request = self.request
        last = number == rounds - 1
        if request.steps is not None:
            share, until_s = max(1, round(request.steps * 2.0 ** (number - rounds + 1))), math.inf
        else:
            share = np.iinfo(np.int64).max
            round_s = request.limit_s * (number + 1) / rounds
            until_s = math.inf if last else self.spent_s + max(round_s - self.spent_s, 0.0) / left
        while not choice.done and choice.taken < share:
            began, compiled_s = time.perf_counter(), 0.0 if choice.latest is None else choice.latest.compiling_s
            try:
                moved = choice.advance()
            except PlanError as error:
                self.error, choice.done, moved = error, True, False
            best = self.best
            if moved and best is not None and best.latest is not None:
                generation = choice.taken - 1 if last else -1  # the whole bound comes with the very last step
                newest = replace(best.latest.candidate, complete=True, compiling_s=0.0)
                self.bound.update(newest, generation, lambda: self.spent_s)
            self.spent_s += time.perf_counter() - began
            if moved and choice.latest is not None and best is not None and best.latest is not None:
                self.spent_s -= choice.latest.compiling_s - compiled_s
                yield self._merged(best.latest, choice.latest)
            if self.finished or (choice.latest is not None and self.spent_s >= until_s):
                return

    def _merged(self, best: IterationStep, newest: IterationStep) -> IterationStep:
        """The best plan of all choices, with what all of them say."""
        bound_s = self.bound.iteration_s
        dollars = min(choice.dollars for choice in self.choices)
        return replace(
            best,
            bound_s=min(dollars if self.dollars else bound_s, best.best_s),
            iteration_bound_s=min(bound_s, best.iteration_s),
            evaluations=sum(choice.latest.evaluations for choice in self.choices if choice.latest is not None),
            operator=newest.operator,
            complete=newest.complete,
            generation=max(0, sum(choice.taken for choice in self.choices) - newest.complete),
            seconds=self.spent_s,
        )
