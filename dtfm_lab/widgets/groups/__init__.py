"""The step Groups: the groups in path order, the paper's five steps, why the plan is as it is, and moves by hand."""

import asyncio
from functools import partial
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import FloatArray, counted, format_s, format_share, in_figures, to_gbps, to_ms
from dtfm_lab.files.reading import read_mapping
from dtfm_lab.planning import Explanation, explain
from dtfm_lab.planning.cost import EXACT_UP_TO, path_cost, shortest_path
from dtfm_lab.planning.search import PROVEN
from dtfm_lab.widgets import markup
from dtfm_lab.widgets import quiet as w
from dtfm_lab.widgets.controls import Panel, classed, more_menu, pane, segments, show, spacer, toolbar
from dtfm_lab.widgets.groups.hand_moves import HandMoves
from dtfm_lab.widgets.lab_state import Guard, LabState
from dtfm_lab.widgets.planner.plan_words import say_without_plan
from dtfm_lab.widgets.tasks import begin, has_event_loop
from dtfm_lab.widgets.views.groups import NO_GROUP, GroupsView, Lettered, lettered, matching_of

NO_PLAN = "No plan yet: draw at least two devices"
HINT = "Drag a device: each column shows what the move would cost. Gradients average inside a group."
ITERATION = "Each column shows a move's communication cost, with the predicted iteration in brackets."
SETTLED_S = 0.06
"""Seconds without a new plan or selection before explanations and the costs of moves are computed."""
MODES = {"Path": "path", "Ring": "ring", "Weights": "weights"}
MODE_WORDS = (
    "One column per group, in path order",
    "The paper's five steps from a network to a plan",
    "Seconds between any two groups",
)
STEPS = read_mapping(Path(__file__).parents[1] / "texts" / "steps.yaml")
"""{letter of a step of the paper: its texts}."""


class GroupsPanel(Panel):
    """Shows ``lab_state.plan`` step by step. Moving a device by hand makes a new plan."""

    def __init__(self, lab_state: LabState) -> None:
        self._lab_state = lab_state
        self._report_error = partial(lab_state.report_error, "groups")
        self._explaining: tuple[Plan, asyncio.Task[Explanation]] | None = None
        self._displayed: tuple[Plan | None] | None = None
        """The drawn plan, in a tuple because it may be None. None until something is drawn."""
        self._n_requested = 0
        """Number of the newest request for an explanation. The results of earlier ones are dropped."""
        self._is_following = Guard()
        self.groups = classed(GroupsView(height=0, can_move=True), "dtfm-fill")
        say_without_plan(lab_state, NO_PLAN, lambda words: self.groups.set_trait("hint", words))
        self.mode = classed(segments(list(MODES.items()), MODE_WORDS), "dtfm-segmented")
        letters = [f"Step ({letter}) of the paper: {texts['word']}" for letter, texts in STEPS.items()]
        self.step = segments([(f"({letter})", letter) for letter in STEPS], letters, "34px", value=self.groups.step)
        classed(self.step, "dtfm-segmented")
        self._controls = {"step": self.step, "mode": self.mode}
        self.hand = HandMoves(lab_state, self.groups, self._explained, self._report_error)
        self.line = classed(w.HTML(), "dtfm-groups-line")
        self.why = w.HTML(tabbable=True)  # a page of text, which arrows scroll
        what = "Why the plan looks like this, or why the selected device is in its place"
        self.why_menu = more_menu([self.why], "Why?", what)
        more = more_menu([self.hand.view], "Move …", "Move the selected device to another place in the plan")
        row = toolbar(self.mode, self.step, spacer(), self.hand.undo, self.hand.redo, self.why_menu, more)
        self.view = pane([row, self.line, self.groups], "dtfm-groups-panel")
        w.link((self.step, "value"), (self.groups, "step"))
        w.link((self.mode, "value"), (self.groups, "mode"))
        self.step.observe(lambda _: self._describe(), "value")
        self.mode.observe(lambda _: self._show_mode(), "value")
        self.groups.observe(lambda _: self._describe(), "offers")
        self.groups.observe(lambda _: self._selected_here(), ["selected", "selected_group"])
        self.groups.observe(lambda _: self._edge_selected(), ["selected_edge", "other_edge"])
        self.groups.observe(lambda _: self._ask(), ["selected", "selected_group"])
        lab_state.observe(lambda _: self._follow(), "selected")
        lab_state.observe(lambda _: self._follow_stage(), "selected_stage")
        lab_state.observe(lambda _: self._show(), ["plan", "shown_panes"])
        self._show_mode()
        self._show()

    def _show(self) -> None:
        """Draw the plan, once the pane is on the screen."""
        plan = self._lab_state.plan
        if not self._lab_state.shows("groups"):
            self.hand.take(plan)
            if self._displayed is not None and plan is not self._displayed[0]:
                self._displayed = None  # its offers are gone, even if an undo brings the plan back
            return
        if self._displayed is not None and plan is self._displayed[0]:
            self._ask()  # a device may have been selected while the pane was hidden
            return
        self._displayed = (plan,)
        self.groups.title = "Groups" if plan is None else f"{plan.job.name} on {plan.topology.name}"
        with self._is_following:  # devices outside the plan stay selected in other views
            self.groups.show(plan)
        self._follow()
        self.step.disabled = plan is None
        self.hand.take(plan)
        self._describe()
        self._ask()

    def _show_mode(self) -> None:
        """Show the steps in the ring view, and the menu Why in the other views."""
        is_ring = self.mode.value == "ring"
        show(self.step, is_ring)
        show(self.why_menu, not is_ring)
        self._describe()

    def _describe(self) -> None:
        """Show the current step, the last move by hand or a hint on the line above the groups."""
        plan, letter = self._lab_state.plan, self.step.value
        if plan is None:
            self.line.value = ""
        elif self.mode.value == "ring":
            words = describe_step(plan, letter)
            caption = f"({letter}) {words.title}. {words.happens} {words.numbers} DT-FM, {words.source}."
            self.line.value = (
                f'<div class="dtfm-step-told" role="status" title="{escape(caption)}"><b>({letter}) '
                f"{escape(words.title)}</b> {escape(words.happens)} <span>{escape(words.numbers)}</span> "
                f"<i>DT-FM, {escape(words.source)}</i></div>"
            )
        else:
            line = self.hand.note or (ITERATION if "iteration_s" in self.groups.offers else HINT)
            if self.mode.value == "weights":
                line = "Seconds between any two groups, in path order. Outlined cells are hops of the path."
            self.line.value = f'<div class="dtfm-step-told" role="status" title="{escape(line)}">{escape(line)}</div>'

    def _selected_here(self) -> None:
        if self._is_following:
            return
        with self._is_following, self._lab_state.hold_trait_notifications():
            if set(self.groups.selected) != set(self._lab_state.selected):
                self._lab_state.selected = tuple(self.groups.selected)
            self._lab_state.selected_stage = self.groups.selected_group

    def _follow_stage(self) -> None:
        stage, plan = self._lab_state.selected_stage, self._lab_state.plan
        if not self._is_following and plan is not None and -1 <= stage < plan.job.n_stages:
            with self._is_following:
                self.groups.selected_group = stage

    def _follow(self) -> None:
        """Select the devices that are selected elsewhere, if the plan has them."""
        known = set() if self._lab_state.plan is None else set(self._lab_state.plan.topology.names)
        names = [name for name in self._lab_state.selected if name in known]
        # Setting an equal selection again would go round between the two views.
        if set(names) == set(self.groups.selected):
            return
        with self._is_following:
            group = self.groups.selected_group
            # The group was selected as a whole, which the new selection is not.
            if group != NO_GROUP and set(names) != set(self.groups.groups[group]["devices"]):
                self.groups.selected_group = NO_GROUP
            self.groups.selected = names

    def _edge_selected(self) -> None:
        """After a click on an edge between two groups, select the link of its slowest pair of devices."""
        plan, edge, other = self._lab_state.plan, self.groups.selected_edge, self.groups.other_edge
        pairs: list[list[Any]] = []
        if plan is not None and len(other) == 2 and all(0 <= stage < plan.job.n_stages for stage in other):
            pairs = self.groups.other_matching = matching_of(plan, *other)
        elif 0 <= edge < len(self.groups.matchings):
            pairs = self.groups.matchings[edge]
        if pairs:
            self._lab_state.selected_link = tuple(pairs[0][:2])

    def _ask(self) -> None:
        """Soon explain the selection and compute what moving the selected device costs. Nothing is computed without an
        event loop, or while the pane is hidden."""
        self._n_requested += 1
        if self._lab_state.plan is None:
            self.why.value = markup.line(NO_PLAN, "note")
            return
        self.why.value = self.why.value or markup.line("explaining the plan …", "note")
        if has_event_loop() and self._lab_state.shows("groups"):
            begin(self._show_why(self._n_requested), self._report_error)

    async def _show_why(self, request: int) -> None:
        # A user who clicks through many devices waits for none of them.
        await asyncio.sleep(SETTLED_S)
        plan = self._lab_state.plan
        if request != self._n_requested or plan is None:
            return
        explanation = await self._explained(plan)
        device = self.groups.selected[0] if len(self.groups.selected) == 1 else ""
        title = f"Why here? {device}" if device else "Why? The plan"
        text = await asyncio.to_thread(lambda: explanation.why(device) if device else explanation.text)
        if request != self._n_requested or self._lab_state.plan is not plan:
            return
        lines = "".join(f"<p>{escape(line)}</p>" for line in text.splitlines())
        self.why.value = f'<div class="dtfm-why" role="status"><b>{escape(title)}</b>{lines}</div>'
        # The explanation is on the screen first; prices take longer.
        if device:
            await self.hand.price(plan, device)

    async def _explained(self, plan: Plan) -> Explanation:
        """Return the plan's explanation. It is computed once, on a thread."""
        if self._explaining is None or self._explaining[0] is not plan:
            # The task is kept, so that a second request waits for it instead of computing again.
            self._explaining = plan, asyncio.ensure_future(asyncio.to_thread(explain, plan))
        return await self._explaining[1]


SHOWN_IN_PATH = 12
"""Maximum number of groups that are listed for a path. Of a longer path, the first ones and the last are listed."""


class StepText(NamedTuple):
    """One of the paper's five steps, in words."""

    title: str
    happens: str
    """What the step does, for any plan."""
    numbers: str
    """The step's result for this plan."""
    source: str
    """Section or equation of the paper."""


def describe_step(plan: Plan, letter: str) -> StepText:
    """Return one of the five steps in words. Raises KeyError for a letter other than a to e.

    Source: DT-FM section 3, its communication graph, equations 1 to 4.
    """
    texts = STEPS[letter]
    numbers = {"a": _graph, "b": _groups, "c": _nodes, "d": _weights, "e": _path}[letter](plan, lettered(plan))
    return StepText(texts["title"], texts["happens"], numbers, texts["source"])


def _graph(plan: Plan, _groups: Lettered) -> str:
    topology, n = plan.topology, len(plan.topology)
    apart = ~np.eye(n, dtype=bool)
    if n == 1:
        return "1 device, no link."
    latency, speed = to_ms(topology.latency_s[apart]), to_gbps(topology.bandwidth_bytes_per_s[apart])
    ranges = f"{_range(latency, 'ms')} and {_range(speed, 'Gbit/s')}"
    return f"{counted(n, 'device')} and {n * (n - 1):,} directed links: {ranges}."


def _groups(plan: Plan, groups: Lettered) -> str:
    s, d = plan.placement.devices.shape
    cost = plan.cost
    if d == 1:
        numbers = f"{counted(s, 'group')} of one device: there are no gradients to average."
    else:
        slowest = int(cost.group_s.argmax())
        alike = int((cost.group_s >= cost.group_s[slowest] * (1 - 1e-9)).sum()) - 1
        others = f" ({counted(alike, 'other')} {'takes' if alike == 1 else 'take'} as long)" if alike else ""
        sync = f"Group {groups.letter(slowest)} synchronises in {format_s(cost.data_parallel_s)}, the slowest{others}"
        numbers = f"{counted(s, 'group')} of {counted(d, 'device')}. {sync}: it sets the data-parallel cost."
    if idle := len(plan.idle_devices):
        numbers += f" {counted(idle, 'device')} {'stays' if idle == 1 else 'stay'} idle."
    return numbers


def _nodes(plan: Plan, _groups: Lettered) -> str:
    s, d = plan.placement.devices.shape
    n = s * d
    return (
        f"{counted(n, 'device')} and {counted(n * (n - 1) // 2, 'pair')} of them become {counted(s, 'node')} and "
        f"{counted(s * (s - 1) // 2, 'edge')}."
    )


def _weights(plan: Plan, groups: Lettered) -> str:
    s = plan.job.n_stages
    if s == 1:
        return "One group, so no edge to weigh."
    a, b = np.triu_indices(s, 1)
    weights = plan.cost.weights_s[a, b]
    if len(weights) == 1 or weights.max() <= weights.min() * (1 + 1e-9):
        return f"{'The edge' if len(weights) == 1 else 'Every edge'} weighs {format_s(float(weights[0]))}."
    low, high = (
        f"{format_s(float(weights[k]))} ({_joined(groups, int(a[k]), int(b[k]))})"
        for k in (int(weights.argmin()), int(weights.argmax()))
    )
    return f"The lightest edge weighs {low}, the heaviest {high}."


def _path(plan: Plan, groups: Lettered) -> str:
    cost, s = plan.cost, plan.job.n_stages
    left = f"another plan could save at most {format_share(max(plan.gap, 0.001))} of it"
    proof = "proven best in this shape" if plan.gap < PROVEN else left
    whole = f"{format_s(cost.total_s)} of communication cost, {proof}."
    if s == 1:
        return f"A single stage needs no path: the plan has its synchronisation, {whole}"
    letters = [groups.letter(stage) for stage in range(s)]
    shown = " ".join(letters if s <= SHOWN_IN_PATH else [*letters[: SHOWN_IN_PATH - 2], "…", letters[-1]])
    path_s = format_s(cost.pipeline_s)
    numbers = f"{shown}: {path_s} in {counted(s - 1, 'hop')}"
    if s <= EXACT_UP_TO:
        shortest_s = path_cost(cost.weights_s, shortest_path(cost.weights_s))
        if cost.pipeline_s > shortest_s * (1 + 1e-9):
            numbers += f" (the shortest would take {format_s(shortest_s)})"
    return f"{numbers} + {format_s(cost.data_parallel_s)} of the slowest group = {whole}"


def _joined(groups: Lettered, a: int, b: int) -> str:
    return "–".join(sorted((groups.letter(a), groups.letter(b)), key=lambda letter: (len(letter), letter)))


def _range(values: FloatArray, unit: str) -> str:
    low, high = in_figures(float(values.min())), in_figures(float(values.max()))
    return f"{low} {unit}" if low == high else f"{low} to {high} {unit}"
