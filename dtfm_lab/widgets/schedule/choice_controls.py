"""What is tried on a plan without searching again: how messages queue, and options of its job."""

from contextlib import suppress
from html import escape
from typing import Any

import ipywidgets as w
from traitlets import TraitError

from dtfm_lab.domain.job import Job
from dtfm_lab.widgets import markup
from dtfm_lab.widgets.controls import QUEUEING_OPTION, button, control_for, show, tried_options
from dtfm_lab.widgets.lab_state import Guard, LabState, is_plan_of

MENU_WIDTH, LABEL_WIDTH = "340px", "100px"


class ChoiceControls:
    """Sets ``lab_state.choices`` and ``lab_state.queueing``, and follows them. Begins with the job's options.

    ``lab_state.choices`` may hold fields without a control here, such as the batch of a what-if; they stay.
    """

    def __init__(self, lab_state: LabState) -> None:
        self._lab_state = lab_state
        self._job: Job | None = None
        self._is_following = Guard()
        self.queueing = control_for(QUEUEING_OPTION, width=MENU_WIDTH, label_width=LABEL_WIDTH)
        self.by_option = {
            option.name: control_for(option, width=MENU_WIDTH, label_width=LABEL_WIDTH) for option in tried_options()
        }
        self.others = w.HTML()
        self.as_planned = button("As planned", "undo", "Try these no longer: take what the plan says", "120px")
        controls = (self.queueing, *self.by_option.values())
        self._others_row = w.HBox([self.others, self.as_planned], layout=w.Layout(align_items="center"))
        boxes = [control for control in controls if isinstance(control, w.Checkbox)]
        for box in boxes:
            box.layout.width = "auto"
        menus = [control for control in controls if control not in boxes]
        self.view = w.VBox([*menus, w.HBox(boxes, layout=w.Layout(grid_gap="4px 18px")), self._others_row])
        self._take_job()
        lab_state.observe(lambda _: self._take_job(), ["job", "plan"])
        lab_state.observe(lambda _: self._follow(), ["choices", "queueing"])
        for control in controls:
            control.observe(lambda _: self._set(), "value")
        self.as_planned.on_click(lambda _: self._drop_others())
        self._follow()

    def _take_job(self) -> None:
        """Take over the job's options where they differ from the previous job's; a new shape or batch changes none."""
        plan = self._lab_state.plan
        job = self._lab_state.job
        if plan is not None and (job is None or is_plan_of(plan.job, job)):
            job = plan.job  # with what the planner chose, such as to recompute
        if job is None:
            return
        before, self._job = self._job, job
        kept = {
            name: value
            for name, value in self._others().items()
            if before is None or getattr(before, name) == getattr(job, name)
        }
        values = {name: getattr(job, name) for name in self.by_option}
        if before is not None and values == {name: getattr(before, name) for name in self.by_option}:
            values = self._values()
        self._lab_state.choices = kept | values
        self._follow()

    def _follow(self) -> None:
        """Show what the lab's state holds; another panel may have set it."""
        choices = self._lab_state.choices
        with self._is_following:
            for name, control in self.by_option.items():
                if name in choices:
                    with suppress(TraitError):  # the job reports a value that is not possible
                        control.value = choices[name]
            with suppress(TraitError):
                self.queueing.value = self._lab_state.queueing
        others = [
            f"{name.replace('_', ' ')} {value}{self._planned(name, value)}" for name, value in self._others().items()
        ]
        show(self._others_row, bool(others))
        self.others.value = markup.line("also tried: " + escape(", ".join(others))) if others else ""

    def _planned(self, name: str, value: object) -> str:
        plan = self._lab_state.plan
        planned = getattr(self._job if plan is None else plan.job, name, value)
        return "" if planned == value else f" (planned with {planned})"

    def _set(self) -> None:
        if self._is_following:
            return
        with self._lab_state.hold_trait_notifications():
            self._lab_state.queueing = self.queueing.value
            self._lab_state.choices = self._others() | self._values()

    def _drop_others(self) -> None:
        self._lab_state.choices = self._values()

    def _values(self) -> dict[str, Any]:
        return {name: control.value for name, control in self.by_option.items()}

    def _others(self) -> dict[str, Any]:
        """The choices that have no control here."""
        return {name: value for name, value in self._lab_state.choices.items() if name not in self.by_option}
