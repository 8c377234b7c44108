"""Options to try on a plan without another search: how messages queue, options of its job, and every schedule."""

import asyncio
from contextlib import suppress
from html import escape
from typing import Any

from traitlets import TraitError

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import format_bytes
from dtfm_lab.simulation import schedules, simulate
from dtfm_lab.simulation.memory import memory
from dtfm_lab.widgets import markup
from dtfm_lab.widgets import quiet as w
from dtfm_lab.widgets.controls import QUEUEING_OPTION, button, control_for, show, tried_options
from dtfm_lab.widgets.lab_state import Guard, LabState, is_plan_of
from dtfm_lab.widgets.tasks import begin
from dtfm_lab.widgets.views.candidates import CandidatesView

MENU_WIDTH = "min(410px, 100%)"
LABEL_WIDTH = "100px"


class ChoiceControls:
    """Sets ``lab_state.choices`` and ``lab_state.queueing``, and follows them. Starts with the job's options.

    ``lab_state.choices`` may hold fields without a control here, such as the batch of a what-if. They stay.
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
        self.as_planned = button("Reset to plan", "undo", "Drop these choices and use the plan's own", "120px")
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
        self.as_planned.on_click(lambda _: lab_state.set_trait("choices", self._values()))
        self._follow()

    def _take_job(self) -> None:
        """Set the choices to the job's options. If the previous job had the same options, keep the user's choices."""
        plan = self._lab_state.plan
        job = self._lab_state.job
        # A plan of another job says nothing about this one.
        if plan is not None and (job is None or is_plan_of(plan.job, job)):
            job = plan.job  # includes the planner's choices, such as recomputation
        if job is None:
            return
        before, self._job = self._job, job
        others = self._others().items()
        kept = {name: v for name, v in others if before is None or getattr(before, name) == getattr(job, name)}
        values = {name: getattr(job, name) for name in self.by_option}
        # The user's own choices stay, since nothing that they are about has changed.
        if before is not None and values == {name: getattr(before, name) for name in self.by_option}:
            values = self._values()
        self._lab_state.choices = kept | values
        self._follow()

    def _follow(self) -> None:
        """Show the lab's state, which another panel may have set."""
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
        state, choices = self._lab_state, self._others() | self._values()
        if (state.queueing, state.choices) == (self.queueing.value, choices):
            return
        state.history.keep("Choices of the prediction changed")
        with state.hold_trait_notifications():
            state.queueing, state.choices = self.queueing.value, choices

    def _values(self) -> dict[str, Any]:
        return {name: control.value for name, control in self.by_option.items()}

    def _others(self) -> dict[str, Any]:
        """The choices that have no control here."""
        return {name: value for name, value in self._lab_state.choices.items() if name not in self.by_option}


class SchedulesTable:
    """A button that compares all schedules, or stops that, and a table whose rows set ``lab_state.schedule``."""

    def __init__(self, lab_state: LabState) -> None:
        self._lab_state = lab_state
        self._stopped = False
        self.running = False
        self.button = w.Button(layout=w.Layout(width="185px"))
        self.table = CandidatesView(title="All schedules on this plan")
        self.table.layout.display = "none"
        self.button.on_click(lambda _: self._press())
        self.table.observe(lambda _: self._choose(), "chosen")
        lab_state.observe(lambda _: self._follow(), "schedule")
        lab_state.observe(lambda _: self._set_stale(), ["plan", "choices", "queueing"])
        self._update_button()
        self._follow()

    def stop(self) -> None:
        """Stop after the schedule that is being simulated."""
        self._stopped = True

    def _press(self) -> None:
        if self.running:
            self.stop()
        elif self._lab_state.plan is not None:
            begin(self._compare(), lambda message: self._lab_state.report_error("schedule", message))

    async def _compare(self) -> None:
        plan, queueing, names = self._lab_state.chosen_plan, self._lab_state.queueing, list(schedules)
        if plan is None:
            return
        plan.job.modelled()
        self.running, self._stopped = True, False
        self.table.layout.display, self.table.stale = "", False
        rows: list[dict[str, Any]] = [{"name": name} for name in names]
        self.table.rows = rows
        self._update_button()
        done = 0
        try:
            for name in names:
                self.table.caption = f"{done} of {len(names)} computed, {name} is next"
                try:
                    row = await asyncio.to_thread(schedule_row, plan, name, queueing)
                except LabError as error:
                    row = {"name": name, "problem": str(error)}
                if self._stopped:
                    break
                rows = [row if one["name"] == name else one for one in rows]
                self.table.rows = rows
                done += 1
        finally:
            self.running = False
            self._update_button()
        if done < len(names):
            self.table.rows = [row for row in rows if len(row) > 1]
            self.table.caption = f"stopped after {done} of {len(names)}"
        else:
            self.table.caption = "same plan, same choices: click a row to use its schedule"

    def _set_stale(self) -> None:
        self.stop()
        self.table.stale = True
        self._update_button()

    def _choose(self) -> None:
        state, chosen = self._lab_state, self.table.chosen
        if chosen in schedules and chosen != state.schedule:
            state.history.keep(f"Schedule {state.schedule} → {chosen}")
            state.schedule = chosen

    def _follow(self) -> None:
        self.table.chosen = self._lab_state.schedule

    def _update_button(self) -> None:
        self.button.disabled = self._lab_state.plan is None
        if self.running:
            self.button.description, self.button.icon = "Stop comparing", "stop"
            self.button.tooltip = "Stop after the current schedule"
        else:
            self.button.description, self.button.icon = "Compare schedules", "table"
            self.button.tooltip = "Iteration, bubble and memory of every schedule on this plan"


def schedule_row(plan: Plan, schedule: str, queueing: str) -> dict[str, Any]:
    """Return a row of ``CandidatesView``. Its memory is for the device with the least to spare. Slow."""
    trace = simulate(plan, schedule, queueing=queueing)
    report = memory(plan, trace=trace)
    position, replica = report.worst
    needs, has = (format_bytes(sizes[position, replica]) for sizes in (report.peak_bytes, report.limit_bytes))
    held = {"memory": f"{needs} of {has} on {report.devices[position][replica]}", "fits": report.fits}
    return {"name": schedule, "iteration_s": trace.iteration_s, "bubble": 1 - trace.compute_share, **held}
