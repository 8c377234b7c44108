"""Plans that a system considers, made only where one of them may be the fastest.

A ``Branch`` is plans of one grid that differ in flags alone, with a bound of their seconds. A ``SystemCandidate`` is
one, with a closed form of its pipelines, which takes a fraction of a millisecond where simulating thousands of
micro-batches takes half a second. The form is no bound: it says which candidates to try first, and what need not be
simulated is left out by a bound (``Strategy.least_s``), once a good plan was tried early.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dtfm_lab.domain.errors import LabError, PlanError
from dtfm_lab.domain.job import BACKWARD_PER_FORWARD, Job, device_gradient_bytes, repeated_flop
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import CostBreakdown, Placement, Plan
from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning import evaluate
from dtfm_lab.simulation.collectives import hop_gather_s, tensor_parallel_s
from dtfm_lab.simulation.efficiency import GivenEfficiency, speeds_of
from dtfm_lab.simulation.memory_intervals import activation_memory, static_memory, usable_bytes


@dataclass(frozen=True, eq=False)
class Branch:
    """A shaped job on some devices, in each of several ways to train it."""

    topology: Topology
    """Grouped where the job has tensor parallelism."""
    job: Job
    grid: IntArray
    """(stages, replicas) devices."""
    ways: Sequence[Mapping[str, Any]] = ({},)
    """Fields of the job, changed; none, once, where it is trained as it is."""
    least_s: float = 0.0
    """Seconds that no plan of it goes below."""

    def __len__(self) -> int:
        return len(self.ways)

    def plans(self) -> Iterator[Plan]:
        """Its plans, not priced: their communication cost is not counted (``priced``)."""
        for fields in self.ways:
            try:
                job = self.job.with_fields(**fields)
                yield _unpriced(self.topology, job, self.grid)
            except LabError:  # what the schedule or the sharding does not allow
                continue


def priced(plan: Plan) -> Plan:
    """The plan with its communication cost."""
    rank_map = plan.placement.rank_map(len(plan.topology))
    return evaluate(plan.topology, plan.job, rank_map=rank_map).changed(queueing=plan.queueing)


def _unpriced(topology: Topology, job: Job, grid: IntArray) -> Plan:
    n = len(grid)
    nothing = CostBreakdown(group_s=np.zeros(n), hop_s=np.zeros(n - 1), weights_s=np.zeros((n, n)))
    return Plan(topology=topology, job=job, placement=Placement(grid), cost=nothing, lower_bound_s=0.0, planner="given")


@dataclass(frozen=True, eq=False)
class SystemCandidate(Branch):
    """A job of a given shape on some devices, trained in one way."""

    @property
    def fits(self) -> bool:
        """Whether every device has the memory for what 1F1B holds at its peak, messages left out."""
        return self.lacking_bytes <= 0

    @cached_property
    def lacking_bytes(self) -> float:
        """What the device with the least room lacks for that; less than 0 where all have more."""
        job, n = self.job, self.job.n_stages
        static, activations = static_memory(job, n), activation_memory(job, n)
        in_flight = np.minimum(np.arange(n, 0, -1), job.n_microbatches)
        held = static.total + in_flight * activations.kept + activations.recomputed
        have = usable_bytes(job, self.topology.devices)[self.grid]
        return float((held[:, None] - have).max())

    def pass_s(self, efficiency: GivenEfficiency) -> FloatArray:
        """(stages, replicas) seconds of a micro-batch's forward and backward."""
        job = self.job
        flop = [
            sum((1 + BACKWARD_PER_FORWARD) * one.forward_flop + repeated_flop(job, one) for one in layers)
            for layers in job.stage_layers
        ]
        speed = np.array(speeds_of(job, self.topology.devices, efficiency))[self.grid]
        seconds: FloatArray = job.microbatch * np.array(flop)[:, None] / speed
        return seconds if job.tensor_parallel == 1 else seconds + self._inside_s[:, None]

    @property
    def _inside_s(self) -> FloatArray:
        """(stages,) seconds of a micro-batch's messages among the GPUs of each stage's first group."""
        groups = [self.topology.devices[int(row[0])] for row in self.grid]
        gathered = min(len(groups) - 1, 2)  # an activation from the stage before, a gradient from the one after
        return np.array(
            [
                sum(tensor_parallel_s(self.job, layers, group))
                + gathered * hop_gather_s(group, self.job.activation_bytes)
                for layers, group in zip(self.job.stage_layers, groups, strict=True)
            ]
        )

    @cached_property
    def hop_s(self) -> FloatArray:
        """(stages - 1, replicas) seconds of an activation to the next stage and of its gradient back."""
        return self._one_way_s(self.grid[:-1], self.grid[1:]) + self._one_way_s(self.grid[1:], self.grid[:-1])

    def pipeline_s(self, efficiency: GivenEfficiency) -> float:
        """Seconds of the slowest pipeline with 1F1B: what the first micro-batch takes, and of each further one what the
        slowest stage takes, or the way there and back shared by the micro-batches in flight.

        With sends that block, a stage takes its messages' time, too, as Sailor's planner counts it
        (``merge_stages_get_time`` in its planner_utils.cpp).
        """
        pass_s = self.pass_s(efficiency)
        n_stages = len(pass_s)
        hop_s = np.vstack([self.hop_s, np.zeros((1, pass_s.shape[1]))])
        through_s = np.cumsum((pass_s + hop_s)[::-1], axis=0)[::-1]  # from each stage to the end and back
        each_s = pass_s + hop_s if self.job.transport == "blocking" else pass_s
        each_s = np.maximum(each_s, through_s / np.arange(n_stages, 0, -1)[:, None])
        further = np.array(self.job.microbatch_counts) - 1
        return float((further * each_s.max(axis=0) + through_s[0]).max())

    @property
    def averaging_s(self) -> float:
        """Seconds in which the slowest stage's ring averages whole gradients."""
        n = self.grid.shape[1]
        after = np.roll(self.grid, -1, axis=1)
        return float(2 * (n - 1) * self._shard_s(self.grid, after).max()) if n > 1 else 0.0

    def iteration_s(self, efficiency: GivenEfficiency) -> float:
        """Pipelines and, over the iterations between two, averages."""
        return self.pipeline_s(efficiency) + self.averaging_s / self.job.synchronise_every

    def _shard_s(self, sender: IntArray, receiver: IntArray) -> FloatArray:
        """Seconds of a shard of each stage's gradient; devices of shape (stages, ...)."""
        n_stages, n_replicas = self.grid.shape
        shard = np.array(device_gradient_bytes(self.job, n_stages)) / n_replicas
        shard = shard.reshape(-1, *[1] * (sender.ndim - 1))
        seconds: FloatArray = shard / self.topology.bandwidth_bytes_per_s[sender, receiver]
        return self.topology.latency_s[sender, receiver] + seconds

    def _one_way_s(self, sender: IntArray, receiver: IntArray) -> FloatArray:
        topology = self.topology
        seconds: FloatArray = topology.latency_s[sender, receiver]
        return seconds + self.job.activation_bytes / topology.bandwidth_bytes_per_s[sender, receiver]


def promising(
    candidates: Iterable[SystemCandidate], efficiency: GivenEfficiency, most: int | None = None
) -> Iterator[SystemCandidate]:
    """The candidates that fit, those first that are fastest by the closed form; all, or so many.

    Where none fits, the one that lacks least, which tells why. Raises PlanError where the model and the batch allow
    none of their shapes.
    """
    known: list[tuple[float, int, SystemCandidate]] = []
    seen: set[tuple[Job, bytes]] = set()
    for candidate in candidates:
        if (key := (candidate.job, candidate.grid.tobytes())) in seen:
            continue
        seen.add(key)
        try:
            known.append((candidate.iteration_s(efficiency), len(known), candidate))
        except LabError:  # a shape that the model or the batch does not allow
            continue
    made = 0
    for _, _, candidate in sorted(known, key=lambda one: one[:2]):
        if made == most:
            return
        if candidate.fits:
            yield candidate
            made += 1
    if not known:
        raise PlanError("the model and the batch allow none of its shapes; wanted more blocks, or a larger batch")
    if not made:
        yield min((candidate for _, _, candidate in known), key=lambda one: one.lacking_bytes)
