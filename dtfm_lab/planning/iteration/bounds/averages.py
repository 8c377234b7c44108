"""Least seconds of averaging and of gathering, by kind of stage and class of device, whatever the group's others are.

Averaging overlapped with the last backward begins no earlier than that backward. Its buckets are parts of the same
messages, so what a link carries, one bucket after the other, takes as long as the whole; but an answer to the last
bucket may be short, and counts its latency only.

A ring whose members lie on both sides of a cut crosses it both ways. Let a be the member that sends across, d hops
behind a device c, 0 <= d < R. The first d rounds of c's shard come to a one after the other; a's rounds from the d-th
on, R - 1 - d that sum and R - 1 that spread, wait for these and follow each other on the link across. So from c's last
pass on it takes d least hops and those messages; that is linear in d, so it is least at d = 0 or d = R - 1. For a
itself d is 0: each side has one such device.

Leaders of regions that all lie on one side each exchange a shard, of as many as there are leaders, there and back.

Replicas that split gradients, and with zero-3 parameters, exchange these in every micro-batch. A ring that gathers has
R - 1 rounds, each as long as its slowest link (``GroupRings``): no less than the best link that leaves a device, and,
in a group on both sides of a cut, than the best link across in either direction. Layers follow each other, so a pass
takes no less than all its messages, and no less than computing and the message that nothing hides: of the first layer
that is gathered, of the last that is scattered (``streamed_s``).
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.iteration.bounds.classes import FIRST, MIDDLE, SOLE, DeviceClasses, StageKinds
from dtfm_lab.planning.iteration.problem import IterationProblem
from dtfm_lab.simulation.memory_intervals import message_bytes_of


@dataclass(frozen=True, eq=False)
class Averages:
    """The averaging of groups of R replicas; (Q,) kinds of stages, (C,) classes."""

    classes: DeviceClasses
    parameters: FloatArray
    """(Q,) of each kind."""
    n_replicas: int

    @property
    def _problem(self) -> IterationProblem:
        return self.classes.problem

    @property
    def _how(self) -> str:
        return str(self._problem.job.synchronisation)

    @property
    def _share(self) -> float:
        return 1.0 if self._how == "central" else 1.0 / self.n_replicas

    @cached_property
    def _there_s(self) -> FloatArray:
        """(Q, C, C) seconds for which a message with a share of the gradient occupies its link."""
        sizes = [self._problem.gradient_bytes(n) * self._share for n in self.parameters]
        return np.array([self.classes.moving_s(size) for size in sizes])

    @cached_property
    def _back_s(self) -> FloatArray:
        """(Q, C, C) the same of what comes back."""
        sizes = [self._problem.average_bytes(n) * self._share for n in self.parameters]
        return np.array([self.classes.moving_s(size) for size in sizes])

    @cached_property
    def _there_and_back_s(self) -> FloatArray:
        """(Q, C, C) from a message's leaving to the arrival of the answer."""
        latency = self.classes.latency_s
        both = latency + latency.T
        answer = np.swapaxes(self._back_s, 1, 2)
        if self._problem.job.overlap:
            return np.maximum(self._there_s, answer) + both
        return self._there_s + answer + both

    @cached_property
    def pair_s(self) -> FloatArray:
        """(Q, C, C) seconds of a device's messages with a peer, as ``averaging_s`` lines them up: all of them one after
        the other, or at once there and back, or to the root."""
        latency = self.classes.latency_s
        if self._how == "sharded":
            return self._there_s + self._back_s + 2 * latency
        return (
            np.ascontiguousarray(self._there_and_back_s) if self._how == "sharded-at-once" else self._there_s + latency
        )

    @cached_property
    def floor_s(self) -> FloatArray:
        """(Q, C) what does not depend on the peers."""
        latency, n = self.classes.latency_s, self.n_replicas
        if self._how == "ring" and n > 1:
            floor = ((n - 1) * (self._there_s + self._back_s) + latency).min(axis=2)
            if not self._problem.job.overlap:
                least = [(one + latency).min(axis=(1, 2))[:, None] for one in (self._there_s, self._back_s)]
                floor = np.maximum(floor, (n - 1) * (least[0] + least[1]))
            return np.asarray(floor)
        found: FloatArray = self._there_and_back_s.min(axis=2)
        if self._how == "hierarchical":  # a leader may only spread the whole average
            spread = np.array([self.classes.moving_s(self._problem.gradient_bytes(n)) for n in self.parameters])
            found = np.minimum(found, (spread + latency).min(axis=2))
        return found

    def across_s(self, side: IntArray) -> FloatArray:
        """(Q, C) the same of a group with devices on both of these (C,) sides of a cut."""
        n, latency = self.n_replicas, self.classes.latency_s
        floor = self.floor_s
        if self._how == "ring":
            hop = latency.min() if self._problem.job.overlap else (self._there_s + latency).min(axis=(1, 2))
            for here in (0, 1):
                there, back, late = (_across(one, side, here) for one in (self._there_s, self._back_s, latency))
                ring = (n - 1) * (np.minimum(hop, there) + back) + late
                floor = np.maximum(floor, ring[:, None])
        elif self._how == "hierarchical" and (most := self._most_leaders(side)):
            sizes = [self._problem.gradient_bytes(n) / most for n in self.parameters]
            shard = np.array([self.classes.moving_s(size) for size in sizes])
            ways = [_across(shard, side, here) for here in (0, 1)]
            both = np.maximum(*ways) if self._problem.job.overlap else ways[0] + ways[1]
            late = _across(latency, side, 0) + _across(latency, side, 1)
            floor = np.maximum(floor, (both + late)[:, None])
        return floor

    def border_s(self, side: IntArray) -> FloatArray | None:
        """(Q, C) seconds of a ring's member that sends across the cut; None for other ways of averaging."""
        if self._how != "ring":
            return None
        far = np.where(side[:, None] != side[None, :], 0.0, np.inf)
        once = (self.n_replicas - 1) * (self._there_s + self._back_s) + self.classes.latency_s
        return np.asarray((once + far).min(axis=2))

    def tied_s(self, side: IntArray) -> FloatArray:
        """(C, 2) least seconds in which the ends of a pipeline exchange their embedding: on one side, and anywhere."""
        if self._problem.tied_parameters == 0:
            return np.zeros((len(side), 2))
        message_s = self.classes.moving_s(self._problem.embedding_bytes) + self.classes.latency_s
        near = np.where(side[:, None] == side[None, :], message_s, np.inf)
        return np.stack([near.min(axis=1), message_s.min(axis=1)], axis=1)

    def _most_leaders(self, side: IntArray) -> int:
        """Most leaders of a group; 0 where a region has devices on both sides."""
        devices = self._problem.topology.devices
        sides: dict[str, set[int]] = {}
        for i, device in enumerate(devices):
            sides.setdefault(device.region or f" {i}", set()).add(int(side[self.classes.of_device[i]]))
        return 0 if any(len(of) > 1 for of in sides.values()) else min(len(sides), self.n_replicas)


def _across(of_pairs: FloatArray, side: IntArray, here: int) -> FloatArray:
    """Least of (..., C, C) numbers over pairs from side ``here`` to the other; infinite where there is none."""
    return np.asarray(np.where((side[:, None] == here) & (side[None, :] != here), of_pairs, np.inf).min(axis=(-2, -1)))


Seconds = tuple[FloatArray, FloatArray, FloatArray]
"""(Q, C) of the forward, the backward to the inputs and that to the weights, of one micro-batch."""


def gathered_passes(
    computing: Seconds,
    classes: DeviceClasses,
    kinds: StageKinds,
    microbatch: int,
    n_replicas: int,
    side: IntArray | None = None,
) -> Seconds:
    """The passes of ``computing``, no shorter than messages allow; of a group on both sides of a cut where ``side``
    says which classes lie where."""
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
    """(C,) least seconds in which a ring with a device of each class gathers so many bytes."""
    once = classes.moving_s(n_bytes / n_replicas) + classes.latency_s
    least = once.min(axis=1)
    if side is not None:
        for here in (0, 1):
            least = np.maximum(least, _across(once, side, here))
    return np.asarray((n_replicas - 1) * least)
