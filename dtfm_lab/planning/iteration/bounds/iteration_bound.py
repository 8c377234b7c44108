"""Seconds of an iteration that no plan beats: any devices, shape, cut, pairing, shares and order of passes."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.iteration.bounds.capacities import Capacities
from dtfm_lab.planning.iteration.bounds.cuts import cuts_of
from dtfm_lab.planning.iteration.bounds.device_classes import DeviceClasses
from dtfm_lab.planning.iteration.bounds.families import Family, families_of
from dtfm_lab.planning.iteration.bounds.program import Shape, feasible
from dtfm_lab.planning.iteration.bounds.stage_kinds import StageKinds
from dtfm_lab.planning.iteration.problem import IterationProblem

TOLERANCE = 2e-3
"""Relative width at which bisection ends."""
ROUNDING = 1 - 1e-9


def work_bound_s(problem: IterationProblem) -> float:
    """Seconds in which all devices together, never idle and never waiting, do all passes of the batch."""
    job = problem.job
    flop = problem.block_flop[-1] + problem.first_extra[0] + problem.last_extra[0]
    per_forward = 1.0 + problem.passes(1, job.recompute).backward_per_forward
    return float(job.global_batch * flop * per_forward / problem.flop_per_s.sum()) * ROUNDING


@dataclass(frozen=True, eq=False)
class Case:
    """Plans of one shape, one micro-batch and one family of schedules."""

    capacities: Capacities
    n_stages: int
    n_replicas: int


@dataclass(eq=False)
class Refuter:
    """Proves for plans of a case that none takes at most so many seconds."""

    classes: DeviceClasses
    cuts: list[IntArray]
    prices: tuple[FloatArray, float] | None = None
    programs: int = 0
    log: list[str] = field(default_factory=list)

    def refutes(self, case: Case, limit_s: float) -> bool:
        """Whether no plan of the case takes at most ``limit_s``."""
        if not self._feasible(case, limit_s, np.zeros(len(self.classes.count), dtype=np.int64)):
            return True
        return any(not self._feasible(case, limit_s, side) for side in self.cuts)

    def _feasible(self, case: Case, limit_s: float, side: IntArray) -> bool:
        capacities, n_stages, n_replicas = case.capacities, case.n_stages, case.n_replicas
        count = self.classes.count
        sizes = np.bincount(side, weights=count, minlength=2).astype(np.int64)
        cut = bool(sizes[1])
        on_side = np.arange(max(0, n_replicas - sizes[1]), min(n_replicas, sizes[0]) + 1)
        capacity = capacities.of(limit_s, n_stages, n_replicas, side, on_side)
        crossing = capacities.crossing(side, limit_s) if cut else 0.0
        for staying in self._staying(sizes, n_stages, n_replicas) if cut else [(n_replicas, 0)]:
            n_crossing = n_replicas - sum(staying)
            if sum(staying) == 0 and n_crossing * np.floor(crossing + 1e-9) < capacities.n_microbatches:
                continue
            self.programs += 1
            if feasible(
                Shape(n_stages, n_replicas, staying), capacities.kinds, capacity.copy(), on_side, side, count,
                capacities.n_microbatches, capacities.problem.n_blocks, self.prices,
            ):  # fmt: skip
                return True
        return False

    def _staying(self, sizes: IntArray, n_stages: int, n_replicas: int) -> Iterator[tuple[int, int]]:
        for here in range(min(n_replicas, sizes[0] // n_stages) + 1):
            for there in range(min(n_replicas - here, sizes[1] // n_stages) + 1):
                if n_stages > 1 or here + there == n_replicas:
                    yield here, there


def iteration_bound_steps(
    problem: IterationProblem,
    upper_s: float,
    schedules: Iterable[str] | None = None,
    max_price_per_hour: float | None = None,
) -> Iterator[float]:
    """Rising lower bounds on the seconds of an iteration; each is valid, so a caller may stop whenever it likes.

    Bounds above ``upper_s``, the seconds of some plan, are not looked for. Where only every H-th iteration averages,
    the mean of H of one plan is no less than that mean of the two bounds.
    """
    yield work_bound_s(problem)
    classes = DeviceClasses.of(problem)
    families = families_of(problem.job, schedules)
    prices = None if max_price_per_hour is None else (classes.price_per_hour, max_price_per_hour)
    every = problem.job.synchronise_every
    together_s = 0.0
    for together_s in _bisected(classes, families, prices, every * upper_s, synchronises=True):
        if every == 1:
            yield together_s
    if every > 1:
        for alone_s in _bisected(classes, families, prices, upper_s, synchronises=False):
            yield ((every - 1) * alone_s + together_s) / every


def _bisected(
    classes: DeviceClasses,
    families: tuple[Family, ...],
    prices: tuple[FloatArray, float] | None,
    upper_s: float,
    *,
    synchronises: bool,
) -> Iterator[float]:
    low, high = work_bound_s(classes.problem), upper_s
    cases = list(_cases(classes, families, synchronises))
    cuts = cuts_of(classes, cases[0].capacities.hop_s + classes.latency_s) if cases else []
    refuter = Refuter(classes, cuts, prices)
    yield low
    while high - low > TOLERANCE * high:
        limit_s = (low + high) / 2
        survivors = None
        for number, case in enumerate(cases):
            if not refuter.refutes(case, limit_s):
                survivors = cases[number:]
                break
        if survivors is None:
            low = limit_s
            yield low * ROUNDING
        else:
            high, cases = limit_s, survivors


def _cases(classes: DeviceClasses, families: tuple[Family, ...], synchronises: bool) -> Iterator[Case]:
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
                    if n_replicas <= most:
                        yield Case(capacities, n_stages, n_replicas)
