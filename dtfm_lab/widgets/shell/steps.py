"""The steps of the lab: what a heading says, what its panel has come to, and when that is out of date."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from html import escape
from typing import NamedTuple

import ipywidgets as w

from dtfm_lab.domain.units import format_s
from dtfm_lab.figures.theme import count
from dtfm_lab.widgets import markup
from dtfm_lab.widgets.controls import button, show
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.panel import Panel


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


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step of the lab, with all that the lab needs to number, save, restore and mark it."""

    name: str
    """Short name, as in ``LabState.step`` and ``LabState.busy``; the heading is made of it."""
    hint: str
    """What the heading adds to the name."""
    panel: Panel
    result: Callable[[LabState], str] = _never
    """Returns the result in a few words; empty while there is none."""
    staleness: Callable[[LabState], str] = _never
    """Returns why the result is out of date; empty where it is not."""
    redo: str = ""
    """Text of the button that calls ``panel.redo`` where the step is out of date; empty for no button."""
    more: Mapping[str, Panel] = field(default_factory=dict)
    """Further panels below the first, by the name under which a workspace keeps their settings."""

    @property
    def title(self) -> str:
        """The heading, without its number."""
        return self.name.capitalize().replace("-", " ")

    @property
    def panels(self) -> dict[str, Panel]:
        """All panels of the step, by the name under which a workspace keeps their settings."""
        return {self.name.replace("-", "_"): self.panel, **self.more}

    def state(self, lab_state: LabState) -> StepState:
        """Return how far the step has come."""
        return StepState(self.result(lab_state), self.staleness(lab_state))


class StepFrame(w.VBox):
    """A step on the screen: its heading, why it is out of date, the last error there, and its panels."""

    def __init__(self, number: int, step: Step) -> None:
        self.step, self.state = step, StepState()
        self._stale, self.message = w.HTML(), w.HTML()
        self.redo = button(step.redo, "refresh", "Make it anew from what is drawn and chosen now", "auto")
        self.redo.on_click(lambda _: step.panel.redo())
        heading = w.HTML(markup.heading(number, step.title, step.hint))
        views = [panel.view for panel in step.panels.values()]
        super().__init__([heading, w.HBox([self._stale, self.redo]), self.message, *views])
        self.add_class("dtfm-section")
        self.add_class(f"dtfm-section-{step.name}")
        self.show(self.state, can_redo=False)

    def show(self, state: StepState, *, can_redo: bool) -> None:
        """Show why the step is out of date, with a button that redoes it where that is possible."""
        self.state = state
        self._stale.value = markup.line(escape(f"Out of date: {state.stale}."), "stale") if state.stale else ""
        show(self.redo, bool(state.stale and can_redo and self.step.redo))

    def report_error(self, message: str) -> None:
        """Show an error as one line; empty removes it."""
        self.message.value = markup.line(escape(message), "warning")


def network_result(lab_state: LabState) -> str:
    """``lecture-hall, 8 devices``"""
    topology = lab_state.topology
    return "" if topology is None else f"{topology.name}, {count(len(topology), 'device')}"


def plan_result(lab_state: LabState) -> str:
    """``1.2 s, gap 0.4%``"""
    plan = lab_state.plan
    return "" if plan is None else f"{format_s(plan.cost.total_s)}, gap {plan.gap:.1%}"


def groups_result(lab_state: LabState) -> str:
    """``4 groups of 2``"""
    plan = lab_state.plan
    return "" if plan is None else f"{count(plan.job.n_stages, 'group')} of {plan.job.n_replicas}"


def schedule_result(lab_state: LabState) -> str:
    """``predicted 25.3 s under gpipe``"""
    predicted = lab_state.predicted
    return (
        "" if predicted is None else f"predicted {format_s(predicted.iteration_s)} under {predicted.context.schedule}"
    )


def run_result(lab_state: LabState) -> str:
    """``measured 25.1 s``"""
    measured = lab_state.measured
    return "" if measured is None else f"measured {format_s(measured.iteration_s)}"


def compare_result(lab_state: LabState) -> str:
    """``error +0.82%``"""
    comparison = lab_state.comparison
    return "" if comparison is None else f"error {comparison.iteration_error:+.2%}"
