"""Seconds of an iteration that no plan beats: any devices, shape, cut, pairing, shares and order of passes.

The bound is the largest T for which every shape is refuted, found by bisection, as capacities only grow with T. What
binds it are the resources of which more would lower it (``bindings``).
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from dtfm_lab.domain.network import Links
from dtfm_lab.domain.units import FloatArray
from dtfm_lab.planning.iteration.bounds.capacities import Capacities
from dtfm_lab.planning.iteration.bounds.device_classes import DeviceClasses, cuts_of
from dtfm_lab.planning.iteration.bounds.enumeration import enumerable, enumerated
from dtfm_lab.planning.iteration.bounds.refutation import Case, Refuter, batch_flop
from dtfm_lab.planning.iteration.bounds.stage_kinds import Family, StageKinds, families_of
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


FACTOR = 2.0
"""How many times more of a resource is tried."""
SHARES = (0.97, 0.92, 0.85, 0.75, 0.6)
"""Shares of the bound that are tried, from the largest."""


@dataclass(frozen=True)
class Binding:
    """A resource that binds a bound."""

    resource: str
    """``compute (A100)``, ``memory``, ``synchronisation``, ``latency``, ``bandwidth``, ``links between regions``..."""
    share: float
    """With twice as much of it, or without it, the bound is no more than this share of what it is."""


def bindings(problem: IterationProblem, bound_s: float, schedules: Iterable[str] | None = None) -> tuple[Binding, ...]:
    """The resources that bind ``bound_s``, the bound of this problem, most binding first; those below 3 % are left out.

    Each takes a few proofs, so this takes some seconds for large networks.
    """
    names = None if schedules is None else tuple(schedules)
    found = []
    for resource, relaxed, synchronises in _relaxed(problem):
        share = _share(relaxed, bound_s, names, synchronises)
        if share < 1:
            found.append(Binding(resource, share))
    return tuple(sorted(found, key=lambda one: one.share))


def _share(problem: IterationProblem, bound_s: float, schedules: tuple[str, ...] | None, synchronises: bool) -> float:
    """The least of SHARES of the bound that can no longer be refuted; 1 where all can."""
    classes = DeviceClasses.of(problem)
    cases = list(cases_of(classes, families_of(problem.job, schedules), synchronises=synchronises))
    if not cases:
        return 1.0
    refuter = Refuter(classes, cuts_of(classes, cases[0].capacities.hop_s + classes.latency_s))
    least = 1.0
    for share in SHARES:
        left = next((number for number, case in enumerate(cases) if not refuter.refutes(case, share * bound_s)), None)
        if left is None:
            break
        least, cases = share, cases[left:]
    return least


def _relaxed(problem: IterationProblem) -> Iterator[tuple[str, IterationProblem, bool]]:
    """Each resource with the problem in which there is more of it, and whether gradients are averaged there."""
    devices, topology = problem.topology.devices, problem.topology
    gpus = np.array([device.gpu for device in devices])
    for gpu in dict.fromkeys(gpus.tolist()):
        speeds = np.where(gpus == gpu, FACTOR, 1.0) * problem.flop_per_s
        yield f"compute ({gpu})", replace(problem, flop_per_s=speeds), True
    yield "memory", replace(problem, memory_bytes=FACTOR * problem.memory_bytes), True
    if problem.job.n_replicas != 1:
        yield "synchronisation", problem, False
    everywhere = np.ones_like(problem.latency_s)
    yield "latency", _linked(problem, latency=everywhere / FACTOR, bandwidth=everywhere), True
    yield "bandwidth", _linked(problem, latency=everywhere, bandwidth=FACTOR * everywhere), True
    regions = np.array([device.region for device in devices])
    if 1 < len(topology.regions) < len(devices):
        within = regions[:, None] == regions[None, :]
        faster = np.where(within, FACTOR, 1.0)
        yield "links within regions", _linked(problem, latency=1 / faster, bandwidth=faster), True
        faster = np.where(within, 1.0, FACTOR)
        yield "links between regions", _linked(problem, latency=1 / faster, bandwidth=faster), True


def _linked(problem: IterationProblem, *, latency: np.ndarray, bandwidth: np.ndarray) -> IterationProblem:
    """The problem with each link's latency and bandwidth times these (N, N) factors; measured times follow."""
    topology = problem.topology
    links = problem.links
    latency_s = topology.latency_s * latency
    message_s = None
    if topology.message_s is not None:
        moving_s = np.maximum(topology.message_s - topology.latency_s[:, :, None], 0.0)
        message_s = latency_s[:, :, None] + moving_s / bandwidth[:, :, None]
    topology = replace(
        topology,
        latency_s=latency_s,
        bandwidth_bytes_per_s=topology.bandwidth_bytes_per_s * bandwidth,
        message_s=message_s,
    )
    return replace(problem, topology=topology, links=Links.of(topology, links.queueing), latency_s=topology.latency_s)
