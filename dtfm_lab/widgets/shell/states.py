"""How far each step of the lab has come, in words."""

from __future__ import annotations

from dtfm_lab.domain.units import format_s
from dtfm_lab.figures.theme import count
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.shell import staleness
from dtfm_lab.widgets.shell.step_frame import State

WATCHED = ("topology", "job", "plan", "schedule", "queueing", "choices", "predicted", "measured", "comparison")
"""traits of the lab's state that change a state"""


def states(lab_state: LabState) -> dict[str, State]:
    """By name of the step."""
    plan, measured = lab_state.plan, lab_state.measured
    of_plan = staleness.of_plan(lab_state)
    of_run = staleness.of_trace(lab_state, measured)
    return {
        "network": State(_network(lab_state)),
        "plan": State("" if plan is None else f"{format_s(plan.cost.total_s)}, gap {plan.gap:.1%}", of_plan),
        "groups": State(_grouped(lab_state), of_plan),
        "schedule": State(_predicted(lab_state), staleness.of_trace(lab_state, lab_state.predicted)),
        "what-if": State("", of_plan),
        "run": State("" if measured is None else f"measured {format_s(measured.iteration_s)}", of_run),
        "compare": State(_compared(lab_state), of_run if lab_state.comparison is not None else ""),
    }


def _network(lab_state: LabState) -> str:
    topology = lab_state.topology
    return "" if topology is None else f"{topology.name}, {count(len(topology), 'device')}"


def _grouped(lab_state: LabState) -> str:
    plan = lab_state.plan
    return "" if plan is None else f"{count(plan.job.n_stages, 'group')} of {plan.job.n_replicas}"


def _predicted(lab_state: LabState) -> str:
    predicted = lab_state.predicted
    if predicted is None:
        return ""
    return f"predicted {format_s(predicted.iteration_s)} under {predicted.context.schedule}"


def _compared(lab_state: LabState) -> str:
    comparison = lab_state.comparison
    return "" if comparison is None else f"error {comparison.iteration_error:+.2%}"
