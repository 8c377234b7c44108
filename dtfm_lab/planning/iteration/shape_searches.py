"""Shapes that a job may have, and the search of each, with its best plan so far and its annealing.

A shape is a number of stages and of replicas. ``shapes_of`` lists them, ``tables_of`` makes the tables that the
compiled kernels read, ``ShapeSearch`` anneals the plans of one shape, and ``ShapeSearches`` holds all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import scipy

from dtfm_lab.costs.memory import sharded_over, static_bytes
from dtfm_lab.costs.seconds import SHARDED, way_of
from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.job import (
    Job,
    even_shares,
)
from dtfm_lab.domain.schedule.program import MOST_STEPS
from dtfm_lab.domain.units import FloatArray, IntArray, counted
from dtfm_lab.planning.background_tasks import flag
from dtfm_lab.planning.iteration.problem import (
    MOST_PASSES_CHOSEN,
    IterationProblem,
    Kinds,
    PassTable,
    SearchTarget,
    open_microbatches,
    pass_table,
)
from dtfm_lab.simulation.schedules.builtin import MOST_PASSES

if TYPE_CHECKING:
    from dtfm_lab.planning.iteration.kernels.annealing import FixedFields
    from dtfm_lab.planning.iteration.kernels.state import SearchState
    from dtfm_lab.planning.iteration.kernels.tables import Tables


# ---------------------------------------------------------------------------------------------------------------------
# Which shapes a job, its model and the devices allow.


MOST_SHAPES = 320
"""Maximum number of shapes that are tried from the start, with the smallest micro-batch (see ``OTHER_SHAPES``). If
there are more, only numbers of replicas on a geometric scale are kept."""


def shapes_of(problem: IterationProblem, microbatch: int, most_shapes: int = MOST_SHAPES) -> list[tuple[int, int]]:
    """Return shapes (S, R), fewest stages first. Empty if the job's pins and this micro-batch size allow none."""
    job, n = problem.job, problem.n_devices
    stages = range(1, min(problem.most_stages, n) + 1) if job.n_stages is None else [job.n_stages]
    pinned = None if job.n_replicas is None else [job.n_replicas]
    found = [(s, r) for s in stages for r in pinned or range(1, n // s + 1) if allows(problem, (s, r), microbatch)]
    if len(found) <= most_shapes:
        return found
    ratio = 1.05
    # coarser step by step, because the number of shapes that a scale leaves is not known before
    while len(thinned := [shape for shape in found if _on_scale(shape[1], n // shape[0], ratio)]) > most_shapes:
        ratio *= 1.05
    return thinned


def allows(problem: IterationProblem, shape: tuple[int, int], microbatch: int) -> bool:
    """Return True if the job, the model and the devices allow a shape with micro-batches of this size."""
    job, (s, r) = problem.job, shape
    n_microbatches = job.global_batch // microbatch
    if (job.n_stages or s, job.n_replicas or r) != shape:
        return False
    # replicas that gather parameters during passes must all process the same number of micro-batches
    divides = not (job.gathers_passes and n_microbatches % r)
    fits = s <= problem.most_stages and s * r <= problem.n_devices and r <= n_microbatches and divides
    return fits and _may_be_played(job, shape, n_microbatches)


def _may_be_played(job: Job, shape: tuple[int, int], n_microbatches: int) -> bool:
    """Return True if the simulator accepts this number of micro-batches or, if their size is open, plays them in
    seconds."""
    s, r = shape
    if job.microbatch is None:
        return s * n_microbatches <= MOST_PASSES_CHOSEN
    n_actions = (2 if s == 1 else 6) * s * n_microbatches  # each pass sends and receives a message
    return s * -(-n_microbatches // r) <= MOST_PASSES and n_actions <= MOST_STEPS


def _on_scale(r: int, most: int, ratio: float) -> bool:
    """Return True if a number of replicas is one of most, most / ratio, most / ratio^2, ..., rounded down. Each is at
    least 1 less than the one before."""
    allowed = float(most)
    while allowed > r:
        # at least one less each time: small numbers divided by the ratio would stay the same
        allowed = min(allowed / ratio, allowed - 1)
    return int(allowed) == r


def require_shapes(problem: IterationProblem) -> None:
    """Raise PlanError if no shape is left: too few devices, blocks or micro-batches for what the job pins."""
    if any(shapes_of(problem, microbatch) for microbatch in problem.microbatches):
        return
    job, n = problem.job, problem.n_devices
    n_microbatches = job.global_batch // problem.microbatches[0]
    if not _may_be_played(job, (job.n_stages or 1, job.n_replicas or n), n_microbatches):
        larger = open_microbatches(job.with_fields(microbatch=None))[0]
        such = f", such as with a micro-batch of {larger}" if larger > problem.microbatches[0] else ""
        raise PlanError(
            f"job {job.name}: {n_microbatches:,} micro-batches of {problem.microbatches[0]} are too many to simulate; "
            f"wanted fewer{such}, or a smaller batch"
        )
    wanted = f"{job.n_stages or 'any'} stages x {job.n_replicas or 'any'} replicas"
    raise PlanError(
        f"job {job.name}: {wanted} fit no plan on {counted(n, 'device')} of {problem.topology.name}, with "
        f"{problem.n_blocks} blocks and {counted(n_microbatches, 'micro-batch')}; wanted fewer"
    )


@dataclass(frozen=True, eq=False)
class FittingPlan:
    """A plan that fits memory. Without a ``grid``, no placement was constructed, so it is not certain that a plan of
    ``problem`` fits."""

    problem: IterationProblem
    """The IterationProblem in which the job uses this plan's kind of checkpointing."""
    others: tuple[IterationProblem, ...]
    """The problems with other kinds of checkpointing that may fit, too."""
    microbatch: int
    grid: IntArray | None = None
    """(S, R) devices; None if no placement was constructed."""
    blocks: IntArray | None = None


def chosen_job(
    job: Job,
    blocks: IntArray,
    microbatch_counts: IntArray,
    warmups: IntArray | None,
    microbatch: int,
    checkpointing: str,
) -> Job:
    """Return the job with a plan's (S,) blocks per stage, (R,) micro-batches per pipeline and (S,) warm-up forwards.

    The schedule becomes ``adaptive-1f1b`` if the job leaves it open. Only that schedule takes the warm-ups.
    """
    schedule = job.schedule or "adaptive-1f1b"
    return job.with_fields(
        n_stages=len(blocks),
        n_replicas=len(microbatch_counts),
        microbatch=microbatch,
        # `checkpointing` has no name for the recomputation of whole stages
        recompute=checkpointing == "stage",
        checkpointing=job.checkpointing or ("none" if checkpointing == "stage" else checkpointing),
        schedule=schedule,
        blocks_per_stage=tuple(blocks.tolist()),
        microbatches_per_replica=tuple(microbatch_counts.tolist()),
        warmups=tuple(warmups.tolist()) if warmups is not None and schedule == "adaptive-1f1b" else None,
    )


# ---------------------------------------------------------------------------------------------------------------------
# Nearness of devices, for annealing.


MOST_NEIGHBOURS = 32
MOST_ORDERED = 256
"""Up to this number of devices the order of the tree's branches is optimised. With more it takes too long."""
MOST_STAGES = 16
"""Maximum number of stages for which chains of clusters are tried (``starts.cluster_chains``)."""


class Nearness:
    """Which devices of a network are near each other: an order, clusters and neighbours."""

    def __init__(self, problem: IterationProblem) -> None:
        one_way_s = problem.passes(problem.microbatches[0]).hop_s[0] + problem.links.latency_s
        self.distance_s: FloatArray = one_way_s + one_way_s.T
        """(N, N) seconds of one micro-batch's message there and one back."""

    @cached_property
    def _tree(self) -> FloatArray:
        pairs = scipy.spatial.distance.squareform(self.distance_s, checks=False)
        ordered = len(self.distance_s) <= MOST_ORDERED
        return np.array(scipy.cluster.hierarchy.linkage(pairs, method="average", optimal_ordering=ordered))

    @cached_property
    def order(self) -> IntArray:
        """(N,) devices in the order of a tree that joins the nearest first."""
        n = len(self.distance_s)
        return np.arange(n) if n < 3 else np.array(scipy.cluster.hierarchy.leaves_list(self._tree), dtype=np.int64)

    @cached_property
    def clusters(self) -> IntArray:
        """(N,) number of each device's cluster. The tree is cut where the distance at which clusters join grows by the
        largest factor."""
        n = len(self.distance_s)
        if n < 3:
            return np.arange(n)
        # equal devices are joined at distance 0, and a ratio of heights needs a divisor
        heights = np.maximum(self._tree[:, 2], 1e-12)
        at = int(np.argmax(heights[1:] / heights[:-1]))
        height = (heights[at] + heights[at + 1]) / 2
        return np.array(scipy.cluster.hierarchy.fcluster(self._tree, height, criterion="distance") - 1)

    @cached_property
    def neighbours(self) -> IntArray:
        """(N, K) the devices nearest to each device, the nearest first."""
        n = len(self.distance_s)
        away_s = self.distance_s.copy()
        np.fill_diagonal(away_s, np.inf)
        return np.argsort(away_s, axis=1, kind="stable")[:, : min(n - 1, MOST_NEIGHBOURS)].astype(np.int64)


# ---------------------------------------------------------------------------------------------------------------------
# What the kernels read: the tables of a problem.


def tables_of(
    problem: IterationProblem, microbatch: int, target: SearchTarget, near: Nearness | None, n_replicas: int = 1
) -> Tables:
    """Return the kernels' tables for one micro-batch size and one objective.

    ``n_replicas`` matters only with sharding. ``near`` is needed for annealing, not for the price of a plan. Imports
    numba.
    """
    from dtfm_lab.planning.iteration.kernels.tables import Tables

    job, links, passes = problem.job, problem.links, problem.passes(microbatch)
    if (parts := sharded_over(job.sharding, n_replicas).parameters) > 1:
        # static_bytes already counts shards of trained parameters, so only frozen weights are left to divide
        split = np.array([1.0, 1.0, 1.0, parts])
        passes = passes._replace(layer=passes.layer / split[:, None], extra=passes.extra / split)
    with np.errstate(divide="ignore"):
        s_per_byte = 1.0 / links.bandwidth_bytes_per_s
    np.fill_diagonal(s_per_byte, 0.0)
    measured = links.message_bytes is not None and links.charged_bytes is not None
    kinds = Kinds.of(problem.topology.devices)
    seconds = _pass_seconds(problem, microbatch, n_replicas, kinds)
    # the kernels do not know gathered layers, so what these need is taken off the memory
    memory_bytes = problem.memory_bytes - problem.gathered_bytes(n_replicas)
    price_per_s = problem.price_per_hour / 3600.0
    regions: dict[str, int] = {}
    # a device without a region gets its own; the space keeps its key apart from real names
    region = [regions.setdefault(d.region or f" {i}", len(regions)) for i, d in enumerate(problem.topology.devices)]
    clusters = np.zeros(problem.n_devices) if near is None else near.clusters
    hosts = np.arange(problem.n_devices) if links.nic_of is None else links.nic_of
    of_devices = memory_bytes, price_per_s, region, problem.alike
    return Tables(
        link=np.stack([links.latency_s, s_per_byte, *passes.hop_s]),
        # SPEED is 1 for all, because the pass tables already differ by kind of device
        device=np.stack([np.ones(problem.n_devices), *of_devices, clusters, kinds.of_device, hosts]),
        near=np.zeros((len(clusters), 1), dtype=np.int64) if near is None else near.neighbours,
        passes=passes,
        message_bytes=np.array(links.message_bytes) if measured else np.empty(0),
        charged_bytes=np.array(links.charged_bytes) if measured else np.empty((1, 1, 0)),
        slowdowns=np.empty(0) if links.slowdowns is None else links.slowdowns,
        tied_parameters=float(problem.tied_parameters),
        **seconds._asdict(),
        gradient=job.gradient_coding,
        returned=job.average_coding,
        splits_states=job.splits_states,
        static_bytes=static_bytes(job, n_replicas),
        codes_gradients=bool(problem.codes_gradients),
        codec_bytes_per_s=float(job.codec_bytes_per_s),
        synchronisation=_synchronisation(job),
        synchronise_every=int(job.averages_every),
        nics=problem.nics,
        objective=int(target.dollars),
        most_dollars_per_s=float(target.max_price_per_hour) / 3600.0,
        most_s=float(target.max_iteration_s),
    )


def _pass_seconds(problem: IterationProblem, microbatch: int, n_replicas: int, kinds: Kinds) -> PassTable:
    """Return the seconds of passes on each kind of device. With zero-2 and zero-3, one factor per kind makes all passes
    longer, to cover the messages that replicas exchange in them."""
    devices = [problem.topology.devices[i] for i in kinds.first]
    found = pass_table(problem.job.with_fields(microbatch=microbatch), devices, problem.efficiency)
    if not problem.job.gathers_passes or n_replicas == 1:
        return found
    alone, gathering = (problem.estimated_flop_per_s(microbatch, n)[kinds.first] for n in (1, n_replicas))
    longer = (alone / gathering)[:, None]
    return found._replace(
        forward_s=found.forward_s * longer, backward_s=found.backward_s * longer, ends_s=found.ends_s * longer[:, 0]
    )


def _synchronisation(job: Job) -> int:
    way = way_of(job)
    return SHARDED if way is None else way


# ---------------------------------------------------------------------------------------------------------------------
# One shape under search: its best plan so far, and the annealing that improves it.


RandomState = npt.NDArray[np.uint64]
NO_RANDOM: RandomState = np.zeros(1, dtype=np.uint64)
"""Random state for annealing without moves."""
STAGE_ROWS = 10
"""Number of rows of ``SearchState.stage``."""
BOUNDLESS_BYTES = 2.0**60


@dataclass(frozen=True, eq=False)
class KernelPlan:
    """A plan of one shape as the kernels return it."""

    row: IntArray
    """(N,) the flattened grid, followed by the idle devices."""
    blocks: IntArray
    """(S,) blocks of each stage."""
    microbatch_counts: IntArray
    """(R,) micro-batches of each pipeline."""
    warmups: IntArray
    """(S,) forwards that each stage runs before it alternates forwards and backwards."""
    value: float
    """The objective: an estimate or, once ``judged``, exact."""
    lacks: float
    """How far the plan exceeds device memory and limits; 0 if it is valid. This is a sum of relative excesses (0.1 is
    10 % over one limit)."""
    judged: bool = False
    """True if the value comes from the replay or the simulator."""
    operator: str = ""
    """Name of the placement that the plan began from, or of the operation that made it."""

    @property
    def price(self) -> float:
        """The objective, raised if the plan exceeds memory or limits, so that plans that are not valid yet can be
        compared."""
        return self.value * (1 + 10 * self.lacks)


def new_state(n_stages: int, n_replicas: int, n_devices: int) -> SearchState:
    """Return a state of this shape with all values still to be set."""
    from dtfm_lab.planning.iteration.kernels.state import SearchState

    n, r = n_stages, n_replicas
    wholes, reals = np.zeros(n_devices + 2 * n + r, dtype=np.int64), np.zeros(STAGE_ROWS * n + 5 * r + 3 * n * r)
    row, blocks, microbatch_counts, warmups = np.split(wholes, np.cumsum([n_devices, n, r]))
    stage, pipe, cell = np.split(reals, np.cumsum([STAGE_ROWS * n, 5 * r]))
    return SearchState(
        wholes=wholes,
        reals=reals,
        row=row,
        grid=row[: n * r].reshape(n, r),
        blocks=blocks,
        microbatch_counts=microbatch_counts,
        warmups=warmups,
        stage=stage.reshape(STAGE_ROWS, n),
        pipe=pipe.reshape(5, r),
        cell=cell.reshape(3, r, n),
        scratch=np.zeros((9, n)),
        shared_out=np.zeros((3, r)),
    )


class ShapeSearch:
    """A shape with one micro-batch size, and the plans found for it."""

    def __init__(self, tables: Tables, shape: tuple[int, int], microbatch: int, job: Job) -> None:
        self.tables, self.shape, self.microbatch, self.checkpointing = tables, shape, microbatch, job.checkpoints
        self.fixed_fields = _fixed_fields(job)
        self.best: KernelPlan | None = None
        self.rows: list[tuple[bool, KernelPlan]] = []
        """Structured placements to begin with, each with True if its order of devices (by speed or nearness) fills the
        grid stage by stage, and False if pipeline by pipeline."""
        self.unused: list[tuple[bool, KernelPlan]] = []
        """Structured placements that no annealing has begun with yet."""
        self.underestimated = 1.0
        """Simulated objective of the last plan divided by its estimate, at least 1. A plan is not simulated if its
        estimate times this is no better than the best plan."""
        self.slices = 0
        """Number of annealings so far."""
        self.work = 0.0
        """Total length of all annealings, in nominal lengths."""
        self._first_warmups, self._given_counts = _first_warmups(job, shape[0]), job.microbatches_per_replica
        self._states: list[SearchState] = []

    @property
    def states(self) -> list[SearchState]:
        """Three states of this shape, ``trial``, ``now`` and ``best`` of ``anneal``, made when first used."""
        if not self._states:
            self._states = [new_state(*self.shape, self.tables.device.shape[1]) for _ in range(3)]
        return self._states

    def even_counts(self) -> IntArray:
        """Return (R,) micro-batches of each pipeline: as the job gives them, or as even as possible."""
        microbatch_counts = self._given_counts or even_shares(self.tables.passes.n_microbatches, self.shape[1])
        return np.array(microbatch_counts, dtype=np.int64)

    def assessed(
        self,
        row: IntArray,
        blocks: IntArray,
        factor: float,
        *,
        microbatch_counts: IntArray | None = None,
        warmups: IntArray | None = None,
        exact: bool = False,
        tables: Tables | None = None,
    ) -> KernelPlan:
        """Return a plan, priced by the replay if ``exact``, else by the estimate. ``tables`` replace the tables of this
        search.

        ``factor`` sets the warm-ups, as a multiple of those that a steady pipeline needs (``kernels.state.warm_up``).
        With 0 they stay as they are.
        """
        microbatch_counts = self.even_counts() if microbatch_counts is None else microbatch_counts
        begin = KernelPlan(
            row, blocks, microbatch_counts, self._first_warmups if warmups is None else warmups, np.inf, np.inf
        )
        return self.annealed(begin, 1.0, 1.0, 0, NO_RANDOM, exact=exact, factor=factor, tables=tables)

    def annealed(
        self,
        found: KernelPlan,
        hot: float,
        cold: float,
        n_moves: int,
        random: RandomState,
        *,
        exact: bool,
        factor: float = 0.0,
        tables: Tables | None = None,
    ) -> KernelPlan:
        """Return the best plan that annealing from ``found`` finds. The arguments are those of
        ``kernels.annealing.anneal``."""
        from dtfm_lab.planning.iteration.kernels.annealing import anneal

        trial, now, best = self.states
        trial.row[:], trial.blocks[:] = found.row, found.blocks
        trial.microbatch_counts[:], trial.warmups[:] = found.microbatch_counts, found.warmups
        settings = exact, factor, hot, cold, n_moves
        tables = self.tables if tables is None else tables
        value, lacks = anneal(tables, trial, now, best, self.fixed_fields, *settings, random, flag())
        # copies, because the next annealing overwrites the states
        row, blocks, microbatch_counts, warmups = (
            each.copy() for each in (best.row, best.blocks, best.microbatch_counts, best.warmups)
        )
        return KernelPlan(row, blocks, microbatch_counts, warmups, float(value), float(lacks))

    def replayed(self, found: KernelPlan, tables: Tables | None = None) -> KernelPlan:
        """Return the same plan with the value and the missing memory that the replay computes."""
        return self.annealed(found, 1.0, 1.0, 0, NO_RANDOM, exact=True, tables=tables)

    def seconds(self, found: KernelPlan) -> float:
        """Return the seconds of an iteration by the replay, whatever the objective is."""
        return self.replayed(found, self.tables._replace(objective=0)).value

    def of_boundless_memory(self, row: IntArray, blocks: IntArray, factor: float) -> float:
        """Return the estimated objective of a plan if memory were unlimited. ``factor`` is as for ``assessed``."""
        from dtfm_lab.planning.iteration.kernels.tables import MEMORY

        device = self.tables.device.copy()
        device[MEMORY] = BOUNDLESS_BYTES
        return self.assessed(row, blocks, factor, tables=self.tables._replace(device=device)).value

    def spare(self, n_bytes: int) -> None:
        """Take ``n_bytes`` off every device's memory from now on, and price the best plan again. Repeat both until that
        plan no longer fits.

        This leaves room for waiting messages, which neither the estimate nor the replay counts.
        """
        from dtfm_lab.planning.iteration.kernels.tables import MEMORY

        assert self.best is not None
        found = self.best
        # the replay counts a little more than is held, so once may not suffice to tell it that this plan lacks memory
        while self.best.lacks == 0:
            device = self.tables.device.copy()
            device[MEMORY] = np.maximum(device[MEMORY] - n_bytes, 1.0)
            self.tables = self.tables._replace(device=device)
            self.best = replace(self.replayed(found), judged=True, operator=found.operator)

    def keep(self, found: KernelPlan) -> bool:
        """Keep a plan if it is the best of this shape, and return True if so. A valid plan beats every
        plan that is not valid."""
        best = self.best
        if best is not None and (found.lacks > 0, found.price) >= (best.lacks > 0, best.price):
            return False
        self.best = found
        return True

    def grid(self, found: KernelPlan) -> IntArray:
        """Return (S, R) devices of a plan of this shape."""
        s, r = self.shape
        return found.row[: s * r].reshape(s, r).copy()

    def job(self, found: KernelPlan, job: Job) -> Job:
        """Return the job with everything that a plan of this shape chose."""
        return chosen_job(
            job, found.blocks, found.microbatch_counts, found.warmups, self.microbatch, self.checkpointing
        )


def _fixed_fields(job: Job) -> FixedFields:
    from dtfm_lab.planning.iteration.kernels.annealing import FixedFields

    return FixedFields(
        # replicas that gather parameters in their passes process equally many micro-batches
        fixed_counts=job.microbatches_per_replica is not None or job.gathers_passes,
        fixed_blocks=job.blocks_per_stage is not None,
        fixed_warmups=job.schedule not in (None, "adaptive-1f1b") or job.warmups is not None,
    )


def _first_warmups(job: Job, n_stages: int) -> IntArray:
    """Return (S,) warm-ups of a plan that names none: GPipe's, the job's, or 1F1B's."""
    if job.schedule == "gpipe":
        return np.full(n_stages, min(job.flush_every or job.global_batch, job.global_batch), dtype=np.int64)
    # as in 1F1B: a stage runs ahead by as many forwards as stages follow it
    return np.arange(n_stages)[::-1].copy() if job.warmups is None else np.array(job.warmups, dtype=np.int64)


# ---------------------------------------------------------------------------------------------------------------------
# All shapes of a problem.


OTHER_SHAPES = 60
"""Maximum number of shapes that are tried from the start, for every micro-batch size but the smallest."""
APART = 2
"""Minimum ratio of two micro-batch sizes that a search begins with. Sizes between them follow, for the best shape."""


class ShapeSearches:
    """The searches of all shapes of a problem, by shape, micro-batch size and kind of checkpointing.

    The constructor begins the searches with the problem's own checkpointing. Searches of ``others``, the problems with
    other kinds, are begun later. With ``begun=False``, all searches are begun later.
    """

    def __init__(
        self,
        problem: IterationProblem,
        target: SearchTarget,
        others: Sequence[IterationProblem] = (),
        *,
        begun: bool = True,
    ) -> None:
        self.nearness = Nearness(problem)
        self._problems = {one.job.checkpoints: one for one in (problem, *others)}
        self._target = target
        self._searches: dict[tuple[int, int, int, str], ShapeSearch] = {}
        self._tables: dict[tuple[int, int, str], Tables] = {}
        for i, microbatch in enumerate(_apart(problem.microbatches) if begun else ()):
            for shape in shapes_of(problem, microbatch, MOST_SHAPES if i == 0 else OTHER_SHAPES):
                self.begin(shape, microbatch, problem.job.checkpoints)

    def begin(self, shape: tuple[int, int], microbatch: int, checkpointing: str) -> ShapeSearch:
        """Return the search of a shape with a micro-batch size and a checkpointing that the job allows. Creates it if
        missing."""
        problem, key = self._problems[checkpointing], (*shape, microbatch, checkpointing)
        job = problem.job
        if key not in self._searches:
            # only replicas that split what they hold need tables for each number of replicas
            replicas = 1 if job.sharding == "none" else shape[1]
            of = microbatch, replicas, checkpointing
            if of not in self._tables:
                self._tables[of] = tables_of(problem, microbatch, self._target, self.nearness, replicas)
            self._searches[key] = ShapeSearch(self._tables[of], shape, microbatch, job)
        return self._searches[key]

    def beside(self, shape_search: ShapeSearch) -> list[ShapeSearch]:
        """Begin and return searches of the same shape with other micro-batch sizes. These are the sizes between half
        and twice the present one that have no search yet."""
        problem, shape, how = self._problems[shape_search.checkpointing], shape_search.shape, shape_search.checkpointing
        near = [
            m for m in problem.microbatches if shape_search.microbatch / APART < m < shape_search.microbatch * APART
        ]
        new = [m for m in near if (*shape, m, how) not in self._searches and allows(problem, shape, m)]
        return [self.begin(shape, m, how) for m in new]

    def __iter__(self) -> Iterator[ShapeSearch]:
        return iter(self._searches.values())

    def of(self, grid: IntArray, microbatch: int, checkpointing: str) -> ShapeSearch | None:
        """Return the search of a grid's shape, begun if missing; None if the job does not allow it."""
        (n_stages, n_replicas), problem = grid.shape, self._problems.get(checkpointing)
        if problem is None or microbatch not in problem.microbatches:
            return None
        return next(iter(self._like([(n_stages, n_replicas)], microbatch, checkpointing)), None)

    def next_to(self, shape_search: ShapeSearch) -> list[ShapeSearch]:
        """Return searches of the shapes next to this one: one stage or one pipeline more or less.

        For this number of stages, one more and one less, also the shapes with the maximum number of pipelines, and with
        one pipeline less than that.
        """
        (s, r), n = shape_search.shape, self._problems[shape_search.checkpointing].n_devices
        shapes = [(s, r - 1), (s, r + 1), (s + 1, r), (s - 1, r)]
        shapes += [(t, n // t - i) for i in (0, 1) for t in (s, s + 1, s - 1) if t > 0]
        return [
            one
            for one in self._like(shapes, shape_search.microbatch, shape_search.checkpointing)
            if one is not shape_search
        ]

    def of_clusters(self, shape_search: ShapeSearch) -> list[ShapeSearch]:
        """Return searches of shapes with two or more stages and the most common cluster size as number of replicas.
        Empty if that size is 1."""
        n_replicas = int(np.bincount(np.bincount(self.nearness.clusters)).argmax())
        shapes = [(s, n_replicas) for s in range(2, MOST_STAGES + 1) if n_replicas > 1]
        return self._like(shapes, shape_search.microbatch, shape_search.checkpointing)

    def _like(self, shapes: list[tuple[int, int]], microbatch: int, how: str) -> list[ShapeSearch]:
        """Return searches of the shapes that the job allows, with a micro-batch size and a checkpointing."""
        possible = [shape for shape in dict.fromkeys(shapes) if min(shape) > 0]
        return [self.begin(one, microbatch, how) for one in possible if allows(self._problems[how], one, microbatch)]

    def neighbour_of(self, shape_search: ShapeSearch, rng: np.random.Generator) -> ShapeSearch | None:
        """Return a search of nearly the same shape that has a plan: with equal chances the best one or a random one.
        None without such a search."""
        s, r = shape_search.shape
        found = [other for other in self if other is not shape_search and other.best is not None]
        near = [one for one in found if abs(one.shape[0] - s) <= 1 and abs(one.shape[1] - r) <= max(1, r // 4)]
        if not near:
            return None
        if rng.random() < 0.5:
            return min(near, key=lambda other: other.best.price if other.best else np.inf)
        return near[int(rng.integers(len(near)))]


def _apart(microbatches: tuple[int, ...]) -> list[int]:
    kept: list[int] = []
    for m in microbatches:
        if not kept or m >= APART * kept[-1]:
            kept.append(m)
    return kept
