"""The whole workbench in one cell."""

from __future__ import annotations

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
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.network.network_panel import NetworkPanel
from dtfm_lab.widgets.planner.plan_panel import PlanPanel
from dtfm_lab.widgets.planner.replanning import Replanning
from dtfm_lab.widgets.running.run_panel import RunPanel
from dtfm_lab.widgets.schedule.schedule_panel import SchedulePanel
from dtfm_lab.widgets.shell.as_python import cells
from dtfm_lab.widgets.shell.autosave import Autosave, autosave_path
from dtfm_lab.widgets.shell.states import WATCHED, states
from dtfm_lab.widgets.shell.step_frame import StepFrame
from dtfm_lab.widgets.shell.workspace import Workspace, put, state_of
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
        self.network_panel = NetworkPanel(self.lab_state, network)
        self.plan_panel = PlanPanel(self.lab_state, job)
        self.groups_panel = GroupsPanel(self.lab_state)
        self.replanning = Replanning(self.lab_state)
        self.schedule_panel = SchedulePanel(self.lab_state)
        self.what_if_panel = WhatIfPanel(self.lab_state)
        self.run_panel = RunPanel(self.lab_state, self.schedule_panel)
        self.compare_panel = ComparePanel(self.lab_state, self.plan_panel.redo)
        self.panels = {
            "network": self.network_panel,
            "plan": self.plan_panel,
            "replanning": self.replanning,
            "groups": self.groups_panel,
            "schedule": self.schedule_panel,
            "what_if": self.what_if_panel,
            "run": self.run_panel,
            "compare": self.compare_panel,
        }
        self.workspace = Workspace(self.lab_state, self.panels)
        self.as_python = AsPythonView(self._cells)
        self.autosave = Autosave(autosave_path(), self._write, self._read) if autosave else None
        self.frames = self._sections()
        self.shell_bar = ShellBar()
        self.shell_bar.observe(lambda change: self.lab_state.set_trait("dark", change["new"]), "dark")
        self.lab_state.observe(lambda _: self._report_error(), ["message", "step"])
        self.lab_state.observe(lambda _: self._tell(), [*WATCHED, "busy"])
        self._tell()
        kept = [] if self.autosave is None else [self.autosave.view]
        head = [w.HTML(f"<style>{markup.CSS}</style>"), self.workspace.view, *kept, self.shell_bar]
        super().__init__([*head, *self.frames, self.as_python])
        self.add_class("dtfm-lab")
        if self.autosave is not None:
            self.lab_state.observe(lambda _: self.autosave.changed(), WATCHED)
            self.network_panel.drawing.observe(lambda _: self.autosave.changed(), "document")
            self.what_if_panel.pins.table.observe(lambda _: self.autosave.changed(), "children")

    def _sections(self) -> list[StepFrame]:
        steps = [
            ("network", "draw or open one; D adds a device, L links two", self.network_panel, ""),
            ("plan", "who holds which stage: watch the communication cost fall", self.plan_panel, "Plan again"),
            ("groups", "the coarsened graph and the path through it", self.groups_panel, ""),
            ("schedule", "one iteration, predicted; measured bars come below", self.schedule_panel, "Predict again"),
            ("what-if", "other links, batches and schedules, at once; nothing is changed", self.what_if_panel, ""),
            ("run", "real torch workers on this machine, links as slow as drawn", self.run_panel, "Run again"),
            ("compare", "where the prediction was wrong", self.compare_panel, ""),
        ]
        frames = [StepFrame(number, *step) for number, step in enumerate(steps, 1)]
        frames[0].children = [*frames[0].children, self.replanning.view]
        return frames

    def _cells(self) -> list[str]:
        options = self.run_panel.options.chosen(self.run_panel.iterations.value)
        what_if = self.what_if_panel
        return cells(self.lab_state, what_if=what_if.setting, pins=what_if.pins.pins, run=options)

    def _write(self, path: Path) -> Callable[[], object]:
        return partial(save_workspace, state_of(self.lab_state, self.panels), path)

    async def _read(self, path: Path) -> None:
        put(await asyncio.to_thread(load_workspace, path), self.lab_state, self.panels)

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

    def _report_error(self) -> None:
        for section in self.frames:
            section.report_error(self.lab_state.message if section.name == self.lab_state.step else "")

    def _tell(self) -> None:
        """The state of every step, here and in the bar."""
        known, busy = states(self.lab_state), self.lab_state.busy
        first = True  # what rests on something stale cannot be mended before that is
        for section in self.frames:
            section.show(known[section.name], can_redo=first and section.name not in busy)
            first = first and not section.state.stale
        self.shell_bar.steps = [
            {
                "name": section.name,
                "title": section.title,
                "kind": "busy" if section.name in busy else section.state.kind,
                "words": section.state.stale or section.state.done,
            }
            for section in self.frames
        ]

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any] | None:
        """For readers without widgets, such as a saved notebook's: the network, and one line on what was here."""
        bundle = super()._repr_mimebundle_(**options)
        if bundle is not None:
            network, job = self.topology, self.job
            what = f"{network.name} ({count(len(network), 'device')})" if network else "a blank canvas"
            line = f"dtfm_lab.Lab on {what}{f' with job {job.name}' if job else ''}: run the cell to use it"
            bundle["text/plain"] = line
            if picture := self.network_panel.editor.svg():
                bundle["image/svg+xml"] = picture
        return bundle
