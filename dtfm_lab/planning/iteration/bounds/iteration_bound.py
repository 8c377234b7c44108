"""Bounds on the seconds and US dollars of an iteration that no plan beats, whatever its devices, shape, cut, pairing,
micro-batch counts and order of passes.

A proof *refutes* T for a shape if no plan of that shape takes at most T seconds. The bound on the seconds is the
largest T that is refuted for every shape. Bisection finds it, because a plan that is possible within T is possible
within any longer time.

The bound on the dollars relies on this: a plan pays for all its devices during the whole iteration. A device that
processes n micro-batches of a stage needs at least n times the seconds of one, for its passes or for messages over its
best link. So for every stage the plan pays at least the price of the batch on the cheapest device that the stage fits
on. The minimum over all cuts of the model is found stage by stage. With several stages per device, the bound is the
price of the work alone, on the device with the most FLOP per dollar.

The bound of a budget is simpler: a number of dollars per hour rents a limited number of FLOP/s (``PriceBound``).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dtfm_lab.costs.efficiency import GivenEfficiency, speeds_of
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.units import FloatArray
from dtfm_lab.planning.background_tasks import while_compiling
from dtfm_lab.planning.iteration.bounds.classes import (
    FIRST,
    LAST,
    MIDDLE,
    SOLE,
    DeviceClasses,
    Family,
    StageKinds,
    cuts_of,
    families_of,
)
from dtfm_lab.planning.iteration.bounds.enumeration import enumerated
from dtfm_lab.planning.iteration.bounds.refutation import Capacities, PlanFamily, Refuter, batch_flop
from dtfm_lab.planning.iteration.problem import IterationProblem, SearchTarget, open_microbatches
from dtfm_lab.planning.search import SearchRequest

TOLERANCE = 2e-3
"""Relative width of the interval of seconds at which the bisection for a bound ends."""
ROUNDING = 1 - 1e-9
JUST_BELOW = 1 - 5e-10
"""After bisection, one last proof tries to rule out every plan faster than this share of the best plan's seconds. The
remaining gap counts as none (``planning.search.PROVEN``)."""
MOST_DEVICES_WITH_CUTS = 96
"""Cuts of the network are tried on networks of up to this number of devices. Proofs for larger ones would take
minutes."""
MOST_CLASSES_OF_LARGE = 12
HOPELESS = 1e6
"""No bound is searched for beyond this multiple of ``work_bound_s``. If it is that high, perhaps no plan fits at
all."""


def work_bound_s(problem: IterationProblem) -> float:
    """Return the seconds in which all devices together, never idle and never waiting, do all passes of the batch."""
    return batch_flop(problem) / float(problem.flop_per_s.sum()) * ROUNDING


def iteration_bound_steps(
    problem: IterationProblem,
    upper_s: float | Callable[[], float],
    schedules: Iterable[str] | None = None,
    max_price_per_hour: float | None = None,
    lower_s: float = 0.0,
) -> Iterator[float]:
    """Yield lower bounds on the seconds of an iteration. They never fall, and a caller may stop at any time.

    The first is ``work_bound_s``, or ``lower_s`` if that is higher. Most steps take milliseconds and repeat the bound,
    because a proof goes shape by shape. Equal arguments give equal bounds. If only every H-th iteration averages, the
    bound is on the average seconds of H iterations.

    Parameters
    ----------
    upper_s
        Seconds of some plan, at which the search for a bound ends; infinite if no plan is known. Or a function that
        returns the seconds of the best plan so far. It is called at every step.
    schedules
        Names of the schedules that plans may have, if the job names none. None for all that are built in.
    max_price_per_hour
        The bound holds for plans whose devices together cost at most this many US dollars per hour.
    lower_s
        A known bound in seconds, from which this one rises.
    """
    if len(problem.parts) > 1:
        each = [iteration_bound_steps(part, upper_s, schedules, max_price_per_hour, lower_s) for part in problem.parts]
        yield from least_of(each)
        return
    lower_s = max(work_bound_s(problem), lower_s)
    yield lower_s
    upper = upper_s if callable(upper_s) else lambda: upper_s
    families = families_of(problem.job, schedules)
    if enumerable(problem, families):
        for enumerated_s in enumerated(problem, families, max_price_per_hour, upper):
            lower_s = max(lower_s, enumerated_s)
            yield lower_s
        if lower_s >= upper() * ROUNDING:
            return
    large = problem.n_devices > MOST_DEVICES_WITH_CUTS
    classes = DeviceClasses.of(problem, MOST_CLASSES_OF_LARGE) if large else DeviceClasses.of(problem)
    prices = None if max_price_per_hour is None else (classes.price_per_hour, max_price_per_hour)
    every = problem.job.averages_every
    alone_s = together_s = work_bound_s(problem)
    if every > 1:
        for alone_s in _bisected(classes, families, prices, upper, synchronises=False):
            yield max(alone_s, lower_s)
    synchronises = problem.job.sharding != "zero-3"  # zero-3 scatters gradients in its passes, not after them
    for together_s in _bisected(
        classes, families, prices, lambda: every * upper(), lower_s if every == 1 else 0.0, synchronises=synchronises
    ):
        yield max(((every - 1) * alone_s + max(together_s, alone_s)) / every, lower_s)


def least_of(each: list[Iterator[float]]) -> Iterator[float]:
    """Yield the minimum of several rising bounds. Each step raises the lowest one. Ends once that one can rise no
    more."""
    bounds = [next(steps) for steps in each]
    while True:
        yield min(bounds)
        lowest = bounds.index(min(bounds))
        raised = next(each[lowest], None)
        if raised is None:
            return
        bounds[lowest] = raised


def _bisected(
    classes: DeviceClasses,
    families: tuple[Family, ...],
    prices: tuple[FloatArray, float] | None,
    upper_s: Callable[[], float],
    lower_s: float = 0.0,
    *,
    synchronises: bool,
) -> Iterator[float]:
    """Yield the longest time in seconds that is known to be refuted for all shapes, before each proof for one shape."""
    low, high = max(work_bound_s(classes.problem), lower_s), np.inf
    cases = list(cases_of(classes, families, synchronises=synchronises))
    cuts = cuts_of(classes, cases[0].capacities.hop_s + classes.latency_s) if cases else []
    refuter = Refuter(classes, cuts if classes.problem.n_devices <= MOST_DEVICES_WITH_CUTS else [], prices)
    for _waited_s in while_compiling(Capacities.compile_kernels, cases[0].capacities.compile_kernels) if cases else ():
        yield low * ROUNDING
    while cases and min(high, upper_s()) - low > TOLERANCE * low:
        high = min(high, upper_s())
        limit_s = (low + high) / 2 if high < np.inf else 2 * low
        if limit_s > HOPELESS * work_bound_s(classes.problem):
            break
        survivors: list[PlanFamily] = []
        for number, case in enumerate(cases):
            yield low * ROUNDING
            if not refuter.refutes(case, limit_s):
                # the cases before this one stay refuted for every smaller limit, so they are not tried again
                survivors = cases[number:]
                break
        if survivors:
            high, cases = limit_s, survivors
        else:
            low = limit_s
    if low < upper_s() <= high:  # bisection leaves a gap of its tolerance; one more proof may close it
        best_s = upper_s() * JUST_BELOW
        for case in cases:
            yield low * ROUNDING
            if not refuter.refutes(case, best_s):
                break
        else:
            yield max(best_s, low * ROUNDING)
            return
    yield low * ROUNDING


def cases_of(
    classes: DeviceClasses, families: tuple[Family, ...], *, synchronises: bool = True
) -> Iterator[PlanFamily]:
    """Yield a PlanFamily for every shape, micro-batch size and family of schedules that the job allows."""
    problem = classes.problem
    job, n_devices, n_blocks = problem.job, problem.n_devices, problem.n_blocks
    stages = range(1, n_blocks + 1) if job.n_stages is None else [job.n_stages]
    for microbatch in problem.microbatches:
        n_microbatches = job.global_batch // microbatch
        for family in families:
            per_device = family.stages_per_device
            any_cut = Capacities(classes, StageKinds.of_any_cut(problem), family, microbatch, synchronises)
            for n_stages in stages:
                most_stages = problem.most_stages if per_device == 1 else n_blocks // per_device
                if n_stages > min(most_stages, n_devices):
                    continue
                capacities = any_cut
                cut = job.blocks_per_stage
                if per_device > 1:
                    cut = job.modelled().even_cut(n_stages * per_device, job.cut_by)
                if cut is not None:
                    kinds = StageKinds.of_cut(problem, cut, per_device)
                    capacities = Capacities(classes, kinds, family, microbatch, synchronises)
                most = min(n_devices // n_stages, n_microbatches)
                for n_replicas in range(1, most + 1) if job.n_replicas is None else [job.n_replicas]:
                    if n_replicas <= most and not (job.gathers_passes and n_microbatches % n_replicas):
                        yield PlanFamily(capacities, n_stages, n_replicas)


def price_bound(problem: IterationProblem, schedules: Iterable[str] | None = None) -> float:
    """Return a lower bound on the US dollars of an iteration. ``schedules`` is as for ``iteration_bound_steps``.

    A price of 0 means unknown: such devices cost nothing. If nothing fits, or if a schedule may put several stages on a
    device, return the price of the work on the device with the most FLOP per dollar.
    """
    if len(problem.parts) > 1:
        return min(price_bound(part, schedules) for part in problem.parts)
    anywhere = batch_flop(problem) * float((problem.price_per_hour / problem.flop_per_s).min()) / 3600
    if any(family.stages_per_device > 1 for family in families_of(problem.job, schedules)):
        return anywhere * ROUNDING  # a device's blocks are not consecutive, so it may hold any
    classes = DeviceClasses.of(problem)
    kinds = StageKinds.of_any_cut(problem)
    least = min(_cheapest(Capacities(classes, kinds, Family(), m)) for m in problem.microbatches)
    return max(anywhere, least if np.isfinite(least) else 0.0) * ROUNDING


def _cheapest(capacities: Capacities) -> float:
    """Return the dollars of the cheapest cut, with each stage on its cheapest devices."""
    kinds, n_blocks = capacities.kinds, capacities.problem.n_blocks
    stage = _stage_dollars(capacities)
    of_role = {role: np.full(n_blocks + 1, np.inf) for role in (FIRST, MIDDLE, LAST, SOLE)}
    for role, costs in of_role.items():
        costs[kinds.blocks[kinds.role == role]] = stage[kinds.role == role]
    begun = of_role[FIRST].copy()  # minimum for the first k blocks, without the last stage
    for k in range(1, n_blocks + 1):
        begun[k] = min(begun[k], (begun[:k] + of_role[MIDDLE][k:0:-1]).min())
    ended = begun + of_role[LAST][::-1]
    return float(min(of_role[SOLE][n_blocks], ended.min(initial=np.inf)))


def _stage_dollars(capacities: Capacities) -> FloatArray:
    """Return (Q,) minimum dollars of the whole batch in a stage of each kind: on the class where it is cheapest.
    Infinite if the stage fits on none."""
    classes, role = capacities.classes, capacities.kinds.role
    hop_s = np.maximum(capacities.hop_s, capacities.hop_s.T).min(axis=1)
    linked = np.where(role[:, None] == SOLE, 0.0, hop_s[None, :])
    costs = capacities.costs
    once_s = np.maximum(costs.forward_s + costs.input_s + costs.weight_s, linked)
    each = np.where(costs.fits > 0, once_s * classes.price_per_hour[None, :], np.inf)
    return np.asarray(each.min(axis=1) * capacities.n_microbatches / 3600)


@dataclass(frozen=True, eq=False)
class PriceBound:
    """Maximum FLOP/s for every budget. Devices are rented in the order of FLOP/s per dollar, the best first, and the
    last one in part.

    This is the fractional knapsack, whose value is at least the value of any choice of whole devices. A plan's devices
    together do the job's FLOP in an iteration. So the iteration takes at least the job's FLOP divided by these FLOP/s.
    """

    price_per_hour: FloatArray
    """(N + 1,) US dollars per hour of the first 0 to N devices, sorted by FLOP/s per dollar, free ones first."""
    flop_per_s: FloatArray
    """(N + 1,) FLOP/s of these devices together."""

    @classmethod
    def of(cls, topology: Topology, job: Job, efficiency: GivenEfficiency = None) -> PriceBound:
        """Return the bound for this job's dtype. Each device counts at its fastest: the best micro-batch size and
        tensor-parallel degree that the job allows."""
        speed = np.array(_most_speeds(topology, job, efficiency))
        price = np.array([device.price_per_hour for device in topology.devices])
        order = np.argsort(price / speed, kind="stable")
        both = (np.concatenate([[0.0], np.cumsum(column[order])]) for column in (price, speed))
        return cls(*both)

    def iteration_s(self, flop: float, price_per_hour: float) -> float:
        """Return a lower bound on the seconds of an iteration of any plan that costs at most ``price_per_hour`` US
        dollars per hour. Infinite for 0 dollars if no device is free."""
        n_free = int(np.searchsorted(self.price_per_hour, 0.0, side="right")) - 1
        prices, speeds = self.price_per_hour[n_free:], self.flop_per_s[n_free:]
        most = float(np.interp(price_per_hour, prices, speeds))
        return flop / most if most > 0 else np.inf


def _most_speeds(topology: Topology, job: Job, efficiency: GivenEfficiency) -> FloatArray:
    """Return (N,) maximum FLOP/s of each device over the micro-batch sizes and the groups of GPUs that the job
    allows."""
    degrees = topology.group_sizes if job.tensor_parallel is None else [job.group_gpus]
    found = []
    for degree in degrees:
        peaks = [degree / device.gpus * device.peak_flop_per_s for device in topology.devices]
        pairs = zip(topology.devices, peaks, strict=True)
        groups = [replace(device, gpus=degree, peak_flop_per_s=peak) for device, peak in pairs]
        for microbatch in open_microbatches(job):
            speeds = speeds_of(job, groups, efficiency, microbatch)
            found.append([device.gpus / degree * speed for device, speed in zip(topology.devices, speeds, strict=True)])
    return np.asarray(np.max(found, axis=0))


MOST_ENUMERATED = 6
"""Grids are enumerated up to this number of devices. Their number grows with the factorial of the devices."""


def enumerable(problem: IterationProblem, families: tuple[Family, ...]) -> bool:
    """Return True if ``enumerated`` covers the problem: few devices, and schedules with one stage per device."""
    return problem.n_devices <= MOST_ENUMERATED and all(family.stages_per_device == 1 for family in families)


# ---------------------------------------------------------------------------------------------------------------------
# The lower bound of a running search for seconds or dollars, which rises in a share of the search's time.


SCHEDULES = ("gpipe", "1f1b", "adaptive-1f1b")
"""Schedules that a bound covers if the job names none: those that the search chooses from."""
SHARE = 0.25
"""The bound gets this share of the time up to the last better plan. It is small, because plans come first."""
MOST_SHARE = 0.5
"""The bound gets this share of the time since the last better plan. While plans do not improve, only the bound can
narrow the gap."""
FIRST_SHARE = 0.1
"""Share of the search's time for the bound before the first generation is complete. Plans found by then are far from
the best, and if the time limit comes first, one of them is the result."""
TURNS = 50
"""Number of steps of the bound for each step of the search, in a search that is limited by steps instead of time."""
MOST_BOUNDED = 512
"""On networks of more devices the bound stays at ``work_bound_s``, since one proof for a shape takes minutes."""
BEGIN = 0.3
"""Share of the time limit after which the bound begins to rise. By then a better plan is known, so bisection needs
fewer proofs."""


class IncrementalBound:
    """The bounds of one or more problems, raised between the steps of a search. Any of the problems may have the best
    plan.

    A search that is limited by steps raises the bound at its last step. The bound then takes ``TURNS`` steps for each
    step of the search. So equal steps give equal bounds.
    """

    def __init__(self, problems: Sequence[IterationProblem], target: SearchTarget, request: SearchRequest) -> None:
        self._problems, self._target, self._request = problems, target, request
        self.iteration_s = min(map(work_bound_s, problems))
        """Seconds of an iteration that no plan beats."""
        self.dollars = min(price_bound(one, SCHEDULES) for one in problems) if target.dollars else 0.0
        """US dollars of an iteration that no plan beats; 0 in a search for seconds, which shows none."""
        self._large = max(one.n_devices for one in problems) > MOST_BOUNDED
        self._rising: Iterator[float] | None = None
        self._best_s = math.inf
        self._bettered_s = 0.0
        """Seconds of searching after which the best plan was found."""
        self._spent_s = self._compiling_s = 0.0

    def update(
        self,
        best_s: float,
        generation: int,
        spent_s: Callable[[], float],
        *,
        complete: bool = True,
        compiling_s: float = 0.0,
    ) -> None:
        """Raise the bound towards the ``best_s`` seconds of the best plan so far, within its share of the time.

        ``generation``, ``complete`` and ``compiling_s`` describe the newest step of the search. ``spent_s`` returns the
        seconds of the search so far.
        """
        request = self._request
        if not request.improve_bound or self._large:
            return
        if request.steps is not None:
            if complete and generation + 1 == request.steps:
                self._raise_until(best_s, math.inf, TURNS * request.steps)
            return
        self._compiling_s = max(self._compiling_s, compiling_s)
        searched_s = spent_s() - self._compiling_s
        if best_s < self._best_s:
            self._best_s, self._bettered_s = best_s, searched_s
        if searched_s >= BEGIN * request.limit_s:  # searched_s is 0 while kernels are compiled
            share_s = MOST_SHARE * searched_s - (MOST_SHARE - SHARE) * self._bettered_s
            self._raise_until(best_s, share_s if complete or generation else FIRST_SHARE * searched_s)

    def _raise_until(self, best_s: float, limit_s: float, most_turns: float = math.inf) -> None:
        self._best_s = min(self._best_s, best_s)
        if self._rising is None:
            most = None if math.isinf(self._target.max_price_per_hour) else self._target.max_price_per_hour
            each = [iteration_bound_steps(one, lambda: self._best_s, SCHEDULES, most) for one in self._problems]
            self._rising = least_of(each)
        began = time.perf_counter()
        while self._spent_s + time.perf_counter() - began < limit_s and (most_turns := most_turns - 1) >= 0:
            bound_s = next(self._rising, None)
            if bound_s is None:
                break
            self.iteration_s = max(self.iteration_s, bound_s)
        self._spent_s += time.perf_counter() - began
