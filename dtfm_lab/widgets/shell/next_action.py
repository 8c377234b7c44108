"""The one thing to do next, which the bar offers as its filled button."""

from typing import NamedTuple

from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.shell.steps import run_staleness


class Action(NamedTuple):
    """A next action: its name for the program, its label, and why it cannot be taken, empty where it can."""

    name: str
    label: str
    why_not: str = ""


def next_action(state: LabState, *, can_refit: bool = False) -> Action:
    """Return what a reader would do next; ``can_refit``: whether a network fitted to the last run can be used."""
    if "run" in state.busy:
        return Action("stop-run", "Stop the run")
    if "plan" in state.busy:
        return Action("stop-plan", "Stop and keep the best")
    if state.topology is None:
        return Action("open", "Open a network")
    if state.plan is None or state.plan_is_stale:
        return Action("plan", "Plan", "" if state.job is not None else "the job does not fit this network")
    if state.plan.job.model is None:
        return Action("plan", "Plan again")
    if state.measured is None or run_staleness(state):
        return Action("run", "Run it for real")
    if state.pane != "compare":
        return Action("compare", "Compare")
    return Action("refit", "Use the refitted network") if can_refit else Action("run", "Run again")
