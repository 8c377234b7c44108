"""Grids of tensor, pipeline and data parallelism, with devices in the order of their ranks.

A grid uses all devices of a network, or leaves out some kinds, some regions, or devices that are far away.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, TypeVar

import numpy as np

from dtfm_lab.costs.efficiency import GivenEfficiency, speeds_of
from dtfm_lab.costs.seconds import ring_rounds, shard
from dtfm_lab.domain.job import BYTES_PER_ELEMENT, Job, device_gradient_bytes
from dtfm_lab.domain.job.sizes import device_gradient_elements
from dtfm_lab.domain.network import Links, Topology
from dtfm_lab.domain.plan import Placement, Plan
from dtfm_lab.domain.units import FloatArray, IntArray, by_key
from dtfm_lab.extensions.systems.bound import NeighbourMessages, behind, rounds_s
from dtfm_lab.extensions.systems.strategy import Branch, Budget
from dtfm_lab.planning import evaluate
from dtfm_lab.planning.iteration.structured.candidates import device_sets
from dtfm_lab.planning.iteration.structured.layouts import in_order

MICROBATCHES = (1, 2, 4, 8, 16)
"""Micro-batch sizes that are tried if the job does not fix its own."""
MICROBATCHES_ALONE = tuple(2**i for i in range(9))
"""Micro-batch sizes that are tried without a pipeline. Sizes can be larger, because only a pipeline needs several
micro-batches."""


def shapes(
    job: Job,
    n_devices: int,
    *,
    stages: Sequence[int] | None = None,
    microbatches: Sequence[int] | None = None,
    fewer: bool = False,
) -> Iterator[Job]:
    """Yield the job in every shape and micro-batch size. A shape is a number of stages and a number of replicas.

    By default only shapes with the largest possible number of devices are tried. A given micro-batch size is kept
    unless ``microbatches`` says otherwise. All replicas have the same number of micro-batches.

    Parameters
    ----------
    stages
        Numbers of stages that the system allows; None for any.
    microbatches
        Micro-batch sizes that are tried. None for the job's own size, or ``MICROBATCHES`` if the job does not fix one.
    fewer
        Also try shapes with fewer devices.
    """
    own: Sequence[int] = MICROBATCHES if job.microbatch is None else (job.microbatch,)
    sizes = own if microbatches is None else microbatches
    for n_used in range(n_devices, 0, -1):
        found = False
        for microbatch in sizes:
            if job.global_batch % microbatch:
                continue
            sized = job.with_fields(microbatch=microbatch)
            for n_stages, n_replicas in sized.shapes(n_used):
                if stages is None or n_stages in stages:
                    found = True
                    yield sized.with_fields(n_stages=n_stages, n_replicas=n_replicas)
        if found and not fewer:
            return


def rank_order(topology: Topology, hosts: str = "listed", seed: int = 0) -> IntArray:
    """Return the device of each rank. If ``hosts`` is ``listed``, devices keep the network's order. Otherwise hosts are
    in random order, and the devices of a host stay together.

    A device without a host counts as a separate host.
    """
    if hosts == "listed":
        return np.arange(len(topology))
    members = [*by_key((device.host or f" {i}", i) for i, device in enumerate(topology.devices)).values()]
    shuffled = np.random.default_rng(seed).permutation(len(members))
    return np.array([i for host in shuffled for i in members[host]])


def in_rank_order(topology: Topology, job: Job, ranks: IntArray, *, order: str) -> Plan:
    """Return the plan in which stages and replicas follow rank order (``in_order``). ``ranks`` is the device of each
    rank, at least as many as the job uses."""
    grid = in_order(job, ranks, order)
    return evaluate(topology, job, rank_map=Placement(grid).rank_map(len(topology)))


class Freedoms(Protocol):
    """What a system may leave to its user: micro-batch sizes, the order of hosts, and the devices to use. The value
    ``tried`` means that the user tries all options. ``hosts`` is ``listed`` or ``random`` instead."""

    @property
    def microbatches(self) -> str: ...
    @property
    def hosts(self) -> str: ...
    @property
    def devices(self) -> str: ...


def grids(
    system: Freedoms,
    topology: Topology,
    job: Job,
    ways: Callable[[Job], Sequence[Mapping[str, Any]]],
    budget: Budget,
    *,
    tensor_parallel: Sequence[int] = (1,),
    orders: Sequence[str] = ("dp-pp",),
    stages: Sequence[int] | None = None,
    sizes: Sequence[int] = MICROBATCHES,
) -> Iterator[Branch]:
    """Yield every tensor-parallel degree, set of devices, shape, micro-batch size and rank order, as branches. ``ways``
    gives the ways to train in each shape.

    Degrees that the hosts or the model's heads do not allow are left out. ``stages`` is as for ``shapes``. ``sizes``
    are the micro-batch sizes that a user tries. If the system's user may leave out devices, every set of
    ``device_sets`` is tried, and so are shapes that use only a part of a set.
    """
    fewer = system.devices == "tried"
    microbatches = sizes_of(system.microbatches, job, sizes)
    for grouped, sliced in groupings(topology, job, tensor_parallel):
        ranks = rank_order(grouped, system.hosts, budget.seed)
        shaped = list(shapes(sliced, len(grouped), stages=stages, microbatches=microbatches, fewer=fewer))
        # The same grid comes up for several sets of devices.
        bound, seen = GridBound(grouped, budget.efficiency), set[tuple[Job, bytes]]()
        for members in device_sets(grouped) if fewer else [ranks]:
            taken = ranks[np.isin(ranks, members)]
            for one in shaped:
                if one.n_stages * one.n_replicas > len(taken):
                    continue
                tried = ways(one)
                # with a single stage or replica, both orders give the same grid
                for order in orders if min(one.n_stages, one.n_replicas) > 1 else orders[:1]:
                    grid = in_order(one, taken, order)
                    if tried and (key := (one, grid.tobytes())) not in seen:
                        seen.add(key)
                        yield Branch(grouped, one, grid, tried, bound.least_s(one, grid, tried))


def sized(job: Job, microbatches: str, n_stages: int, n_replicas: int) -> Iterator[Job]:
    """Yield the job in this shape, once for each micro-batch size that is tried. A size that the job gives is the only
    one, unless ``microbatches`` is ``tried``.

    Sizes that do not divide the batch, or that leave a replica without a micro-batch, are skipped.
    """
    for microbatch in sizes_of(microbatches, job, MICROBATCHES) or (job.microbatch,):
        if not job.global_batch % microbatch and job.global_batch // microbatch >= n_replicas:
            yield job.with_fields(n_stages=n_stages, n_replicas=n_replicas, microbatch=microbatch)


def groupings(topology: Topology, job: Job, degrees: Sequence[int] | None = None) -> Iterator[tuple[Topology, Job]]:
    """Yield, for each degree of tensor parallelism, the network with its hosts' GPUs in groups, and the job with that
    degree.

    By default every possible degree is tried. Degrees that the hosts or the model's heads do not allow are left out.
    """
    heads = job.modelled().n_heads
    for degree in topology.group_sizes if degrees is None else degrees:
        if (gpus := degree * job.data_gpus) in topology.group_sizes and not heads % degree:
            yield topology.grouped(gpus), job.with_fields(tensor_parallel=degree)


def sizes_of(microbatches: str, job: Job, tried: Sequence[int]) -> Sequence[int] | None:
    """Return the micro-batch sizes to try; None to keep the size that the job gives."""
    return tried if microbatches == "tried" or job.microbatch is None else None


B = TypeVar("B", bound=Branch)


def distinct(found: Iterable[B]) -> Iterator[B]:
    """Yield the branches, without those that repeat the job and grid of an earlier one."""
    seen: set[tuple[Job, bytes]] = set()
    for one in found:
        if (key := (one.job, one.grid.tobytes())) not in seen:
            seen.add(key)
            yield one


Ways = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, eq=False)
class GridBound:
    """Lower bounds of the seconds of grids on one network, with 1F1B."""

    topology: Topology
    efficiency: GivenEfficiency
    _speeds: dict[int, FloatArray] = field(default_factory=dict)
    _forward: dict[int, FloatArray] = field(default_factory=dict)

    def least_s(self, job: Job, grid: IntArray, ways: Ways) -> float:
        """Return the largest of three bounds in seconds: by the busiest device, by the busiest link and by averaging.

        The device's bound includes what precedes and follows its passes. If messages have measured times, only the
        passes of the busiest device count.
        """
        pass_s = self._pass_s(job, grid, ways)
        n_passes = np.array(job.microbatch_counts, dtype=float)
        # The formula is not a bound for links that were measured.
        if self.topology.message_s is not None:  # measured times may be shorter than the bandwidth says
            return float((n_passes * pass_s).max())
        hops = NeighbourMessages.of(grid, job.least_activation_bytes, self._links)
        there_and_back_s = hops.onward_s + hops.back_after_s
        busy_s = n_passes * pass_s
        # A message can be hidden behind computing in some of the ways, so it is not counted.
        if not any(one.get("transport", job.transport) == "overlapped" for one in ways):
            busy_s += n_passes * hops.onward_s + (n_passes - 1) * hops.back_s
        if not any("stages_per_device" in one for one in ways):
            busy_s = np.maximum(busy_s, rounds_s(pass_s, there_and_back_s, n_passes))
        on_links_s = n_passes * np.maximum(hops.onward_moving_s, hops.back_moving_s)
        around_s = behind(pass_s + there_and_back_s)
        return max(float((busy_s + around_s).max()), float(on_links_s.max()), self._rings_s(job, grid, ways))

    def _pass_s(self, job: Job, grid: IntArray, ways: Ways) -> FloatArray:
        """Return (stages, replicas): minimum seconds of a forward plus a backward.

        If some way cuts the model differently, the last stage gets the seconds in which all devices of its pipeline
        could compute the whole model, sharing it evenly. The other stages get 0.
        """
        n = len(grid)
        if n not in self._forward:
            self._forward[n] = np.array([sum(one.forward_flop for one in layers) for layers in job.layers_of(n)])
        if job.microbatch not in self._speeds:
            self._speeds[job.microbatch] = np.array(speeds_of(job, self.topology.devices, self.efficiency))
        speed = self._speeds[job.microbatch][grid]
        flop = (1 + job.modelled().backward.whole) * job.microbatch * self._forward[n]
        if any(
            "blocks_per_stage" in one or "stages_per_device" in one for one in ways
        ):  # stages hold other parts of the model
            # Whatever the cut, a pipeline cannot be faster than all its devices sharing the work evenly.
            shared: FloatArray = np.broadcast_to(flop.sum() / speed.sum(axis=0), speed.shape) * (speed > 0)
            least: FloatArray = np.where(np.arange(n)[:, None] == n - 1, shared, 0.0)
            return least
        found: FloatArray = flop[:, None] / speed
        return found

    def _rings_s(self, job: Job, grid: IntArray, ways: Ways) -> float:
        """Return the seconds for which the slowest link of a ring sends shards of gradients and parameters.

        0 if nothing is averaged, or not over rings, or not in every iteration, or if some way cuts the model
        differently.
        """
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
        if any(
            one.get("sharding", job.sharding) in ("zero-2", "zero-3") for one in ways
        ):  # the simulator orders these rings by region and host
            place = self._places
            by_place = np.array([sorted(row, key=place.__getitem__) for row in grid.tolist()])
            slowest = np.maximum(slowest, self._slowest(by_place))
        return float((shard(least * ring_rounds(n_replicas), n_replicas) / slowest).max())

    @cached_property
    def _links(self) -> Links:
        """The network's links if every pair of devices has its own (``pairs``): on these, messages wait the least."""
        return Links.of(self.topology, "pairs")

    @cached_property
    def _places(self) -> list[tuple[int, str, int]]:
        regions = {name: i for i, name in enumerate(self.topology.regions)}
        return [(regions[one.region], one.host or "", i) for i, one in enumerate(self.topology.devices)]

    def _slowest(self, rings: IntArray) -> FloatArray:
        """Return (stages,) bytes/s of the slowest link of each ring."""
        least: FloatArray = self.topology.bandwidth_bytes_per_s[rings, np.roll(rings, -1, axis=1)].min(axis=1)
        return least
