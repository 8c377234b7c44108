"""The bar above the lab. It follows the lab's state: live numbers, and the one next action."""

import asyncio
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import traitlets

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.trace import UNSAID
from dtfm_lab.domain.units import FAR_TIMES, LOOSE_TIMES, counted, format_range, format_s, format_times, signed_share
from dtfm_lab.figures.measures import format_count, format_dollars
from dtfm_lab.widgets.lab_state import (
    RESULT_TRAITS,
    LabState,
    is_profiled,
    modelled_s,
    planned_as,
    run_staleness,
    shown_prediction,
    shown_s,
)
from dtfm_lab.widgets.planner.edits import BeforeEdit, is_same
from dtfm_lab.widgets.planner.job_controls import COMMUNICATION, shape_words
from dtfm_lab.widgets.planner.replanning import LiveReplanning
from dtfm_lab.widgets.shell.headline import ALIKE, Headline, headline, reason_of
from dtfm_lab.widgets.tasks import SLOW_S, OncePerTurn, begin, has_event_loop
from dtfm_lab.widgets.views.frame import TopBar
from dtfm_lab.widgets.what_if.binding import Binding, binding_of

REST_S = 0.3
"""Seconds that a plan must last before it is analysed, so that a drag is not slowed."""
PROVED = 5e-4
"""Gap below which a communication cost is reported as proved."""
SAID = (
    "bound_s",
    "busy",
    "message",
    "pane",
    "hand_note",
    "lacking",
    "is_planning",
    "searches_on",
    "run_part",
    "run_story",
    "run_progress",
    "notes",
)
"""Traits of the lab's state, besides those tagged ``result``, whose changes refresh the bar."""
CHEAPER = {"name": "cheaper", "label": "cheaper?", "title": "Look for cheaper plans, and see how much slower they are"}


class NextAction(NamedTuple):
    """The action that the bar offers next: its name in the program, and the label of its button.

    ``why_not`` says why the action is unavailable. It is empty if the action is available.
    """

    name: str
    label: str
    why_not: str = ""


class StatusBar:
    """Writes numbers, headline and next action into a TopBar whenever the lab's state changes."""

    def __init__(
        self,
        lab_state: LabState,
        replanning: LiveReplanning,
        on_press: Callable[[str], None],
        can_refit: Callable[[], bool],
    ) -> None:
        self._lab_state, self._replanning, self._can_refit = lab_state, replanning, can_refit
        self.history = replanning.history
        lab_state.observe(lambda change: self._take_plan(change["new"]), "plan")
        self._reason: tuple[object, Binding] = (None, Binding(""))
        """The last analysed request, see ``_asked``, and what limits its plan."""
        self.refreshing = OncePerTurn(self.refresh)
        self.view = TopBar(on_press, live=replanning.switch.value)
        traitlets.link((replanning.switch, "value"), (self.view, "live"))
        traitlets.dlink((self.view, "dark"), (lab_state, "dark"))
        lab_state.observe(
            lambda _: self._soon(),
            [*RESULT_TRAITS, *SAID],
        )
        lab_state.history.observe(lambda _: self._soon(), "said")
        self.refresh()

    def _take_plan(self, plan: Plan | None) -> None:
        """Forget the state before the last edit if the new plan is not an answer to that edit. The user may have
        searched for it, chosen it or made it by hand."""
        last = self._replanning.last
        if plan is not None and not self._lab_state.plan_is_stale and (last is None or last.plan is not plan):
            self.history.forget()

    @property
    def action(self) -> NextAction:
        """The one next action."""
        return next_action(self._lab_state, can_refit=self._can_refit())

    @property
    def _is_replanning(self) -> bool:
        state = self._lab_state
        waits = state.plan_is_stale and self._replanning.switch.value and not state.not_planned
        return waits and state.topology is not None and not state.message

    def _soon(self) -> None:
        """Refresh once for all changes in one turn of the loop. After an edit, wait briefly for the new plan."""
        self.refreshing.ask(SLOW_S if self._is_replanning else 0.0)

    def refresh(self) -> None:
        state, view, before = self._lab_state, self.view, self.history.before
        topology, job = state.topology, state.job
        # One message for all fields, so that no number of the old plan is shown next to a new one.
        with view.hold_sync():
            view.network = ["", ""] if topology is None else [topology.name, consists_of(state)]
            view.job = ["", ""] if job is None else [job.name, shape_of(state)]
            view.numbers = bar_numbers(state, before)
            if not self._is_replanning:  # keep the old headline until there is a new one
                binding = self._known_binding()
                state.binding_helps, state.binding = binding.helps, drawn_as(state, binding.devices)
                said = headline(state, before, self._replanning.last, binding.words)
                view.headline = said._asdict() | {"handle": handle_in(said, binding.handle, state.binding)}
            view.action = self.action._asdict()
            took_s = self._replanning.took_s
            planned = f"planned in {format_s(took_s)}" if took_s and not state.not_planned else ""
            view.live_note = "still searching" if planned and state.searches_on else planned

    @property
    def _asked(self) -> tuple[object, ...]:
        """What the reason in ``_reason`` depends on: the plan and all choices for it."""
        state = self._lab_state
        return state.plan, state.schedule, state.queueing, tuple(sorted(state.choices.items()))

    def _known_binding(self) -> Binding:
        """Return what limits the plan, if known. A thread finds out once the plan has lasted for a while."""
        if self._lab_state.plan is None or self._lab_state.plan_is_stale:
            return Binding("")
        asked, found = self._reason
        # Words of another plan would be false, so an old reason is dropped at once.
        is_known = asked == self._asked
        if not is_known and has_event_loop():
            begin(self._analyse(self._asked), lambda _: None)
        return found if is_known else Binding("")

    async def _analyse(self, asked: tuple[object, ...]) -> None:
        await asyncio.sleep(REST_S)
        shown = self._lab_state.shown_plan
        if shown is not None and asked == self._asked and asked != self._reason[0]:
            self._reason = asked, await asyncio.to_thread(_binding, shown)
            self.refresh()


def _binding(plan: Plan) -> Binding:
    """Return what limits a plan, in words alone if its job has no model. Empty if the plan cannot be simulated."""
    try:
        return binding_of(plan) if plan.job.model is not None else Binding(reason_of(plan))
    except LabError:
        return Binding("")


def drawn_as(state: LabState, devices: tuple[str, ...]) -> tuple[str, ...]:
    """Return the drawn device for each of these devices of the plan. For a group of GPUs, that is the first.

    Empty if any of them is not drawn.
    """
    plan, topology = state.plan, state.topology
    planned = None if plan is None or topology is None else planned_as(plan, topology)
    if plan is None or planned is None:
        return ()
    first = {plan.topology.names[at]: name for name, at in reversed(planned.items())}
    drawn = tuple(first[name] for name in devices if name in first)
    return drawn if len(drawn) == len(devices) else ()


def handle_in(said: Headline, handle: str, devices: tuple[str, ...]) -> dict[str, Any]:
    """Return {text, devices} of the link or device that the headline names. Empty if it names none that is drawn."""
    is_named = bool(handle and devices) and any(handle in words for words in (said.lead, said.rest))
    return {"text": handle, "devices": [*devices]} if is_named else {}


def consists_of(state: LabState) -> str:
    """Return what the network consists of: ``8 devices in 2 regions``."""
    topology = state.topology
    assert topology is not None
    regions = {device.region for device in topology.devices} - {""}
    where = f" in {counted(len(regions), 'region')}" if len(regions) > 1 else ""
    return f"{counted(len(topology), 'device')}{where}"


def shape_of(state: LabState) -> str:
    """Return the planned shape and the batch: ``4 stages x 2 replicas, batch 64``. While the shape is open, return only
    the batch, and without a model only the shape."""
    plan, job = state.plan, state.job
    assert job is not None
    # A stale plan may have another shape than the job has now.
    planned = job if plan is None or state.plan_is_stale else plan.job
    batch_size = state.choices.get("global_batch", planned.global_batch)
    if planned.n_stages is None or planned.n_replicas is None:
        return f"batch {batch_size:,}"
    batch = "" if planned.model is None else f", batch {batch_size:,}"
    return f"{shape_words(planned.n_stages, planned.n_replicas, 0)}{batch}"


def bar_numbers(state: LabState, before: BeforeEdit | None) -> list[dict[str, Any]]:
    """Return {label, value, was, note, short, bad, word, under, ask, why} of each number.

    The iteration comes first, or the communication cost if the job has no model. The other keys are

    - ``was`` is the value before the last edit. Empty if it did not change.
    - ``short`` replaces the note if there is little room.
    - ``bad`` is True for a number to warn about, such as the time of a plan that does not fit in memory.
    - ``word`` is the number's entry in the glossary.
    - ``under`` is a line below, and a shorter one for little room.
    - ``ask`` is {name, label, title} of a button next to the number.
    - ``why`` is the tooltip that says why the number is a guess, or how it was calibrated.

    Empty without a plan, or if nothing can be planned.
    """
    plan = state.bounded_plan
    if plan is None or not state.can_be_planned:
        return []
    tokens_per_s, dollars = _rates(state, plan)
    counted = plan.job.counted
    numbers = [_cost_number(plan, before) if plan.job.model is None else _iteration_number(state, plan, before)]
    if tokens_per_s:
        numbers.append(_number("Throughput", f"{format_count(tokens_per_s)} {counted}/s", word="throughput"))
    if dollars:
        # Clicking the price asks for a cheaper plan.
        numbers.append(_number(f"Price, billion {counted}", format_dollars(dollars), word="price", ask=CHEAPER))
    return [*numbers, _measured_number(state)]


def _rates(state: LabState, plan: Plan) -> tuple[float | None, float | None]:
    """Return predicted tokens per second, and dollars per billion tokens. None if unknown."""
    if (predicted := shown_prediction(state)) is not None:
        known = predicted.metrics
        per_million = known["price_per_million_tokens"]
        return known["tokens_per_s"], None if per_million is None else 1e3 * per_million
    return plan.job.tokens / plan.iteration_s if plan.iteration_s else None, plan.price_per_billion_tokens


def _number(label: str, value: str, **given: Any) -> dict[str, Any]:
    number = {"label": label, "value": value, "was": "", "note": "", "bad": False, "word": "", "under": [], "ask": {}}
    return {"short": given.get("note", ""), "why": ""} | number | given


def _cost_number(plan: Plan, before: BeforeEdit | None) -> dict[str, Any]:
    """Return the communication cost, which comes first if no iteration can be predicted."""
    was = None if before is None else before.plan.cost.total_s
    now, note = plan.cost.total_s, gap_words(plan)
    short = note.replace("at most", "≤").replace("the best", "best")
    details = {"was": _was(was, now), "note": note, "short": short, "word": "communication cost"}
    return _number("Communication cost", format_s(now), **details)


def cost_words(state: LabState, plan: Plan, before: BeforeEdit | None) -> tuple[str, str]:
    """Return the communication cost as it is shown below the iteration, in a long and a short form.

    The cost leaves out computation and takes one message after the other. So if there is a prediction, both forms also
    say how long messages travel in it, and how much of that overlaps with computation. The short form is only this.
    """
    now, was = plan.cost.total_s, _was(None if before is None else before.plan.cost.total_s, plan.cost.total_s)
    cost = f"communication cost {was} → {format_s(now)}" if was else f"communication cost {format_s(now)}"
    gap = f" ({gap_words(plan)})" if plan.objective == COMMUNICATION else ""
    planned = " as planned" if state.is_chosen_otherwise else ""
    shown = shown_prediction(state)
    if shown is None or not shown.travel.travel_s > 0:
        return (f"{cost}{planned}{gap}", f"{cost}{planned}")
    travel_s, hidden_s = format_s(shown.travel.travel_s), format_s(shown.travel.hidden_s)
    messages = f"a device\u2019s messages take {travel_s}, {hidden_s} of it while it computes"
    return (
        f"{cost}{planned}{gap} counts no overlap; here {messages}",
        f"messages take {travel_s}, {hidden_s} of it while computing",
    )


def gap_words(plan: Plan) -> str:
    """Return how far the communication cost is from its bound, ``at most 1.04 × the best of 4 x 2``.

    The bound covers placements in the plan's shape. Another shape may cost less.
    """
    if not plan.lower_bound_s > 0:
        return "no bound yet" if plan.cost.total_s > 0 else "nothing to send"
    times, best = plan.cost.total_s / plan.lower_bound_s, f"the best of {plan.job.n_stages} x {plan.job.n_replicas}"
    if times > FAR_TIMES:
        return f"far above the bound of {plan.job.n_stages} x {plan.job.n_replicas}"
    return f"proved {best}" if plan.gap < PROVED else f"at most {format_times(times)} × {best}"


def _iteration_number(state: LabState, plan: Plan, before: BeforeEdit | None) -> dict[str, Any]:
    seconds = shown_s(state)
    details: dict[str, Any] = {"word": "iteration", "under": [*cost_words(state, plan, before)]}
    if seconds is None:
        return _number("Iteration, predicted", "–", **details)
    shown, planned_s = shown_prediction(state), plan.iteration_s
    is_planned = planned_s is None or math.isclose(planned_s, seconds, rel_tol=ALIKE)
    note, short = _bound_words(plan, state.schedule) if is_planned else _as_chosen(state, plan)
    if between := "" if shown is None else format_range(*shown.interval()):
        note, short = f"{between} · {note}", f"{between} · {short}"
    # A model's seconds and a profile's differ for other reasons than the edit.
    was = "" if before is None or modelled_s(state) != seconds else _was(before.iteration_s, seconds)
    if lacks := bool(state.lacking) and shown is not None:
        note = short = "does not fit in memory"
    basis = UNSAID if shown is None else shown.context.basis
    why = basis.sentence if basis.because else ""
    details |= {"was": was, "note": note, "short": short, "bad": lacks, "why": why}
    return _number(f"Iteration, {basis.word or 'predicted'}", format_s(seconds), **details)


def _bound_words(plan: Plan, schedule: str) -> tuple[str, str]:
    """Return how much faster another plan could be, in a long and a short form.

    The short form is the schedule's name if it is unknown what the job fixed, and ``gap to the best unknown`` if the
    bound is loose. Without a bound, both forms are the schedule's name.
    """
    left = plan.speed_up_left
    if left is None or not math.isfinite(left):
        return schedule, schedule
    if plan.left_open is None:
        return plan.speed_up_words or schedule, schedule
    within = _short_scope(plan)
    if left <= 1 + 1e-6:
        return plan.speed_up_words, f"none faster{within}"
    if left > LOOSE_TIMES:
        return plan.speed_up_words, "gap to the best unknown"
    of = "any plan's bound" if plan.scope == "any plan" else f"the bound of {plan.scope}"
    return f"at most {format_times(left)} × {of}", f"≤ {format_times(left)} × the best{within}"


def _short_scope(plan: Plan) -> str:
    """Return which plans a bound covers, in a few words: "in 4 x 2", "as pinned". Empty if it covers any plan."""
    if not plan.pinned:
        return ""
    shape = f"{plan.job.n_stages} x {plan.job.n_replicas}"
    return f" in {shape}" if shape in plan.pinned else " as pinned"


def _as_chosen(state: LabState, plan: Plan) -> tuple[str, str]:
    """Return how the shown prediction differs from the plan as found, in a long and a short form.

    It replaces the words about the bound, which is for the plan as found.
    """
    planned = format_s(plan.iteration_s or 0.0)
    if is_profiled(state):
        return f"from the profile, {planned} from FLOP", "from the profile"
    shown = state.schedule if state.schedule != plan.job.schedule_name else "as chosen"
    return f"{shown}, {planned} under {plan.job.schedule_name} as planned", shown


def _measured_number(state: LabState) -> dict[str, Any]:
    measured, comparison = state.measured, state.comparison
    if measured is None:
        runs = "run" in state.busy
        note = (state.run_progress or "being read") if runs else "not run"
        return _number("Measured", "…" if runs else "–", note=note, word="measured")
    part, seconds = measured.context.part, format_s(measured.iteration_s)
    label = f"Measured, {part}" if part else "Measured"
    if run_staleness(state):
        return _number(label, seconds, note="before the last edit", word="error")
    note = "" if comparison is None else signed_share(comparison.iteration_error)
    if part and comparison is not None:  # the bar shows another prediction
        note = f"{note}, {format_s(comparison.predicted_iteration_s)} predicted for it"
    bad = comparison is not None and abs(comparison.iteration_error) > 0.1
    return _number(label, seconds, note=note, bad=bad, word="error")


def _was(was: float | None, now: float) -> str:
    return "" if was is None or is_same(was, now) else format_s(was)


def next_action(state: LabState, *, can_refit: bool = False) -> NextAction:
    """Return the next useful action. ``can_refit`` is True if a network fitted to the last run can be used."""
    if "run" in state.busy:
        return NextAction("stop-run", "Stop the run")
    if "plan" in state.busy:
        return NextAction("stop-plan", "Stop and keep the best")
    if state.topology is None:
        return NextAction("open", "Open a network")
    if state.plan is None or state.plan_is_stale:
        return NextAction("plan", "Plan", "" if state.job is not None else "the job does not fit this network")
    if state.plan.job.model is None:
        return NextAction("plan", "Plan again")
    # A measurement from before the last edit says nothing about this plan.
    if state.measured is None or run_staleness(state):
        label = f"Train {state.run_part.removeprefix('the whole plan, ')}" if state.run_part else "Run it for real"
        return NextAction("run", f"{label}, although it does not fit" if state.lacking else label)
    if state.pane != "compare":
        return NextAction("compare", "Compare")
    return NextAction("refit", "Use the refitted network") if can_refit else NextAction("run", "Run again")
