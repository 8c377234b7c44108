"""Decide whether a job fits the devices' memory at all, with any kind of checkpointing that it leaves open.

Try one pipeline with as many stages as needed, and give each stage its best device. One pipeline averages nothing, and
with the fewest warm-up forwards each device holds least. So if no such plan fits, none does. With sharding, more
replicas are tried too, because each then holds less. An assignment problem gives each stage a device so that the total
number of blocks that fit is largest.

A plan's shape is limited by the model, the batch, the devices and the fields that the job names.
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
from dtfm_lab.planning.iteration.problem import (
    ENDS_OF_ROLE,
    MOST_PASSES_CHOSEN,
    IterationProblem,
    activation_bytes_of,
    roles_of,
    static_bytes_of,
)
from dtfm_lab.planning.iteration.shape_searches import FittingPlan, shapes_of
from dtfm_lab.planning.iteration.structured.estimates import evened_blocks
from dtfm_lab.planning.search import network_of

FREED: dict[str, dict[str, tuple[object, object]]] = {
    "checkpointing left open": {"checkpointing": (None, None), "recompute": (False, False)},
    "a micro-batch of 1": {"microbatch": (1, 1)},
    "any number of stages": {"n_stages": (None, None), "blocks_per_stage": (None, None)},
    "any number of replicas": {"n_replicas": (None, None), "microbatches_per_replica": (None, None)},
    "any order of passes": {"schedule": (None, "adaptive-1f1b"), "warmups": (None, None), "flush_every": (None, None)},
    "states split among replicas (sharding zero-3)": {"sharding": ("zero-3", "zero-3")},
}
"""What may make a job fit if nothing does: each piece of advice, and the fields of the job that it frees.

A field has two values: the one that frees it, and another that counts as free already.
"""


def fitting_plan(problem: IterationProblem) -> FittingPlan:
    """Return the first plan that fits. Small micro-batches are tried first, then few replicas, then few stages. It uses
    recomputation only if nothing else fits.

    A plan without a grid may fit, but no placement was constructed for it. Raises PlanError if nothing fits. The error
    says what is missing and what would fit.
    """
    job = problem.job
    if (found := _first_fitting(problem)) is not None:
        return found
    microbatch = problem.microbatches[0]
    if job.schedule == "gpipe" and job.n_replicas is None:
        # GPipe holds all micro-batches of a pipeline, so more pipelines with fewer micro-batches each may fit
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
    """Result of ``room_for``: whether a job fits a network, about how many bytes it needs, and how many all devices
    have."""

    fits: bool
    needs_bytes: float
    has_bytes: float


def room_for(topology: Topology, job: Job) -> Room:
    """Return whether any plan of a job fits a network, the bytes that the whole model needs on one device, and the
    bytes of all devices together.

    The needed bytes are for the tightest way to hold the model that the job allows. Raises PlanError for a job without
    a model.
    """
    problem = IterationProblem.of(*network_of(topology, job))
    needs = float(_least_bytes(problem)[problem.n_blocks, 3])
    has_shapes = any(shapes_of(problem, microbatch) for microbatch in problem.microbatches)
    return Room(has_shapes and _first_fitting(problem) is not None, needs, float(problem.memory_bytes.sum()))


def _least_bytes(problem: IterationProblem) -> FloatArray:
    """Return (L + 1, 4) ``_bytes`` of the smallest micro-batch without warm-ups, with the most replicas that are tried
    and the checkpointing that needs least."""
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
    """Return advice on how to make the job fit. It says which of the job's fields to free, or else asks for more memory
    or a smaller job."""
    job = problem.job
    freed = [what for what, of in FREED.items() if any(getattr(job, name) not in free for name, free in of.items())]
    tries = [{what} for what in freed] + ([set(freed)] if len(freed) > 1 else [])
    for chosen in tries:
        fields = {name: value for what in freed if what in chosen for name, (value, _) in FREED[what].items()}
        try:
            other = IterationProblem.of(problem.topology, job.with_fields(**fields), problem.links.queueing)
        except LabError:  # such as sharding together with local updates
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
    """Return numbers of replicas to try: the job's, or 1. With sharding, also the powers of two that the devices
    allow."""
    job = problem.job
    if job.n_replicas is not None:
        return [job.n_replicas]
    n_microbatches = job.global_batch // microbatch
    most = 1 if job.sharding == "none" else min(problem.n_devices // (job.n_stages or 1), n_microbatches)
    powers = [2**i for i in range(max(1, most).bit_length())]
    return [r for r in powers if not (job.gathers_passes and n_microbatches % r)]


def _fitting(problem: IterationProblem, microbatch: int, replicas: int) -> FittingPlan | None:
    job, n = problem.job, problem.n_devices
    stages = range(1, min(problem.most_stages, n // replicas) + 1) if job.n_stages is None else [job.n_stages]
    fit_by_depth: dict[int, FloatArray] = {}
    for n_stages in stages:
        most, roles = np.empty((n_stages, n)), roles_of(n_stages)
        for s in range(n_stages):
            depth = _least_ahead(problem, s, n_stages, microbatch)
            if depth not in fit_by_depth:
                needs = _bytes(problem, microbatch, depth, replicas)
                fit_by_depth[depth] = (needs[:, :, None] <= problem.memory_bytes).sum(axis=0) - 1.0
            most[s] = fit_by_depth[depth][roles[s]]
        given = job.blocks_per_stage
        if given is not None:
            most = np.where(most >= np.array(given)[:, None], most, -1.0)
        least = problem.least_blocks(n_stages)
        slots = np.repeat(most, replicas, axis=0)
        # a device that lacks memory for its fewest blocks costs more than any assignment gains
        value = np.where(slots >= np.repeat(least, replicas)[:, None], np.minimum(slots, problem.n_blocks), -1e6)
        at, devices = scipy.optimize.linear_sum_assignment(value, maximize=True)
        grid = np.empty((n_stages, replicas), dtype=np.int64)
        grid.flat[at] = devices
        room = most[np.arange(n_stages)[:, None], grid].min(axis=1)
        if (room < least).any():
            continue
        if given is not None:
            return FittingPlan(problem, (), microbatch, grid, np.array(given, dtype=np.int64))
        if room.sum() >= problem.n_blocks:
            return FittingPlan(problem, (), microbatch, grid, _filled(room, problem.n_blocks, least))
        if job.n_replicas is not None and replicas > 1 and value.max() > 0:
            return FittingPlan(problem, (), microbatch)  # may still fit: the assignment gave a stage unequal devices
    return None


def room_of(problem: IterationProblem, grid: IntArray, microbatch: int, *, waiting: bool = False) -> IntArray:
    """Return (S,) the maximum blocks of each stage of a grid that fit the memory of every device of the stage; -1 if
    not even 0 blocks fit.

    Each stage has at least the warm-up forwards of 1F1B. With ``waiting``, stages may wait for each other. Each then
    has only the fewest warm-up forwards that the job's schedule allows.
    """
    n_stages, n_replicas = grid.shape
    room = np.empty(n_stages, dtype=np.int64)
    for s, (devices, role) in enumerate(zip(grid, roles_of(n_stages), strict=True)):
        ahead = max(0 if waiting else n_stages - 1 - s, _least_ahead(problem, s, n_stages, microbatch))
        needs = _bytes(problem, microbatch, ahead, n_replicas)[:, role]
        room[s] = (needs <= problem.memory_bytes[devices].min()).sum() - 1
    return room


def _filled(room: FloatArray, n_blocks: int, least: IntArray) -> IntArray:
    """Return (S,) blocks, at least ``least`` and at most ``room`` per stage, as even as possible."""
    first = np.where(room < 1, least, 1)
    return evened_blocks(first + 1.0, np.ones(len(room)), n_blocks, first, room)


def _least_ahead(problem: IterationProblem, s: int, n_stages: int, microbatch: int) -> int:
    """Return the fewest warm-up forwards of stage ``s`` under the job's schedule."""
    job = problem.job
    if job.schedule == "gpipe":
        return min(job.global_batch // microbatch, job.flush_every or job.global_batch)
    if job.warmups is not None:
        return job.warmups[s]
    return 0 if job.schedule in (None, "adaptive-1f1b") else n_stages - 1 - s


def _bytes(problem: IterationProblem, microbatch: int, ahead: int, replicas: int) -> FloatArray:
    """Return (L + 1, 4) bytes of a device that holds 0 to L blocks, as the first, a middle, the last and the only
    stage.

    ``ahead`` is its number of warm-up forwards.
    """
    n_microbatches = problem.job.global_batch // microbatch
    return _held_bytes(problem, microbatch, min(ahead + 1, -(-n_microbatches // replicas)), replicas)


@lru_cache(maxsize=8192)  # structured placements of hundreds of shapes ask for each entry hundreds of times
def _held_bytes(problem: IterationProblem, microbatch: int, n_held: int, replicas: int) -> FloatArray:
    """Return ``_bytes``, (L + 1, 4), for a number of micro-batches in flight. Each entry is for the consecutive blocks
    that need least. The array is read-only."""
    passes = problem.passes(microbatch)
    needs = np.empty((problem.n_blocks + 1, 4))
    for role, (first, last) in enumerate(ENDS_OF_ROLE):
        blocks = _in_a_row(passes.layer, first=bool(first), last=bool(last))
        static = static_bytes_of(problem, passes, blocks, role, replicas)
        kept, again = activation_bytes_of(passes, blocks, role)
        held = static + n_held * kept + again + passes.hop_bytes[passes.least] * (2 - first - last)
        if first != last:
            held = np.maximum(held, static + problem.embedding_bytes)
        needs[:, role] = held.min(axis=0)
    needs.setflags(write=False)
    return needs


NEVER_BYTES = 1e30
"""More bytes than any device has. ``_in_a_row`` gives them to blocks beyond the end of the model."""


def _in_a_row(prefix: FloatArray, *, first: bool, last: bool) -> FloatArray:
    """Return (4, B, L + 1) sums over 0 to L consecutive blocks, from each of B blocks that the stage may begin with.

    Blocks beyond the end of the model count as more than any device has. B is 1 for a first, last or only stage, and if
    all blocks are alike.
    """
    alike = np.ptp(np.diff(prefix[1:]), axis=1).max(initial=0.0) == 0.0
    if first or alike:
        return prefix[:, None]
    if last:
        return prefix[:, None, -1:] - prefix[:, None, ::-1]
    begin, n = np.indices((prefix.shape[1],) * 2)
    end = begin + n
    inside = end < prefix.shape[1]
    return np.where(inside, prefix[:, np.where(inside, end, 0)] - prefix[:, begin], NEVER_BYTES)
