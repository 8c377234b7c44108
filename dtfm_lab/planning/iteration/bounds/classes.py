"""Kinds of stages and classes of devices, with the minimum that each can cost in any plan.

A kind of stage is a role and a number of blocks. The first stage has the first blocks and the embedding, the last stage
the last blocks and the head, so their costs are known. For a stage between them only the number of blocks is known.
Each of its costs is then the minimum over that many consecutive blocks.

A family says which schedules a bound covers, because the terms of the bound depend on the schedule.

Similar devices form one class. Its links are at least as good as the links of each member. The bound treats every class
as a number of equal devices, each as fast, as large and as well linked as the best of its class. So it holds for the
devices themselves. If a class holds only interchangeable devices, nothing is lost.

A cut of the network (not of the model) divides it into two sides with slow links between them. A pipeline that crosses
the cut processes no more micro-batches than its best link across carries. A stage with devices on both sides averages
over these links. Any cut gives a valid bound. Good cuts separate a group of devices that are near each other from all
others, so candidates come from joining the nearest classes first.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np

from dtfm_lab.costs.memory import message_bytes_of
from dtfm_lab.costs.seconds import ring_link_s, ring_rounds_s, shard
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.cost import grouped, link_matrices
from dtfm_lab.planning.iteration.problem import FIRST, LAST, MIDDLE, SOLE, IterationProblem, roles_of

INTERLEAVED = "interleaved-1f1b"
SPLIT = "zb-h1"
WHOLE = ("gpipe", "1f1b", "adaptive-1f1b")


@dataclass(frozen=True)
class Family:
    """Schedules that a bound treats alike: ``stages_per_device`` and ``splits`` are the same for all of them."""

    stages_per_device: int = 1
    splits: bool = False
    """True if a backward may be split, so that the stage before need not wait for the gradients of the weights."""


def families_of(job: Job, schedules: Iterable[str] | None = None) -> tuple[Family, ...]:
    """Return families that together cover the job's schedule or, if it names none, all ``schedules``. None stands for
    all built-in schedules.

    A schedule that is not built in counts as one that may split its backwards and has one stage per device.
    """
    names = (*WHOLE, SPLIT, INTERLEAVED) if schedules is None else tuple(schedules)
    if job.schedule is not None:
        names = (job.schedule,)
    interleaved = Family(job.stages_per_device)
    found = [interleaved if name == INTERLEAVED else Family(splits=name not in WHOLE) for name in names]
    # a bound that allows split backwards also holds for whole ones
    if Family(splits=True) in found:
        found = [family for family in found if family != Family()]
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True, eq=False)
class StageKinds:
    """Q kinds of stages. All numbers are minima. Those that grow with the micro-batch are for one sequence."""

    role: IntArray
    """(Q,) FIRST, MIDDLE, LAST or SOLE, which is the whole model on one device."""
    blocks: IntArray
    """(Q,) number of blocks."""
    flop: FloatArray
    """(Q,) FLOP of a forward."""
    again_flop: FloatArray
    """(Q,) FLOP of the forward that a backward repeats for blocks that are checkpointed one by one."""
    parameters: FloatArray
    """(Q,) parameters, with the copy of a tied embedding in the last stage."""
    held: FloatArray
    """(Q,) activation elements held from forward to backward."""
    frozen: FloatArray
    """(Q,) bytes of frozen weights."""
    before_flop: FloatArray
    """(Q,) minimum FLOP of the forwards of all stages before it together."""
    before_hops: IntArray
    """(Q,) minimum number of messages from the first stage to this one. -1 stands for S - 1, for the last of S
    stages."""
    chain_flop: FloatArray
    """(Q,) FLOP of the shortest forward that makes or uses a message. With several stages per device, it is the
    cheapest of the device's stages."""
    required: IntArray
    """(Q,) number of stages of this kind that a plan must have. -1 if only roles are counted: one first stage, one
    last, and the others in between."""

    @classmethod
    def of_any_cut(cls, problem: IterationProblem) -> Self:
        """Return every kind of stage (role and number of blocks) that some cut of the model can have, with one stage
        per device."""
        n_blocks, (embeds, heads) = problem.n_blocks, problem.alone.tolist()
        # beside the embedding or the head there may be no block, and then all are elsewhere
        counts = [
            np.arange(least, n_blocks + more)
            for least, more in ((1 - embeds, heads), (1, embeds and heads), (1 - heads, embeds))
        ]
        roles = [FIRST, MIDDLE, LAST]
        flop, again, parameters, held, frozen = (
            np.concatenate([*_of_roles(prefix, first, last, counts), [prefix[-1] + first + last]])
            for prefix, first, last in (
                (problem.block_flop, problem.first_extra[0], problem.last_extra[0]),
                (problem.block_again_flop, 0.0, 0.0),
                (problem.block_parameters, problem.first_extra[1], problem.last_extra[1] + problem.tied_parameters),
                (problem.block_held, problem.first_extra[2], problem.last_extra[2]),
                (problem.block_frozen, problem.first_extra[3], problem.last_extra[3]),
            )
        )
        parameters[-1] -= problem.tied_parameters
        role = np.append(np.repeat(roles, [len(k) for k in counts]), SOLE)
        first_block = problem.first_extra[0] + (0.0 if embeds else problem.block_flop[1])
        before = np.where(role == LAST, flop[-1] - flop, np.where(role == MIDDLE, first_block, 0.0))
        blocks = np.append(np.concatenate(counts), n_blocks)
        hops = np.array([0, 1, -1, 0])[role]
        return cls(role, blocks, flop, again, parameters, held, frozen, before, hops, flop, np.full(len(role), -1))

    @classmethod
    def of_cut(cls, problem: IterationProblem, blocks: tuple[int, ...], stages_per_device: int = 1) -> Self:
        """Return one kind for each device of a pipeline. ``blocks`` are the blocks of all stages, first stage first.

        With several stages per device, the device at position p of P holds stages p, p + P, p + 2 P, ...
        """
        counts = np.array(blocks)
        n_devices = len(counts) // stages_per_device
        ends = np.concatenate([[0], np.cumsum(counts)])
        prefixes = problem.block_flop, problem.block_parameters, problem.block_held, problem.block_frozen
        flop, parameters, held, frozen = (np.diff(prefix[ends]) for prefix in prefixes)
        again = np.diff(problem.block_again_flop[ends])
        ends_of = zip((flop, parameters, held, frozen), problem.first_extra, problem.last_extra, strict=True)
        for of, first, last in ends_of:
            of[0] += first
            of[-1] += last
        if n_devices > 1:
            parameters[-1] += problem.tied_parameters
        of_device = (x.reshape(stages_per_device, n_devices) for x in (counts, flop, parameters, held, again, frozen))
        counts, flop, parameters, held, again, frozen = of_device
        return cls(
            role=roles_of(n_devices),
            blocks=counts.sum(axis=0),
            flop=flop.sum(axis=0),
            again_flop=again.sum(axis=0),
            parameters=parameters.sum(axis=0),
            held=held.min(axis=0),
            frozen=frozen.sum(axis=0),
            before_flop=np.cumsum(flop[0]) - flop[0],
            before_hops=np.arange(n_devices),
            chain_flop=flop.min(axis=0),
            required=np.ones(n_devices, dtype=np.int64),
        )

    def __len__(self) -> int:
        return len(self.role)


class ClassPassCosts(NamedTuple):
    """Costs of one micro-batch's passes, by kind of stage and class of devices, as the kernel takes them. All times are
    in seconds."""

    fits: FloatArray
    """(Q, C) 1 if a stage fits the memory of the class's devices, else 0."""
    in_flight: FloatArray
    """(Q, C) maximum number of micro-batches that a device holds at once; 0 if no limit is known."""
    forward_s: FloatArray
    input_s: FloatArray
    weight_s: FloatArray
    """(Q, C) backward to the weights. ``forward_s`` is for a forward, ``input_s`` for a backward to the inputs."""
    slower_s: FloatArray
    """(Q, C) additional time of a micro-batch if the group is on both sides of a cut of the network."""
    hidden_s: FloatArray
    """(Q, C) time of the last backward, which averaging may overlap; 0 without overlap."""
    chain_s: FloatArray
    """(Q, C) minimum time of the forward and the backward to the inputs that make or use a message."""
    before_s: FloatArray
    before_back_s: FloatArray
    """(Q,) minimum time of the backwards to the inputs in all stages before this one. ``before_s`` is the same for
    forwards."""
    next_s: float
    """Minimum time of the forward and the backward to the inputs in the next stage."""
    rest_s: FloatArray
    """(Q,) minimum time of the forward and the backward to the inputs in all other stages together."""


def _of_roles(prefix: FloatArray, first: float, last: float, counts: list[IntArray]) -> list[FloatArray]:
    """Return one array each for first, middle and last stages: the costs of stages with these ``counts`` of blocks.

    ``prefix`` has the sums of the cost over the first 0 to L blocks. ``first`` and ``last`` are the costs of the
    embedding and of the head. A middle stage counts as having the cheapest blocks.
    """
    found = zip(windows(prefix), counts, (first, 0.0, last), strict=True)
    return [window[k] + extra for window, k, extra in found]


def windows(prefix: FloatArray) -> FloatArray:
    """Return (3, L + 1) sums over 0 to L consecutive blocks: the first ones, the cheapest ones and the last ones."""
    n = len(prefix)
    least = [(prefix[k:] - prefix[: n - k]).min() for k in range(n)]
    return np.stack([prefix, np.array(least), prefix[-1] - prefix[::-1]])


MOST_CLASSES = 40
"""Maximum number of classes of a bound. If more devices differ, the most similar ones share a class."""
TOLERANCES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, np.inf)
"""Relative differences allowed between two devices of one class, tried in this order."""
TYPICAL_BYTES = 2.0**23
"""Size in bytes of a message. Links are compared by the seconds that they take for it."""


@dataclass(frozen=True, eq=False)
class DeviceClasses:
    """C classes of similar devices, which together are the N devices of a problem."""

    problem: IterationProblem
    of_device: IntArray
    """(N,) class of each device."""

    @classmethod
    def of(cls, problem: IterationProblem, most: int = MOST_CLASSES) -> Self:
        """Return at most ``most`` classes, made with the smallest of ``TOLERANCES`` that suffices.

        Devices of different speed, memory or price share a class only if even the widest tolerance leaves too many
        classes. Devices are then sorted by speed and divided into classes of nearly equal size.
        """
        n = problem.n_devices
        everyone = np.arange(n)
        message_s = problem.links.latency_s + problem.links.moving_s(
            everyone[:, None], everyone[None, :], TYPICAL_BYTES
        )
        kinds = np.stack([problem.flop_per_s, problem.memory_bytes, problem.price_per_hour, *problem.reached], axis=1)
        for tolerance in TOLERANCES:
            links = link_matrices(problem.topology) if tolerance == 0 else (message_s,)
            of_device = grouped(kinds, links, tolerance, most)
            if of_device is not None:
                return cls(problem, of_device)
        rank = np.argsort(np.argsort(problem.flop_per_s, kind="stable"), kind="stable")
        return cls(problem, rank * most // n)  # more kinds than classes: devices of similar speed share one

    @cached_property
    def count(self) -> IntArray:
        """(C,) number of devices in each class."""
        return np.bincount(self.of_device)

    def flop_per_s(self, microbatch: int) -> FloatArray:
        """Return (C,) FLOP/s of each class's fastest device with this micro-batch size."""
        return self._most(self.problem.flop_per_s_of(microbatch))

    @cached_property
    def memory_bytes(self) -> FloatArray:
        """(C,) memory of each class's largest device, in bytes."""
        return self._most(self.problem.memory_bytes)

    @cached_property
    def price_per_hour(self) -> FloatArray:
        """(C,) US dollars per hour of each class's cheapest device."""
        return -self._most(-self.problem.price_per_hour)

    @cached_property
    def latency_s(self) -> FloatArray:
        """(C, C) minimum latency from a device of the row's class to another device of the column's class; infinite
        without such a pair."""
        return self.least(self.problem.links.latency_s)

    @cached_property
    def _least_s_per_byte(self) -> FloatArray:
        return self.least(1.0 / self.problem.topology.bandwidth_bytes_per_s)

    def moving_s(self, n_bytes: float) -> FloatArray:
        """Return (C, C) minimum seconds for which a message of this size occupies a link; infinite without a link."""
        if self.problem.links.message_bytes is None:
            once = self._least_s_per_byte
            return n_bytes * once if n_bytes else np.where(np.isinf(once), np.inf, 0.0)  # 0 x infinity is NaN
        everyone = np.arange(self.problem.n_devices)
        return self.least(self.problem.links.moving_s(everyone[:, None], everyone[None, :], n_bytes))

    def least(self, of_pairs: FloatArray) -> FloatArray:
        """Return (C, C) minima of an (N, N) matrix, over all pairs of different devices from two classes; infinite
        without a pair."""
        order = np.argsort(self.of_device, kind="stable")
        begins = np.searchsorted(self.of_device[order], np.arange(len(self.count)))
        apart = np.where(np.eye(len(of_pairs), dtype=bool), np.inf, of_pairs)[np.ix_(order, order)]
        columns = np.minimum.reduceat(apart, begins, axis=1)
        return np.asarray(np.minimum.reduceat(columns, begins, axis=0))

    def _most(self, of_devices: FloatArray) -> FloatArray:
        most = np.full(len(self.count), -np.inf)
        np.maximum.at(most, self.of_device, of_devices)
        return most


LEAST_RATIO = 1.15
"""A cut is tried only if messages across it take at least this multiple of the usual time. The usual time is the median
over devices of a message's time to the nearest other device."""
MOST_CUTS = 3


def cuts_of(classes: DeviceClasses, message_s: FloatArray) -> list[IntArray]:
    """Return at most ``MOST_CUTS`` cuts of the network, each as (C,) the side, 0 or 1, of every class. The cut across
    which messages take longest comes first. A cut is left out if messages across it are not slow (``LEAST_RATIO``).

    ``message_s`` is (C, C) seconds. The slower of two directions counts. Groups of classes are joined by single
    linkage, the nearest first. A group becomes one side of a cut if it is farther from all others than the nearest two
    groups are from each other. The last two groups are always the sides of a cut.
    """
    n = len(classes.count)
    if n < 2:
        return []
    slower = np.maximum(message_s, message_s.T)
    group = np.arange(n)
    found: list[tuple[float, IntArray]] = []
    while (n_groups := len(np.unique(group))) > 1:
        apart = np.where(group[:, None] != group[None, :], slower, np.inf)
        joined_s = apart.min()
        for one in np.unique(group):
            inside = group == one
            across_s = slower[np.ix_(inside, ~inside)].min()
            if n_groups == 2 or across_s > joined_s:
                found.append((across_s, (~inside).astype(np.int64)))
        i, j = np.unravel_index(np.argmin(apart), apart.shape)
        group = np.where(group == group[j], group[i], group)
    return _ranked(found, slower, classes.count)


def _ranked(found: list[tuple[float, IntArray]], slower: FloatArray, count: IntArray) -> list[IntArray]:
    usual_s = np.median(np.repeat(np.where(np.isfinite(slower), slower, np.inf).min(axis=1), count))
    seen: set[tuple[int, ...]] = set()
    cuts: list[IntArray] = []
    for across_s, side in sorted(found, key=lambda one: -one[0]):
        side = side if side[0] == 0 else 1 - side
        if across_s < LEAST_RATIO * usual_s or tuple(side.tolist()) in seen or len(cuts) == MOST_CUTS:
            continue
        seen.add(tuple(side.tolist()))
        cuts.append(side)
    return cuts


# ---------------------------------------------------------------------------------------------------------------------
# Minimum seconds of averaging and of gathering, by kind of stage and class of device, for any group it may be in.
#
# Averaging that overlaps the last backward begins no earlier than that backward. Its buckets are parts of the same
# messages, so a link that carries one bucket after another takes as long as for the whole. But an answer to the last
# bucket may be short, so only its latency counts.
#
# A ring whose members lie on both sides of a cut crosses it both ways. Let a be the member that sends across the cut,
# and c a device whose messages reach a after d hops, 0 <= d < R. In the first d rounds, what c contributes moves to a.
# From round d on, a sends R - 1 - d messages that sum and R - 1 that spread. They wait for c's contribution and follow
# each other on the link across. So after c's last pass, averaging takes at least d of the quickest hops and all these
# messages. This is linear in d, so the minimum is at d = 0 or d = R - 1. For a itself d is 0. Each side has one member
# that sends across.
#
# If no region lies on both sides, the leaders of regions exchange shards, one per leader, there and back.
#
# Replicas that split gradients, or with zero-3 also parameters, exchange them in every micro-batch. A ring that gathers
# has R - 1 rounds, each as long as its slowest link (``GroupRings``). This is at least the best link that leaves a
# device and, in a group on both sides of a cut, the best link across in either direction. Layers follow each other, so
# a pass takes at least all its messages, and at least computing plus the message that nothing hides: of the first layer
# that is gathered, and of the last that is scattered (``streamed_s``).


@dataclass(frozen=True, eq=False)
class Averages:
    """Minimum seconds in which groups of R replicas average. Q kinds of stages, C classes."""

    classes: DeviceClasses
    parameters: FloatArray
    """(Q,) parameters of each kind."""
    n_replicas: int

    @property
    def _problem(self) -> IterationProblem:
        return self.classes.problem

    @property
    def _how(self) -> str:
        return str(self._problem.job.synchronisation)

    @property
    def _parts(self) -> int:
        """Number of parts that a gradient is cut into for messages."""
        return 1 if self._how == "central" else self.n_replicas

    def _moving_s(self, sizes: FloatArray) -> FloatArray:
        """Return (Q, C, C) minimum seconds for which messages of these (Q,) sizes occupy a link. The group counts as
        being on as few hosts as can hold it."""
        slower = self._problem.links.least_slower(self.n_replicas)
        return np.array([slower * self.classes.moving_s(size) for size in sizes])

    @cached_property
    def _there_s(self) -> FloatArray:
        """(Q, C, C) seconds for which a message of gradients occupies its link. It carries one part of the gradient."""
        sizes = shard(self._problem.gradient_bytes(self.parameters), self._parts)
        return self._moving_s(sizes)

    @cached_property
    def _back_s(self) -> FloatArray:
        """(Q, C, C) seconds for which a message with one part of the result occupies its link."""
        sizes = shard(self._problem.average_bytes(self.parameters), self._parts)
        return self._moving_s(sizes)

    @cached_property
    def _there_and_back_s(self) -> FloatArray:
        """(Q, C, C) seconds from the start of a message with gradients to the arrival of the answer."""
        latency = self.classes.latency_s
        both = latency + latency.T
        answer = np.swapaxes(self._back_s, 1, 2)
        if self._problem.job.overlap:
            return np.maximum(self._there_s, answer) + both
        return self._there_s + answer + both

    @cached_property
    def pair_s(self) -> FloatArray:
        """(Q, C, C) seconds of a device's messages with a peer, as ``averaging_s`` takes them.

        - sharded: the device's two messages to the peer, one after the other
        - sharded at once: a message to the peer and its answer
        - other ways: one message to the peer (used only for central averaging, where the root sends it)
        """
        latency = self.classes.latency_s
        if self._how == "sharded":
            return self._there_s + self._back_s + 2 * latency
        return (
            np.ascontiguousarray(self._there_and_back_s) if self._how == "sharded-at-once" else self._there_s + latency
        )

    @cached_property
    def floor_s(self) -> FloatArray:
        """(Q, C) minimum seconds of averaging, whatever the peers."""
        latency, n = self.classes.latency_s, self.n_replicas
        if self._how == "ring" and n > 1:
            floor = ring_link_s(n, self._there_s, self._back_s, latency).min(axis=2)
            if not self._problem.job.overlap:
                least = [(one + latency).min(axis=(1, 2))[:, None] for one in (self._there_s, self._back_s)]
                floor = np.maximum(floor, ring_rounds_s(n, least[0] + least[1]))
            return np.asarray(floor)
        found: FloatArray = self._there_and_back_s.min(axis=2)
        if self._how == "hierarchical":  # a leader may only spread the whole average
            sizes = self._problem.gradient_bytes(self.parameters)
            spread = self._moving_s(sizes)
            found = np.minimum(found, (spread + latency).min(axis=2))
        return found

    def across_s(self, side: IntArray) -> FloatArray:
        """Return (Q, C) ``floor_s`` for a group with devices on both sides of a cut. ``side`` (C,) is the side of each
        class."""
        n, latency = self.n_replicas, self.classes.latency_s
        floor = self.floor_s
        if self._how == "ring":
            hop = latency.min() if self._problem.job.overlap else (self._there_s + latency).min(axis=(1, 2))
            for here in (0, 1):
                there, back, late = (_across(one, side, here) for one in (self._there_s, self._back_s, latency))
                floor = np.maximum(floor, ring_link_s(n, np.minimum(hop, there), back, late)[:, None])
        elif self._how == "hierarchical" and (most := self._most_leaders(side)):
            sizes = shard(self._problem.gradient_bytes(self.parameters), most)
            once_s = self._moving_s(sizes)
            ways = [_across(once_s, side, here) for here in (0, 1)]
            both = np.maximum(*ways) if self._problem.job.overlap else ways[0] + ways[1]
            late = _across(latency, side, 0) + _across(latency, side, 1)
            floor = np.maximum(floor, (both + late)[:, None])
        return floor

    def border_s(self, side: IntArray) -> FloatArray | None:
        """Return (Q, C) minimum seconds in which a device sends all its messages, if it is the member of a ring that
        sends across the cut. None if averaging is not a ring."""
        if self._how != "ring":
            return None
        far = np.where(side[:, None] != side[None, :], 0.0, np.inf)
        once = ring_link_s(self.n_replicas, self._there_s, self._back_s, self.classes.latency_s)
        return np.asarray((once + far).min(axis=2))

    def tied_s(self, side: IntArray) -> FloatArray:
        """Return (C, 2) minimum seconds in which a device exchanges a tied embedding with the other end of its
        pipeline: a device on the same side of the cut, or any device. 0 without a tied embedding."""
        if self._problem.tied_parameters == 0:
            return np.zeros((len(side), 2))
        message_s = self.classes.moving_s(self._problem.embedding_bytes) + self.classes.latency_s
        near = np.where(side[:, None] == side[None, :], message_s, np.inf)
        return np.stack([near.min(axis=1), message_s.min(axis=1)], axis=1)

    def _most_leaders(self, side: IntArray) -> int:
        """Return the maximum number of leaders of a group, one per region; 0 if a region has devices on both sides of
        the cut."""
        devices = self._problem.topology.devices
        sides: dict[str, set[int]] = {}
        for i, device in enumerate(devices):
            sides.setdefault(device.region or f" {i}", set()).add(int(side[self.classes.of_device[i]]))
        return 0 if any(len(of) > 1 for of in sides.values()) else min(len(sides), self.n_replicas)


def _across(of_pairs: FloatArray, side: IntArray, here: int) -> FloatArray:
    """Return minima of (..., C, C) numbers over pairs from side ``here`` to the other; infinite without such a pair."""
    return np.asarray(np.where((side[:, None] == here) & (side[None, :] != here), of_pairs, np.inf).min(axis=(-2, -1)))


Seconds = tuple[FloatArray, FloatArray, FloatArray]
"""Three (Q, C) arrays: seconds of one micro-batch's forward, backward to the inputs, and backward to the weights."""


def gathered_passes(
    computing: Seconds,
    classes: DeviceClasses,
    kinds: StageKinds,
    microbatch: int,
    n_replicas: int,
    side: IntArray | None = None,
) -> Seconds:
    """Return ``computing``, the seconds of passes, raised to at least the seconds of the messages that replicas
    exchange in them.

    With ``side``, (C,) sides of a cut, the results are for a group on both sides.
    """
    problem = classes.problem
    job = problem.job
    n_microbatches = job.global_batch // microbatch // n_replicas
    gathers = 1.0 if job.sharding == "zero-3" else 0.0
    scatters = 1.0 if job.sharding == "zero-3" else (n_microbatches - 1) / n_microbatches
    block = np.diff(problem.block_parameters).min(), np.diff(problem.block_frozen).min()
    ends = problem.first_extra[[1, 3]], problem.last_extra[[1, 3]]
    sizes = [message_bytes_of(job, int(n), float(frozen)) for n, frozen in (block, *ends)]
    once = [tuple(_ring_s(classes, n_bytes, n_replicas, side) for n_bytes in size) for size in sizes]
    embeds = (kinds.role % SOLE == FIRST) & (problem.first_extra[0:2] > 0).any()
    heads = (kinds.role > MIDDLE) & (problem.last_extra[0:2] > 0).any()
    gather_s, scatter_s = (
        times
        * (kinds.blocks[:, None] * once[0][what] + embeds[:, None] * once[1][what] + heads[:, None] * once[2][what])
        for what, times in ((0, gathers), (1, scatters))
    )
    begin_s = gathers * np.where(embeds[:, None], np.minimum(once[0][0], once[1][0]), once[0][0])
    begin_back_s = gathers * np.where(heads[:, None], np.minimum(once[0][0], once[2][0]), once[0][0])
    end_s = scatters * np.where(embeds[:, None], np.minimum(once[0][1], once[1][1]), once[0][1])
    forward_s, input_s, weight_s = computing
    splits = weight_s.any()
    forward_s = np.maximum(forward_s + begin_s, gather_s)
    if not splits:
        return forward_s, np.maximum(input_s + begin_back_s + end_s, gather_s + scatter_s), weight_s
    return forward_s, np.maximum(input_s + begin_back_s, gather_s), np.maximum(weight_s + end_s, scatter_s)


def _ring_s(classes: DeviceClasses, n_bytes: float, n_replicas: int, side: IntArray | None) -> FloatArray:
    """Return (C,) minimum seconds in which a ring of R replicas gathers ``n_bytes``, if one of the replicas is a device
    of that class.

    With ``side``, (C,) sides of a cut, the ring is on both sides.
    """
    slower = classes.problem.links.least_slower(n_replicas)
    once = slower * classes.moving_s(shard(n_bytes, n_replicas)) + classes.latency_s
    least = once.min(axis=1)
    if side is not None:
        for here in (0, 1):
            least = np.maximum(least, _across(once, side, here))
    return np.asarray(ring_rounds_s(n_replicas, least))
