"""The whole workbench in one cell."""

from __future__ import annotations

from html import escape
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
from dtfm_lab.widgets.groups_panel import GroupsPanel
from dtfm_lab.widgets.network_panel import NetworkPanel
from dtfm_lab.widgets.plan_panel import PlanPanel
from dtfm_lab.widgets.run_panel import RunPanel
from dtfm_lab.widgets.schedule_panel import SchedulePanel


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
        self._messages = {step: w.HTML() for step in ("network", "plan", "schedule", "run")}
        self.bench.observe(lambda _: self._complain(), ["message", "step"])
        super().__init__(
            [
                w.HTML(f"<style>{markup.CSS}</style>"),
                w.HTML(markup.heading(1, "Network", "draw or open one; press D to add a device, L to connect two")),
                self.network_panel.view,
                self._messages["network"],
                w.HTML(markup.heading(2, "Plan", "who holds which stage: watch the communication cost fall")),
                self._messages["plan"],
                self.plan_panel.view,
                w.HTML(markup.heading(3, "Groups", "the coarsened graph and the path through it")),
                self.groups_panel.view,
                w.HTML(markup.heading(4, "Schedule", "one iteration, predicted; measured bars come below")),
                self._messages["schedule"],
                self.schedule_panel.view,
                w.HTML(markup.heading(5, "Run", "real torch workers on this machine, links as slow as drawn")),
                self._messages["run"],
                self.run_panel.view,
                w.HTML(markup.heading(6, "Compare", "where the prediction was wrong")),
                self.compare_panel.view,
            ]
        )
        self.add_class("dtfm-lab")

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
        for step, line in self._messages.items():
            line.value = markup.line(escape(self.bench.message), "warning") if step == self.bench.step else ""

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any] | None:
        """For readers without widgets, such as a saved notebook's, one line on what was here."""
        bundle = super()._repr_mimebundle_(**options)
        if bundle is not None:
            network, job = self.topology, self.job
            what = f"{network.name} ({len(network)} devices)" if network else "a blank canvas"
            line = f"dtfm_lab.Lab on {what}{f' with job {job.name}' if job else ''}: run the cell to use it"
            bundle |= {"text/plain": line, "text/html": f"<em>{escape(line)}</em>"}
        return bundle
