"""The steps of the lab: the result of each in a few words, and why that is out of date."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.plan import cut_subplan
from dtfm_lab.domain.trace import Trace
from dtfm_lab.domain.units import format_s
from dtfm_lab.figures.theme import count
from dtfm_lab.widgets.lab_state import LabState, is_plan_of
from dtfm_lab.widgets.panel import Panel
from dtfm_lab.widgets.planner.plan_words import result_words


class StepState(NamedTuple):
    """How far a step has come."""

    done: str = ""
    """The result in a few words; empty while there is none."""
    stale: str = ""
    """Why the result is out of date; empty where it is not."""

    @property
    def kind(self) -> str:
        """``stale``, ``done`` or ``open``."""
        return "stale" if self.stale else "done" if self.done else "open"


def _never(_: LabState) -> str:
    return ""


@dataclass(frozen=True)
class LabStep:
    """One step of the lab, with all that the lab needs to number, save, restore and mark it."""

    name: str
    """Short name, as in ``LabState.step``, ``LabState.busy`` and ``LabState.pane``."""
    panel: Panel
    title: str
    """What its tab says."""
    result: Callable[[LabState], str] = _never
    """Returns the result in a few words; empty while there is none."""
    staleness: Callable[[LabState], str] = _never
    """Returns why the result is out of date; empty where it is not."""
    redo: str = ""
    """Text of the button that calls ``panel.redo`` where the step is out of date; empty for no button."""

    @property
    def saved_name(self) -> str:
        """The name under which a workspace keeps the panel's settings."""
        return self.name.replace("-", "_")

    def state(self, lab_state: LabState) -> StepState:
        return StepState(self.result(lab_state), self.staleness(lab_state))


def of(trait: str, describe: Callable[[Any], str]) -> Callable[[LabState], str]:
    """Return a step's ``result``: a description of one of the state's nouns, empty while there is none."""

    def result(lab_state: LabState) -> str:
        noun = getattr(lab_state, trait)
        return "" if noun is None else describe(noun)

    return result


plan_result = of("plan", result_words)
groups_result = of("plan", lambda plan: f"{count(plan.job.n_stages, 'group')} of {plan.job.n_replicas}")
schedule_result = of(
    "predicted", lambda trace: f"predicted {format_s(trace.iteration_s)} under {trace.context.schedule}"
)
run_result = of("measured", lambda trace: f"measured {format_s(trace.iteration_s)}")
compare_result = of("comparison", lambda comparison: f"error {comparison.error_text}")


def plan_staleness(lab_state: LabState) -> str:
    """Compare the plan with the network that is drawn and the job that is chosen."""
    plan = lab_state.plan
    if plan is None:
        return ""
    if lab_state.topology is None:
        return "the network of this plan is no longer drawn"
    if plan.topology.fingerprint != lab_state.topology.fingerprint:
        return "the network has changed since this plan"
    if lab_state.job is not None and not is_plan_of(plan.job, lab_state.job):
        return "the job has changed since this plan"
    return ""


def prediction_staleness(lab_state: LabState) -> str:
    """Compare the prediction with the plan and the choices."""
    return trace_staleness(lab_state, lab_state.predicted)


def run_staleness(lab_state: LabState) -> str:
    """Compare the measurement with the plan and the choices."""
    return trace_staleness(lab_state, lab_state.measured)


def comparison_staleness(lab_state: LabState) -> str:
    """A comparison is out of date where its measurement is."""
    return "" if lab_state.comparison is None else run_staleness(lab_state)


def trace_staleness(lab_state: LabState, trace: Trace | None) -> str:
    """Compare a prediction or a measurement with the plan and the choices."""
    if trace is None:
        return ""
    context = trace.context
    try:
        chosen = lab_state.chosen_plan
        plan = None if chosen is None else cut_subplan(chosen, context.rehearsed)
    except LabError:
        return "the choices have changed since"
    if plan is None or context.topology_fingerprint != plan.topology.fingerprint:
        return "the network of the plan has changed since"
    if context.job != plan.job.name or context.devices != plan.device_names:
        return "the plan has changed since"
    if (context.microbatch_counts, context.tokens) != (plan.job.microbatch_counts, plan.job.tokens):
        return "the batch has changed since"
    if context.schedule != lab_state.schedule:
        return f"it is of {context.schedule}, {lab_state.schedule} is chosen"
    tried = (plan.job.synchronisation, plan.job.synchronise_every, lab_state.queueing)
    if (context.synchronisation, context.synchronise_every, context.queueing) != tried:
        return "the choices have changed since"
    return plan_staleness(lab_state)
