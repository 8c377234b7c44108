"""The whole lab in one cell."""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import ipywidgets as w

from dtfm_lab import lab
from dtfm_lab.compare import Comparison
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.trace import Trace
from dtfm_lab.figures.theme import count
from dtfm_lab.files.workspaces import load_workspace, save_workspace
from dtfm_lab.widgets import markup
from dtfm_lab.widgets.comparing.compare_panel import ComparePanel
from dtfm_lab.widgets.groups.groups_panel import GroupsPanel
from dtfm_lab.widgets.lab_state import RESULT_TRAITS, LabState
from dtfm_lab.widgets.network.network_panel import NetworkPanel
from dtfm_lab.widgets.planner.plan_panel import PlanPanel
from dtfm_lab.widgets.planner.replanning import Replanning
from dtfm_lab.widgets.running.run_panel import RunPanel
from dtfm_lab.widgets.schedule.schedule_panel import SchedulePanel
from dtfm_lab.widgets.shell import steps
from dtfm_lab.widgets.shell.as_python import cells
from dtfm_lab.widgets.shell.autosave import Autosave, autosave_path
from dtfm_lab.widgets.shell.steps import Step, StepFrame
from dtfm_lab.widgets.shell.workspace import Workspace, restore_state, state_of
from dtfm_lab.widgets.views.as_python import AsPythonView
from dtfm_lab.widgets.views.shell_bar import ShellBar
from dtfm_lab.widgets.what_if.what_if_panel import WhatIfPanel


class Lab(w.VBox):
    """Draw or load a network, plan it, see the pipeline, train for real, compare.

    Parameters
    ----------
    topology
        A name, a file or a Topology; None begins with a blank canvas.
    job
        A name, a file or a Job; None takes one that fits the network.
    autosave
        Keep what is on the screen in the user's own state folder as it changes, and offer it after a restart.

    The nouns behind the screen are attributes: ``topology``, ``job``, ``plan``, ``predicted``,
    ``measured`` and ``comparison``, None while there is none.
    """

    def __init__(
        self, topology: Topology | str | None = None, job: Job | str | None = None, *, autosave: bool = True
    ) -> None:
        network = lab.load_topology(topology) if isinstance(topology, str) else topology
        if isinstance(job, str):
            job = lab.load_job(job)
        elif job is None and network is not None:
            job = lab.default_job(network)
        self.lab_state = LabState()
        self.steps = self._steps(network, job)
        self.panels = {name: panel for step in self.steps for name, panel in step.panels.items()}
        self.frames = [StepFrame(number, step) for number, step in enumerate(self.steps, 1)]
        self.workspace = Workspace(self.lab_state, self.panels)
        self.as_python = AsPythonView(self._cells)
        self.shell_bar = ShellBar()
        self.shell_bar.observe(lambda change: self.lab_state.set_trait("dark", change["new"]), "dark")
        self.lab_state.observe(lambda _: self._show_error(), ["message", "step"])
        self.lab_state.observe(lambda _: self._show_states(), [*RESULT_TRAITS, "busy"])
        self._show_states()
        self.autosave = Autosave(autosave_path(), self._write, self._read) if autosave else None
        head = [w.HTML(f"<style>{markup.CSS}</style>"), self.workspace.view]
        if self.autosave is not None:
            head.append(self.autosave.view)
            self.lab_state.observe(lambda _: self._changed(), RESULT_TRAITS)
            for panel in self.panels.values():
                panel.observe_edits(self._changed)
        super().__init__([*head, self.shell_bar, *self.frames, self.as_python])
        self.add_class("dtfm-lab")

    def _steps(self, network: Topology | None, job: Job | None) -> list[Step]:
        """Return the steps in order. The lab needs no more than an entry here to show, save and restore a new one."""
        lab_state = self.lab_state
        self.network_panel = NetworkPanel(lab_state, network)
        self.plan_panel = PlanPanel(lab_state, job)
        self.groups_panel = GroupsPanel(lab_state)
        self.replanning = Replanning(lab_state)
        self.schedule_panel = SchedulePanel(lab_state)
        self.what_if_panel = WhatIfPanel(lab_state)
        self.run_panel = RunPanel(lab_state, self.schedule_panel, self.network_panel.drawing)
        self.compare_panel = ComparePanel(lab_state, self.plan_panel.redo)
        return [
            Step("network", self.network_panel, steps.network_result, more={"replanning": self.replanning}),
            Step("plan", self.plan_panel, steps.plan_result, steps.plan_staleness, "Plan again"),
            Step("groups", self.groups_panel, steps.groups_result, steps.plan_staleness),
            Step("schedule", self.schedule_panel, steps.schedule_result, steps.prediction_staleness, "Predict again"),
            Step("what-if", self.what_if_panel, staleness=steps.plan_staleness),
            Step("run", self.run_panel, steps.run_result, steps.run_staleness, "Run again"),
            Step("compare", self.compare_panel, steps.compare_result, steps.comparison_staleness),
        ]

    def _cells(self) -> list[str]:
        what_if = self.what_if_panel
        return cells(self.lab_state, what_if=what_if.setting, pins=what_if.pins.pins, run=self.run_panel.run_options)

    def _write(self, path: Path) -> Callable[[], object]:
        return partial(save_workspace, state_of(self.lab_state, self.panels), path)

    async def _read(self, path: Path) -> None:
        restore_state(await asyncio.to_thread(load_workspace, path), self.lab_state, self.panels)

    def _changed(self) -> None:
        if self.autosave is not None:
            self.autosave.changed()

    @property
    def topology(self) -> Topology | None:
        return self.lab_state.topology

    @property
    def job(self) -> Job | None:
        return self.lab_state.job

    @property
    def plan(self) -> Plan | None:
        return self.lab_state.plan

    @property
    def predicted(self) -> Trace | None:
        return self.lab_state.predicted

    @property
    def measured(self) -> Trace | None:
        return self.lab_state.measured

    @property
    def comparison(self) -> Comparison | None:
        return self.lab_state.comparison

    def _show_error(self) -> None:
        for frame in self.frames:
            frame.report_error(self.lab_state.message if frame.step.name == self.lab_state.step else "")

    def _show_states(self) -> None:
        """Show the state of every step, in its frame and in the bar."""
        busy = self.lab_state.busy
        can_redo = True  # a step cannot be redone while an earlier one is out of date
        bar = []
        for frame in self.frames:
            step, state = frame.step, frame.step.state(self.lab_state)
            frame.show(state, can_redo=can_redo and step.name not in busy)
            can_redo = can_redo and not state.stale
            kind = "busy" if step.name in busy else state.kind
            bar.append({"name": step.name, "title": step.title, "kind": kind, "words": state.stale or state.done})
        self.shell_bar.steps = bar

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any] | None:
        """Add the network as SVG and one line of text, for readers without widgets, as of a saved notebook."""
        bundle: dict[str, Any] | None = super()._repr_mimebundle_(**options)
        if bundle is not None:
            network, job = self.topology, self.job
            what = f"{network.name} ({count(len(network), 'device')})" if network else "a blank canvas"
            line = f"dtfm_lab.Lab on {what}{f' with job {job.name}' if job else ''}: run the cell to use it"
            bundle["text/plain"] = line
            if picture := self.network_panel.editor.svg():
                bundle["image/svg+xml"] = picture
        return bundle
