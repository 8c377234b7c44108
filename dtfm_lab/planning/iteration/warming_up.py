"""Compiles the kernels on a thread; until they are ready, a plan that fits is yielded, priced by the simulator."""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import replace

import numpy as np

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.job.presets import TINY
from dtfm_lab.domain.network import Device, Topology
from dtfm_lab.planning.iteration.arms import Arms
from dtfm_lab.planning.iteration.candidate import Candidate
from dtfm_lab.planning.iteration.fitting import Fitting
from dtfm_lab.planning.iteration.judging import plan_of
from dtfm_lab.planning.iteration.problem import IterationProblem
from dtfm_lab.planning.iteration.tables_of import Aim
from dtfm_lab.planning.jit_warmup import start_once, while_compiling
from dtfm_lab.simulation.simulate import iteration_seconds

QUICK_S = 0.4
"""Seconds to wait for kernels from the cache before a plan is made without them."""


def wait_for_kernels(problem: IterationProblem, fitting: Fitting, aim: Aim) -> Generator[Candidate, None, float]:
    """Nothing where the kernels are ready; else a first plan, again and again, as incomplete candidates.

    Each has the seconds waited in ``compiling_s``; all of them are returned. Time limits do not count them, since a
    machine compiles only once.
    """
    began = time.perf_counter()
    quick = start_once(_compile, _compile).wait(QUICK_S)
    first = None if quick or fitting.grid is None or aim.limited else _first(problem, fitting, aim)
    for _waited_s in while_compiling(_compile, _compile):
        if first is not None:
            yield replace(first, compiling_s=time.perf_counter() - began)
    return time.perf_counter() - began


def _compile() -> None:
    """Call every kernel once, on a small problem, with arguments of the final types."""
    from dtfm_lab.planning.iteration.bounds import iteration_bound_steps
    from dtfm_lab.planning.kernels.random_numbers import seeded

    links = 1.0 - np.eye(4)
    topology = Topology(tuple(Device(name=f"device {i}") for i in range(4)), links, links + np.eye(4))
    job = Job(model=TINY, n_stages=2, n_replicas=2, global_batch=8, microbatch=1, checkpointing="none")
    problem = IterationProblem.of(topology, job)
    (arm,) = Arms(problem, Aim())
    found = arm.assessed(np.arange(4), np.array([4, 4]), 1.0)
    random = seeded(np.random.default_rng(0))
    arm.annealed(arm.annealed(found, 0.1, 0.01, 2, random, exact=False), 0.1, 0.01, 2, random, exact=True)
    for _bound_s in iteration_bound_steps(problem, found.value):
        pass


def _first(problem: IterationProblem, fitting: Fitting, aim: Aim) -> Candidate:
    assert fitting.grid is not None
    assert fitting.blocks is not None
    n_stages, n_replicas = fitting.grid.shape
    each, spare = divmod(problem.job.global_batch // fitting.microbatch, n_replicas)
    schedule = problem.job.schedule or "adaptive-1f1b"
    given = problem.job.microbatches_per_replica
    candidate = Candidate(
        grid=fitting.grid,
        blocks=fitting.blocks,
        shares=np.array(given or [each + (r < spare) for r in range(n_replicas)], dtype=np.int64),
        warmups=None if schedule != "adaptive-1f1b" else np.array(problem.job.warmups or [0] * n_stages),
        schedule=schedule,
        microbatch=fitting.microbatch,
        checkpointing=fitting.problem.job.checkpoints,
        value=0.0,
        iteration_s=0.0,
        evaluations=1,
        operator="fits",
        complete=False,
    )
    plan = plan_of(fitting.problem, candidate)
    seconds = iteration_seconds(plan, queueing=problem.queueing, efficiency=problem.efficiency)
    dollars = seconds * float(problem.price_per_hour[fitting.grid].sum()) / 3600
    return replace(candidate, iteration_s=seconds, value=dollars if aim.dollars else seconds)
