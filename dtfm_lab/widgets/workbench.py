"""The whole workbench in one cell."""

from __future__ import annotations

from typing import Any

import ipywidgets as w

from dtfm_lab import lab
from dtfm_lab.compare import Comparison
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.topology import Topology
from dtfm_lab.domain.trace import Trace
from dtfm_lab.widgets import markup
from dtfm_lab.widgets.bench import Bench
from dtfm_lab.widgets.compare_panel import ComparePanel
from dtfm_lab.widgets.desk import Desk
from dtfm_lab.widgets.groups_panel import GroupsPanel
from dtfm_lab.widgets.network_panel import NetworkPanel
from dtfm_lab.widgets.plan_panel import PlanPanel
from dtfm_lab.widgets.run_panel import RunPanel
from dtfm_lab.widgets.schedule_panel import SchedulePanel
from dtfm_lab.widgets.section import Section
from dtfm_lab.widgets.states import WATCHED, states


class Lab(w.VBox):
    """Draw or load a network, plan it, see the pipeline, train for real, compare.

    Parameters
    ----------
    topology
        A name, a file or a Topology; None begins with a blank canvas.
    job
        A name, a file or a Job; None takes one that fits the network.

    The nouns behind the screen are attributes: ``topology``, ``job``, ``plan``, ``predicted``,
    ``measured`` and ``comparison``, None while there is none.
    """

    def __init__(self, topology: Topology | str | None = None, job: Job | str | None = None) -> None:
        network = lab.load_topology(topology) if isinstance(topology, str) else topology
        if isinstance(job, str):
            job = lab.load_job(job)
        elif job is None and network is not None:
            job = lab.default_job(network)
        self.bench = Bench()
        self.network_panel = NetworkPanel(self.bench, network)
        self.plan_panel = PlanPanel(self.bench, job)
        self.groups_panel = GroupsPanel(self.bench)
        self.schedule_panel = SchedulePanel(self.bench)
        self.run_panel = RunPanel(self.bench, self.schedule_panel)
        self.compare_panel = ComparePanel(self.bench)
        self.sections = self._sections()
        self.desk = Desk()
        self.desk.observe(lambda change: self.bench.set_trait("dark", change["new"]), "dark")
        self.bench.observe(lambda _: self._complain(), ["message", "step"])
        self.bench.observe(lambda _: self._tell(), [*WATCHED, "busy"])
        self._tell()
        super().__init__([w.HTML(f"<style>{markup.CSS}</style>"), self.desk, *self.sections])
        self.add_class("dtfm-lab")

    def _sections(self) -> list[Section]:
        steps = [
            ("network", "draw or open one; D adds a device, L links two", self.network_panel, ""),
            ("plan", "who holds which stage: watch the communication cost fall", self.plan_panel, "Plan again"),
            ("groups", "the coarsened graph and the path through it", self.groups_panel, ""),
            ("schedule", "one iteration, predicted; measured bars come below", self.schedule_panel, "Predict again"),
            ("run", "real torch workers on this machine, links as slow as drawn", self.run_panel, "Run again"),
            ("compare", "where the prediction was wrong", self.compare_panel, ""),
        ]
        return [Section(number, *step) for number, step in enumerate(steps, 1)]

    @property
    def topology(self) -> Topology | None:
        return self.bench.topology

    @property
    def job(self) -> Job | None:
        return self.bench.job

    @property
    def plan(self) -> Plan | None:
        return self.bench.plan

    @property
    def predicted(self) -> Trace | None:
        return self.bench.predicted

    @property
    def measured(self) -> Trace | None:
        return self.bench.measured

    @property
    def comparison(self) -> Comparison | None:
        return self.bench.comparison

    def _complain(self) -> None:
        for section in self.sections:
            section.complain(self.bench.message if section.name == self.bench.step else "")

    def _tell(self) -> None:
        """The state of every step, here and in the bar."""
        known, busy = states(self.bench), self.bench.busy
        first = True  # what rests on something stale cannot be mended before that is
        for section in self.sections:
            section.show(known[section.name], can_redo=first and section.name not in busy)
            first = first and not section.state.stale
        self.desk.steps = [
            {
                "name": section.name,
                "title": section.title,
                "kind": "busy" if section.name in busy else section.state.kind,
                "words": section.state.stale or section.state.done,
            }
            for section in self.sections
        ]

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any] | None:
        """For readers without widgets, such as a saved notebook's: the network, and one line on what was here."""
        bundle = super()._repr_mimebundle_(**options)
        if bundle is not None:
            network, job = self.topology, self.job
            what = f"{network.name} ({len(network)} devices)" if network else "a blank canvas"
            line = f"dtfm_lab.Lab on {what}{f' with job {job.name}' if job else ''}: run the cell to use it"
            bundle["text/plain"] = line
            if picture := self.network_panel.editor.picture():
                bundle["image/svg+xml"] = picture
        return bundle
