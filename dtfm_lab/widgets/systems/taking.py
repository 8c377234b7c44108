"""Makes a system's plan the lab's, with its job and its network of groups, and the one before it again."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dtfm_lab.domain.errors import LabError, PlanError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.network.grouping import groups_of
from dtfm_lab.domain.plan import Plan
from dtfm_lab.systems import Outcome
from dtfm_lab.widgets.lab_state import LabState, is_plan_of


@dataclass(frozen=True, eq=False)
class LabBefore:
    """What the lab had when a plan was taken."""

    topology: Topology | None
    job: Job | None
    plan: Plan | None
    schedule: str
    queueing: str
    choices: dict[str, Any]


class Taking:
    """``take`` sets topology, job and plan of the lab's state; ``put_back`` sets what was there before the first."""

    def __init__(self, lab_state: LabState, set_job: Callable[[Job], None]) -> None:
        """``set_job`` makes a job the one that the lab's controls show."""
        self._lab_state, self._set_job = lab_state, set_job
        self.before: LabBefore | None = None
        """What ``put_back`` returns to; None where nothing was taken."""

    def take(self, outcome: Outcome) -> None:
        """Make the plan the lab's. Raises PlanError where the system has none."""
        plan, state = outcome.plan, self._lab_state
        if self.before is None:
            self.before = LabBefore(
                state.topology, state.job, state.plan, state.schedule, state.queueing, dict(state.choices)
            )
        self._set(plan.topology, plan.job, plan)
        state.queueing = outcome.budget.queueing
        drawn, asked = state.topology, state.job
        if drawn is None or drawn.fingerprint != plan.topology.fingerprint:
            raise PlanError(
                f"{outcome.title} plans groups of GPUs that the lab cannot draw; "
                f"wanted {plan.topology.name} as its plan has it"
            )
        if asked is None or not is_plan_of(plan.job, asked):
            raise PlanError(f"{outcome.title} trains as the lab's job controls cannot say")

    def put_back(self) -> None:
        """Return to the network, job and plan from before; nothing where no plan was taken."""
        before, state = self.before, self._lab_state
        if before is None:
            return
        self.before = None
        self._set(before.topology, before.job, before.plan)
        state.schedule, state.queueing = before.schedule, before.queueing
        state.choices = dict(before.choices)

    def _set(self, topology: Topology | None, job: Job | None, plan: Plan | None) -> None:
        """Set all three: the network first, as it decides which shapes the job may have."""
        state = self._lab_state
        if topology is not None and (state.topology is None or state.topology.fingerprint != topology.fingerprint):
            state.topology = topology
        if job is not None:
            self._set_job(job)
        state.plan = plan
        if plan is not None:
            state.choices = {name: getattr(plan.job, name) for name in state.choices if hasattr(plan.job, name)}


def tasks_of(plan: Plan, drawn: Topology) -> dict[str, list[int]]:
    """Return {device: [stage, replica]} of a plan, by the names of a drawn network; empty where it is of another.

    A group of GPUs of the plan is drawn as its members.
    """
    try:
        members = _members(plan.topology, drawn)
    except LabError:
        return {}
    tasks = {name: [s, r] for s, names in enumerate(plan.stages) for r, name in enumerate(names)}
    if not set(tasks) <= set(members):
        return {}
    return {one: task for name, task in tasks.items() for one in members[name]}


def _members(planned: Topology, drawn: Topology) -> dict[str, list[str]]:
    """Return the drawn devices of each planned one. Raises TopologyError where there are no such groups."""
    if set(planned.names) <= set(drawn.names):
        return {name: [name] for name in planned.names}
    names, n = drawn.names, planned.devices[0].gpus
    members = {f"{names[one[0]]}+{n - 1}": [names[i] for i in one] for one in groups_of(drawn.name, drawn.devices, n)}
    return {name: members[name] for name in planned.names if name in members}
