"""The kernels of a search for seconds, compiled or loaded on a thread, and a plan that fits until they are there."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from dataclasses import replace

import numpy as np

from dtfm_lab.domain.job import Job, even_shares
from dtfm_lab.domain.job.presets import TINY
from dtfm_lab.domain.network import Device, Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.planning.iteration.candidate import Candidate, chosen_job, unpriced_plan
from dtfm_lab.planning.iteration.fitting import FittingPlan
from dtfm_lab.planning.iteration.judging import candidate_of
from dtfm_lab.planning.iteration.problem import IterationProblem
from dtfm_lab.planning.iteration.shape_searches import ShapeSearches
from dtfm_lab.planning.iteration.tables_of import SearchTarget
from dtfm_lab.planning.jit_warmup import is_done, start_once, while_compiling

QUICK_S = 0.4
"""Seconds to wait for kernels from the cache before a plan is made without them."""


def wait_for_kernels(
    problem: IterationProblem, fitting: FittingPlan, target: SearchTarget, start: Plan | None = None
) -> Generator[Candidate, None, float]:
    """Nothing where the kernels are ready; else a first plan, again and again, as incomplete candidates.

    Each has the seconds waited in ``compiling_s``; all of them are returned. Time limits do not count them, since a
    machine compiles only once.
    """
    began = time.perf_counter()
    compile_kernels = start_kernels(problem.n_devices)
    quick = start_once(compile_kernels, compile_kernels).wait(QUICK_S)
    first = None
    if not quick and start is not None and start.topology is problem.topology:
        first = candidate_of(start, target, 1, "start", complete=False)
    elif not quick and fitting.grid is not None and not target.limited:
        first = _first(problem, fitting, target)
    for _waited_s in while_compiling(compile_kernels, compile_kernels):
        if first is not None:
            yield replace(first, compiling_s=time.perf_counter() - began)
    return time.perf_counter() - began


def start_kernels(n_devices: int) -> Callable[[], None]:
    """Begin to load or compile a search's kernels on a thread; return what is done there."""
    from dtfm_lab.planning.iteration.bounds.enumeration import MOST_DEVICES

    compile_kernels = _compile_of_few if n_devices <= MOST_DEVICES else _compile
    start_once(compile_kernels, compile_kernels)
    return compile_kernels


def kernels_are_ready() -> bool:
    """Whether a search of this process has waited for its kernels, so that a replay begins at once."""
    return is_done(_compile) or is_done(_compile_of_few)


def _compile() -> None:
    """Call every kernel once, on a small problem, with arguments of the final types."""
    _compile_for(None)


def _compile_of_few() -> None:
    """The same, and of the bound of few devices, which is for schedules of one stage a device."""
    _compile_for(None)
    _compile_for(("1f1b",))


def _compile_for(schedules: tuple[str, ...] | None) -> None:
    from dtfm_lab.planning.iteration.bounds import iteration_bound_steps
    from dtfm_lab.planning.kernels.random_numbers import seeded

    links = 1.0 - np.eye(4)
    topology = Topology(tuple(Device(name=f"device {i}") for i in range(4)), links, links + np.eye(4))
    job = Job(model=TINY, n_stages=2, n_replicas=2, global_batch=8, microbatch=1, checkpointing="none")
    problem = IterationProblem.of(topology, job)
    (shape_search,) = ShapeSearches(problem, SearchTarget())
    found = shape_search.assessed(np.arange(4), np.array([4, 4]), 1.0)
    random = seeded(np.random.default_rng(0))
    shape_search.annealed(
        shape_search.annealed(found, 0.1, 0.01, 2, random, exact=False), 0.1, 0.01, 2, random, exact=True
    )
    for _bound_s in iteration_bound_steps(problem, found.value, schedules):
        pass


def _first(problem: IterationProblem, fitting: FittingPlan, target: SearchTarget) -> Candidate | None:
    assert fitting.grid is not None
    assert fitting.blocks is not None
    job, (n_stages, n_replicas) = problem.job, fitting.grid.shape
    shares = np.array(job.microbatches_per_replica or even_shares(job.global_batch // fitting.microbatch, n_replicas))
    ahead, checkpointing = np.array(job.warmups or [0] * n_stages), fitting.problem.job.checkpoints
    chosen = chosen_job(job, fitting.blocks, shares, ahead, fitting.microbatch, checkpointing)
    plan = unpriced_plan(problem.topology, chosen, fitting.grid, problem.queueing, problem.efficiency)
    return candidate_of(plan, target, 1, "fits", complete=False)
