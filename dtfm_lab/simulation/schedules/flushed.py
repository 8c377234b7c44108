"""Schedules of one stage a device and whole backwards: gpipe, 1f1b and, between them, adaptive-1f1b.

They differ in one number a device: how many forwards it runs before it takes turns, a forward and a backward.
With w of them it holds min(w + 1, M) activations. GPipe's w is M everywhere; 1F1B's is S - 1 - s, just enough
to keep all devices busy where messages take no time. Where they take long, the backward of a micro-batch is back
later, and the device waits once it has no forward left to run: more forwards ahead hide the round trip.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from numbers import Integral

from dtfm_lab.domain.errors import ScheduleError
from dtfm_lab.domain.network import shortened
from dtfm_lab.domain.schedule import Kind, Schedule
from dtfm_lab.simulation.schedules.orders import passes, taking_turns
from dtfm_lab.simulation.schedules.registry import counts, schedules


@schedules.register("gpipe")
def gpipe(n_stages: int, n_microbatches: int, **_: object) -> Schedule:
    """All forwards, then all backwards (Huang et al. 2019). What DT-FM runs."""
    n_stages, n_microbatches = counts("gpipe", n_stages, n_microbatches)
    return _flushed("gpipe", n_microbatches, [n_microbatches] * n_stages)


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
