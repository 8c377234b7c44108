"""Whether a job fits the devices' memory at all, with any checkpointing that it leaves open.

That is tried with one pipeline, as many stages as it takes, the best device for each. With one pipeline nothing is
averaged, and with the fewest forwards ahead each device holds least, so where no such plan fits, none does. Where
replicas share what they hold, more of them are tried, too. Each stage gets a device so that the blocks that fit are
most in all: an assignment problem.

The shapes that a plan may have are those within the model, the batch, the devices and what the job names.
"""

from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import scipy

from dtfm_lab.domain.errors import LabError, PlanError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.units import FloatArray, IntArray, format_bytes
from dtfm_lab.planning.iteration.problem import MOST_PASSES_CHOSEN, IterationProblem
from dtfm_lab.planning.iteration.shape_searches import FittingPlan, shapes_of
from dtfm_lab.planning.search import network_of

FREED: dict[str, dict[str, tuple[object, object]]] = {
    "checkpointing left open": {"checkpointing": (None, None), "recompute": (False, False)},
    "a micro-batch of 1": {"microbatch": (1, 1)},
    "any number of stages": {"n_stages": (None, None), "blocks_per_stage": (None, None)},
    "any number of replicas": {"n_replicas": (None, None), "microbatches_per_replica": (None, None)},
    "any order of passes": {"schedule": (None, "adaptive-1f1b"), "warmups": (None, None), "flush_every": (None, None)},
    "states split among replicas (sharding zero-3)": {"sharding": ("zero-3", "zero-3")},
}
"""What a job may name and that may be freed where nothing fits: fields with the value that frees each, and one that is
as free."""


def fitting_plan(problem: IterationProblem) -> FittingPlan:
    """The plan of fewest stages that fits; activations are computed again only where nothing else does.

    Raises PlanError, naming what lacks and what would fit, where nothing fits.
    """
    job = problem.job
    if (found := _first_fitting(problem)) is not None:
        return found
    microbatch = problem.microbatches[0]
    if job.schedule == "gpipe" and job.n_replicas is None:
        # a pipeline of fewer micro-batches holds fewer, so more of them may fit
        *others, last = problem.parts
        return FittingPlan(last, tuple(others), microbatch)
    least = _least_bytes(problem)
    how = "however it checkpoints" if len(problem.parts) > 1 else f"with checkpointing {job.checkpoints}"
    whole = float(least[problem.n_blocks, 3]) if problem.n_blocks else 0.0
    has = float(problem.memory_bytes.sum())
    pinned = "" if job.n_stages is None else " in 1 stage" if job.n_stages == 1 else f" in {job.n_stages} stages"
    block = f"its smallest part needs {format_bytes(float(least[1, 1]))}, the largest device has"
    raise PlanError(
        f"job {job.name} fits no plan on {problem.topology.name}{pinned}: {_would_fit(problem)}; {how} it needs some "
        f"{format_bytes(whole)}, all devices have {format_bytes(has)}; {block} "
        f"{format_bytes(float(problem.memory_bytes.max()))}"
    )


class Room(NamedTuple):
    """Whether a job fits a network, some bytes that it needs at least, and what all devices have."""

    fits: bool
    needs_bytes: float
    has_bytes: float


def room_for(topology: Topology, job: Job) -> Room:
    """Whether any plan of a job fits a network, and the bytes of the whole model on one device, held as tightly as the
    job allows. Raises PlanError for a job without a model."""
    problem = IterationProblem.of(*network_of(topology, job))
    needs = float(_least_bytes(problem)[problem.n_blocks, 3])
    has_shapes = any(shapes_of(problem, microbatch) for microbatch in problem.microbatches)
    return Room(has_shapes and _first_fitting(problem) is not None, needs, float(problem.memory_bytes.sum()))


def _least_bytes(problem: IterationProblem) -> FloatArray:
    """(L + 1, 4) as ``_bytes``, of the smallest micro-batch with nothing ahead, by whichever checkpointing is least."""
    microbatch = problem.microbatches[0]
    replicas = max(_replicas(problem, microbatch))
    return np.asarray(np.minimum.reduce([_bytes(part, microbatch, 0, replicas) for part in problem.parts]))


def _first_fitting(problem: IterationProblem) -> FittingPlan | None:
    for i, part in enumerate(problem.parts):
        for microbatch in part.microbatches:
            for replicas in _replicas(part, microbatch):
                if (found := _fitting(part, microbatch, replicas)) is not None:
                    return replace(found, others=problem.parts[i + 1 :])
    return None


def _would_fit(problem: IterationProblem) -> str:
    """What would fit, of what the job names; or that a smaller job or more memory is wanted."""
    job = problem.job
    freed = [what for what, of in FREED.items() if any(getattr(job, name) not in free for name, free in of.items())]
    tries = [{what} for what in freed] + ([set(freed)] if len(freed) > 1 else [])
    for chosen in tries:
        fields = {name: value for what in freed if what in chosen for name, (value, _) in FREED[what].items()}
        try:
            other = IterationProblem.of(problem.topology, job.with_fields(**fields), problem.queueing)
        except LabError:  # such as sharding beside local updates
            continue
        if shapes_of(other, other.microbatches[0]) and (found := _first_fitting(other)) is not None:
            named = " and ".join(what for what in freed if what in chosen)
            return f"{named} would fit, with checkpointing {found.problem.job.checkpoints}"
    if problem.microbatches[0] == 1:
        return "wanted more memory, or a smaller model"
    if job.microbatch is None and job.global_batch > MOST_PASSES_CHOSEN:  # smaller ones would be too many
        return "wanted more memory, or a smaller model or batch"
    return "wanted more memory, or a smaller model or micro-batch"


def _replicas(problem: IterationProblem, microbatch: int) -> list[int]:
    """Numbers of pipelines to be tried: the job's, or one; doubled as far as devices go where they share memory."""
    job = problem.job
    if job.n_replicas is not None:
        return [job.n_replicas]
    n_microbatches = job.global_batch // microbatch
    most = 1 if job.sharding == "none" else min(problem.n_devices // (job.n_stages or 1), n_microbatches)
    powers = [2**i for i in range(max(1, most).bit_length())]
    return [r for r in powers if not (job.gathers_passes and n_microbatches % r)]


def _fitting(problem: IterationProblem, microbatch: int, replicas: int) -> FittingPlan | None:
    job, n = problem.job, problem.n_devices
    stages = range(1, min(problem.n_blocks, n // replicas) + 1) if job.n_stages is None else [job.n_stages]
    fit_by_depth: dict[int, FloatArray] = {}
    for n_stages in stages:
        most = np.empty((n_stages, n))
        for s in range(n_stages):
            depth = _least_ahead(problem, s, n_stages, microbatch)
            if depth not in fit_by_depth:
                needs = _bytes(problem, microbatch, depth, replicas)
                fit_by_depth[depth] = (needs[:, :, None] <= problem.memory_bytes).sum(axis=0) - 1.0
            role = 3 if n_stages == 1 else 0 if s == 0 else 2 if s == n_stages - 1 else 1
            most[s] = fit_by_depth[depth][role]
        given = job.blocks_per_stage
        if given is not None:
            most = np.where(most >= np.array(given)[:, None], most, 0.0)
        slots = np.repeat(most, replicas, axis=0)
        value = np.where(slots >= 1, np.minimum(slots, problem.n_blocks), -1e6)
        at, devices = scipy.optimize.linear_sum_assignment(value, maximize=True)
        grid = np.empty((n_stages, replicas), dtype=np.int64)
        grid.flat[at] = devices
        room = most[np.arange(n_stages)[:, None], grid].min(axis=1)
        if (room < 1).any():
            continue
        if given is not None:
            return FittingPlan(problem, (), microbatch, grid, np.array(given, dtype=np.int64))
        if room.sum() >= problem.n_blocks:
            return FittingPlan(problem, (), microbatch, grid, _filled(room, problem.n_blocks))
        if job.n_replicas is not None and replicas > 1 and value.max() > 0:
            return FittingPlan(problem, (), microbatch)  # perhaps: equal devices of a stage are not what was assigned
    return None


def room_of(problem: IterationProblem, grid: IntArray, microbatch: int, *, waiting: bool = False) -> IntArray:
    """(S,) blocks that fit every device of each stage of a grid, with as few forwards ahead as 1F1B needs; or, where
    stages may be left ``waiting`` for each other, as the job's schedule allows."""
    n_stages, n_replicas = grid.shape
    room = np.empty(n_stages, dtype=np.int64)
    for s, devices in enumerate(grid):
        role = 3 if n_stages == 1 else 0 if s == 0 else 2 if s == n_stages - 1 else 1
        ahead = max(0 if waiting else n_stages - 1 - s, _least_ahead(problem, s, n_stages, microbatch))
        needs = _bytes(problem, microbatch, ahead, n_replicas)[:, role]
        room[s] = (needs <= problem.memory_bytes[devices].min()).sum() - 1
    return room


def _filled(room: FloatArray, n_blocks: int) -> IntArray:
    """(S,) blocks, one or more and at most ``room`` each, as even as can be."""
    blocks = np.ones(len(room), dtype=np.int64)
    while blocks.sum() < n_blocks:
        blocks[int(np.argmin(np.where(blocks < room, blocks, n_blocks + 1)))] += 1
    return blocks


def _least_ahead(problem: IterationProblem, s: int, n_stages: int, microbatch: int) -> int:
    """Fewest forwards that a stage may run ahead under the job's schedule."""
    job = problem.job
    if job.schedule == "gpipe":
        return min(job.global_batch // microbatch, job.flush_every or job.global_batch)
    if job.warmups is not None:
        return job.warmups[s]
    return 0 if job.schedule in (None, "adaptive-1f1b") else n_stages - 1 - s


def _bytes(problem: IterationProblem, microbatch: int, ahead: int, replicas: int) -> FloatArray:
    """(L + 1, 4) bytes of a device that holds so many blocks, as first, middle, last and only stage."""
    n_microbatches = problem.job.global_batch // microbatch
    return _held_bytes(problem, microbatch, min(ahead + 1, -(-n_microbatches // replicas)), replicas)


@lru_cache(maxsize=8192)  # structured placements of hundreds of shapes ask for each of them hundreds of times
def _held_bytes(problem: IterationProblem, microbatch: int, n_held: int, replicas: int) -> FloatArray:
    """The same by the number of micro-batches under way, of those blocks in a row that need least. Read-only."""
    passes = problem.passes(microbatch)
    needs = np.empty((problem.n_blocks + 1, 4))
    for role, (first, last) in enumerate(((True, False), (False, False), (False, True), (True, True))):
        blocks = _in_a_row(passes.layer, first=first, last=last)
        _, parameters, kept, frozen = blocks + (np.array([first, last]) @ passes.extra)[:, None, None]
        parameters = parameters + problem.tied_parameters * (last and not first)
        static = problem.held_bytes(replicas, parameters, frozen)
        static = static + problem.gathered_bytes(replicas, first=first, last=last)
        left = np.minimum(passes.input_bytes[0 if first else passes.least], kept) if passes.recompute else kept
        again = kept - left + max(passes.again_bytes - last * passes.extra[1, 2], 0.0)
        held = static + n_held * left + again + passes.hop_bytes[passes.least] * ((not first) + (not last))
        if first != last:
            held = np.maximum(held, static + problem.embedding_bytes)
        needs[:, role] = held.min(axis=0)
    needs.setflags(write=False)
    return needs


NEVER_BYTES = 1e30


def _in_a_row(prefix: FloatArray, *, first: bool, last: bool) -> FloatArray:
    """(4, B, L + 1) sums over 0 to L blocks in a row, from each of B blocks on: those that a first, last, middle or
    only stage may begin with, and more than any device has where the model ends before. One where blocks are alike."""
    alike = np.ptp(np.diff(prefix[1:]), axis=1).max(initial=0.0) == 0.0
    if first or alike:
        return prefix[:, None]
    if last:
        return prefix[:, None, -1:] - prefix[:, None, ::-1]
    begin, n = np.indices((prefix.shape[1],) * 2)
    end = begin + n
    inside = end < prefix.shape[1]
    return np.where(inside, prefix[:, np.where(inside, end, 0)] - prefix[:, begin], NEVER_BYTES)
