"""Ask the systems and collect their outcomes. Make a system's plan the lab's plan, and restore the previous one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dtfm_lab.domain.errors import LabError, PlanError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.network.device import groups_of
from dtfm_lab.domain.plan import Plan
from dtfm_lab.extensions.systems.api import Budget, Outcome, Outcomes, Strategy, stream_outcomes, work_of
from dtfm_lab.widgets.lab_state import LabState, is_plan_of, roles_of

CHANGED = ("topology", "job", "plan", "schedule", "queueing", "choices")
"""Traits of the lab's state that change when a system's plan becomes the lab's."""


def answers(
    question: SystemsQuestion, systems: Sequence[Strategy], options: Mapping[str, Any], before: Outcomes | None = None
) -> Iterator[Outcomes]:
    """Yield all outcomes so far, after each system. An outcome in ``before`` stays unless its system is asked again.

    Causes are computed here, so that showing them takes no time. Run this on a thread.
    """
    for newest in stream_outcomes(question.topology, question.job, systems, Budget(**options)):
        for one in newest:
            one.causes  # noqa: B018  computed here, and kept
        came = {one.strategy.name for one in newest}
        kept = [one for one in before or () if one.strategy.name not in came]
        wanted = newest.wanted if before is None else before.wanted
        yield replace(newest, outcomes=(*newest.outcomes, *kept), wanted=wanted)


class SystemsQuestion:
    """The network and the work that the systems are asked about, and the networks and jobs equivalent to them.

    When a system's plan becomes the lab's, the lab's network may change to groups of GPUs, and the job to the system's
    way of training. These still belong to the same question.
    """

    def __init__(self, topology: Topology, job: Job) -> None:
        self.topology, self.job = topology, job
        self._known = {(topology.fingerprint, work_of(job))}

    def add(self, outcomes: Outcomes) -> None:
        """Let ``covers`` also recognise the networks and jobs of these outcomes' plans."""
        self._known |= {(one.found.topology.fingerprint, work_of(one.found.job)) for one in outcomes if one.found}

    def covers(self, topology: Topology | None, job: Job | None) -> bool:
        """True if the question is about this network and job."""
        if topology is None or job is None or job.model is None:
            return False
        return (topology.fingerprint, work_of(job)) in self._known


def single_gpus(topology: Topology, alone: Topology | None) -> Topology:
    """Return the network of single GPUs: ``alone`` if ``topology`` has its GPUs in groups, else ``topology`` itself."""
    n = topology.devices[0].gpus
    if alone is None or n <= 1 or n not in alone.group_sizes:
        return topology
    return alone if alone.grouped(n).fingerprint == topology.fingerprint else topology


class Taking:
    """Makes a system's plan the lab's (``take``), and restores what the lab had before the first one (``put_back``)."""

    def __init__(self, lab_state: LabState, set_job: Callable[[Job], None]) -> None:
        """``set_job`` sets the job that the lab's controls show."""
        self._lab_state, self._set_job = lab_state, set_job
        self.before: dict[str, Any] | None = None
        """Values that ``put_back`` restores, by trait of the lab's state; None if no plan was taken."""

    def take(self, outcome: Outcome) -> None:
        """Make the system's plan the lab's plan. Raises PlanError if the system has none, or if the lab cannot show
        it."""
        plan, state = outcome.plan, self._lab_state
        # Keep only the state before the first plan: after a second one, `put_back` must not restore the first.
        if self.before is None:
            self.before = {name: getattr(state, name) for name in CHANGED} | {"choices": dict(state.choices)}
        self._set(plan.topology, plan.job, plan)
        state.queueing = outcome.budget.queueing
        specified, asked = state.topology, state.job
        if specified is None or specified.fingerprint != plan.topology.fingerprint:
            raise PlanError(
                f"{outcome.title} plans groups of GPUs that the lab cannot draw; "
                f"wanted {plan.topology.name} as its plan has it"
            )
        if asked is None or not is_plan_of(plan.job, asked):
            raise PlanError(f"{outcome.title} trains in a way that the lab's job menu cannot express")

    def put_back(self) -> None:
        """Restore the network, job and plan from before. Does nothing if no plan was taken."""
        before, self.before = self.before, None
        if before is None:
            return
        self._set(before["topology"], before["job"], before["plan"])
        for name in ("schedule", "queueing", "choices"):
            self._lab_state.set_trait(name, before[name])

    def _set(self, topology: Topology | None, job: Job | None, plan: Plan | None) -> None:
        """Set the lab's network, job and plan, in this order: the network decides which shapes the job may have."""
        state = self._lab_state
        if topology is not None and (state.topology is None or state.topology.fingerprint != topology.fingerprint):
            state.topology = topology
        if job is not None:
            self._set_job(job)
        state.plan = plan
        if plan is not None:
            state.choices = {name: getattr(plan.job, name) for name in state.choices if hasattr(plan.job, name)}


def tasks_of(plan: Plan, specified: Topology) -> dict[str, list[int]]:
    """Return [stage, replica] by the device names of the lab's network; empty if the plan is for another network.

    If a device of the plan is a group of GPUs, each of its GPUs gets the entry.
    """
    try:
        members = _members(plan.topology, specified)
    except LabError:
        return {}
    tasks = roles_of(plan)
    if not set(tasks) <= set(members):
        return {}
    return {one: task for name, task in tasks.items() for one in members[name]}


def _members(planned: Topology, specified: Topology) -> dict[str, list[str]]:
    """Return, for each device of the plan, the names of the lab's devices in it. Raises TopologyError if there are no
    such groups."""
    if set(planned.names) <= set(specified.names):
        return {name: [name] for name in planned.names}
    names, n = specified.names, planned.devices[0].gpus
    members = {
        f"{names[one[0]]}+{n - 1}": [names[i] for i in one] for one in groups_of(specified.name, specified.devices, n)
    }
    return {name: members[name] for name in planned.names if name in members}
