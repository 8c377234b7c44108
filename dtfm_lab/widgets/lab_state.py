"""The one state of the lab: what is drawn, planned, predicted and measured. No widget in here."""

from __future__ import annotations

from dataclasses import replace

import traitlets

from dtfm_lab.compare import Comparison
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.trace import Trace


class LabState(traitlets.HasTraits):
    """Panels read it, set it, and observe it; None is "not yet"."""

    topology = traitlets.Instance(Topology, allow_none=True)
    job = traitlets.Instance(Job, allow_none=True)
    plan = traitlets.Instance(Plan, allow_none=True)
    schedule = traitlets.Unicode("gpipe")
    queueing = traitlets.Unicode("pairs")
    """which messages wait for each other, in predictions"""
    choices = traitlets.Dict()
    """fields of the plan's job that are tried out: what predictions and runs take instead"""
    predicted = traitlets.Instance(Trace, allow_none=True)
    measured = traitlets.Instance(Trace, allow_none=True)
    ran = traitlets.Instance(Plan, allow_none=True)
    """the plan, with what was tried out, of which ``measured`` is; there may be another one by now"""
    comparison = traitlets.Instance(Comparison, allow_none=True)
    message = traitlets.Unicode("")
    """what went wrong last, one line; empty if nothing did"""
    selected = traitlets.Tuple()
    """names of the devices that a person has selected, in whichever view"""
    selected_link = traitlets.Tuple()
    """(source, target) names of the link that a person has selected; empty for none"""
    shown_stages = traitlets.Dict()
    """{device: stage} of the placement that is looked at while it is no plan yet, as a search's best; else empty"""
    busy = traitlets.Tuple()
    """steps at which something is at work"""
    dark = traitlets.Bool(False)
    """whether the page is"""
    step = traitlets.Unicode("network")
    """where it went wrong: network, plan, schedule or run"""

    def report_error(self, step: str, message: str) -> None:
        """Say what went wrong, where the person who caused it is looking."""
        self.step, self.message = step, message

    def set_busy(self, step: str, working: bool) -> None:
        """Say that a step has begun, or ended, something that takes a while."""
        others = tuple(name for name in self.busy if name != step)
        self.busy = (*others, step) if working else others

    @property
    def chosen_plan(self) -> Plan | None:
        """The plan with what is tried out. Raises a LabError where its job does not allow it."""
        return None if self.plan is None else replace(self.plan, job=replace(self.plan.job, **self.choices))

    @property
    def plan_is_stale(self) -> bool:
        """The network or the job changed since the plan was made."""
        if self.plan is None:
            return False
        if self.topology is None or self.plan.job != self.job:
            return True
        return self.plan.topology.fingerprint != self.topology.fingerprint
