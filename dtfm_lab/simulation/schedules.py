"""Pipeline schedules by name: ``(n_stages, n_microbatches) -> Schedule`` of forwards and backwards."""

from __future__ import annotations

from collections.abc import Callable

from dtfm_lab.domain.registry import Registry
from dtfm_lab.domain.schedule import Action, Kind, Schedule

schedules: Registry[Callable[[int, int], Schedule]] = Registry("pipeline schedule")


@schedules.register("gpipe")
def gpipe(n_stages: int, n_microbatches: int) -> Schedule:
    """All forwards, then all backwards (Huang et al. 2019). What DT-FM runs."""
    order = [(kind, m) for kind in (Kind.FORWARD, Kind.BACKWARD) for m in range(n_microbatches)]
    return _schedule("gpipe", n_microbatches, [order] * n_stages)


@schedules.register("1f1b")
def one_forward_one_backward(n_stages: int, n_microbatches: int) -> Schedule:
    """Warm up, alternate, cool down (PipeDream-Flush, Narayanan et al. 2021).

    Stage s holds at most min(S - s, M) activations.
    """
    orders = []
    for stage in range(n_stages):
        warmup = min(n_stages - 1 - stage, n_microbatches)
        order = [(Kind.FORWARD, m) for m in range(warmup)]
        for m in range(n_microbatches - warmup):
            order += [(Kind.FORWARD, warmup + m), (Kind.BACKWARD, m)]
        order += [(Kind.BACKWARD, m) for m in range(n_microbatches - warmup, n_microbatches)]
        orders.append(order)
    return _schedule("1f1b", n_microbatches, orders)


def peak_activations(schedule: Schedule) -> tuple[int, ...]:
    """Per stage, the most micro-batches whose activations are held at once."""
    peaks = []
    for program in schedule.programs:
        held = peak = 0
        for action in program:
            held += (action.kind is Kind.FORWARD) - (action.kind is Kind.BACKWARD)
            peak = max(peak, held)
        peaks.append(peak)
    return tuple(peaks)


def _schedule(name: str, n_microbatches: int, orders: list[list[tuple[Kind, int]]]) -> Schedule:
    programs = tuple(tuple(Action(stage, kind, m) for kind, m in order) for stage, order in enumerate(orders))
    return Schedule(name, n_microbatches, programs)
