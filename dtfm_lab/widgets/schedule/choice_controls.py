"""What is tried out on a plan without searching anew: how messages queue, gradients are averaged, memory is saved."""

from __future__ import annotations

from contextlib import suppress
from html import escape
from typing import Any

import ipywidgets as w
from traitlets import TraitError

from dtfm_lab.domain.job import COMPRESSIONS, Job
from dtfm_lab.domain.schedule import synchronisations
from dtfm_lab.widgets import markup
from dtfm_lab.widgets.lab_state import LabState

QUEUES = {"one link a pair": "pairs", "one card a device": "cards"}
MOST_ITERATIONS = 10_000
TRIED = ("synchronisation", "synchronise_every", "compression", "recompute")
"""fields of a job that have a control here; ``lab_state.choices`` may hold others, which stay as they are"""


class ChoiceControls:
    """Sets ``lab_state.choices`` and ``lab_state.queueing``, and follows them; begins with what the job says."""

    def __init__(self, lab_state: LabState) -> None:
        self._lab_state = lab_state
        self._job: Job | None = None
        self._filling = False
        self.queueing = _choice(QUEUES, "Messages", "230px", "Who waits: messages of a pair of devices, or of a card")
        self.synchronisation = _choice(
            list(synchronisations), "Averaging", "225px", "How the replicas of a stage average their gradients"
        )
        self.every = w.BoundedIntText(
            1,
            min=1,
            max=MOST_ITERATIONS,
            description="every",
            layout=w.Layout(width="112px"),
            style={"description_width": "38px"},
            tooltip="Average every so many iterations; between two, replicas take their steps alone",
        )
        self.compression = _choice(
            list(COMPRESSIONS), "Compression", "200px", "What activations and gradients are rounded to on their way"
        )
        self.recompute = w.Checkbox(
            False,
            description="Recompute activations",
            indent=False,
            layout=w.Layout(width="175px", margin="2px 2px 2px 12px"),
            tooltip="Keep a stage's input only and run its forward again before the backward: less memory, more time",
        )
        self.others = w.HTML()
        self.as_planned = w.Button(
            description="As planned",
            icon="undo",
            tooltip="Try these no longer: take what the plan says",
            layout=w.Layout(width="120px"),
        )
        controls = (self.queueing, self.synchronisation, self.every, self.compression, self.recompute)
        self._tried = w.HBox([self.others, self.as_planned], layout=w.Layout(display="none", align_items="center"))
        self.view = w.VBox([w.HBox(controls, layout=w.Layout(flex_flow="row wrap")), self._tried])
        self._controls = dict(zip(TRIED, controls[1:], strict=True))
        self._take()
        lab_state.observe(lambda _: self._take(), ["job", "plan"])
        lab_state.observe(lambda _: self._follow(), ["choices", "queueing"])
        for control in controls:
            control.observe(lambda _: self._set(), "value")
        self.as_planned.on_click(lambda _: self._forget())
        self._follow()

    def _take(self) -> None:
        """Follow the job where it says something new; a new shape or batch leaves what is being tried out."""
        job = self._lab_state.job or (self._lab_state.plan.job if self._lab_state.plan is not None else None)
        before, self._job = self._job, job
        if job is None:
            self._job = before
            return
        kept = {
            field: value
            for field, value in self._lab_state.choices.items()
            if field not in TRIED and (before is None or getattr(before, field) == getattr(job, field))
        }
        said = {field: getattr(job, field) for field in TRIED}
        if before is not None and said == {field: getattr(before, field) for field in TRIED}:
            said = {field: control.value for field, control in self._controls.items()}
        self._lab_state.choices = kept | said
        self._follow()

    def _follow(self) -> None:
        """Somebody else may have set what is tried out."""
        self._filling = True
        try:
            for field, control in self._controls.items():
                if field in self._lab_state.choices:
                    with suppress(TraitError):  # what no control can show is for the job to refuse
                        control.value = self._lab_state.choices[field]
            if self._lab_state.queueing in QUEUES.values():
                self.queueing.value = self._lab_state.queueing
        finally:
            self._filling = False
        others = {field: value for field, value in self._lab_state.choices.items() if field not in TRIED}
        self._tried.layout.display = "" if others else "none"
        told = [f"{field.replace('_', ' ')} {value}{self._planned(field, value)}" for field, value in others.items()]
        self.others.value = markup.line("also tried: " + escape(", ".join(told))) if told else ""

    def _planned(self, field: str, value: object) -> str:
        said = getattr(self._lab_state.plan.job if self._lab_state.plan is not None else self._job, field, value)
        return "" if said == value else f" (planned with {said})"

    def _set(self) -> None:
        if self._filling:
            return
        own = {field: control.value for field, control in self._controls.items()}
        with self._lab_state.hold_trait_notifications():
            self._lab_state.queueing = self.queueing.value
            self._lab_state.choices = self._others() | own

    def _forget(self) -> None:
        self._lab_state.choices = {field: control.value for field, control in self._controls.items()}

    def _others(self) -> dict[str, Any]:
        return {field: value for field, value in self._lab_state.choices.items() if field not in TRIED}


def _choice(options: Any, name: str, width: str, tooltip: str) -> w.Dropdown:
    items = list(options.items()) if isinstance(options, dict) else options
    return w.Dropdown(
        options=items,
        description=name,
        layout=w.Layout(width=width),
        tooltip=tooltip,
        style={"description_width": f"{max(80, 9 * len(name))}px"},
    )
