"""Why what is shown is out of date, and the one number that is shown while it is. It contains no widget."""

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.plan import cut_subplan
from dtfm_lab.domain.trace import Trace
from dtfm_lab.widgets.lab_state import LabState, is_plan_of


def shown_s(lab_state: LabState) -> float | None:
    """Return the predicted seconds of an iteration; those of the plan while its prediction is still being made."""
    if lab_state.predicted is not None and not prediction_staleness(lab_state):
        return lab_state.predicted.iteration_s
    return None if lab_state.plan is None else lab_state.plan.iteration_s


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
