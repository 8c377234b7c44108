"""The steps of the lab: the result of each in a few words, and why that is out of date."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from dtfm_lab.domain.units import format_s
from dtfm_lab.figures.theme import count
from dtfm_lab.widgets.controls import Panel
from dtfm_lab.widgets.lab_state import LabState
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
