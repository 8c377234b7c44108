"""Backwards split in two halves, of which other devices wait only for the first."""

from __future__ import annotations

from dtfm_lab.domain.schedule import Action, Kind, Schedule
from dtfm_lab.simulation.schedules.orders import passes, taking_turns
from dtfm_lab.simulation.schedules.registry import counts, schedules


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
