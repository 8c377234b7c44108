"""The lab's one state: what is drawn, planned, predicted and measured, and why any of it is out of date.

It contains no widget.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Any

import traitlets

from dtfm_lab.compare import Comparison
from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.job.options import LEFT_TO_PLANNERS
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.network.device import groups_of
from dtfm_lab.domain.plan import Plan, cut_subplan
from dtfm_lab.domain.registry import current_name
from dtfm_lab.domain.trace import Trace
from dtfm_lab.domain.units import format_share
from dtfm_lab.planning.search import objectives
from dtfm_lab.widgets.live_search import LiveSearch
from dtfm_lab.widgets.undoing import UndoHistory


class Guard:
    """True inside ``with``, so that an observer can tell the program's changes from a person's."""

    def __init__(self) -> None:
        self._depth = 0

    def __enter__(self) -> None:
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1

    def __bool__(self) -> bool:
        return self._depth > 0


OFFERED = 5e-3
"""Minimum share by which a plan from another pane must be better to replace the lab's plan."""


class LabState(traitlets.HasTraits):
    """State that panels read, set and observe. A result stays None until it has been made.

    Traits tagged ``result`` decide whether a step is done or out of date. The others only concern what is shown.
    """

    topology = traitlets.Instance(Topology, allow_none=True).tag(result=True)
    job = traitlets.Instance(Job, allow_none=True).tag(result=True)
    """The job to plan. Its shape, micro-batch and schedule may be left to the planner."""
    plan = traitlets.Instance(Plan, allow_none=True).tag(result=True)
    not_planned = traitlets.Unicode("").tag(result=True)
    """Why nothing could be planned after the last change, such as a job that does not fit in memory. Empty if it
    could."""
    live_search = traitlets.Instance(LiveSearch, allow_none=True)
    """Progress of the searches after the last edit. None if the user has started a search since."""
    is_planning = traitlets.Bool(False)
    """True while a first plan is being searched for, so that panes do not ask for one."""
    searches_on = traitlets.Bool(False)
    """True while a longer search looks for a better plan than the one that is shown."""
    bound_s = traitlets.Float(0.0)
    """Lower bound on the iteration in seconds, raised since the plan was found. 0 if only the plan's own bounds are
    known."""
    schedule = traitlets.Unicode("gpipe").tag(result=True)
    queueing = traitlets.Unicode("pairs").tag(result=True)
    """Which messages wait for each other in a prediction: "pairs" for messages in one direction between two devices,
    "nics" for all messages at one NIC."""
    choices = traitlets.Dict().tag(result=True)
    """{field: value} that predictions and runs use instead of the values in the plan's job.

    None keeps the planner's choice in a field that planners can choose.
    """
    predicted = traitlets.Instance(Trace, allow_none=True).tag(result=True)
    measured = traitlets.Instance(Trace, allow_none=True).tag(result=True)
    comparison = traitlets.Instance(Comparison, allow_none=True).tag(result=True)
    lacking = traitlets.Unicode("")
    """Which devices lack memory for the prediction, how much, and what would fit. Empty if everything fits."""
    run_part = traitlets.Unicode("")
    """Which part of the plan a run would train, such as "one pipeline of 8, with a small model". Empty if the whole
    plan would run with its own model."""
    ran = traitlets.Instance(Plan, allow_none=True)
    """The plan, with the choices, that produced ``measured``. ``plan`` may be newer."""
    message = traitlets.Unicode("")
    """The last error as one line. Empty without an error."""
    step = traitlets.Unicode("network")
    """Name of the step where the last error happened."""
    selected = traitlets.Tuple()
    """Names of the selected devices, shared by all views."""
    selected_stage = traitlets.Int(-1)
    """The selected pipeline stage; -1 for none."""
    selected_link = traitlets.Tuple()
    """(source, target) names of the selected link; empty for none."""
    shown_stages = traitlets.Dict()
    """{device: stage} of the placement that a search displays, such as the best one so far. Empty if no search displays
    one."""
    shown_tasks = traitlets.Dict()
    """{device: [stage, replica]} of a plan that is displayed but is not the lab's. Empty if only the lab's plan is
    displayed."""
    moment = traitlets.Dict()
    """{"tasks": {device: [stage, replica]}, "absent": [devices]} at one moment of a history of departures and arrivals.

    Empty unless a pane displays such a moment.
    """
    tried = traitlets.Instance(Trace, allow_none=True)
    """The predicted iteration under the setting that the pane What if displays. None without one."""
    busy = traitlets.Tuple()
    """Names of the steps at which something is being computed."""
    pane = traitlets.Unicode("schedule")
    """Name of the step whose result is shown next to the network."""
    shown_panes = traitlets.Tuple()
    """Names of the panes on the screen. Empty if every panel has its own cell."""
    notes = traitlets.Dict()
    """{pane: text that the headline shows while the pane is shown}. Panes with nothing to say have no entry."""
    run_progress = traitlets.Unicode("")
    """Progress of a run: "profiling 3 of 8", "8 of 24 iterations done". Empty if none runs."""
    run_story = traitlets.Unicode("")
    """The run's last event in a sentence: which device was lost and what replaced it, or a new plan. Empty before any
    event, and once the run is over."""
    binding = traitlets.Tuple()
    """The device that limits the plan most, or the two devices at the ends of the link that does. Empty while it is
    unknown."""
    binding_helps = traitlets.Bool(True)
    """False if improving ``binding`` would save next to nothing, and so would any other device or link tried."""
    suspects = traitlets.Tuple()
    """(source, target) of each link and (name,) of each device that the last comparison suspects.

    Empty in a mystery run until the user has solved it.
    """
    hand_note = traitlets.Unicode("")
    """How the plan was made, if by a move by hand or by another pane's offer. Empty for other plans."""
    is_mystery = traitlets.Bool(False)
    """True if a device or link of the last run is secretly slow and the user has not named it yet."""
    dark = traitlets.Bool(False)
    """True if the page has a dark theme."""

    def __init__(self, **traits: object) -> None:
        super().__init__(**traits)
        self._last: dict[str, Topology | Job] = {
            name: noun for name in ("topology", "job") if (noun := getattr(self, name)) is not None
        }
        """The last network and the last job that were not None, by the trait's name."""
        self.takes_offers = False
        """True if ``offer`` may set the plan: in the lab, but not if a pane has its own cell."""
        self.history = UndoHistory()
        """All edits that the user has made. Panels add their parts to it."""
        self._kept: dict[str, tuple[tuple[object, ...], Plan]] = {}
        self.observe(lambda change: self._leave_run_behind(change["name"], change["new"]), ["topology", "job"])

    @traitlets.validate("queueing")
    def _current_queueing(self, proposal: Any) -> Any:
        return current_name("queueing", proposal.value)

    def _leave_run_behind(self, name: str, now: Topology | Job | None) -> None:
        """Forget predictions and measurements once an unrelated network or job is opened. They say nothing about it.

        With another network, the plan is dropped as well, so that no plan depends on what was open before.
        """
        if now is None:
            return
        before, self._last[name] = self._last.get(name), now
        if before is not None and is_another(before, now):
            with self.hold_trait_notifications():
                self.predicted = self.measured = self.comparison = self.ran = None
                if name == "topology":
                    self.plan = self.live_search = None

    def offer(self, plan: Plan, by: str) -> bool:
        """Take a better plan that another pane found, so that the lab has one best plan. Return True if it was taken.

        It must be for the current network and job, have the objective and queueing of the lab's plan, and be better by
        more than ``OFFERED``. Nothing is taken while a step is busy or the lab's plan is out of date.
        """
        own, topology, job = self.plan, self.topology, self.job
        # Busy: the search that is running will set the plan itself, and an offer would be lost or would interrupt.
        if not self.takes_offers or own is None or topology is None or job is None or self.plan_is_stale or self.busy:
            return False
        is_alike = (own.objective, own.queueing) == (plan.objective, plan.queueing) and plan.iteration_s is not None
        if not is_alike or plan.topology.fingerprint != topology.fingerprint or not is_plan_of(plan.job, job):
            return False
        value = objectives[own.objective].value
        # Also false for NaN, where < is false.
        if not value(plan) < value(own) * (1 - OFFERED):
            return False
        self.plan = plan
        self.hand_note = f"{by} found a plan that is {format_share(1 - value(plan) / value(own), 0)} better."
        return True

    def report_error(self, step: str, message: str) -> None:
        """Show an error at the step whose control caused it."""
        self.step, self.message = step, message

    def note_of(self, pane: str) -> str:
        """Return what the headline says while a pane is shown. Empty for nothing."""
        return str(self.notes.get(pane, ""))

    def set_note(self, pane: str, note: str) -> None:
        """Set what the headline says while a pane is shown. An empty note removes it."""
        others = {name: text for name, text in self.notes.items() if name != pane}
        self.notes = others | ({pane: note} if note else {})

    def shows(self, pane: str) -> bool:
        """True if a pane is on the screen. Hidden panes need not be computed."""
        return not self.shown_panes or pane in self.shown_panes

    def select(self, devices: Sequence[str]) -> None:
        """Select one device, or the link between two, in every view. Does nothing if they are not drawn."""
        known = set() if self.topology is None else set(self.topology.names)
        if not devices or not known.issuperset(devices):
            return
        self.selected_stage = -1
        self.selected_link = tuple(devices) if len(devices) == 2 else ()
        self.selected = tuple(devices) if len(devices) == 1 else ()

    def set_busy(self, step: str, working: bool) -> None:
        """Record that a step has started, or finished, something that takes a while."""
        others = tuple(name for name in self.busy if name != step)
        self.busy = (*others, step) if working else others

    @property
    def chosen_plan(self) -> Plan | None:
        """The plan with ``choices`` in its job. Raises LabError if the job does not allow them."""
        plan, choices = self.plan, self.choices
        if plan is None:
            return None
        return self._made_once("chosen", (plan, choices), partial(_with_choices, plan, choices))

    @property
    def is_chosen_otherwise(self) -> bool:
        """True if ``choices`` differ from the plan's own job. The plan's communication cost is for its own job."""
        plan, given = self.plan, _given(self.choices)
        return plan is not None and any(getattr(plan.job, name) != value for name, value in given.items())

    @property
    def shown_plan(self) -> Plan | None:
        """The plan as predicted: with ``choices``, ``schedule`` and ``queueing``. Raises as ``chosen_plan``."""
        plan, schedule, queueing = self.chosen_plan, self.schedule, self.queueing
        if plan is None or plan.job.model is None:
            return plan
        return self._made_once("shown", (plan, schedule, queueing), partial(_scheduled, plan, schedule, queueing))

    def _made_once(self, name: str, of: tuple[object, ...], make: Callable[[], Plan]) -> Plan:
        """Return what ``make`` returns, cached under ``name`` until an object in ``of`` is replaced.

        About a dozen readers ask for it after every edit.
        """
        kept = self._kept.get(name)
        if kept is None or any(one is not other for one, other in zip(kept[0], of, strict=True)):
            kept = self._kept[name] = of, make()
        return kept[1]

    @property
    def bounded_plan(self) -> Plan | None:
        """The plan with its lower bound as raised so far. Every text about the bound reads it."""
        plan, bound_s = self.plan, self.bound_s
        if plan is None or plan.iteration_s is None or bound_s <= (plan.iteration_lower_bound_s or 0.0):
            return plan
        return replace(plan, iteration_lower_bound_s=min(bound_s, plan.iteration_s))

    @property
    def plan_is_stale(self) -> bool:
        """True if the network or the job has changed since the plan was made."""
        return bool(plan_staleness(self))

    @property
    def can_be_planned(self) -> bool:
        """True if the current network and job have a plan or soon will. If False, ``plan`` may be for older ones."""
        return self.topology is not None and self.job is not None and not self.not_planned

    @property
    def is_needed_elsewhere(self) -> bool:
        """True if a measured run, or a search that the user started, needs the processor for itself."""
        return bool({"run", "plan"} & set(self.busy))


RESULT_TRAITS = tuple(LabState.class_trait_names(result=True))
"""Names of the traits that can change whether a step is done or out of date."""


def _with_choices(plan: Plan, choices: Mapping[str, Any]) -> Plan:
    job = plan.job.with_fields(**_given(choices))
    return plan if job == plan.job else plan.changed(job=job)


def _given(choices: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in choices.items() if value is not None or name not in LEFT_TO_PLANNERS}


def _scheduled(plan: Plan, schedule: str, queueing: str) -> Plan:
    job = plan.job if schedule == plan.job.schedule_name else plan.job.with_fields(schedule=schedule)
    return plan if (job, queueing) == (plan.job, plan.queueing) else plan.changed(job=job, queueing=queueing)


def is_another(before: Topology | Job, now: Topology | Job) -> bool:
    """True if two networks, or two jobs, are unrelated. False if the second is an edit of the first.

    An edit keeps the name. It also keeps at least one device of a network, or the model of a job.
    """
    if before.name != now.name:
        return True
    if isinstance(before, Topology) and isinstance(now, Topology):
        return set(before.names).isdisjoint(now.names)
    return isinstance(before, Job) and isinstance(now, Job) and before.model != now.model


def is_plan_of(planned: Job, job: Job) -> bool:
    """True if a plan's job equals ``job`` in every field that ``job`` does not leave open."""
    if planned == job:
        return True
    differing = {field.name for field in fields(Job) if getattr(planned, field.name) != getattr(job, field.name)}
    return differing <= set(job.left_open)


def roles_of(plan: Plan) -> dict[str, list[int]]:
    """Return {device: [stage, replica]} of each device that a plan uses."""
    return {name: [s, r] for s, names in enumerate(plan.stages) for r, name in enumerate(names)}


def planned_as(plan: Plan, topology: Topology) -> dict[str, int] | None:
    """Return {device of the network: index of the plan's device that stands for it}.

    With tensor parallelism, one device of the plan is a group of GPUs. None if the plan is for other devices.
    """
    if plan.topology.names == topology.names:
        return {name: i for i, name in enumerate(topology.names)}
    if plan.job.group_gpus == 1:
        return None
    # Groups are made again, because the network may have changed since the plan.
    try:
        groups = groups_of(topology.name, topology.devices, plan.job.group_gpus)
    except LabError:
        return None
    firsts = [topology.names[group[0]] for group in groups]
    if [name.rpartition("+")[0] for name in plan.topology.names] != firsts:
        return None
    return {topology.names[i]: number for number, group in enumerate(groups) for i in group}


def network_names(plan: Plan | None, names: Iterable[str]) -> list[str]:
    """Return the network's names for these devices of a plan. A group of GPUs gets the name of its first GPU."""
    suffix = "" if plan is None or plan.job.group_gpus == 1 else f"+{plan.job.group_gpus - 1}"
    return [name.removesuffix(suffix) for name in names]


def members_of(lab_state: LabState, names: Iterable[str]) -> list[list[str]]:
    """Return the network's devices in each of these devices of a plan: the device itself, or its group's GPUs."""
    plan, topology = lab_state.plan, lab_state.topology
    planned = None if plan is None or topology is None or plan.job.group_gpus == 1 else planned_as(plan, topology)
    if plan is None or planned is None:
        return [[name] for name in network_names(plan, names)]
    groups: dict[str, list[str]] = {name: [] for name in plan.topology.names}
    for device, number in planned.items():
        groups[plan.topology.names[number]].append(device)
    return [groups.get(name, [name]) for name in names]


def shown_prediction(lab_state: LabState) -> Trace | None:
    """Return the prediction of the plan with the choices. None if it is missing or out of date."""
    return None if prediction_staleness(lab_state) else lab_state.predicted


def is_profiled(lab_state: LabState) -> bool:
    """Return True if the prediction was made from a profile rather than from FLOP."""
    return lab_state.predicted is not None and lab_state.predicted.context.clock != "model"


def shown_s(lab_state: LabState) -> float | None:
    """Return the predicted seconds of an iteration, or the plan's own if the prediction is missing or out of date."""
    if (predicted := shown_prediction(lab_state)) is not None:
        return predicted.iteration_s
    return None if lab_state.plan is None else lab_state.plan.iteration_s


def modelled_s(lab_state: LabState) -> float | None:
    """Return the predicted seconds of an iteration, from FLOP even if a profile exists.

    Used to compare plans before and after an edit, because a profile is only of the plan before it.
    """
    shown = shown_prediction(lab_state)
    if shown is not None and shown.context.clock == "model":
        return shown.iteration_s
    return None if lab_state.plan is None else lab_state.plan.iteration_s


def why_not_asked(lab_state: LabState) -> str:
    """Return why a long computation cannot start for the current network and job. Empty if it can."""
    if lab_state.topology is None or lab_state.job is None:
        return "There is no network yet, or no job that fits it"
    if lab_state.job.model is None:
        return "This job gives message sizes but no model, so there is no FLOP to plan by: choose a job with a model"
    busy = "run" in lab_state.busy
    return "A run is being measured on the same processor: stop it, or wait until it ends" if busy else ""


def plan_staleness(lab_state: LabState) -> str:
    """Return why the plan does not match the current network and job. Empty if it does."""
    plan, job = lab_state.plan, lab_state.job
    if plan is None:
        return ""
    if lab_state.topology is None:
        return "the network of this plan is no longer drawn"
    if plan.topology.fingerprint != lab_state.topology.fingerprint:
        return "the network has changed since this plan"
    return "" if job is not None and is_plan_of(plan.job, job) else "the job has changed since this plan"


def prediction_staleness(lab_state: LabState) -> str:
    """Return why the prediction does not match the plan and the choices. Empty if it does."""
    return trace_staleness(lab_state, lab_state.predicted)


def run_staleness(lab_state: LabState) -> str:
    """Return why the measurement does not match the plan and the choices. Empty if it does."""
    return trace_staleness(lab_state, lab_state.measured)


def predicted_of_run(lab_state: LabState) -> Trace | None:
    """Return the prediction from the last run's profile.

    None if that run was of a part of the plan, or of another plan or other choices than the current ones.
    """
    found = lab_state.comparison
    if found is None or found.measured is not lab_state.measured or run_staleness(lab_state):
        return None
    return None if found.measured.context.part else found.predicted


def comparison_staleness(lab_state: LabState) -> str:
    """Return why the comparison is out of date, which it is whenever its measurement is. Empty if it is not."""
    return "" if lab_state.comparison is None else run_staleness(lab_state)


def trace_staleness(lab_state: LabState, trace: Trace | None) -> str:
    """Return why a prediction or a measurement does not match the plan and the choices. Empty if it does."""
    if trace is None:
        return ""
    context = trace.context
    try:
        chosen = lab_state.chosen_plan
        plan = None if chosen is None else cut_subplan(chosen, context.rehearsed)
    except LabError:
        return "the choices have changed since"
    if plan is None or context.plan.topology_fingerprint != plan.topology.fingerprint:
        return "the network of the plan has changed since"
    if context.job != plan.job.name or context.devices != plan.device_names:
        return "the plan has changed since"
    if (context.plan.microbatch_counts, context.plan.tokens) != (plan.job.microbatch_counts, plan.job.tokens):
        return "the batch has changed since"
    if context.schedule != lab_state.schedule:
        return f"it is for {context.schedule}, but {lab_state.schedule} is chosen"
    tried = (plan.job.synchronisation, plan.job.synchronise_every, lab_state.queueing)
    if (context.plan.synchronisation, context.synchronise_every, context.queueing) != tried:
        return "the choices have changed since"
    return plan_staleness(lab_state)
