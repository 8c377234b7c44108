"""The pane Search: the real search, a slow one to watch, seconds against dollars, and a race of planners."""

import asyncio
from functools import partial
from typing import Any

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.plan import Plan
from dtfm_lab.simulation import simulate
from dtfm_lab.simulation.memory import memory
from dtfm_lab.widgets import markup
from dtfm_lab.widgets import quiet as w
from dtfm_lab.widgets.controls import Panel, button, classed, pane, restore_values, segments, show, toggle, toolbar
from dtfm_lab.widgets.lab_state import Guard, LabState
from dtfm_lab.widgets.planner.frontier_panel import FrontierPanel
from dtfm_lab.widgets.planner.job_controls import JobControls, ObjectiveControls
from dtfm_lab.widgets.planner.plan_words import headline
from dtfm_lab.widgets.planner.race_panel import RacePanel
from dtfm_lab.widgets.planner.search_mode import SearchMode
from dtfm_lab.widgets.planner.search_panel import SearchPanel
from dtfm_lab.widgets.planner.teaching_panel import TeachingPanel
from dtfm_lab.widgets.tasks import begin, has_event_loop

TEACHING = "Teaching"
REAL = "Real"
RACE = "Race"
FRONTIER = "Frontier"
MODES = (REAL, TEACHING, FRONTIER, RACE)
"""Modes of the pane, as saved files name them."""
PICTURES = {"Placements": REAL, "Frontier": FRONTIER}
PICTURE_WORDS = ("The placements that the search tries", "The fastest plan at each hourly price")
SLOW_WORDS = "Watch a simple search start from random placements, one generation at a time"
AIMS = {"Seconds": "iteration", "Dollars": "price"}
AIM_WORDS = ("Search for the fastest iteration", "Search for the cheapest tokens")
NO_PRICES = "No device of this network has a price, so plans cannot be compared in dollars."
TYPICAL = "Press Use typical prices."
"""What a user can do about missing prices if a GPU of the network has a typical price."""
OWN = "Select a device, and type its price below the picture."
"""What a user can do about missing prices otherwise."""
SAVED_AS = {TEACHING: "teaching", REAL: "search", RACE: "race", FRONTIER: "frontier"}
"""{mode: name of its settings in a saved file}."""
STEP = "plan"
"""Name of this pane."""


class PlanPanel(Panel):
    """Sets ``lab_state.job`` from the controls and ``lab_state.plan`` from a search in one of its modes."""

    def __init__(self, lab_state: LabState, job: Job | None) -> None:
        self.lab_state = lab_state
        self._report_error = partial(lab_state.report_error, STEP)
        self.job_controls = JobControls(lab_state, job)
        self.mode = segments(MODES, ())
        """The shown mode. It is not on the screen: ``picture``, ``slow`` and ``racing`` set it."""
        self.aim = classed(segments(list(AIMS.items()), AIM_WORDS), "dtfm-segmented")
        self.picture = classed(segments(list(PICTURES.items()), PICTURE_WORDS), "dtfm-segmented")
        self.slow = toggle("Slow", SLOW_WORDS)
        self.racing = button("Race planners", "", "Run several planners and compare their curves", "auto")
        self._is_following = Guard()
        self._price_words = ""
        """What the headline says about missing prices. Empty if none are missing."""
        self.objective_controls = ObjectiveControls(lab_state, lambda: self.real.show_objective())
        self.objective_controls.on_edit = self._plan_for_objective
        what = "Give every device without a price the usual hourly price of its GPU"
        self.typical_prices = button("Use typical prices", "", what, "auto", style="primary")
        self.typical_prices.on_click(lambda _: self._take_prices())
        self.race = RacePanel(lab_state, self._update_buttons, self.objective_controls.options)
        self.real = SearchPanel(
            lab_state, self._update_buttons, self.objective_controls, self.race.show_live, [self.racing]
        )
        self.race.live.children = [self.real.population]
        self.teaching = TeachingPanel(lab_state)
        self.frontier = FrontierPanel(lab_state, self._update_buttons)
        self._searches: list[SearchMode] = [self.real, self.race, self.frontier]
        # Keys reach both, because long texts scroll.
        self.note, self.alarm = classed(w.HTML(tabbable=True), "dtfm-plan-note"), w.HTML(tabbable=True)
        classed(self.alarm, "dtfm-plan-alarm")
        self._modes: dict[str, TeachingPanel | SearchMode] = {TEACHING: self.teaching, REAL: self.real}
        self._modes |= {RACE: self.race, FRONTIER: self.frontier}
        self._bars = {name: classed(w.HBox(mode.bar), "dtfm-mode-bar") for name, mode in self._modes.items()}
        self._mains = {name: mode.view for name, mode in self._modes.items()}
        self._mains[REAL] = w.VBox([self.real.population, self.real.curve, self.alarm, self.note])
        for main in self._mains.values():
            classed(main, "dtfm-fill", "dtfm-mode-main")
        row = toolbar(self.aim, self.typical_prices, *self._bars.values(), self.slow, self.picture)
        self.view = pane([row, *self._mains.values()])
        self.mode.observe(lambda _: self._show_mode(), "value")
        self.aim.observe(lambda change: self._aim(change["new"]), "value")
        self.picture.observe(lambda change: self._choose(change["new"]), "value")
        self.slow.observe(lambda change: self._choose(TEACHING if change["new"] else REAL), "value")
        self.racing.on_click(lambda _: self.mode.set_trait("value", RACE))
        self.objective_controls.objective.observe(lambda _: self._follow_aim(), "value")
        lab_state.observe(lambda _: self._follow_aim(), ["topology", "job"])
        lab_state.observe(lambda _: self._describe_plan(), ["topology", "job", "plan", "shown_panes"])
        lab_state.observe(lambda _: self._note_plan(), "bound_s")
        lab_state.observe(lambda _: self._enter(), ["pane", "shown_panes", "topology", "plan"])
        self._show_mode()
        self._follow_aim()
        self.real.show_objective()
        self._describe_plan()

    def settings(self) -> dict[str, Any]:
        kept = {"job": self.job_controls, "objective": self.objective_controls}
        kept |= {SAVED_AS[name]: mode for name, mode in self._modes.items()}
        return {name: each.settings() for name, each in kept.items()} | {"mode": self.mode.value}

    def restore(self, settings: dict[str, Any]) -> None:
        # A file may be edited by hand, so each part is checked.
        saved = {name: value for name, value in settings.items() if isinstance(value, dict)}
        self.job_controls.restore(saved.get("job", {}))
        self.objective_controls.restore(saved.get("objective"))
        for name, searching in self._modes.items():
            searching.restore(saved.get(SAVED_AS[name], {}))
        if self._is_idle:
            restore_values({"mode": self.mode}, settings)

    def redo(self) -> None:
        """Run the real search."""
        self.real.redo()
        if self.real.search is not None:
            self.mode.value = REAL

    def look_for_cheaper(self) -> None:
        """Show seconds against dollars, and search for the frontier unless the current network and job have one."""
        if self._is_idle:
            self.mode.value = FRONTIER
            if self.frontier.is_of_before:
                self.frontier.redo()

    def end(self) -> None:
        """Stop the running search."""
        for search in self._searches:
            search.stop.click()

    def _plan_for_objective(self) -> None:
        """If there is a plan, search again for the chosen objective. If that needs prices and no device has one, offer
        typical prices instead."""
        self._update_buttons()
        if self.lab_state.plan is not None and self._is_idle and not self._lacks_prices:
            self.redo()

    @property
    def _lacks_prices(self) -> bool:
        """True if the objective or a limit is in dollars and no device has a price."""
        topology, asked = self.lab_state.topology, self.objective_controls.options()
        in_dollars = asked["objective"] == "price" or "max_price_per_hour" in asked
        return in_dollars and topology is not None and not any(device.price_per_hour for device in topology.devices)

    def _take_prices(self) -> None:
        """Give the network typical prices, as an edit that can be undone, and plan for the chosen objective."""
        if (topology := self.lab_state.topology) is None:
            return
        self.lab_state.topology = topology.with_typical_prices()
        self._plan_for_objective()

    @property
    def _is_idle(self) -> bool:
        return all(one.search is None for one in self._searches)

    def _update_buttons(self) -> None:
        for search in self._searches:
            search.update_buttons(free=self._is_idle)
        for control in (self.mode, self.picture, self.slow, self.racing, self.aim):
            # One search at a time: they would compete for the processor and for the plan.
            control.disabled = not self._is_idle
        self._ask_for_prices()
        if self._is_idle == (STEP in self.lab_state.busy):
            self.lab_state.set_busy(STEP, not self._is_idle)

    def _ask_for_prices(self) -> None:
        """Say what to do if dollars matter and no device has a price. Offer typical prices if there are some."""
        topology, lacks = self.lab_state.topology, self._lacks_prices
        is_known = (
            lacks and topology is not None and any(d.price_per_hour for d in topology.with_typical_prices().devices)
        )
        show(self.typical_prices, is_known)
        words = f"{NO_PRICES} {TYPICAL if is_known else OWN}" if lacks else ""
        if words != self._price_words:  # the slow search has notes of its own
            self._price_words = words
            self.lab_state.set_note(STEP, words)

    def _show_mode(self) -> None:
        for mode in MODES:
            show(self._bars[mode], self.mode.value == mode)
            show(self._mains[mode], self.mode.value == mode)
        with self._is_following:
            self.picture.value = FRONTIER if self.mode.value == FRONTIER else None if self.mode.value == RACE else REAL
            self.slow.value = self.mode.value == TEACHING
        show(self.slow, self.mode.value in (REAL, TEACHING))
        self._enter()

    def _choose(self, mode: str | None) -> None:
        if not self._is_following and mode is not None:
            self.mode.value = mode

    def _aim(self, objective: str | None) -> None:
        """Minimise seconds or dollars. Choosing the objective plans at once, or offers typical prices."""
        if not self._is_following and objective is not None:
            self.objective_controls.objective.value = objective

    def _follow_aim(self) -> None:
        """Show the chosen objective. The communication cost is neither seconds nor dollars, so it is only in the
        menu."""
        objective = self.objective_controls.objective
        offered = [one[1] for one in objective.options]
        with self._is_following:
            self.aim.value = objective.value if objective.value in AIMS.values() else None
        show(self.aim, set(AIMS.values()) <= set(offered))
        self._update_buttons()

    def _enter(self) -> None:
        """Tell the modes that follow the plan whether they are on the screen."""
        mode = self.mode.value if STEP in (self.lab_state.pane, *self.lab_state.shown_panes) else None
        (self.teaching.enter if mode == TEACHING else self.teaching.leave)()
        if mode != TEACHING and self._price_words:  # the slow search has cleared the note
            self.lab_state.set_note(STEP, self._price_words)
        self.real.look(mode in (REAL, RACE))

    def _describe_plan(self) -> None:
        """Describe the plan's seconds and cost. If it is on the screen, a thread checks that its devices have enough
        memory."""
        state, plan = self.lab_state, self.lab_state.plan
        self._update_buttons()
        self.alarm.value = ""
        if plan is None:
            self.note.value = ""
        elif state.plan_is_stale:
            drawn = state.topology is not None
            then = "plan again" if drawn else "draw or open a network to plan again"
            self.note.value = markup.line(f"The network or the job has changed since this plan: {then}.", "warning")
        else:
            self._note_plan()
            # Memory needs a simulation, so it is checked only where it is seen.
            if state.shows(STEP) and has_event_loop():
                begin(self._look_at_memory(plan), self._report_error)

    def _note_plan(self) -> None:
        """Describe the plan's iteration and communication cost, with their bounds as raised so far."""
        plan = self.lab_state.bounded_plan
        if plan is not None and not self.lab_state.plan_is_stale:
            self.note.value = markup.line(headline(plan), "figure")

    async def _look_at_memory(self, plan: Plan) -> None:
        lacking = await asyncio.to_thread(_lacking, plan)
        if self.lab_state.plan is plan and not self.lab_state.plan_is_stale:
            self.alarm.value = markup.warning(lacking)


def _lacking(plan: Plan) -> str:
    """Return which devices lack memory during the simulated iteration, or use nearly all of it, and what would need
    less. Empty if no device does.

    The bar and the chart use the same check: waiting messages count as memory.
    """
    if plan.job.model is None:
        return ""
    try:
        report = memory(plan, trace=simulate(plan))
    except LabError:  # not every schedule can be simulated on every plan
        return ""
    return report.caution if report.fits else report.advice
