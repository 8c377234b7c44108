"""Kinds of stages and classes of devices, with the least that each can cost, whatever the plan.

There is a kind for every stage that a cut of the model may have, wherever it lies: a role and a number of blocks. The
first stage has the first blocks and the embedding, the last the last blocks and the head: their costs are known. Of a
stage between them only the number of blocks is known, so each of its costs is the least of any so many consecutive
blocks.

A family says which schedules a bound is for, as they differ in what its terms may count on.

Devices that are alike are one class, with links no worse than those of any of its members. A bound that takes every
class for a number of equal devices, each as fast, as large and as well linked as the best of its class, holds for the
devices themselves. Where a class holds interchangeable devices only, nothing is lost.

A cut of a network has two sides between which messages take long. Whatever crosses it pays for it: pipelines that cross
pass no more micro-batches than the best link across carries, and stages with devices on both sides average across. Any
cut gives a valid bound. Good ones part groups of devices that are near each other from all others, so candidates come
from joining the nearest classes first.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.interchangeable import grouped, link_matrices
from dtfm_lab.planning.iteration.problem import IterationProblem

INTERLEAVED = "interleaved-1f1b"
SPLIT = "zb-h1"
WHOLE = ("gpipe", "1f1b", "adaptive-1f1b")


@dataclass(frozen=True)
class Family:
    """Schedules of so many stages a device, with whole backwards only or with any."""

    stages_per_device: int = 1
    splits: bool = False
    """Whether a backward may be split, so that the stage before need not wait for the gradients of the weights."""


def families_of(job: Job, schedules: Iterable[str] | None = None) -> tuple[Family, ...]:
    """The families that hold all of these schedules: those of the job where it names one, else all that are built in.

    A schedule of another name may split its backwards and has one stage a device.
    """
    names = (*WHOLE, SPLIT, INTERLEAVED) if schedules is None else tuple(schedules)
    if job.schedule is not None:
        names = (job.schedule,)
    interleaved = Family(job.stages_per_device)
    found = [interleaved if name == INTERLEAVED else Family(splits=name not in WHOLE) for name in names]
    if Family(splits=True) in found:
        found = [family for family in found if family != Family()]
    return tuple(dict.fromkeys(found))


FIRST, MIDDLE, LAST, SOLE = range(4)


@dataclass(frozen=True, eq=False)
class StageKinds:
    """Q kinds of stages; all numbers are least ones, of one sequence where they depend on the micro-batch."""

    role: IntArray
    """(Q,) FIRST, MIDDLE, LAST or SOLE: the whole model on one device."""
    blocks: IntArray
    """(Q,) number of blocks."""
    flop: FloatArray
    """(Q,) FLOP of a forward."""
    again_flop: FloatArray
    """(Q,) FLOP that a backward repeats of the forward of blocks that are checkpointed one by one."""
    parameters: FloatArray
    """(Q,) with the copy of a tied embedding in the last stage."""
    held: FloatArray
    """(Q,) numbers held from forward to backward."""
    frozen: FloatArray
    """(Q,) bytes of weights that are not trained."""
    before_flop: FloatArray
    """(Q,) FLOP of a forward in all stages before it, at the least."""
    before_hops: IntArray
    """(Q,) messages from the first stage to it, at the least; -1 for the last stage of any cut: S - 1."""
    chain_flop: FloatArray
    """(Q,) FLOP of the least forward with which a message is made or used up: of the stage, or of one of several stages
    of a device."""
    required: IntArray
    """(Q,) how many stages of the plan are of this kind; -1 where the role alone decides."""

    @classmethod
    def of_any_cut(cls, problem: IterationProblem) -> Self:
        """All kinds: one stage a device, any number of blocks."""
        n_blocks = problem.n_blocks
        k = np.arange(1, n_blocks)
        roles = [FIRST, MIDDLE, LAST]
        flop, again, parameters, held, frozen = (
            np.concatenate([*_of_roles(prefix, first, last), [prefix[-1] + first + last]])
            for prefix, first, last in (
                (problem.block_flop, problem.first_extra[0], problem.last_extra[0]),
                (problem.block_again_flop, 0.0, 0.0),
                (problem.block_parameters, problem.first_extra[1], problem.last_extra[1] + problem.tied_parameters),
                (problem.block_held, problem.first_extra[2], problem.last_extra[2]),
                (problem.block_frozen, problem.first_extra[3], problem.last_extra[3]),
            )
        )
        parameters[-1] -= problem.tied_parameters
        role = np.append(np.repeat(roles, len(k)), SOLE)
        first_block = problem.first_extra[0] + problem.block_flop[1]
        before = np.where(role == LAST, flop[-1] - flop, np.where(role == MIDDLE, first_block, 0.0))
        blocks = np.append(np.tile(k, len(roles)), n_blocks)
        hops = np.array([0, 1, -1, 0])[role]
        return cls(role, blocks, flop, again, parameters, held, frozen, before, hops, flop, np.full(len(role), -1))

    @classmethod
    def of_cut(cls, problem: IterationProblem, blocks: tuple[int, ...], stages_per_device: int = 1) -> Self:
        """What each device of a pipeline holds, with the blocks of all stages given, first stage first.

        With several stages a device, the one at position p of P holds stages p, p + P, p + 2 P, ...
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
            role=np.array([SOLE] if n_devices == 1 else [FIRST, *[MIDDLE] * (n_devices - 2), LAST]),
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


class Costs(NamedTuple):
    """What passes of one micro-batch cost on each class, as the kernel takes it; seconds, by kind of stage."""

    fits: FloatArray
    """(Q, C) whether a stage fits."""
    in_flight: FloatArray
    """(Q, C) most micro-batches that it holds at once, 0 where unknown."""
    forward_s: FloatArray
    input_s: FloatArray
    weight_s: FloatArray
    """(Q, C) forward, backward to the inputs, backward to the weights."""
    slower_s: FloatArray
    """(Q, C) what a micro-batch takes in addition where the group is on both sides of a cut."""
    hidden_s: FloatArray
    """(Q, C) what averaging may hide behind."""
    chain_s: FloatArray
    """(Q, C) the least pair of forward and backward to the inputs that makes or uses up a message."""
    before_s: FloatArray
    before_back_s: FloatArray
    """(Q,) on the way to the stage and back."""
    next_s: float
    """The least forward and backward of a next stage."""
    rest_s: FloatArray
    """(Q,) the least forward and backward of all other stages."""


def _of_roles(prefix: FloatArray, first: float, last: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(L - 1,) costs of the first, of the cheapest and of the last 1 to L - 1 blocks."""
    begins, cheapest, ends = windows(prefix)[:, 1:-1]
    return begins + first, cheapest, ends + last


def windows(prefix: FloatArray) -> FloatArray:
    """(3, L + 1) sums of the first, of the least and of the last 0 to L consecutive blocks."""
    n = len(prefix)
    least = [(prefix[k:] - prefix[: n - k]).min() for k in range(n)]
    return np.stack([prefix, np.array(least), prefix[-1] - prefix[::-1]])


MOST_CLASSES = 40
"""Most classes of a bound; where more devices differ, the least different are put together."""
TOLERANCES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, np.inf)
"""Relative differences of two devices of one class, tried in this order."""
TYPICAL_BYTES = 2.0**23
"""Size of the message by whose seconds links are compared."""


@dataclass(frozen=True, eq=False)
class DeviceClasses:
    """C classes of the N devices of a problem."""

    problem: IterationProblem
    of_device: IntArray
    """(N,) class of each device."""

    @classmethod
    def of(cls, problem: IterationProblem, most: int = MOST_CLASSES) -> Self:
        """The finest classes of which there are no more than ``most``; interchangeable devices always share one.

        A class never holds devices of different speeds, memories or prices before all tolerances for links are tried.
        """
        n = problem.n_devices
        everyone = np.arange(n)
        message_s = problem.latency_s + problem.links.moving_s(everyone[:, None], everyone[None, :], TYPICAL_BYTES)
        kinds = np.stack([problem.flop_per_s, problem.memory_bytes, problem.price_per_hour, *problem.reached], axis=1)
        for tolerance in TOLERANCES:
            links = link_matrices(problem.topology) if tolerance == 0 else (message_s,)
            of_device = grouped(kinds, links, tolerance, most)
            if of_device is not None:
                return cls(problem, of_device)
        rank = np.argsort(np.argsort(problem.flop_per_s, kind="stable"), kind="stable")
        return cls(problem, rank * most // n)  # more kinds than classes: neighbours in speed share one

    @cached_property
    def count(self) -> IntArray:
        """(C,) devices of each class."""
        return np.bincount(self.of_device)

    def flop_per_s(self, microbatch: int) -> FloatArray:
        """(C,) FLOP/s of the fastest with these micro-batches."""
        return self._most(self.problem.flop_per_s_of(microbatch))

    @cached_property
    def memory_bytes(self) -> FloatArray:
        """(C,) bytes of the largest."""
        return self._most(self.problem.memory_bytes)

    @cached_property
    def price_per_hour(self) -> FloatArray:
        """(C,) US dollars of the cheapest."""
        return -self._most(-self.problem.price_per_hour)

    @cached_property
    def latency_s(self) -> FloatArray:
        """(C, C) least seconds from a device of the row's class to another of the column's; infinite where none."""
        return self.least(self.problem.latency_s)

    @cached_property
    def _least_s_per_byte(self) -> FloatArray:
        return self.least(1.0 / self.problem.topology.bandwidth_bytes_per_s)

    def moving_s(self, n_bytes: float) -> FloatArray:
        """(C, C) least seconds for which a message of this size occupies a link; infinite where there is none."""
        if self.problem.links.message_bytes is None:
            once = self._least_s_per_byte
            return n_bytes * once if n_bytes else np.where(np.isinf(once), np.inf, 0.0)  # 0 x infinite is no number
        everyone = np.arange(self.problem.n_devices)
        return self.least(self.problem.links.moving_s(everyone[:, None], everyone[None, :], n_bytes))

    def least(self, of_pairs: FloatArray) -> FloatArray:
        """(C, C) least of an (N, N) matrix over two different devices of two classes; infinite where there are none."""
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
"""Least ratio of a message's seconds across a cut to those within a side for which the cut is tried."""
MOST_CUTS = 3


def cuts_of(classes: DeviceClasses, message_s: FloatArray) -> list[IntArray]:
    """(C,) sides, 0 or 1, of a few cuts, the one across which messages take longest first.

    ``message_s`` is (C, C). Groups are joined by the least time of the slower direction (single linkage).
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
