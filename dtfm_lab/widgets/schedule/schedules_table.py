"""All schedules on the plan, simulated on a thread one after the other."""

import asyncio
from typing import Any

import ipywidgets as w

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import format_bytes
from dtfm_lab.simulation import schedules, simulate
from dtfm_lab.simulation.memory import memory
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.tasks import begin
from dtfm_lab.widgets.views.candidates import CandidatesView


class SchedulesTable:
    """A button that fills the table or stops that, and a table whose rows set ``lab_state.schedule``."""

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
        """End after the schedule that is being simulated."""
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
                self.table.caption = f"{done} of {len(names)} computed; {name} is next"
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
            self.table.caption = "same plan, same choices; click a row to see its schedule"

    def _set_stale(self) -> None:
        self.stop()
        self.table.stale = True
        self._update_button()

    def _choose(self) -> None:
        if self.table.chosen in schedules:
            self._lab_state.schedule = self.table.chosen

    def _follow(self) -> None:
        self.table.chosen = self._lab_state.schedule

    def _update_button(self) -> None:
        self.button.disabled = self._lab_state.plan is None
        if self.running:
            self.button.description, self.button.icon = "Stop comparing", "stop"
            self.button.tooltip = "End after the schedule at hand"
        else:
            self.button.description, self.button.icon = "Compare schedules", "table"
            self.button.tooltip = "Iteration, bubble and memory of every schedule on this plan"


def schedule_row(plan: Plan, schedule: str, queueing: str) -> dict[str, Any]:
    """Return a row of ``CandidatesView``; its memory is what the device with the least to spare needs and has. Slow."""
    trace = simulate(plan, schedule, queueing=queueing)
    report = memory(plan, trace=trace)
    position, replica = report.worst
    needs, has = (format_bytes(sizes[position, replica]) for sizes in (report.peak_bytes, report.limit_bytes))
    return {
        "name": schedule,
        "iteration_s": trace.iteration_s,
        "bubble": 1 - trace.compute_share,
        "memory": f"{needs} of {has} on {report.devices[position][replica]}",
        "fits": report.fits,
    }
