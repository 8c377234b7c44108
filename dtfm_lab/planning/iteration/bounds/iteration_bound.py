"""Seconds of an iteration that no plan beats: any devices, shape, cut, pairing, shares and order of passes."""

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from dtfm_lab.domain.units import FloatArray
from dtfm_lab.planning.iteration.bounds.capacities import Capacities
from dtfm_lab.planning.iteration.bounds.cuts import cuts_of
from dtfm_lab.planning.iteration.bounds.device_classes import DeviceClasses
from dtfm_lab.planning.iteration.bounds.families import Family, families_of
from dtfm_lab.planning.iteration.bounds.refutation import Case, Refuter, batch_flop
from dtfm_lab.planning.iteration.bounds.stage_kinds import StageKinds
from dtfm_lab.planning.iteration.problem import IterationProblem
from dtfm_lab.planning.jit_warmup import while_compiling

TOLERANCE = 2e-3
"""Relative width at which bisection ends."""
ROUNDING = 1 - 1e-9
JUST_BELOW = 1 - 5e-10
"""Share of the best plan's seconds that is refuted last: a gap that small counts as none (``step.PROVEN``)."""
MOST_DEVICES_WITH_CUTS = 96
"""Most devices of a network whose cuts are tried; the proofs of larger ones would take minutes."""
MOST_CLASSES_OF_LARGE = 12
HOPELESS = 1e6
"""Multiple of the work of all devices beyond which no bound is looked for: no plan may fit at all."""


def work_bound_s(problem: IterationProblem) -> float:
    """Seconds in which all devices together, never idle and never waiting, do all passes of the batch."""
    return batch_flop(problem) / float(problem.flop_per_s.sum()) * ROUNDING


def iteration_bound_steps(
    problem: IterationProblem,
    upper_s: float | Callable[[], float],
    schedules: Iterable[str] | None = None,
    max_price_per_hour: float | None = None,
    lower_s: float = 0.0,
) -> Iterator[float]:
    """Lower bounds on the seconds of an iteration, none below the one before; a caller may stop whenever it likes.

    The first is the work of all devices together. Most steps take milliseconds and repeat the bound: a proof is made
    shape by shape. Equal arguments give equal bounds. Where only every H-th iteration averages, the mean of H of one
    plan is no less than that mean of the two bounds.

    Parameters
    ----------
    upper_s
        Seconds of some plan, above which no bound is looked for; or a function, asked again at every step, that gives
        those of the best plan so far. Infinite where none is known.
    schedules
        Names of the schedules that plans may have, where the job names none; all that are built in where None.
    max_price_per_hour
        The bound is for plans whose devices cost no more US dollars an hour together.
    lower_s
        Seconds that are known to be a bound, from which it rises.
    """
    if len(problem.parts) > 1:
        each = [iteration_bound_steps(part, upper_s, schedules, max_price_per_hour, lower_s) for part in problem.parts]
        yield from least_of(each)
        return
    lower_s = max(work_bound_s(problem), lower_s)
    yield lower_s
    upper = upper_s if callable(upper_s) else lambda: upper_s
    families = families_of(problem.job, schedules)
    large = problem.n_devices > MOST_DEVICES_WITH_CUTS
    classes = DeviceClasses.of(problem, MOST_CLASSES_OF_LARGE) if large else DeviceClasses.of(problem)
    prices = None if max_price_per_hour is None else (classes.price_per_hour, max_price_per_hour)
    every = problem.job.averages_every
    alone_s = together_s = work_bound_s(problem)
    if every > 1:
        for alone_s in _bisected(classes, families, prices, upper, synchronises=False):
            yield max(alone_s, lower_s)
    synchronises = problem.job.sharding != "zero-3"  # whose passes scatter the gradients
    for together_s in _bisected(
        classes, families, prices, lambda: every * upper(), lower_s if every == 1 else 0.0, synchronises=synchronises
    ):
        yield max(((every - 1) * alone_s + max(together_s, alone_s)) / every, lower_s)


def least_of(each: list[Iterator[float]]) -> Iterator[float]:
    """The least of several bounds, of which the lowest is raised until it is not the lowest or can rise no more."""
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
    """The largest refuted seconds so far, after each proof for a shape."""
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
        survivors: list[Case] = []
        for number, case in enumerate(cases):
            yield low * ROUNDING
            if not refuter.refutes(case, limit_s):
                survivors = cases[number:]
                break
        if survivors:
            high, cases = limit_s, survivors
        else:
            low = limit_s
    if low < upper_s() <= high:  # one more proof may leave no gap at all, where bisection leaves its tolerance
        best_s = upper_s() * JUST_BELOW
        for case in cases:
            yield low * ROUNDING
            if not refuter.refutes(case, best_s):
                break
        else:
            yield max(best_s, low * ROUNDING)
            return
    yield low * ROUNDING


def cases_of(classes: DeviceClasses, families: tuple[Family, ...], *, synchronises: bool = True) -> Iterator[Case]:
    """Every shape, micro-batch and family that the job leaves open."""
    problem = classes.problem
    job, n_devices, n_blocks = problem.job, problem.n_devices, problem.n_blocks
    stages = range(1, n_blocks + 1) if job.n_stages is None else [job.n_stages]
    for microbatch in problem.microbatches:
        n_microbatches = job.global_batch // microbatch
        for family in families:
            per_device = family.stages_per_device
            any_cut = Capacities(classes, StageKinds.of_any_cut(problem), family, microbatch, synchronises)
            for n_stages in stages:
                if n_stages * per_device > n_blocks or n_stages > n_devices:
                    continue
                capacities = any_cut
                if job.blocks_per_stage is not None and per_device == 1:
                    kinds = StageKinds.of_cut(problem, job.blocks_per_stage)
                    capacities = Capacities(classes, kinds, family, microbatch, synchronises)
                elif per_device > 1:
                    each, spare = divmod(n_blocks, n_stages * per_device)
                    blocks = tuple(each + (stage < spare) for stage in range(n_stages * per_device))
                    kinds = StageKinds.of_cut(problem, blocks, per_device)
                    capacities = Capacities(classes, kinds, family, microbatch, synchronises)
                most = min(n_devices // n_stages, n_microbatches)
                for n_replicas in range(1, most + 1) if job.n_replicas is None else [job.n_replicas]:
                    if n_replicas <= most and not (job.gathers_passes and n_microbatches % n_replicas):
                        yield Case(capacities, n_stages, n_replicas)
