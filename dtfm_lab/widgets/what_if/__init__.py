"""The pane What if: what another batch, schedule or network would do to the same placement, at once."""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from html import escape
from typing import Any

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import format_s
from dtfm_lab.planning import Cancellation
from dtfm_lab.simulation.engine import start_compiling
from dtfm_lab.widgets import markup
from dtfm_lab.widgets import quiet as w
from dtfm_lab.widgets.controls import (
    Panel,
    button,
    classed,
    icon_button,
    mark,
    more_menu,
    pane,
    segments,
    show,
    toolbar,
    tried_options,
)
from dtfm_lab.widgets.lab_state import Guard, LabState, is_profiled, roles_of
from dtfm_lab.widgets.planner.plan_words import PLANNING
from dtfm_lab.widgets.schedule.predictions import PredictionChart
from dtfm_lab.widgets.tasks import LatestRequest, begin
from dtfm_lab.widgets.what_if import answer as answer_text
from dtfm_lab.widgets.what_if.answer import Answers, PlannedAnew, WhatIfAnswer
from dtfm_lab.widgets.what_if.setting import BATCH_OPTIONS, FACTORS, WhatIfSetting, with_valid
from dtfm_lab.widgets.what_if.setting_controls import Pins, SettingControls, saved

QUIET_S = 0.15
"""Seconds without a change before pins and a better plan are computed, so that these never delay an answer."""
AT_ONCE_UP_TO = 6_000
"""Maximum actions per iteration for which the time and the chart appear together. For more, the time comes first."""
PANE = "what-if"
ALL_LINKS = "all"
ONE_LINK = "one"
SCOPES = {"Every link": ALL_LINKS, "Selected link": ONE_LINK}
SCOPE_WORDS = (
    "Change bandwidth and latency of every link",
    "Change bandwidth and latency of the link selected on the network",
)
NO_PLAN = "No plan yet: press Plan, then move a slider"
REPLANNED = {*FACTORS, *BATCH_OPTIONS}
"""Names of the settings for which another placement may be better once they change."""
WORTH_PLANNING = 5e-3
"""Minimum share of an iteration that planning again must save to be mentioned."""


class WhatIfPanel(Panel):
    """Simulates ``lab_state.plan`` under other settings.

    Its button sets ``lab_state.schedule``, ``lab_state.queueing``, ``lab_state.choices`` and ``lab_state.topology``.
    ``last`` is the newest answer. The plan's placement stays fixed. Once the sliders rest, a short search looks for a
    better plan.
    """

    def __init__(self, lab_state: LabState) -> None:
        self._lab_state = lab_state
        self._report_error = partial(lab_state.report_error, PANE)
        self._is_loading = Guard()
        self.last: WhatIfAnswer | None = None
        self.last_base: WhatIfAnswer | None = None
        """The answer to the lab's current setting. None if that is not possible."""
        self._asked = LatestRequest(
            self._answer_newest,
            self._report_error,
            can_answer=lambda: self.setting is not None and lab_state.shows(PANE),
            at_rest=self._compute_rest,
        )
        self._number = self._n_follow_ups = 0
        """Number of the answers shown, and of the calls of ``_compute_rest``."""
        self._plan: Plan | None = None
        self.answers: Answers | None = None
        """The answers about the plan. None if there is no plan."""
        self._saved: Mapping[str, Any] | None = None
        """Saved settings that are restored as soon as there is a plan."""
        self._scaled_by: dict[str, float] = {}
        """The factors that were last applied to the network."""
        self._scaled_to = ""
        """Fingerprint of the network that ``_scaled_by`` produced. Empty once it has a plan."""
        self._anew_cancelled = Cancellation()
        self.anew: tuple[WhatIfSetting, PlannedAnew | None] | None = None
        """The last setting that was planned again, with its better plan, or None if no better one was found."""
        self._is_previewing = False
        self.controls = SettingControls(self._ask)
        self.scope = classed(segments(list(SCOPES.items()), list(SCOPE_WORDS)), "dtfm-segmented")
        self.pins = Pins(self._load, self._compute_rest)
        self.pin = button("Pin this", "thumb-tack", "", "auto")
        self.use = button("Use this plan", "check", "", "auto")
        self.back = icon_button("undo", "")
        self.stop = button("Stop", "stop", "Stop computing this answer", "auto")
        self.numbers, self.answer, self.problem = w.HTML(), w.HTML(), w.HTML()
        self.chart = classed(PredictionChart(empty_words=NO_PLAN), "dtfm-fill")
        rarer = [self.controls.view, self.answer]
        more = more_menu(rarer, "Other settings", "Less used settings, and all numbers of the answer")
        answered = [self.pin, self.use, self.back, self.pins.chips, self.problem, self.stop]
        remarks = classed(w.HBox(answered), "dtfm-what-if-told")
        row = toolbar(self.numbers, self.scope, more)
        self.view = pane([self.controls.sliders, row, remarks, self.chart], "dtfm-what-if")
        show(self.stop, False)
        self.pin.on_click(lambda _: self._pin())
        self.use.on_click(lambda _: self._use())
        self.back.on_click(lambda _: self._back())
        self.stop.on_click(lambda _: self._stop())
        lab_state.observe(lambda _: self._follow(), ["plan", "schedule", "queueing", "choices", "is_planning"])
        self.scope.observe(lambda _: self._choose_links(), "value")
        lab_state.observe(lambda _: self._choose_links(), ["selected_link", "topology"])
        lab_state.observe(lambda _: self._show_pane(), "shown_panes")
        lab_state.observe(lambda _: self._write_large_numbers(), "predicted")
        self._follow()

    @property
    def setting(self) -> WhatIfSetting | None:
        """The setting of the controls. None if there is no plan."""
        return self.controls.setting

    @property
    def base(self) -> WhatIfSetting | None:
        """The setting of the lab. None if there is no plan."""
        return self.controls.base

    def settings(self) -> dict[str, Any]:
        if self._saved is not None:
            return dict(self._saved)
        setting = self.setting
        return {"setting": None if setting is None else saved(setting), "pins": self.pins.settings()}

    def restore(self, settings: dict[str, Any]) -> None:
        """Set the controls and pins to what ``settings()`` returned, as soon as there is a plan."""
        self._saved = dict(settings)
        self._restore_saved()

    def redo(self) -> None:
        if self.answers is not None:
            self.answers.forget()
            self.pins.clear_answers()
        self._ask()

    def observe_edits(self, call: Callable[[], None]) -> None:
        """Call back when a pin is added or removed."""
        self.pins.chips.observe(lambda _: call(), "children")

    def _restore_saved(self) -> None:
        saved, base = self._saved, self.base
        if saved is None or base is None:
            return
        self._saved = None
        if isinstance(setting := saved.get("setting"), Mapping):
            self._load(with_valid(base, setting))
        if "pins" in saved:
            self.pins.restore(saved["pins"], base)
        self._ask()

    def _follow(self) -> None:
        """Follow another plan, or other choices for it."""
        plan, base, problem = self._lab_state.plan, None, ""
        try:
            chosen = self._lab_state.chosen_plan
            if chosen is not None:
                # Refuses a job without a model here, once, instead of at every move of a slider.
                chosen.job.modelled()
                base = WhatIfSetting.of(chosen, self._lab_state.schedule, self._lab_state.queueing)
        except LabError as error:
            problem = str(error)
        if plan is not self._plan:
            self._plan, self.anew = plan, None
            self.answers = None if plan is None else Answers(plan)
            self._lab_state.set_note("what-if", "")
            self.pins.clear_answers()
            if plan is not None:
                start_compiling()  # compiles the kernel before the first slider moves
        self.controls.set_base(None if plan is None else plan.job, base)
        if plan is not None and plan.topology.fingerprint == self._scaled_to:
            self._scaled_to = ""  # the network has these factors now, so nothing is left to multiply
            for name in FACTORS:
                self.controls.by_name[name].value = 1.0
            if base is not None:
                self.pins.rescale(self._scaled_by, base)
        self._restore_saved()
        if base is None:
            self._show_nothing(problem)
        self._ask()

    def _show_nothing(self, problem: str) -> None:
        self.last = None
        none = PLANNING if self._lab_state.is_planning else NO_PLAN
        words = "What if does not work for this plan" if problem else none
        self.chart.clear()
        self.chart.empty_words = words
        self.numbers.value = answer_text.large_numbers(None, None)
        self.answer.value = answer_text.empty(words)
        self.problem.value = markup.line(escape(problem), "warning")
        self._lab_state.set_note("what-if", "")
        self._preview()

    def _show_pane(self) -> None:
        self._preview()
        self._asked.go_on()

    def _preview(self) -> None:
        """While this pane is shown, let the network play the setting's iteration, or a better plan's if known."""
        state, now = self._lab_state, self.last
        is_asked = now is not None and now.setting != self.base and state.shows(PANE)
        anew = self._better(now.setting) if now is not None and is_asked else None
        state.tried = (now.prediction.trace if anew is None else anew.trace) if now is not None and is_asked else None
        if anew is not None or self._is_previewing:  # if not, another pane may be showing its plan
            state.shown_tasks = {} if anew is None else roles_of(anew.plan)
        self._is_previewing = anew is not None

    def _better(self, setting: WhatIfSetting) -> PlannedAnew | None:
        """Return a plan that is better under this setting than the fixed one. None if none is known."""
        return self.anew[1] if self.anew is not None and self.anew[0] == setting else None

    def _ask(self) -> None:
        """Compute the answer to the setting, right after any answer that is being computed."""
        self._update_buttons()
        self._asked.ask()

    async def _answer_newest(self, _request: int) -> None:
        setting, base, answers = self.setting, self.base, self.answers
        if setting is None or base is None or answers is None:
            return
        # A search for the previous setting would only take time from this answer.
        self._anew_cancelled.set()
        n_actions = answers.count_actions(setting)
        if n_actions > AT_ONCE_UP_TO:  # show the large number first, then the chart
            quick_s = await asyncio.to_thread(answers.quick, setting)
            if quick_s is not None and answers is self.answers and self.last_base is not None:
                self.numbers.value = answer_text.large_numbers(quick_s, self.last_base.iteration_s)
            # A newer setting waits, and would replace this setting's chart at once.
            if self._asked.waits:
                return
        try:
            work, words = partial(answers.with_base, setting, base), f"simulating about {n_actions:,} actions …"
            found = await self.chart.wait_for(work, words, self._set_slow)
        except LabError as error:
            if answers is self.answers and setting == self.setting:
                self._refuse(str(error))
            return
        # By now the lab may have another plan or setting, to which this answer does not belong.
        if answers is not self.answers or base != self.base:
            return
        if found is None:
            if self.last is not None:
                self._write_numbers(self.last)  # undo a large number that was written early
            return
        now, before = self.last, self.last_base = found
        self._number += 1
        self._write_numbers(now)
        self.answer.value = answer_text.answer(now, before, setting.describe_changes(base), self._number)
        self.problem.value = ""
        drawn_before = None if before is None or setting == base else before.prediction
        self.chart.show(now.prediction, drawn_before)

    def _write_numbers(self, now: WhatIfAnswer) -> None:
        """Write the large numbers and the headline's sentence, and show the setting on the network."""
        base, better = self.last_base, self._better(now.setting)
        note = "" if base is None else answer_text.headline(now, base)
        if better is not None:
            note = f"{note} The network shows a better plan for it: {format_s(better.trace.iteration_s)}."
        self._write_large_numbers()
        self._lab_state.set_note("what-if", note)
        self._preview()

    def _write_large_numbers(self) -> None:
        """Write the large numbers, without the headline. Add "from FLOP" if the lab's own prediction uses a profile,
        and add what replanning found."""
        if (now := self.last) is None:
            return
        remarks = ["from FLOP"] if is_profiled(self._lab_state) else []
        if (better := self._better(now.setting)) is not None:
            remarks.append(f"replanned: {format_s(better.trace.iteration_s)}")
        elif self.anew is not None and self.anew[0] == now.setting:
            remarks.append("replanned: no better")
        self.numbers.value = answer_text.numbers_of(now, self.last_base, remarks)

    def _set_slow(self, is_slow: bool) -> None:
        """Mark the answer as old while a new one takes long, and offer to stop it."""
        show(self.stop, is_slow)
        self._lab_state.set_busy(PANE, is_slow)
        self._mark_old(is_slow)

    def _mark_old(self, is_old: bool) -> None:
        for widget in (self.numbers, self.answer, self.chart):
            mark(widget, "dtfm-what-if-old", is_old)

    def _refuse(self, problem: str) -> None:
        """Show why there is no answer, and mark the one on the screen as old."""
        self.last = None
        self._mark_old(True)
        self._lab_state.set_note("what-if", "")
        self._preview()
        self.problem.value = markup.line(escape(problem), "warning")

    def _compute_rest(self) -> None:
        """Plan again, then compute pins without an answer, unless a control is turned before that."""
        self._update_buttons()
        if self._asked.is_running or self.answers is None or self.base is None:
            return
        self._n_follow_ups += 1
        begin(self._compute_quietly(self.answers, self._request), self._report_error)

    @property
    def _request(self) -> tuple[int, int]:
        """Identifies the current request. Background work stops when it changes."""
        return self._asked.n_requested, self._n_follow_ups

    async def _compute_quietly(self, answers: Answers, request: tuple[int, int]) -> None:
        """Plan again, then answer one pin after the other, until a newer request arrives."""
        await asyncio.sleep(QUIET_S)
        await self._plan_anew(answers, request)
        for pin in self.pins.pins:
            if request != self._request:
                return
            if not pin.is_computed:
                try:
                    iteration_s, problem = (await asyncio.to_thread(answers.answer, pin.setting)).iteration_s, ""
                except LabError as error:
                    iteration_s, problem = None, str(error)
                if answers is self.answers:
                    self.pins.set_answer(pin.setting, iteration_s, problem)

    async def _plan_anew(self, answers: Answers, request: tuple[int, int]) -> None:
        """Search briefly from the fixed plan. The result appears next to the large number."""
        setting, base, now = self.setting, self.base, self.last
        if request != self._request or setting is None or now is None or base is None or now.setting != setting:
            return
        if not set(setting.changes_from(base)) & REPLANNED or (self.anew is not None and self.anew[0] == setting):
            return
        self._anew_cancelled = Cancellation()
        found = await asyncio.to_thread(answers.planned_anew, setting, self._anew_cancelled)
        if request == self._request and not self._anew_cancelled.is_set():
            better = found is not None and found.trace.iteration_s < now.iteration_s * (1 - WORTH_PLANNING)
            self.anew = setting, found if better else None
            self._write_numbers(now)

    def _pin(self) -> None:
        setting, base = self.setting, self.base
        if setting is not None and base is not None:
            self.pins.add(setting, base)
            # The answer on the screen is this pin's, so it is not computed again.
            if self.last is not None and self.last.setting == setting:
                self.pins.set_answer(setting, self.last.iteration_s)

    def _choose_links(self) -> None:
        """Let the sliders for bandwidth and latency apply to every link, or to the selected one."""
        if self._is_loading:
            return
        state, selected = self._lab_state, self._lab_state.selected_link
        drawn = set() if state.topology is None else set(state.topology.names)
        if self.scope.value == ALL_LINKS:
            self.controls.link = ()
        elif selected and drawn.issuperset(selected):
            self.controls.link = tuple(selected)
        elif not (self.controls.link and drawn.issuperset(self.controls.link)):
            # If the selected link is gone, the one that was turned before stays, as long as the network has it.
            self.controls.link = None

    def _load(self, setting: WhatIfSetting) -> None:
        # Otherwise the scope would take the selected link instead of the setting's.
        with self._is_loading:
            self.scope.value = ONE_LINK if setting.link else ALL_LINKS
        self.controls.show(setting)
        self._ask()

    def _use(self) -> None:
        """Apply the setting to the lab: factors change the network, and all other values become choices for the
        plan."""
        setting, plan, base = self.setting, self._plan, self.base
        if setting is None or plan is None or base is None or self.last is None:
            return
        scaled, values = None, setting.values
        if set(setting.changes_from(base)) & set(FACTORS):
            try:
                scaled = setting.scaled(self._lab_state.topology or plan.topology)
            except LabError as error:
                self._report_error(str(error))
                return
        always = {option.name for option in tried_options()}
        # Together, or others would predict with the new schedule and the old batch.
        with self._lab_state.hold_trait_notifications():
            self._lab_state.schedule, self._lab_state.queueing = values["schedule"], values["queueing"]
            self._lab_state.choices = {
                name: value
                for name, value in (self._lab_state.choices | setting.job_changes).items()
                if name in always or value != getattr(plan.job, name)  # the batch as planned is not a choice
            }
        if scaled is not None:
            self._lab_state.topology = scaled
            self._scaled_by = {name: values[name] for name in FACTORS}
            self._scaled_to = "" if self._lab_state.topology is None else self._lab_state.topology.fingerprint

    def _back(self) -> None:
        if self.base is not None:
            self._load(self.base)

    def _stop(self) -> None:
        self.chart.stop()
        self._asked.drop()
        self.problem.value = markup.line("Stopped: this is the answer to the previous setting.")

    def _update_buttons(self) -> None:
        setting, base = self.setting, self.base
        turned = setting is not None and base is not None and bool(setting.changes_from(base))
        self.pin.disabled = setting is None
        self.back.disabled = self.use.disabled = not turned
        nothing = NO_PLAN if setting is None else "Nothing changed yet: move a slider"
        self.pin.tooltip = NO_PLAN if setting is None else "Keep this setting and its answer in the row below"
        self.back.tooltip = "Reset all settings to the plan" if turned else nothing
        changes = "Apply these links, this batch and this schedule to the lab"
        self.use.tooltip = changes if turned else nothing
