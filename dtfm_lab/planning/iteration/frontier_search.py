"""Find a frontier: the fastest plan, the cheapest one, then the fastest under price limits between them.

Every search starts from the best plan known for its limit. The next limit lies between the two neighbouring limits
whose prices and seconds differ by the largest factors. A better plan may lie anywhere between them.
"""

import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.planning.iteration.frontier import SAME, Frontier, iteration_s, non_dominated
from dtfm_lab.planning.search import PlanStep, Stopwatch, require_prices, search
from dtfm_lab.simulation.memory import memory

SEARCHES = 12
"""Default number of searches per batch."""
DEFAULT_SECONDS = 20.0
"""Default seconds per batch, if neither steps nor seconds are given."""
FIRST = 0.25
"""Share of the time for the fastest plan, which is searched first."""
SECOND = 0.15
"""Share of the time for the cheapest plan, which is searched second. The searches under price limits share the rest."""
LEAST_S = 0.1
"""Minimum seconds of one search, even if the time limit of all searches leaves less."""


def stream_frontier(
    topology: Topology,
    job: Job,
    planner: str = "evolutionary",
    *,
    seed: int = 0,
    steps: int | None = None,
    seconds: float | None = None,
    batches: Any = None,
    searches: int = SEARCHES,
    queueing: str = "pairs",
) -> Iterator[Frontier]:
    """Yield ever better frontiers of seconds and dollars, one after each search. The last is the best.

    The call itself checks its arguments, before the first search.

    Parameters
    ----------
    steps, seconds
        Number of steps of each search, or seconds of all searches together. With ``steps``, equal seeds give equal
        frontiers. By default 20 seconds per batch.
    batches
        Global batches, in sequences. Each has its own frontier. None for only the job's batch.
    searches
        Number of searches per batch: the fastest, the cheapest, and those under a limit of dollars per hour.

    Raises
    ------
    PlanError
        No device has a price, no plan fits the devices, or a number is out of range.
    JobError
        The job has no model, or its micro-batches do not divide a batch.
    UnknownName
        No such planner, schedule or queueing.
    """
    require_prices(topology)
    if isinstance(searches, bool) or not isinstance(searches, int) or searches < 2:
        raise PlanError(f"searches is {searches!r}; wanted a whole number, 2 or more")
    if isinstance(batches, str) or (batches is not None and not isinstance(batches, Iterable)):
        raise PlanError(f"batches is {batches!r}; wanted a list of global batches, such as [256, 512]")
    jobs = [job] if batches is None else [job.with_fields(global_batch=batch) for batch in sorted(set(batches))]
    if not jobs:
        raise PlanError("frontier of no batches; wanted one at least")
    for one in jobs:
        search(topology, one, planner, objective="iteration", seed=seed, steps=steps, seconds=seconds)
    if steps is None and seconds is None:
        seconds = DEFAULT_SECONDS * len(jobs)
    budget = _Allowance(steps, None if seconds is None else seconds / len(jobs), searches)
    return _frontiers(topology, job, jobs, budget, {"planner": planner, "seed": seed, "queueing": queueing})


class _Allowance(NamedTuple):
    steps: int | None
    seconds: float | None
    """Seconds for one batch; None if only steps are limited."""
    searches: int

    def of(self, number: int, spent_s: float) -> dict[str, Any]:
        """Return the limits of the next search of a batch, after ``number`` searches in ``spent_s`` seconds."""
        if self.seconds is None:
            return {"steps": self.steps}
        left_s = (self.seconds - spent_s) / (self.searches - number)
        left_s = self.seconds * (FIRST, SECOND)[number] if number < 2 else left_s
        return {"steps": self.steps, "seconds": max(left_s, LEAST_S)}


def _frontiers(
    topology: Topology, job: Job, jobs: list[Job], budget: _Allowance, how: dict[str, Any]
) -> Iterator[Frontier]:
    stopwatch = Stopwatch()
    done: list[Plan] = []
    bounds: dict[int, float] = {}
    evaluations, number = 0, 0
    for one in jobs:
        began_s = stopwatch.spent_s()
        ladder = _Ladder(topology, one, how)
        for i in range(budget.searches):
            latest = ladder.climb(budget.of(i, stopwatch.spent_s() - began_s))
            number += 1 if latest is not None else budget.searches - i
            if number == budget.searches * (jobs.index(one) + 1):
                ladder.complete()
            bounds[one.global_batch] = ladder.bound_s
            frontier = Frontier(
                topology=topology,
                job=job if len(jobs) > 1 else one,
                plans=non_dominated([*done, *ladder.plans]),
                lower_bounds_s=dict(bounds),
                searches=number,
                n_searches=budget.searches * len(jobs),
                latest=_worded(latest, one if len(jobs) > 1 else None),
                evaluations=evaluations + ladder.evaluations,
                seconds=stopwatch.spent_s(),
            )
            with stopwatch.paused():
                yield frontier
            if latest is None:
                break
        evaluations += ladder.evaluations
        done += ladder.plans


def _worded(latest: str | None, job: Job | None) -> str:
    of_batch = "" if job is None else f", global batch {job.global_batch}"
    return f"{latest or 'no price limit left that could show more'}{of_batch}"


class _Ladder:
    """The frontier of one batch, and the price limits that it was searched under."""

    def __init__(self, topology: Topology, job: Job, how: dict[str, Any]) -> None:
        self.topology, self.job, self.how = topology, job, how
        self.plans: tuple[Plan, ...] = ()
        self.bound_s = 0.0
        """Seconds that no plan can beat."""
        self.evaluations = 0
        self.limits: list[float] = []
        """Price limits in US dollars per hour, ascending. The first is the price of the cheapest device that has one.
        Once a search finds no plan under a limit, that limit is the first."""
        self.done = 0
        self.passed: list[PlanStep] = []
        """Intermediate plans of searches that may be on the frontier. They are not simulated yet."""

    def climb(self, limits: dict[str, Any]) -> str | None:
        """Search once more. Return a description of the search; None if no limit is left that could add a plan."""
        self.done += 1
        if self.done == 1:
            self._search("iteration", limits)
            # the price of the cheapest device that has one; below it, only free plans are left
            least = min(device.price_per_hour for device in self.topology.devices if device.price_per_hour)
            self.limits = [least, self.plans[0].price_per_hour]
            return "fastest"
        if self.done == 2:
            self._search("price", limits)
            return "cheapest per token"
        limit = self._next_limit()
        if limit is None:
            return None
        try:
            self._search("iteration", limits, start=self._at(limit), max_price_per_hour=limit)
        except PlanError:  # no plan this cheap fits
            if self._at(limit) is None:
                self.limits = [limit, *(one for one in self.limits if one > limit)]
                return f"none under ${limit:,.2f} an hour"
        self.limits = sorted({*self.limits, limit})
        return f"fastest under ${limit:,.2f} an hour"

    def _search(self, objective: str, limits: dict[str, Any], **options: Any) -> None:
        how = {**self.how, **limits, **options, "objective": objective}
        found: list[PlanStep] = []
        for step in search(self.topology, self.job, improve_bound=not options, **how):
            if not found or step.best_s < found[-1].best_s:
                found.append(step)
            last = step
        self.evaluations += last.evaluations
        if not options:  # with a price limit the bound may hold only for cheaper plans
            self.bound_s = max(self.bound_s, last.iteration_bound_s)
        self.passed += found[:-1]
        self._add(last.plan)

    def complete(self) -> None:
        """Add the intermediate plans that are on the frontier: faster than every plan that costs no more per hour."""
        for step in sorted(self.passed, key=lambda step: step.iteration_s):
            price = sum(step.topology.devices[int(d)].price_per_hour for d in step.devices.flat)
            rival = self._at(price)
            if rival is None or step.iteration_s < iteration_s(rival) * (1 - SAME):
                self._add(step.plan)
        self.passed = []

    def _add(self, plan: Plan) -> None:
        if memory(plan).fits:
            self.plans = non_dominated([*self.plans, plan])

    def _at(self, limit: float) -> Plan | None:
        return next((plan for plan in self.plans if plan.price_per_hour <= limit * (1 + SAME)), None)

    def _next_limit(self) -> float | None:
        """Return the geometric mean of the two neighbouring limits whose prices and seconds differ most; None if no two
        differ by much."""
        # stop if both price and seconds could change by at most about 2 % between two limits
        best, most = None, math.log(1.02) ** 2
        for low, high in zip(self.limits, self.limits[1:], strict=False):
            above, below = self._at(high), self._at(low)
            if above is None:
                continue
            # without a plan below, assume that seconds grow as prices fall; half weight, as such tokens cost more
            slower = high / low if below is None else iteration_s(below) / iteration_s(above)
            unknown = math.log(high / low) * math.log(max(slower, 1.0)) * (0.5 if below is None else 1.0)
            if unknown > most:
                best, most = math.sqrt(low * high), unknown
        return best
