"""Swapping two devices by hand: the cost of every swap, the resulting plan, undo and redo."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pandas as pd

from dtfm_lab import lab
from dtfm_lab.domain.errors import LabError, PlanError
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import format_s
from dtfm_lab.planning import Explanation, evaluate, simulated
from dtfm_lab.widgets import quiet as w
from dtfm_lab.widgets.controls import button, disable, icon_button, menu
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.tasks import begin
from dtfm_lab.widgets.views.groups import GroupsView, lettered
from dtfm_lab.widgets.what_if.setting import n_actions

IDLE = -1
"""Stage of a device that the plan leaves idle."""
PRICED_UP_TO = 100_000
"""Maximum actions per iteration of a plan for which each move's iteration time is simulated as well."""


class HandMoves:
    """Swaps devices that are dragged in the groups view. ``view`` is a menu that does the same."""

    def __init__(
        self,
        lab_state: LabState,
        groups: GroupsView,
        explained: Callable[[Plan], Awaitable[Explanation]],
        report_error: Callable[[str], None],
    ) -> None:
        self._lab_state, self._groups, self._explained, self._report_error = lab_state, groups, explained, report_error
        self._made: Plan | None = None
        """The plan that resulted from the last move."""
        self._offered: Plan | None = None
        """The plan whose moves are offered."""
        self.move_to = menu("Move to", "min(400px, 100%)", "60px", (), "Where to move the selected device")
        self.move = button("Move", "exchange", "", "84px", disabled=True)
        self.undo, self.redo = icon_button("undo", ""), icon_button("repeat", "")
        self.note = ""
        """The swap that made this plan, in words. Empty for any other plan, and after undo or redo."""
        self.view = w.HBox([self.move_to, self.move])
        self.move.on_click(lambda _: self._move_chosen())
        history = lab_state.history
        history.add_part("plan", self._state, self._put_back)
        history.observe(lambda _: self._show_history(), ["undo_label", "redo_label", "can_undo", "can_redo"])
        self._show_history()
        self.undo.on_click(lambda _: self._turn(back=True))
        self.redo.on_click(lambda _: self._turn(back=False))
        groups.on_msg(self._gesture)
        groups.observe(lambda _: self.offer(), ["offers", "selected"])

    def take(self, plan: Plan | None) -> None:
        """Offer the moves of another plan. Clear the note unless the plan was made by hand here."""
        if plan is None or plan is not self._made:
            self.note = self._lab_state.hand_note = ""
        if plan is not self._offered:
            # A hidden view keeps its offers, and another plan may not have their stages.
            self._offered, self._groups.offers = plan, {}
        self.offer()

    async def price(self, plan: Plan, device: str) -> None:
        """Compute on a thread what moving a device to each other place costs, and set the view's ``offers``.

        Communication costs come first, because they are exact and quick. Simulated iteration times follow, group by
        group.
        """
        if self._groups.offers.get("device") == device or device not in plan.topology.names:
            return
        explanation = await self._explained(plan)
        priced = await asyncio.to_thread(offers, explanation, device)
        if self._lab_state.plan is not plan:
            return
        self._groups.offers = priced
        now_s = await asyncio.to_thread(self._iteration, plan)
        # The cost is always known; seconds only if they can be simulated quickly.
        if now_s is None:
            return
        for at, place in enumerate(priced["groups"]):
            after = await asyncio.to_thread(exchanged, plan, device, place["partner"])
            after_s = await asyncio.to_thread(self._iteration, after)
            # Each price is shown as it comes, so the user may have moved on.
            if self._lab_state.plan is not plan or self._groups.offers.get("device") != device:
                return
            if after_s is not None:
                groups = [dict(each) for each in self._groups.offers["groups"]]
                groups[at]["iteration_change_s"] = after_s - now_s
                self._groups.offers = self._groups.offers | {"groups": groups, "iteration_s": now_s}

    def _iteration(self, plan: Plan) -> float | None:
        """Return the predicted seconds of an iteration. None if the simulation would take long or is not possible."""
        state = self._lab_state
        try:
            chosen = plan.changed(job=plan.job.with_fields(**state.choices))
            if n_actions(chosen) > PRICED_UP_TO:
                return None
            return lab.simulate(chosen, state.schedule, queueing=state.queueing).iteration_s
        except LabError:
            return None

    def offer(self) -> None:
        """List the places that the selected device could take, cheapest first."""
        plan, offered, selected = self._lab_state.plan, self._groups.offers, self._groups.selected
        if plan is None or len(selected) != 1 or offered.get("device") != selected[0]:
            hint = "select one device" if len(selected) != 1 else "computing what each move costs"
            self._choices([("no plan yet" if plan is None else hint, None)], why_not=hint.capitalize())
            return
        places = []
        for place in offered["groups"]:
            cost = f"{format_s(place['cost_s'])}, {change(place['change_s'], offered['now_s'])}"
            places.append((f"{named(plan, place['stage'])}, for {place['partner']}: {cost}", place["partner"]))
        none = "No other place: all devices are in one group"
        self._choices(places or [(none, None)], why_not="" if places else none)

    def _choices(self, options: list[tuple[str, str | None]], *, why_not: str) -> None:
        kept = self.move_to.value
        if list(self.move_to.options) != options:
            self.move_to.options = options
            self.move_to.index = next((at for at, (_, value) in enumerate(options) if value == kept), 0)
        self.move_to.disabled = self.move.disabled = bool(why_not)
        self.move.tooltip = why_not or "Swap the selected device with the one named"

    def _gesture(self, _widget: object, content: dict[str, Any], _buffers: object) -> None:
        plan, device, kind = self._lab_state.plan, content.get("device"), content.get("kind")
        if kind in ("undo", "redo"):
            self._turn(back=kind == "undo")
        elif plan is not None and isinstance(device, str):
            if kind == "lift":
                begin(self.price(plan, device), self._report_error)
            elif kind == "drop":
                begin(self._drop(plan, device, content), self._report_error)

    async def _drop(self, plan: Plan, device: str, content: dict[str, Any]) -> None:
        """Swap a dropped device with the one it was dropped on, or with the cheapest one of a group."""
        partner = content.get("partner")
        if partner is None:
            explanation = await self._explained(plan)
            places = (await asyncio.to_thread(offers, explanation, device))["groups"]
            partner = next((place["partner"] for place in places if place["stage"] == content.get("stage")), None)
        if isinstance(partner, str):
            await self._exchange(plan, device, partner)

    def _move_chosen(self) -> None:
        selected, partner = self._groups.selected, self.move_to.value
        if len(selected) == 1 and partner is not None:
            self.exchange(selected[0], partner)

    def exchange(self, device: str, partner: str) -> None:
        """Swap two devices of the plan, or put an idle one in the place of another."""
        if (plan := self._lab_state.plan) is not None:
            begin(self._exchange(plan, device, partner), self._report_error)

    async def _exchange(self, plan: Plan, device: str, partner: str) -> None:
        made = await asyncio.to_thread(exchanged, plan, device, partner)
        if self._lab_state.plan is not plan:
            return  # the plan has changed, so this swap is of an outdated one
        self._lab_state.history.keep(f"{device} and {partner} swapped")
        self._put(made, f"You swapped {device} and {partner}: {from_to(plan, made)}.")

    def _state(self) -> tuple[Plan | None, bool]:
        """Return the plan, and True if it matches the current network and job or no network is drawn."""
        state = self._lab_state
        return state.plan, state.topology is None or not state.plan_is_stale

    def _put_back(self, before: tuple[Plan | None, bool]) -> None:
        """Restore a plan from before an edit, if it matched the network and the job then and matches them now."""
        state, (plan, stood) = self._lab_state, before
        now = state.plan
        if plan is None or not stood or plan is now:
            return
        state.plan = plan
        if state.topology is not None and state.plan_is_stale:
            state.plan = now

    def _turn(self, *, back: bool) -> None:
        """Undo the lab's last edit, or redo it."""
        history = self._lab_state.history
        history.undo() if back else history.redo()

    def _show_history(self) -> None:
        """Say in the tooltips of both buttons which edit they would undo or redo."""
        history = self._lab_state.history
        for each, label, nothing in (
            (self.undo, history.undo_label, "Nothing to undo"),
            (self.redo, history.redo_label, "Nothing to redo"),
        ):
            disable(each, "" if label else nothing)
            if label:
                each.tooltip = f"{'Undo' if each is self.undo else 'Redo'}: {label}"

    def _put(self, plan: Plan, line: str) -> None:
        self._made, self.note = plan, line
        self._lab_state.hand_note = line
        self._lab_state.plan = plan


def offers(explanation: Explanation, device: str) -> dict[str, Any]:
    """Return the costs of swapping a device: the cheapest swap into each group, and the swap with each other device.

    ``{"device", "stage", "now_s", "groups": [{"stage", "partner", "cost_s", "change_s"}], "devices": {name: [cost_s,
    change_s]}}``. Groups come cheapest first. Group -1 holds the idle devices. The costs are exact: they equal
    ``Explanation.places``, and the cost of the plan after the move.

    Raises UnknownName for a device that the plan's network does not have.
    """
    plan, swaps = explanation.plan, explanation.swaps
    chosen = plan.topology.at(device)
    own = swaps.stage_of(chosen)
    others = [(at, name) for at, name in enumerate(plan.topology.names) if swaps.stage_of(at) != own]
    costs_s = {name: swaps.price(chosen, at) for at, name in others}
    places: list[Any] = list(explanation.places(device).itertuples())
    groups = [
        {"stage": IDLE if pd.isna(place.stage) else int(place.stage), "partner": place.partner}
        | {"cost_s": place.cost_after_s, "change_s": place.change_s}
        for place in places
    ]
    devices = {name: [cost_s, explanation.change_s(cost_s)] for name, cost_s in costs_s.items()}
    now = {"device": device, "stage": IDLE if own is None else own, "now_s": plan.cost.total_s}
    return now | {"groups": groups, "devices": devices}


def exchanged(plan: Plan, device: str, partner: str) -> Plan:
    """Return the plan with two devices swapped.

    If the plan minimises the communication cost, devices of neighbouring stages are paired again to form pipelines. The
    order of the stages stays. Network and job stay the same, so each plan's lower bounds hold for both plans, and the
    highest known ones are kept.

    Raises PlanError if both are in the same group or both are idle, UnknownName for a device that does not exist.
    """
    for name in (device, partner):
        plan.topology.index(name)
    places = {name: stage for stage, group in enumerate(plan.stages) for name in group}
    # Two devices of one stage do the same, so nothing would change.
    if places.get(device) == places.get(partner):
        where = "idle" if device not in places else f"of stage {places[device]}"
        raise PlanError(f"{device} and {partner} are both {where}; wanted devices of two groups")
    other = {device: partner, partner: device}
    # For the communication cost, groups have no order of devices, and pairs are matched again.
    if plan.objective == "communication":
        stages = [[other.get(name, name) for name in group] for group in plan.stages]
        made = evaluate(plan.topology, plan.job, stages=stages)
    else:
        names = plan.topology.names
        rank_of = dict(zip(names, plan.rank_map, strict=True))
        made = evaluate(plan.topology, plan.job, rank_map=[rank_of[other.get(name, name)] for name in names])
    # The bound holds for all placements, so it holds for this one.
    bound_s = min(max(made.lower_bound_s, plan.lower_bound_s), made.cost.total_s)
    made = simulated(replace(made, lower_bound_s=bound_s, objective=plan.objective, queueing=plan.queueing))
    iteration_bound_s = plan.iteration_lower_bound_s
    if made.iteration_s is None or iteration_bound_s is None:
        return made
    bound_s = min(iteration_bound_s, made.iteration_s)
    return replace(made, iteration_lower_bound_s=bound_s, left_open=plan.left_open)


def change(difference_s: float, of_s: float) -> str:
    """Return a difference with its sign, as precise as the cost next to it: ``+0.51 s``, ``−3 ms``, ``no change``."""
    if abs(difference_s) <= 1e-9 * of_s:
        return "no change"
    size = abs(difference_s)
    text = f"{size:.2f} s" if of_s >= 1 and 0.005 <= size < 100 else format_s(size)
    return f"{'+' if difference_s > 0 else '−'}{text}"


def from_to(before: Plan, after: Plan) -> str:
    """Return ``13.41 s → 13.92 s, +0.51 s``: the communication cost, after the iteration time if both are known."""
    cost = _from_to(before.cost.total_s, after.cost.total_s)
    if before.iteration_s is None or after.iteration_s is None:
        return cost
    return f"iteration {_from_to(before.iteration_s, after.iteration_s)}; communication cost {cost}"


def _from_to(now_s: float, then_s: float) -> str:
    return f"{format_s(now_s)} → {format_s(then_s)}, {change(then_s - now_s, now_s)}"


def named(plan: Plan, stage: int) -> str:
    """Return ``stage 2 (C)``, or ``idle`` for -1."""
    return "idle" if stage < 0 else f"stage {stage} ({lettered(plan).letter(stage)})"
