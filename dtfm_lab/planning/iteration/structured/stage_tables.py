"""Seconds and bytes of stages on each kind of device of a network, as prefix sums over blocks.

A cluster has thousands of devices but few kinds of them. Whatever a stage takes on one kind is a difference of two
prefix sums, so thousands of plans are priced with a handful of array operations.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job, Layer, LayerKind, frozen_bytes
from dtfm_lab.domain.network import Device, Topology
from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.iteration.left_open import open_microbatches
from dtfm_lab.planning.iteration.pass_tables import Kinds, PassTable, pass_table
from dtfm_lab.planning.iteration.problem import IterationProblem
from dtfm_lab.simulation.efficiency import GivenEfficiency
from dtfm_lab.simulation.memory_intervals import message_bytes_of, sharded_over

CHECKPOINTINGS = (
    {"checkpointing": "none"},
    {"checkpointing": "selective"},
    {"checkpointing": "block"},
    {"checkpointing": "none", "recompute": True},
)
"""What is tried where the job leaves its checkpointing open; the least recomputation first."""
SHARDINGS = ("none", "zero-1", "zero-2", "zero-3")
MOST_MICROBATCH = 256
"""Largest micro-batch that is tried where it is open, in sequences: larger ones fit no device's memory."""
APART = 2
"""Two micro-batches differ by this factor at least."""
FIRST, MIDDLE, LAST, SOLE = range(4)


@dataclass(frozen=True, eq=False)
class HeldTable:
    """Bytes of a stage with k blocks, by its role: first, middle, last or only one. All (4, L + 1)."""

    kept_bytes: FloatArray
    """Of each micro-batch under way."""
    again_bytes: FloatArray
    """In addition during one backward."""


class StageTables:
    """All tables of one network of groups and one job, made when they are first asked for."""

    def __init__(self, topology: Topology, job: Job, queueing: str, efficiency: GivenEfficiency) -> None:
        self.topology, self.job, self.efficiency = topology, job, efficiency
        self._queueing = queueing
        of_device, self._first = Kinds.of(topology.devices)
        self.kind_of: IntArray = of_device
        """(N,) number of each device's kind."""
        self.kinds: list[Device] = [topology.devices[i] for i in self._first]
        self.microbatches = self._sizes()
        self.checkpointings = self._open_checkpointings()
        self._passes: dict[tuple[int, int], PassTable] = {}
        self._held: dict[tuple[int, int], HeldTable] = {}
        self._problems: dict[tuple[int, str], IterationProblem | None] = {}
        self._static: dict[tuple[str, int], FloatArray | None] = {}

    def _sizes(self) -> tuple[int, ...]:
        found: list[int] = []
        for size in open_microbatches(self.job):
            if not found or (size >= APART * found[-1] and size <= MOST_MICROBATCH):
                found.append(size)
        return tuple(found)

    def _open_checkpointings(self) -> list[Job]:
        job = self.job
        if job.checkpointing is not None or job.recompute:
            return [job]
        known = any(layer.selective_elements for layer in job.modelled().layers)
        return [
            job.with_fields(**how, warmups=job.warmups)
            for how in CHECKPOINTINGS
            if known or how["checkpointing"] != "selective"
        ]

    @cached_property
    def blocks(self) -> list[Layer]:
        return [layer for layer in self.job.modelled().layers if layer.kind is LayerKind.BLOCK]

    @cached_property
    def ends(self) -> list[list[Layer]]:
        """The embedding and the head, each in a list that is empty where the model has none."""
        layers = self.job.modelled().layers
        return [[x for x in layers if x.kind is kind][:1] for kind in (LayerKind.EMBEDDING, LayerKind.HEAD)]

    @property
    def n_blocks(self) -> int:
        return len(self.blocks)

    @cached_property
    def shardings(self) -> tuple[str, ...]:
        job = self.job
        if job.sharding is not None:
            return (job.sharding,)
        if job.synchronise_every > 1 or job.fragments > 1:
            return ("none",)
        return tuple(one for one in SHARDINGS if self.problem(0, one) is not None)

    def problem(self, checkpointing: int, sharding: str) -> IterationProblem | None:
        """The problem of one device of each kind; None where the job does not allow the sharding."""
        key = checkpointing, sharding
        if key not in self._problems:
            try:
                job = self.checkpointings[checkpointing].with_fields(sharding=sharding)
                kinds = self.topology.subset(self._first)
                self._problems[key] = IterationProblem.of(kinds, job, self._queueing, efficiency=self.efficiency)
            except LabError:  # such as shares that are not equal, with replicas that pass micro-batches together
                self._problems[key] = None
        return self._problems[key]

    def passes(self, microbatch: int, checkpointing: int) -> PassTable:
        """Seconds of the passes of a micro-batch."""
        key = microbatch, checkpointing
        if key not in self._passes:
            job = self.checkpointings[checkpointing].with_fields(microbatch=microbatch)
            self._passes[key] = pass_table(job, self.kinds, self.efficiency)
        return self._passes[key]

    def held(self, microbatch: int, checkpointing: int) -> HeldTable:
        """Bytes of activations, as ``fitting`` counts them for the blocks that need least."""
        key = microbatch, checkpointing
        if key not in self._held:
            problem = self.problem(checkpointing, self._any_sharding)
            assert problem is not None
            passes = problem.passes(microbatch)
            kept = np.array(
                [passes.layer[2] + first * passes.extra[0, 2] + last * passes.extra[1, 2] for first, last in ROLES]
            )
            left = kept
            if passes.recompute:
                least = [passes.input_bytes[0 if first else passes.least] for first, _ in ROLES]
                left = np.minimum(np.array(least)[:, None], kept)
            again = [max(passes.again_bytes - last * passes.extra[1, 2], 0.0) for _, last in ROLES]
            self._held[key] = HeldTable(left, kept - left + np.array(again)[:, None])
        return self._held[key]

    @property
    def _any_sharding(self) -> str:
        return self.job.sharding or "none"

    def static_bytes(self, sharding: str, n_replicas: int) -> FloatArray | None:
        """(4, L + 1) bytes of parameters, gradients and the optimiser's states; None where the job has none such."""
        key = sharding, n_replicas
        if key not in self._static:
            problem = self.problem(0, sharding)
            self._static[key] = None if problem is None else self._static_of(problem, n_replicas)
        return self._static[key]

    def _static_of(self, problem: IterationProblem, n_replicas: int) -> FloatArray:
        passes = problem.passes(problem.microbatches[0])
        each = problem.static_bytes(n_replicas)
        parts = sharded_over(problem.job.sharding, n_replicas).parameters
        rows = []
        for role, (first, last) in enumerate(ROLES):
            parameters = passes.layer[1] + first * passes.extra[0, 1] + last * passes.extra[1, 1]
            parameters = parameters + problem.tied_parameters * (role == LAST)
            frozen = passes.layer[3] + first * passes.extra[0, 3] + last * passes.extra[1, 3]
            gathered = problem.gathered_bytes(n_replicas, first=bool(first), last=bool(last))
            rows.append(parameters * each + frozen / parts + gathered)
        return np.array(rows)

    def parameters(self, ends: IntArray) -> FloatArray:
        """(S,) parameters of stages that end behind these blocks, the embedding, the head and a tied copy included."""
        problem = self.problem(0, self._any_sharding)
        assert problem is not None
        counts = np.diff(problem.block_parameters[np.concatenate([[0], ends])])
        counts[0] += problem.first_extra[1]
        counts[-1] += problem.last_extra[1] + (problem.tied_parameters if len(ends) > 1 else 0.0)
        return np.asarray(counts)

    def gradient_bytes(self, ends: IntArray) -> FloatArray:
        """(S,) bytes in messages of the gradients of the same stages, as compressed."""
        return np.array([self._any_problem.gradient_bytes(float(n)) for n in self.parameters(ends)])

    @property
    def element_bytes(self) -> int:
        return self._any_problem.bytes_per_element

    @property
    def _any_problem(self) -> IterationProblem:
        problem = self.problem(0, self._any_sharding)
        assert problem is not None
        return problem

    def message_bytes(self, sharding: str) -> list[tuple[float, float]]:
        """Bytes that replicas gather, and scatter, of the first block, the embedding and the head."""
        job = self.job.with_fields(sharding=sharding)
        layers = [self.blocks[:1], *self.ends]
        return [
            message_bytes_of(job, one[0].parameters, frozen_bytes(job, one[0])) if one else (0.0, 0.0) for one in layers
        ]

    @cached_property
    def memory_bytes(self) -> FloatArray:
        """(K,) bytes that each kind of device has for plans."""
        problem = self.problem(0, self._any_sharding)
        assert problem is not None
        return problem.memory_bytes


ROLES = ((1, 0), (0, 0), (0, 1), (1, 1))
"""Of a first, middle, last and only stage: whether it has the embedding, and the head."""
