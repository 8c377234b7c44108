"""Plans of one grid that differ in flags alone, with a bound of their seconds: made into plans only where one of them
may be the fastest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import BACKWARD_PER_FORWARD, BYTES_PER_ELEMENT, Job, device_gradient_bytes
from dtfm_lab.domain.job.messages import device_gradient_elements
from dtfm_lab.domain.network import Links, Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning import evaluate
from dtfm_lab.planning.iteration.candidate import unpriced_plan
from dtfm_lab.simulation.efficiency import GivenEfficiency, speeds_of
from dtfm_lab.systems.bound import Hops, behind, rounds_s


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
                yield unpriced_plan(self.topology, job, self.grid)
            except LabError:  # what the schedule or the sharding does not allow
                continue


def priced(plan: Plan) -> Plan:
    """The plan with its communication cost."""
    rank_map = plan.placement.rank_map(len(plan.topology))
    return evaluate(plan.topology, plan.job, rank_map=rank_map).changed(queueing=plan.queueing)


B = TypeVar("B", bound=Branch)


def distinct(found: Iterable[B]) -> Iterator[B]:
    """Each job on each grid once, where it is met first."""
    seen: set[tuple[Job, bytes]] = set()
    for one in found:
        if (key := (one.job, one.grid.tobytes())) not in seen:
            seen.add(key)
            yield one


Ways = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, eq=False)
class GridBound:
    """The bound of grids on one network, with 1F1B."""

    topology: Topology
    efficiency: GivenEfficiency
    _speeds: dict[int, FloatArray] = field(default_factory=dict)
    _forward: dict[int, FloatArray] = field(default_factory=dict)

    def least_s(self, job: Job, grid: IntArray, ways: Ways) -> float:
        """Passes of the busiest device with what comes before and after them, and messages of the busiest link."""
        pass_s = self._pass_s(job, grid, ways)
        n_passes = np.array(job.microbatch_counts, dtype=float)
        if self.topology.message_s is not None:  # messages may take less than their bandwidth says
            return float((n_passes * pass_s).max())
        hops = Hops.of(grid, job.activation_bytes, self._links)
        there_and_back_s = hops.onward_s + hops.back_after_s
        busy_s = n_passes * pass_s
        if not any(one.get("transport", job.transport) == "overlapped" for one in ways):
            busy_s += n_passes * hops.onward_s + (n_passes - 1) * hops.back_s
        if not any("stages_per_device" in one for one in ways):
            busy_s = np.maximum(busy_s, rounds_s(pass_s, there_and_back_s, n_passes))
        on_links_s = n_passes * np.maximum(hops.onward_moving_s, hops.back_moving_s)
        around_s = behind(pass_s + there_and_back_s)
        return max(float((busy_s + around_s).max()), float(on_links_s.max()), self._rings_s(job, grid, ways))

    def _pass_s(self, job: Job, grid: IntArray, ways: Ways) -> FloatArray:
        """(stages, replicas) seconds of a forward and a backward at least; interleaved ones count their first part."""
        n = len(grid)
        if n not in self._forward:
            self._forward[n] = np.array([sum(one.forward_flop for one in layers) for layers in job.layers_of(n)])
        if job.microbatch not in self._speeds:
            self._speeds[job.microbatch] = np.array(speeds_of(job, self.topology.devices, self.efficiency))
        speed = self._speeds[job.microbatch][grid]
        flop = (1 + BACKWARD_PER_FORWARD) * job.microbatch * self._forward[n]
        if any("blocks_per_stage" in one or "stages_per_device" in one for one in ways):  # other parts of the model
            shared: FloatArray = np.broadcast_to(flop.sum() / speed.sum(axis=0), speed.shape) * (speed > 0)
            least: FloatArray = np.where(np.arange(n)[:, None] == n - 1, shared, 0.0)
            return least
        found: FloatArray = flop[:, None] / speed
        return found

    def _rings_s(self, job: Job, grid: IntArray, ways: Ways) -> float:
        """Seconds for which the slowest link of a ring sends shards of gradients and of parameters."""
        n_stages, n_replicas = grid.shape
        rings = all(one.get("synchronisation", job.synchronisation) == "ring" for one in ways)
        cut_anew = any("blocks_per_stage" in one or "stages_per_device" in one for one in ways)
        if n_replicas == 1 or not rings or cut_anew or job.synchronise_every > 1:
            return 0.0
        gradients = np.array(device_gradient_bytes(job, n_stages))
        parameters = np.array(device_gradient_elements(job, n_stages)) * BYTES_PER_ELEMENT[job.dtype]
        n = min(job.microbatch_counts)
        sent = {
            "none": 2 * gradients,
            "zero-1": gradients + parameters,
            "zero-2": n * gradients,
            "zero-3": n * (gradients + 2 * parameters),
        }
        least = np.min([sent[one.get("sharding", job.sharding)] for one in ways], axis=0)
        slowest = self._slowest(grid)
        if any(one.get("sharding", job.sharding) in ("zero-2", "zero-3") for one in ways):  # rings by region and host
            place = self._places
            by_place = np.array([sorted(row, key=place.__getitem__) for row in grid.tolist()])
            slowest = np.maximum(slowest, self._slowest(by_place))
        return float((least * (n_replicas - 1) / n_replicas / slowest).max())

    @cached_property
    def _links(self) -> Links:
        """Each pair's own, of which messages wait the least."""
        return Links.of(self.topology, "pairs")

    @cached_property
    def _places(self) -> list[tuple[int, str, int]]:
        regions = {name: i for i, name in enumerate(self.topology.regions)}
        return [(regions[one.region], one.host or "", i) for i, one in enumerate(self.topology.devices)]

    def _slowest(self, rings: IntArray) -> FloatArray:
        """(stages,) bytes/s of the slowest link of each ring."""
        least: FloatArray = self.topology.bandwidth_bytes_per_s[rings, np.roll(rings, -1, axis=1)].min(axis=1)
        return least
