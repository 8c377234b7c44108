"""The built-in schedules, and the activations that devices hold under any.

gpipe, 1f1b and, between them, adaptive-1f1b differ in one number a device: how many forwards it runs before it takes
turns, a forward and a backward.
With w of them it holds min(w + 1, M) activations. GPipe's w is M everywhere; 1F1B's is S - 1 - s, just enough
to keep all devices busy where messages take no time. Where they take long, the backward of a micro-batch is back
later, and the device waits once it has no forward left to run: more forwards ahead hide the round trip.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import accumulate, chain, count, pairwise
from numbers import Integral
from typing import TypeVar

from dtfm_lab.domain.errors import ScheduleError
from dtfm_lab.domain.network import shortened
from dtfm_lab.domain.schedule import Action, Kind, Schedule
from dtfm_lab.domain.units import counted
from dtfm_lab.simulation.schedules.building import counts, schedules

Program = tuple[Action, ...]
T = TypeVar("T")


def passes(stage: int, kind: Kind, n_microbatches: int) -> Program:
    """This pass of every micro-batch, in order."""
    return tuple(Action(stage, kind, m) for m in range(n_microbatches))


def taking_turns(forwards: Sequence[T], backwards: Sequence[T], warmup: int) -> tuple[T, ...]:
    """``warmup`` forwards, then a forward and a backward in turn, then the backwards that are left."""
    n_turns = len(forwards) - warmup
    turns = chain.from_iterable(zip(forwards[warmup:], backwards[:n_turns], strict=True))
    return (*forwards[:warmup], *turns, *backwards[n_turns:])


@schedules.register("gpipe")
def gpipe(n_stages: int, n_microbatches: int, *, flush_every: int | None = None, **_: object) -> Schedule:
    """All forwards, then all backwards (Huang et al. 2019). What DT-FM runs.

    With ``flush_every`` so for every so many micro-batches in turn, the last ones fewer: the pipeline empties before
    the next ones, and no device holds more activations than that.
    """
    n_stages, n_microbatches = counts("gpipe", n_stages, n_microbatches)
    if flush_every is None:
        return _flushed("gpipe", n_microbatches, [n_microbatches] * n_stages)
    if not isinstance(flush_every, Integral) or isinstance(flush_every, bool) or flush_every < 1:
        raise ScheduleError(f"schedule gpipe: flush_every is {shortened(flush_every)}; wanted a whole number from 1")
    groups = [range(first, n_microbatches)[:flush_every] for first in range(0, n_microbatches, int(flush_every))]
    return Schedule(
        "gpipe",
        n_microbatches,
        tuple(
            tuple(Action(s, kind, m) for group in groups for kind in (Kind.FORWARD, Kind.BACKWARD) for m in group)
            for s in range(n_stages)
        ),
    )


@schedules.register("1f1b")
def one_forward_one_backward(n_stages: int, n_microbatches: int, **_: object) -> Schedule:
    """Warm up, alternate, cool down (PipeDream-Flush, Narayanan et al. 2021).

    Device s holds at most min(S - s, M) activations.
    """
    n_stages, n_microbatches = counts("1f1b", n_stages, n_microbatches)
    return _flushed("1f1b", n_microbatches, range(n_stages - 1, -1, -1))


def adaptive(n_stages: int, n_microbatches: int, warmups: Sequence[int] | None = None) -> Schedule:
    """1F1B with a warm-up of its own for every device.

    None stands for those of 1F1B. Device s holds at most min(warmups[s] + 1, M) activations.
    """
    n_stages, n_microbatches = counts("adaptive-1f1b", n_stages, n_microbatches)
    if warmups is None:
        warmups = range(n_stages - 1, -1, -1)
    elif not isinstance(warmups, Iterable):
        raise ScheduleError(f"schedule adaptive-1f1b: warm-ups are {shortened(warmups)}; wanted one a device")
    elif len(warmups := tuple(warmups)) != n_stages:
        raise ScheduleError(f"schedule adaptive-1f1b: {len(warmups)} warm-ups; wanted one a device, {n_stages}")
    return _flushed("adaptive-1f1b", n_microbatches, warmups)


def _flushed(name: str, n_microbatches: int, warmups: Sequence[int]) -> Schedule:
    for stage, warmup in enumerate(warmups):
        if not isinstance(warmup, Integral) or isinstance(warmup, bool) or warmup < 0:
            raise ScheduleError(
                f"schedule {name}: warm-up of device {stage} is {shortened(warmup)}; wanted a whole number from 0"
            )
    # the last forward alternates with the first backward in any case
    depths = tuple(min(int(warmup), n_microbatches - 1) for warmup in warmups)
    for stage, (before, depth) in enumerate(pairwise(depths), start=1):
        if depth > before:
            raise ScheduleError(
                f"schedule {name}: device {stage} warms up with {depth} forwards, device {stage - 1} with {before}; "
                f"wanted no more than the one before, which must send it as many before it has a gradient"
            )
    return _of_depths(name, n_microbatches, depths)


@lru_cache(maxsize=4)  # what-ifs about links build the same schedule many times
def _of_depths(name: str, n_microbatches: int, depths: tuple[int, ...]) -> Schedule:
    programs = tuple(
        taking_turns(passes(s, Kind.FORWARD, n_microbatches), passes(s, Kind.BACKWARD, n_microbatches), depth)
        for s, depth in enumerate(depths)
    )
    return Schedule(name, n_microbatches, programs)


@schedules.register("interleaved-1f1b")
def interleaved(n_stages: int, n_microbatches: int, *, stages_per_device: int = 2, **_: object) -> Schedule:
    """1F1B over the stages of all devices, which makes the bubble smaller and messages more (Narayanan et al. 2021).

    Micro-batches go in rounds of as many as there are devices, or a few more where that leaves none over: a device
    passes a round through its first stage, then through its second. Raises ScheduleError where rounds would differ.
    The orders are those of torch's ScheduleInterleaved1F1B.
    """
    name = "interleaved-1f1b"
    n_devices, n_microbatches = counts(name, n_stages, n_microbatches, stages_per_device)
    if n_microbatches % _n_rounds(n_devices, n_microbatches):
        below = next(n for n in count(n_microbatches - 1, -1) if not n % _n_rounds(n_devices, n))
        above = next(n for n in count(n_microbatches + 1) if not n % _n_rounds(n_devices, n))
        raise ScheduleError(
            f"schedule {name}: {counted(n_microbatches, 'micro-batch')} on {counted(n_devices, 'device')} do not "
            f"divide into {_n_rounds(n_devices, n_microbatches)} rounds; wanted such as {below} or {above}"
        )
    in_round = n_microbatches // _n_rounds(n_devices, n_microbatches)
    programs = []
    for position in range(n_devices):
        stages = range(position, n_devices * stages_per_device, n_devices)
        # a whole round through every stage but the last, and twice the way to the last device
        warmup = (stages_per_device - 1) * in_round + 2 * (n_devices - 1 - position)
        forwards = _in_rounds(Kind.FORWARD, stages, n_microbatches, in_round)
        backwards = _in_rounds(Kind.BACKWARD, stages[::-1], n_microbatches, in_round)
        programs.append(taking_turns(forwards, backwards, min(warmup, len(forwards))))
    return Schedule(name, n_microbatches, tuple(programs))


def _n_rounds(n_devices: int, n_microbatches: int) -> int:
    return max(n_microbatches // n_devices, 1)


def _in_rounds(kind: Kind, stages: range, n_microbatches: int, in_round: int) -> Program:
    return tuple(
        Action(stage, kind, m)
        for first in range(0, n_microbatches, in_round)
        for stage in stages
        for m in range(first, first + in_round)
    )


@schedules.register("zb-h1")
def zero_bubble(n_stages: int, n_microbatches: int, **_: object) -> Schedule:
    """1F1B with split backwards: weights' gradients, W, fill what would be bubble (ZB-H1, Qi et al. 2024).

    Device s takes turns as in 1F1B, forwards and I, and its W come s micro-batches behind its I: the later a device
    in the pipeline, the more of them it has left for the end, where it would wait. So every device holds
    min(S, M) activations, as many as 1F1B does on its first. The orders are those of torch's
    ScheduleInterleavedZeroBubble with one stage a rank.
    """
    n_stages, n_microbatches = counts("zb-h1", n_stages, n_microbatches)
    programs = []
    for stage in range(n_stages):
        forwards, inputs, weights = (
            passes(stage, kind, n_microbatches) for kind in (Kind.FORWARD, Kind.BACKWARD_INPUT, Kind.BACKWARD_WEIGHT)
        )
        program: list[Action] = []
        for action in taking_turns(forwards, inputs, min(n_stages - 1 - stage, n_microbatches)):
            program.append(action)
            if action.kind is Kind.BACKWARD_INPUT and action.microbatch is not None and action.microbatch >= stage:
                program.append(weights[action.microbatch - stage])
        programs.append((*program, *weights[max(n_microbatches - stage, 0) :]))
    return Schedule("zb-h1", n_microbatches, tuple(programs))


HELD = {Kind.FORWARD: 1, Kind.BACKWARD: -1, Kind.BACKWARD_WEIGHT: -1}
"""Change of the number of held activations by a pass."""


def peak_activations(schedule: Schedule) -> tuple[int, ...]:
    """Per device, the most activations that it holds at once.

    Each stage and micro-batch counts as one from its forward to its backward, or to the second half of a split one,
    W, which needs the stage's input as the first half does.
    """
    return tuple(max(accumulate(HELD.get(a.kind, 0) for a in program), default=0) for program in schedule.programs)
