"""The parts of structured plans: choices, grids of devices, and the seconds and bytes that follow from each.

A layout is a grid of devices in rank order. ``averages`` says how long its replicas average. ``StageTables`` says how
long its stages compute and what they hold. ``estimates`` puts them together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from dtfm_lab.costs.efficiency import GivenEfficiency
from dtfm_lab.costs.memory import message_bytes_of
from dtfm_lab.costs.seconds import ring_rounds_s, ring_share, shard
from dtfm_lab.domain.errors import LabError, PlanError
from dtfm_lab.domain.job import Job, Layer, LayerKind, frozen_bytes
from dtfm_lab.domain.network import Device, Links, Topology
from dtfm_lab.domain.units import FloatArray, IntArray, by_key, counted
from dtfm_lab.planning.iteration.problem import (
    ROLES,
    IterationProblem,
    Kinds,
    PassTable,
    activation_bytes_of,
    divisors,
    open_microbatches,
    pass_table,
    static_bytes_of,
)

# ---------------------------------------------------------------------------------------------------------------------
# The choices that a job leaves open and that annealing keeps fixed: tensor parallelism, sharding, averaging.


SHARDINGS_BEGUN = ("none", "zero-1", "zero-3", "zero-2")
"""Kinds of sharding that are tried if the job leaves it open, in the order of ``choices_of``."""
OF_CHOICES = ("tensor_parallel", "sharding", "synchronisation", "overlap")
"""Fields that annealing keeps fixed. One combination of them is a *choice*."""


def leaves_open(job: Job) -> bool:
    """Return True if the job leaves tensor parallelism, sharding, averaging or its overlap to the planner."""
    return any(getattr(job, what) is None for what in OF_CHOICES)


def degrees_of(topology: Topology, job: Job) -> list[int]:
    """Return the degrees of tensor parallelism that the hosts and the model's heads allow, or only the degree that the
    job gives.

    Raises PlanError if none is possible.
    """
    heads, data = job.modelled().n_heads, job.data_gpus
    given = job.tensor_parallel
    sizes = [n // data for n in topology.group_sizes if n % data == 0]
    degrees = [n for n in sizes if heads % n == 0] if given is None else [given]
    if not degrees:
        groups = " or ".join(map(str, topology.group_sizes))
        each = "" if data == 1 else f", {data} for each tensor-parallel one"
        wanted = f"one that divides the {counted(heads, 'head')} of job {job.name}{each}"
        raise PlanError(f"{topology.name} has groups of {groups} GPUs; wanted {wanted}")
    return degrees


WAYS_TO_AVERAGE = ("ring", "sharded", "hierarchical")
"""Ways to average that are tried if the job leaves them open. DT-FM averages sharded, a ring suits hosts that share a
NIC, and hierarchical suits regions that are far apart."""


def choices_of(topology: Topology, job: Job) -> list[tuple[Topology, Job]]:
    """Return the networks and jobs of all choices, large groups first. Raises LabError if none is possible.

    Averaging is overlapped if that is open, because overlap makes no plan slower.
    """
    degrees, data = degrees_of(topology, job), job.data_gpus
    shardings: tuple[str, ...] = SHARDINGS_BEGUN if job.sharding is None else (job.sharding,)
    if job.sharding is None and (job.n_replicas == 1 or job.synchronise_every > 1 or job.fragments > 1):
        shardings = ("none",)
    # local updates and streamed fragments need whole states on every replica, and one replica has nothing to split
    networks = {n: topology.grouped(n * data) for n in degrees}
    ways = WAYS_TO_AVERAGE if job.synchronisation is None else (job.synchronisation,)
    overlap = job.overlap is None or job.overlap
    found: list[tuple[Topology, Job]] = []
    refused: LabError | None = None
    for degree in sorted(degrees, reverse=True):  # large groups make few devices, whose searches are quickest
        for sharding in shardings:
            for way in ways[:1] if sharding == "zero-3" else ways:  # zero-3 averages in its passes
                try:
                    fields = {"tensor_parallel": degree, "sharding": sharding, "synchronisation": way}
                    chosen = job.with_fields(**fields, overlap=overlap, warmups=job.warmups)
                    if job.sharding is None:
                        chosen.with_fields(microbatch=open_microbatches(chosen)[0])
                except LabError as error:  # such as unequal shares, if replicas process micro-batches together
                    refused = refused or error  # the first choice is the plainest
                    continue
                found.append((networks[degree], chosen))
    if not found and refused is not None:
        raise refused
    return found


# ---------------------------------------------------------------------------------------------------------------------
# Grids of devices in rank order: which device computes which stage of which replica.


ORDERS = ("dp-pp", "pp-dp")
"""Orders of ranks. With dp-pp, as in Megatron-LM and DeepSpeed, the ranks of a data-parallel group are neighbours. With
pp-dp, as in DT-FM, the ranks of a pipeline are."""
STAGES_UP_TO = 8
"""Up to this number of stages every number is tried. Beyond it, only divisors of the number of blocks and a geometric
scale are tried."""
STAGE_RATIO = 1.25
COARSE_STAGES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
"""Numbers of stages that are tried on parts of a network. Annealing tries the numbers between them."""
FEWER = 3
"""Maximum number of times that a number of replicas is halved, since idle devices may cost less than slow averaging."""


@dataclass(frozen=True, eq=False)
class GridLayout:
    """A grid of devices, which may be groups of GPUs. All ways to train on it share ``hops``, which is computed
    once."""

    links: Links
    grid: IntArray
    """(S, R) device indices."""
    order: str
    members: IntArray
    """Devices that ``grid`` was made from, in the order of their ranks. Devices that are left over are idle."""

    @property
    def shape(self) -> tuple[int, int]:
        return self.grid.shape[0], self.grid.shape[1]

    @cached_property
    def hosts(self) -> IntArray:
        """(S, R) number of each device's NIC. A device that shares no NIC has its own number."""
        nic_of = self.links.nic_of
        return self.grid if nic_of is None else nic_of[self.grid]

    @cached_property
    def slower(self) -> FloatArray:
        """(S,) factor on the seconds of each stage's collectives because of the number of its hosts."""
        return self.links.slower(self.grid)

    @property
    def shares_nics(self) -> bool:
        """True if messages of several devices wait for one NIC."""
        return self.links.has_nics

    @cached_property
    def hops(self) -> NeighbourLinks:
        """The links between neighbouring stages."""
        return NeighbourLinks.of(self)


@dataclass(frozen=True, eq=False)
class NeighbourLinks:
    """Links between neighbouring stages. Arrays are (S - 1, R) unless stated otherwise."""

    there_s_per_byte: FloatArray
    """Seconds per byte of an activation, including the wait for other pipelines that send at the same time."""
    back_s_per_byte: FloatArray
    there_latency_s: FloatArray
    back_latency_s: FloatArray
    alone_s_per_byte: FloatArray
    """(R,) seconds per byte of each pipeline's slowest link if no message waits."""
    busiest_s_per_byte: float
    """Seconds for which the busiest link or NIC is occupied if every pipeline passes on one micro-batch, per byte of
    its activation."""

    @classmethod
    def of(cls, layout: GridLayout) -> NeighbourLinks:
        links, grid = layout.links, layout.grid
        a, b = grid[:-1], grid[1:]
        there, back = 1.0 / links.bandwidth_bytes_per_s[a, b], 1.0 / links.bandwidth_bytes_per_s[b, a]
        late = links.latency_s[a, b], links.latency_s[b, a]
        busiest = float(max(there.max(initial=0.0), back.max(initial=0.0)))
        alone = np.maximum(there.max(axis=0, initial=0.0), back.max(axis=0, initial=0.0))
        if layout.shares_nics and a.size:
            here, away = layout.hosts[:-1], layout.hosts[1:]
            apart = here != away
            n = int(layout.hosts.max()) + 1
            boundary = np.arange(len(a))[:, None] * n
            leaving = np.bincount((boundary + here)[apart], minlength=len(a) * n)
            coming = np.bincount((boundary + away)[apart], minlength=len(a) * n)
            at_once = np.where(apart, np.maximum(leaving[boundary + here], coming[boundary + away]), 1)
            out = np.bincount(here[apart], there[apart], n) + np.bincount(away[apart], back[apart], n)
            into = np.bincount(away[apart], there[apart], n) + np.bincount(here[apart], back[apart], n)
            busiest = max(busiest, float(out.max(initial=0.0)), float(into.max(initial=0.0)))
            there, back = there * at_once, back * at_once
        return cls(there, back, *late, alone, busiest)


def stage_counts(job: Job, n_devices: int, *, coarse: bool) -> list[int]:
    """Return the numbers of stages to try, fewest first. With ``coarse``, as for a part of a network, there are fewer
    of them."""
    most = min(job.modelled().n_blocks, n_devices)
    if job.n_stages is not None:
        if job.blocks_per_stage is not None:  # the embedding or the head may have its own stage
            most = n_devices
        return [job.n_stages] if job.n_stages <= most else []
    if coarse:
        return [n for n in COARSE_STAGES if n <= most]
    found = set(range(1, min(most, STAGES_UP_TO) + 1))
    found |= {n for n in divisors(job.modelled().n_blocks) if n <= most}
    n = float(STAGES_UP_TO)
    while (n := n * STAGE_RATIO) <= most:
        found.add(int(n))
    return sorted({*found, most})


def replica_counts(job: Job, n_devices: int, n_stages: int, *, coarse: bool) -> list[int]:
    """Return the numbers of replicas to try for a number of stages, largest first.

    They are the maximum that the devices allow, and the largest number that divides the batch. Without ``coarse``, they
    also include the largest power of two. This and the one that divides the batch are then halved up to ``FEWER``
    times.
    """
    most = min(n_devices // n_stages, job.global_batch)
    if job.n_replicas is not None:
        return [job.n_replicas] if job.n_replicas <= most else []
    if most < 1:
        return []
    even = max(n for n in divisors(job.global_batch) if n <= most)
    found = {most, even}
    if not coarse:
        power = 1 << (most.bit_length() - 1)
        for one in (even, power):
            found |= {max(1, one >> i) for i in range(FEWER + 1)}
    return sorted(found, reverse=True)


def in_order(job: Job, ranks: IntArray, order: str) -> IntArray:
    """Return the (stages, replicas) grid of a job that names both numbers. ``ranks`` are the devices in the order of
    their ranks.

    ``dp-pp``: ranks of one data-parallel group are neighbours, and pipelines stride over them, as in Megatron-LM and
    DeepSpeed. ``pp-dp``: ranks of one pipeline are neighbours, as in DT-FM.
    """
    return grid_of(ranks, (job.n_stages, job.n_replicas), order)


def grid_of(ranks: IntArray, shape: tuple[int, int], order: str) -> IntArray:
    """Return the (S, R) grid of a shape. ``ranks`` are the devices in the order of their ranks, ``order`` one of
    ``ORDERS``."""
    n_stages, n_replicas = shape
    used = np.asarray(ranks)[: n_stages * n_replicas]
    by_stage: IntArray = used.reshape(n_stages, n_replicas)
    return by_stage if order == "dp-pp" else used.reshape(n_replicas, n_stages).T


def layouts(links: Links, job: Job, members: IntArray, *, coarse: bool) -> Iterator[GridLayout]:
    """Yield the layouts of one set of devices. ``members`` are in the order of their ranks. With ``coarse``, as for a
    part of a network, fewer shapes are tried."""
    n = len(members)
    for n_stages in stage_counts(job, n, coarse=coarse):
        for n_replicas in replica_counts(job, n, n_stages, coarse=coarse):
            for order in ORDERS if min(n_stages, n_replicas) > 1 else ORDERS[:1]:
                yield GridLayout(links, grid_of(members, (n_stages, n_replicas), order), order, members)


# ---------------------------------------------------------------------------------------------------------------------
# Seconds in which the replicas of each stage of a layout average their gradients, in closed form.


MOST_BY_PAIRS = 64
"""Up to this number of replicas, sharded averaging is priced by adding up the messages of every pair. With more, it is
left out if other ways are allowed, because a ring is as good or better."""


@dataclass(frozen=True, eq=False)
class Average:
    """Averaging as latencies and seconds per byte, so that one product prices any gradient on any stage. Arrays are
    (S,)."""

    how: str
    latency_s: FloatArray
    """Sum of the latencies on the critical path, in seconds, in both phases: sending gradients, and sending back
    averages or parameters."""
    there_s_per_byte: FloatArray
    """Seconds per byte of a stage's gradient."""
    back_s_per_byte: FloatArray
    """Seconds per byte of what comes back: averages or parameters."""

    def seconds(self, gradient_bytes: FloatArray, back_bytes: FloatArray) -> FloatArray:
        """Return (S,) seconds of averaging if all replicas begin at once."""
        return self.latency_s + gradient_bytes * self.there_s_per_byte + back_bytes * self.back_s_per_byte


def averages(layout: GridLayout, topology: Topology, ways: tuple[str, ...]) -> list[Average]:
    """Return the allowed ways to average that suit a layout.

    If only one way is allowed, it is kept even if it does not suit. It is then priced as a ring. Central averaging is
    priced as hierarchical or, without a hierarchy, as a ring.
    """
    n_replicas = layout.grid.shape[1]
    if n_replicas == 1:
        nothing = np.zeros(layout.grid.shape[0])
        return [Average(ways[0], nothing, nothing, nothing)]
    found = []
    for how in ways:
        if how == "ring":
            found.append(ring(layout))
        elif how in ("sharded", "sharded-at-once"):
            if n_replicas <= MOST_BY_PAIRS or len(ways) == 1:
                found.append(_by_pairs(layout, how))
        elif (hierarchy := _hierarchical(layout, topology)) is not None:
            found.append(hierarchy)
    found = found or [ring(layout)]
    return [replace(one, how=ways[0]) for one in found] if len(ways) == 1 else found


def ring(layout: GridLayout, *, by_place: IntArray | None = None) -> Average:
    """Return a ring all-reduce: 2 (R - 1) rounds of 1/R of the bytes, each as slow as the slowest link of the ring.

    Rings that leave a host through its one NIC at the same time share that NIC. ``by_place``, (N,), is the order in
    which devices join a ring. Without it, the replicas' order counts.
    """
    grid, links = layout.grid, layout.links
    hosts = layout.hosts
    if by_place is not None:
        order = np.argsort(by_place[grid], axis=1, kind="stable")
        grid, hosts = np.take_along_axis(grid, order, axis=1), np.take_along_axis(hosts, order, axis=1)
    after, host_after = np.roll(grid, -1, axis=1), np.roll(hosts, -1, axis=1)
    per_byte = 1.0 / links.bandwidth_bytes_per_s[grid, after]
    if layout.shares_nics:
        apart = hosts != host_after
        n = int(hosts.max()) + 1
        out, into = np.bincount(hosts[apart], minlength=n), np.bincount(host_after[apart], minlength=n)
        per_byte = per_byte * np.where(apart, np.maximum(out[hosts], into[host_after]), 1)
    n_replicas = grid.shape[1]
    latency = ring_rounds_s(n_replicas, links.latency_s[grid, after].max(axis=1))
    each = layout.slower * ring_share(n_replicas) * per_byte.max(axis=1)
    return Average("ring", 2 * latency, each, each)


def _by_pairs(layout: GridLayout, how: str) -> Average:
    """Return averaging in which every replica sends a shard to every other one, and later an average back. ``how`` says
    if these are sent one after another or all at once."""
    grid, links = layout.grid, layout.links
    n = grid.shape[1]
    a, b = grid[:, :, None], grid[:, None, :]
    per_byte = np.where(a == b, 0.0, 1.0 / links.bandwidth_bytes_per_s[a, b])
    latency = np.where(a == b, 0.0, links.latency_s[a, b])
    if how == "sharded":
        each, late = shard(per_byte.sum(axis=2).max(axis=1), n), latency.sum(axis=2).max(axis=1)
    else:
        each, late = shard(per_byte.max(axis=(1, 2)), n), latency.max(axis=(1, 2))
    if layout.shares_nics:
        hosts = layout.hosts
        apart = (hosts[:, :, None] != hosts[:, None, :]) * per_byte
        size = int(hosts.max()) + 1
        out = np.bincount(hosts.ravel(), apart.sum(axis=2).ravel(), size).max()
        into = np.bincount(hosts.ravel(), apart.sum(axis=1).ravel(), size).max()
        each = np.maximum(each, shard(max(float(out), float(into)), n))
    each = layout.slower * each
    return Average(how, 2 * late, each, each)


def _hierarchical(layout: GridLayout, topology: Topology) -> Average | None:
    """Return averaging in which the first replica of each region leads. Leaders gather gradients, exchange shards with
    each other, and pass the average on.

    None if the replicas of some stage have no hierarchy: all are in one region, or each in another. All stages average
    at the same time, so messages of several stages wait for a NIC that they share.
    """
    links, shared = layout.links, layout.shares_nics
    n_hosts = int(layout.hosts.max()) + 1
    gathers, exchanges = _Messages(links, n_hosts), _Messages(links, n_hosts)
    n_leaders = []
    for s, (row, hosts) in enumerate(zip(layout.grid.tolist(), layout.hosts.tolist(), strict=True)):
        members = by_key((topology.devices[d].region or f" {d}", i) for i, d in enumerate(row))
        if len(members) == 1 or len(members) == len(row):
            return None
        firsts = [one[0] for one in members.values()]
        for one in members.values():
            for i in one[1:]:
                gathers.add(s, row[i], row[one[0]], hosts[i], hosts[one[0]])
        for i in firsts:
            for j in firsts:
                if i != j:
                    exchanges.add(s, row[i], row[j], hosts[i], hosts[j])
        n_leaders.append(len(firsts))
    gather_s, gather_late_s = gathers.slowest(len(layout.grid), shared=shared)
    exchange_s, exchange_late_s = exchanges.slowest(len(layout.grid), shared=shared)
    each = layout.slower * (gather_s + shard(exchange_s, np.array(n_leaders)))
    return Average("hierarchical", 2 * (gather_late_s + exchange_late_s), each, each)


class _Messages:
    """Messages that several stages send at the same time, priced per byte."""

    def __init__(self, links: Links, n_hosts: int) -> None:
        self._links = links
        self._out, self._into = np.zeros(n_hosts), np.zeros(n_hosts)
        self._rows: list[tuple[int, float, float, int, int]] = []

    def add(self, stage: int, a: int, b: int, host_a: int, host_b: int) -> None:
        """Add a message from device ``a`` to device ``b``, on these hosts."""
        s_per_byte = float(1.0 / self._links.bandwidth_bytes_per_s[a, b])
        self._rows.append((stage, s_per_byte, float(self._links.latency_s[a, b]), host_a, host_b))
        if host_a != host_b:
            self._out[host_a] += s_per_byte
            self._into[host_b] += s_per_byte

    def slowest(self, n_stages: int, *, shared: bool) -> tuple[FloatArray, FloatArray]:
        """Return (S,) the highest seconds per byte and (S,) the highest latency of each stage's messages. Pass
        ``shared`` if each host has one NIC."""
        seconds, late = np.zeros(n_stages), np.zeros(n_stages)
        for stage, s_per_byte, latency_s, host_a, host_b in self._rows:
            if shared and host_a != host_b:  # what goes through a NIC goes one after the other
                s_per_byte = max(self._out[host_a], self._into[host_b])
            seconds[stage], late[stage] = max(seconds[stage], s_per_byte), max(late[stage], latency_s)
        return seconds, late


# ---------------------------------------------------------------------------------------------------------------------
# Seconds and bytes of stages on each kind of device of a network, as prefix sums over blocks.
#
# A cluster has thousands of devices but few kinds of them. A stage's cost on one kind is the difference of two
# prefix sums, so thousands of plans are priced with a handful of array operations.


CHECKPOINTINGS = (
    {"checkpointing": "none"},
    {"checkpointing": "selective"},
    {"checkpointing": "block"},
    {"checkpointing": "none", "recompute": True},
)
"""Kinds of checkpointing that are tried if the job leaves it open, the least recomputation first."""
SHARDINGS = ("none", "zero-1", "zero-2", "zero-3")
MOST_MICROBATCH = 256
"""Maximum sequences of a micro-batch whose size is open. Larger ones fit no device's memory."""
APART = 2
"""Minimum ratio of two micro-batch sizes that are tried."""


@dataclass(frozen=True, eq=False)
class HeldTable:
    """Bytes of a stage with 0 to L blocks, by its role: first, middle, last or only one. Arrays are (4, L + 1)."""

    kept_bytes: FloatArray
    """Bytes of activations that a stage keeps for each micro-batch in flight."""
    again_bytes: FloatArray
    """Bytes that a stage holds in addition during one backward, because it recomputes."""


class StageTables:
    """All tables of one job and one network whose devices are groups of GPUs, made on first use."""

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
        """The embedding and the head, each in a list that is empty if the model has none."""
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
        """Return the problem on a network with one device of each kind; None if the job does not allow the sharding.

        ``checkpointing`` is an index in ``checkpointings``.
        """
        key = checkpointing, sharding
        if key not in self._problems:
            try:
                job = self.checkpointings[checkpointing].with_fields(sharding=sharding)
                kinds = self.topology.subset(self._first)
                self._problems[key] = IterationProblem.of(kinds, job, self._queueing, efficiency=self.efficiency)
            except LabError:  # such as shares that are not equal, with replicas that process micro-batches together
                self._problems[key] = None
        return self._problems[key]

    def plain_problem(self, checkpointing: int = 0) -> IterationProblem:
        """Return a problem for values that no sharding changes. It has the job's sharding, or none if that is open."""
        problem = self.problem(checkpointing, self.job.sharding or "none")
        assert problem is not None
        return problem

    def passes(self, microbatch: int, checkpointing: int) -> PassTable:
        """Return the seconds of the passes of a micro-batch. ``checkpointing`` is an index in ``checkpointings``."""
        key = microbatch, checkpointing
        if key not in self._passes:
            job = self.checkpointings[checkpointing].with_fields(microbatch=microbatch)
            self._passes[key] = pass_table(job, self.kinds, self.efficiency)
        return self._passes[key]

    def held(self, microbatch: int, checkpointing: int) -> HeldTable:
        """Return the bytes of activations of a stage with the first 0 to L blocks. If blocks differ, these numbers only
        approximate other stages."""
        key = microbatch, checkpointing
        if key not in self._held:
            passes = self.plain_problem(checkpointing).passes(microbatch)
            of_roles = [activation_bytes_of(passes, passes.layer, role) for role in ROLES]
            kept, again = zip(*of_roles, strict=True)
            self._held[key] = HeldTable(np.array(kept), np.array(again))
        return self._held[key]

    def static_bytes(self, sharding: str, n_replicas: int) -> FloatArray | None:
        """Return bytes of parameters, gradients and optimizer states, (4, L + 1) by role, for the first 0 to L blocks.

        None if the job does not allow the sharding.
        """
        key = sharding, n_replicas
        if key not in self._static:
            self._static[key] = None
            if (problem := self.problem(0, sharding)) is not None:
                passes = problem.passes(problem.microbatches[0])
                of_roles = [static_bytes_of(problem, passes, passes.layer, role, n_replicas) for role in ROLES]
                self._static[key] = np.array(of_roles)
        return self._static[key]

    def parameters(self, ends: IntArray) -> FloatArray:
        """Return (S,) parameters of stages that end after these blocks, including the embedding, the head and a tied
        copy."""
        problem = self.plain_problem()
        counts = np.diff(problem.block_parameters[np.concatenate([[0], ends])])
        counts[0] += problem.first_extra[1]
        counts[-1] += problem.last_extra[1] + (problem.tied_parameters if len(ends) > 1 else 0.0)
        return np.asarray(counts)

    def gradient_bytes(self, ends: IntArray) -> FloatArray:
        """Return (S,) bytes sent for the gradients of stages that end after these blocks, compressed."""
        return self.plain_problem().gradient_bytes(self.parameters(ends))

    def message_bytes(self, sharding: str) -> list[tuple[float, float]]:
        """Return (bytes gathered, bytes scattered) among replicas for the first block, the embedding and the head;
        zeros for one that the model lacks."""
        job = self.job.with_fields(sharding=sharding)
        layers = [self.blocks[:1], *self.ends]
        return [
            message_bytes_of(job, one[0].parameters, frozen_bytes(job, one[0])) if one else (0.0, 0.0) for one in layers
        ]

    @cached_property
    def memory_bytes(self) -> FloatArray:
        """(K,) bytes that a job may use on each kind of device."""
        return self.plain_problem().memory_bytes
