"""A tour of six steps in which something is really done: by the visitor, or for them where they ask for it."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.units import to_gbps, to_ms
from dtfm_lab.widgets.groups.groups_panel import GroupsPanel
from dtfm_lab.widgets.lab_state import RESULT_TRAITS, LabState
from dtfm_lab.widgets.network.links import with_link
from dtfm_lab.widgets.network.network_panel import NetworkPanel
from dtfm_lab.widgets.running.run_panel import RunPanel
from dtfm_lab.widgets.tasks import begin
from dtfm_lab.widgets.views.tour import TourView

NETWORK = "lecture-hall"
"""What the tour opens where nothing is drawn: its job trains for real on one machine within a minute."""
SLOWER = 10
"""How many times slower the tour makes a link where it is asked to do that step."""
PRICED_WITHIN_S = 8.0
"""Seconds for which the tour waits for the prices of a device's other places."""


class TouredLab(Protocol):
    """What a tour needs of the lab."""

    lab_state: LabState
    network_panel: NetworkPanel
    groups_panel: GroupsPanel
    run_panel: RunPanel

    def open_network(self, name: str) -> None: ...
    def show_pane(self, name: str) -> None: ...


class StepStart(NamedTuple):
    """The lab when a step began."""

    fingerprint: str
    groups: object
    measured: object

    @classmethod
    def of(cls, state: LabState) -> "StepStart":
        fingerprint = "" if state.topology is None else state.topology.fingerprint
        return cls(fingerprint, None if state.plan is None else state.plan.device_names, state.measured)


Act = Callable[[TouredLab], Coroutine[Any, Any, None]]


@dataclass(frozen=True, kw_only=True)
class TourStep:
    """One step: what is asked for, what it is pointed at, when it is done, and how the tour does it."""

    title: str
    words: str
    after: str
    """What is said once it is done."""
    targets: tuple[str, ...]
    is_done: Callable[[LabState, StepStart], bool]
    act: Act
    act_label: str = "Do it for me"
    note: Callable[[LabState], str] = field(default=lambda _: "")
    pane: str = ""
    """The result that is shown when the step begins; empty leaves what is shown."""


async def slow_a_link(lab: TouredLab) -> None:
    """Make the link between the first two stages of the first pipeline slower."""
    topology, plan = lab.lab_state.topology, lab.lab_state.plan
    if topology is None or len(topology) < 2:
        return
    ends = topology.names[:2] if plan is None else (plan.device_names[0][0], plan.device_names[1][0])
    gbps, ms = link_numbers(topology, ends[0], ends[1])
    drawing = lab.network_panel.drawing
    drawing.document = with_link(drawing.document, (ends[0], ends[1]), gbps / SLOWER, ms)


def link_numbers(topology: Topology, source: str, target: str) -> tuple[float, float]:
    """Return Gbit/s and ms of a link."""
    i, j = topology.index(source), topology.index(target)
    return to_gbps(float(topology.bandwidth_bytes_per_s[i, j])), to_ms(float(topology.latency_s[i, j]))


async def show_schedule(lab: TouredLab) -> None:
    lab.show_pane("schedule")
    lab.lab_state.selected_stage = 0


async def move_a_device(lab: TouredLab) -> None:
    """Exchange the first device with the cheapest of another group, as the menu of the groups does."""
    plan, hand = lab.lab_state.plan, lab.groups_panel.hand
    lab.show_pane("groups")
    if plan is None:
        return
    lab.lab_state.selected = (plan.device_names[0][0],)
    for _ in range(int(PRICED_WITHIN_S / 0.1)):
        if not hand.move.disabled:
            hand.move.click()
            return
        await asyncio.sleep(0.1)


async def run_it(lab: TouredLab) -> None:
    lab.show_pane("run")
    lab.run_panel.start.click()


async def compare_it(lab: TouredLab) -> None:
    lab.show_pane("compare")


async def wait(_: TouredLab) -> None:
    """Do nothing: the lab is at work already."""


STEPS = (
    TourStep(
        title="Slow a link down",
        words="Drag a link's label to the left: less bandwidth. Up or down is latency.",
        after="Done. The network has changed; everything that follows from it changes too.",
        targets=(".dtfm-cause .dtfm-link", ".dtfm-picture"),
        is_done=lambda state, before: state.topology is not None and state.topology.fingerprint != before.fingerprint,
        act=slow_a_link,
    ),
    TourStep(
        title="The plan has answered",
        words="A new search goes on. Who holds which stage may change; the old numbers stand grey for comparison.",
        after="From what to what, and why, is in this line. Where a better place was found, the devices have moved.",
        targets=(".dtfm-headline",),
        is_done=lambda state, _: state.plan is not None and not state.plan_is_stale and "plan" not in state.busy,
        act=wait,
        act_label="",
    ),
    TourStep(
        title="One iteration, predicted",
        words="A row a stage, time to the right. Hatched is waiting. Click a stage: it is lit on both sides.",
        after="The hue of a hatched gap says what is waited for: a forward, a backward, or averaging.",
        targets=(".dtfm-out-schedule .dtfm-fill", ".dtfm-out-schedule", ".dtfm-tab[data-name=schedule]"),
        is_done=lambda state, _: state.pane == "schedule" and bool(state.selected_stage >= 0 or state.selected),
        act=show_schedule,
        pane="schedule",
    ),
    TourStep(
        title="Can you do better?",
        words="Drag a device onto another group. What that costs stands at every group before you drop it.",
        after="The plan is yours now, and priced. Undo is at the top of this pane.",
        targets=(".dtfm-out-groups .dtfm-fill", ".dtfm-tab[data-name=groups]"),
        is_done=lambda state, before: state.plan is not None and state.plan.device_names != before.groups,
        act=move_a_device,
        pane="groups",
    ),
    TourStep(
        title="Run it for real",
        words="Every device becomes a process that trains its stage, with links as slow as drawn. About a minute.",
        after="It has trained, and every action was timed.",
        targets=(".dtfm-out-run", ".dtfm-tab[data-name=run]"),
        is_done=lambda state, before: state.measured is not None and state.measured is not before.measured,
        act=run_it,
        act_label="Run",
        note=lambda state: state.run_note or ("starting workers" if "run" in state.busy else ""),
        pane="run",
    ),
    TourStep(
        title="Was the prediction right?",
        words="Measured minus predicted, and who is to blame: open Compare.",
        after="The suspect is named first; click it, and it is lit in the network. That was all: now draw your own.",
        targets=(".dtfm-out-compare", ".dtfm-tab[data-name=compare]"),
        is_done=lambda state, _: state.pane == "compare" and state.comparison is not None,
        act=compare_it,
        note=lambda state: "" if state.measured is not None else "nothing has been run yet: go back one step",
    ),
)


class Tour:
    """Shows one step after the other in ``view``; it can be left and taken up again at any time."""

    def __init__(self, lab: TouredLab) -> None:
        self._lab = lab
        self._before = StepStart.of(lab.lab_state)
        self._at = 0
        self.view = TourView(self._press, count=len(STEPS))
        lab.lab_state.observe(
            lambda _: self._update(),
            [*RESULT_TRAITS, "pane", "selected", "selected_stage", "busy", "run_note"],
        )

    @property
    def is_on(self) -> bool:
        return bool(self.view.step)

    def start(self) -> None:
        """Begin, or go on where it was left; open a network where none is drawn."""
        if self._lab.lab_state.topology is None:
            self._lab.open_network(NETWORK)
        self._show(self._at)

    def leave(self) -> None:
        """Put the card away; the step is kept."""
        self.view.step = {}

    def _press(self, kind: str) -> None:
        step = STEPS[self._at]
        if kind == "leave":
            self.leave()
        elif kind == "back":
            self._show(max(self._at - 1, 0))
        elif kind == "next" and self._at + 1 < len(STEPS):
            self._show(self._at + 1)
        elif kind == "next":
            self._at = 0
            self.leave()
        elif kind == "act":
            begin(step.act(self._lab), lambda line: self._lab.lab_state.report_error(step.pane or "network", line))

    def _show(self, at: int) -> None:
        step, self._at = STEPS[at], at
        if step.pane:
            self._lab.show_pane(step.pane)
        if step.pane == "schedule":
            self._lab.lab_state.selected, self._lab.lab_state.selected_stage = (), -1
        self._before = StepStart.of(self._lab.lab_state)
        with self.view.hold_sync():
            self.view.at, self.view.done, self.view.note = at, False, ""
            self.view.step = {
                "title": step.title,
                "words": step.words,
                "after": step.after,
                "targets": list(step.targets),
                "act": step.act_label,
            }
        self._update()

    def _update(self) -> None:
        """Look whether the step is done; once it is, it stays so."""
        if not self.is_on:
            return
        step, state = STEPS[self._at], self._lab.lab_state
        self.view.done = self.view.done or step.is_done(state, self._before)
        self.view.note = "" if self.view.done else step.note(state)
