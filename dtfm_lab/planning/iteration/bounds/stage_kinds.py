"""Every stage that a cut of the model may have, with the least that it can cost wherever it lies.

A kind of stage is a role and a number of blocks. The first stage has the first blocks and the embedding, the last the
last blocks and the head: their costs are known. Of a stage between them only the number of blocks is known, so each of
its costs is the least of any so many consecutive blocks.

A family says which schedules a bound is for, as they differ in what its terms may count on.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.units import FloatArray, IntArray
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
    found = []
    for name in names:
        if name == INTERLEAVED:
            found.append(Family(job.stages_per_device))
        else:
            found.append(Family(splits=name not in WHOLE))
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
        flop, again, parameters, held = (
            np.concatenate([*_of_roles(prefix, first, last), [prefix[-1] + first + last]])
            for prefix, first, last in (
                (problem.block_flop, problem.first_extra[0], problem.last_extra[0]),
                (problem.block_again_flop, 0.0, 0.0),
                (problem.block_parameters, problem.first_extra[1], problem.last_extra[1] + problem.tied_parameters),
                (problem.block_held, problem.first_extra[2], problem.last_extra[2]),
            )
        )
        parameters[-1] -= problem.tied_parameters
        role = np.append(np.repeat(roles, len(k)), SOLE)
        first_block = problem.first_extra[0] + problem.block_flop[1]
        before = np.where(role == LAST, flop[-1] - flop, np.where(role == MIDDLE, first_block, 0.0))
        blocks = np.append(np.tile(k, len(roles)), n_blocks)
        hops = np.array([0, 1, -1, 0])[role]
        return cls(role, blocks, flop, again, parameters, held, before, hops, flop, np.full(len(role), -1))

    @classmethod
    def of_cut(cls, problem: IterationProblem, blocks: tuple[int, ...], stages_per_device: int = 1) -> Self:
        """What each device of a pipeline holds, with the blocks of all stages given, first stage first.

        With several stages a device, the one at position p of P holds stages p, p + P, p + 2 P, ...
        """
        counts = np.array(blocks)
        n_devices = len(counts) // stages_per_device
        flop, parameters = problem.stage_flop(counts), problem.stage_parameters(counts)
        if n_devices == 1 and len(counts) > 1:
            parameters[-1] -= problem.tied_parameters
        ends = np.concatenate([[0], np.cumsum(counts)])
        held, again = np.diff(problem.block_held[ends]), np.diff(problem.block_again_flop[ends])
        held[0] += problem.first_extra[2]
        held[-1] += problem.last_extra[2]
        of_device = [x.reshape(stages_per_device, n_devices) for x in (counts, flop, parameters, held, again)]
        return cls(
            role=_roles(n_devices),
            blocks=of_device[0].sum(axis=0),
            flop=of_device[1].sum(axis=0),
            again_flop=of_device[4].sum(axis=0),
            parameters=of_device[2].sum(axis=0),
            held=of_device[3].min(axis=0),
            before_flop=np.cumsum(of_device[1][0]) - of_device[1][0],
            before_hops=np.arange(n_devices),
            chain_flop=of_device[1].min(axis=0),
            required=np.ones(n_devices, dtype=np.int64),
        )

    def __len__(self) -> int:
        return len(self.role)

    def only(self, which: FloatArray) -> "StageKinds":
        """The kinds of a mask or of indices."""
        return replace(self, **{name: getattr(self, name)[which] for name in self.__dataclass_fields__})


def _roles(n_stages: int) -> IntArray:
    roles = np.full(n_stages, MIDDLE)
    roles[-1] = LAST
    roles[0] = FIRST if n_stages > 1 else SOLE
    return roles


def _of_roles(prefix: FloatArray, first: float, last: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(L - 1,) costs of the first, of the cheapest and of the last 1 to L - 1 blocks."""
    n = len(prefix) - 1
    windows = np.array([(prefix[k:] - prefix[:-k]).min() for k in range(1, n)])
    return prefix[1:n] + first, windows, (prefix[-1] - prefix[::-1])[1:n] + last
