"""The one sentence over the panes: what has just changed, from what to what, and why."""

from typing import NamedTuple

from dtfm_lab import planning
from dtfm_lab.compare.headline import error_sentence
from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import format_s
from dtfm_lab.planning import objectives
from dtfm_lab.planning.explain import iteration_sentences
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.measures import measure_of
from dtfm_lab.widgets.planner.change_words import describe_moves
from dtfm_lab.widgets.planner.short_searches import Replanned
from dtfm_lab.widgets.shell.edit_words import describe_edit
from dtfm_lab.widgets.shell.history import Before

EMPTY = ("Nothing is drawn yet.", "Double-click the canvas to add a device, or open a network.")
SAME = 5e-3
"""Share of the seconds below which a plan stays what it was."""
PANE_NOTES = {
    "plan": "search_note",
    "schedule": "prediction_note",
    "what-if": "what_if_note",
    "run": "run_note",
    "compare": "compare_note",
    "systems": "systems_note",
}
"""The trait with what a pane has to say, by the name of its step."""


class Headline(NamedTuple):
    """A sentence: its first part in bold, the rest, and its kind: empty, ``busy`` or ``error``."""

    lead: str
    rest: str = ""
    kind: str = ""


def headline(state: LabState, before: Before | None, found: Replanned | None, reason: str) -> Headline:
    """Return what is most worth saying now.

    An error comes first, then what the shown pane says, then the last edit with its effect, then ``reason``: what
    binds the plan, see ``reason_of``.
    """
    if state.message:
        return Headline(f"{state.step.capitalize().replace('-', ' ')}:", state.message, "error")
    if state.topology is None:
        return Headline(*EMPTY)
    if "run" in state.busy and state.run_note:
        return Headline("The run:", state.run_note, "busy")
    note = getattr(state, PANE_NOTES.get(state.pane, "message"))
    if state.pane == "run" and not note:
        note = state.compare_note or _measured(state)
    if note:
        return _split(note)
    if state.hand_note:
        return _split(state.hand_note)
    plan = state.plan
    if plan is None:
        return Headline("Planning…", "", "busy") if state.job is not None else Headline("No job fits this network.")
    if state.plan_is_stale:
        return Headline("The plan is of the network before the last edit.", "Plan again, or switch Live on.")
    edit = "" if before is None else describe_edit(before.topology, plan.topology, before.job, state.job)
    if before is not None and edit:
        return Headline(*_of_edit(state, plan, before, edit, found))
    return _split(reason) if reason else Headline("Planned.", f"{plan.job.name} on {plan.topology.name}")


def _measured(state: LabState) -> str:
    """Return how long the last run took, where that may be told and nothing was edited since."""
    found = state.comparison
    if found is None or state.is_mystery or state.plan is None or found.measured is not state.measured:
        return ""
    return "" if state.plan_is_stale else error_sentence(found)


def _split(note: str) -> Headline:
    """The first part in bold, up to a colon or to the end of a sentence; a dot inside a number ends none."""
    ends = [at for mark in (": ", ". ") if (at := note.find(mark)) >= 0]
    return Headline(note[: min(ends) + 1], note[min(ends) + 2 :]) if ends else Headline(note)


def _of_edit(state: LabState, plan: Plan, before: Before, edit: str, found: Replanned | None) -> tuple[str, str]:
    now_s = plan.iteration_s if state.predicted is None else state.predicted.iteration_s
    was_s = before.iteration_s
    if now_s is None or was_s is None:
        now_s, was_s = plan.cost.total_s, before.plan.cost.total_s
    unchanged = abs(now_s - was_s) <= SAME * was_s
    effect = f"stays {format_s(now_s)}" if unchanged else f"{format_s(was_s)} → {format_s(now_s)}"
    return f"{edit}: {effect}.", _why(plan, found, unchanged=unchanged)


def _why(plan: Plan, found: Replanned | None, *, unchanged: bool) -> str:
    """Return who moved and what the old placement would take; of a plan that stays, that it does."""
    if found is None or found.plan is not plan or found.difference is None:
        return ""
    moves = describe_moves(found.difference)
    if moves == "no device moved":
        return "Nothing of the plan needs it." if unchanged else "No better placement: the plan stays."
    worth = objectives[plan.objective].value(plan)
    held = ""
    if found.held is not None and found.held > worth * (1 + SAME):
        held = f" Without replanning: {measure_of(plan.objective).words(found.held)}."
    return f"{moves[:1].upper()}{moves[1:]}.{held}"


def reason_of(plan: Plan, schedule: str | None = None) -> str:
    """Return what binds a plan under a schedule, its job's where None, in a sentence or two; call it on a thread."""
    try:
        if schedule is not None and plan.job.model is not None and schedule != plan.job.schedule_name:
            plan = plan.changed(job=plan.job.with_fields(schedule=schedule))
        explained = planning.explain(plan)
        if plan.job.model is None:
            return explained.text.splitlines()[0]
        return iteration_sentences.binding(explained.iteration)
    except LabError:
        return ""
