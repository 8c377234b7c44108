"""The step What if: what another batch, schedule or network would make of the same placement, at once."""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

import ipywidgets as w
import plotly.graph_objects as go

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.plan import Plan
from dtfm_lab.simulation.kernels import compilation
from dtfm_lab.widgets import markup
from dtfm_lab.widgets.controls import button, mark, show, stylesheet, tried_options
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.panel import Panel
from dtfm_lab.widgets.tasks import begin
from dtfm_lab.widgets.views.as_figure import AsFigure
from dtfm_lab.widgets.what_if import answer_text
from dtfm_lab.widgets.what_if.answer import Answer, AnswerCache
from dtfm_lab.widgets.what_if.answer_progress import AnswerProgress
from dtfm_lab.widgets.what_if.answer_text import MEASURES
from dtfm_lab.widgets.what_if.pins import Pins
from dtfm_lab.widgets.what_if.setting import FACTORS, Setting, n_actions, with_valid
from dtfm_lab.widgets.what_if.setting_controls import SettingControls

QUIET_S = 0.15
"""Seconds without a move before curves are computed, so that they never delay an answer."""
CURVE_UP_TO = 100_000
"""Actions of an iteration up to which curves follow a slider; more would take minutes."""


class WhatIfPanel(Panel):
    """Simulates ``lab_state.plan`` under other settings.

    Its buttons set ``lab_state.schedule``, ``lab_state.queueing``, ``lab_state.choices`` and ``lab_state.topology``.
    ``last`` is the newest answer.
    """

    hint = "other links, batches and schedules, at once; nothing is changed"

    def __init__(self, lab_state: LabState) -> None:
        self._lab_state = lab_state
        self.last: Answer | None = None
        self._n_requested = self._n_begun = 0
        """Numbers of the newest request for an answer, and of the newest that was begun."""
        self._number = self._n_follow_ups = 0
        """Number of the answers shown, and of the calls of ``_compute_rest``."""
        self._is_working = self._is_stopped = False
        self._plan: Plan | None = None
        self.answers: AnswerCache | None = None
        """The answers about the plan; None while there is no plan."""
        self._saved: Mapping[str, Any] | None = None
        """Saved settings that are restored as soon as there is a plan."""
        self._scaled_to = ""
        """Fingerprint of the network that Scale has set; empty once a plan of it has come."""
        self.controls = SettingControls(self._ask)
        self.bandwidth, self.latency = self.controls.bandwidth, self.controls.latency
        self.pins = Pins(self._load, self._compute_rest)
        self.pin = button("Pin", "thumb-tack", "Keep these settings and their answer in the table below", "auto")
        self.use = button(
            "Use these", "check", "Take schedule, messages, batch and averaging over into the lab", "auto"
        )
        self.scale = button(
            "Scale the network", "expand", "Multiply the drawn network's links by these factors", "auto"
        )
        self.back = button("Back to the plan", "undo", "Turn everything back to the plan", "auto")
        self.progress = AnswerProgress()
        self.answer, self.curves, self.problem = w.HTML(), w.HTML(), w.HTML()
        self.curve_figure = AsFigure(self._draw_factors, lab_state, self._report_error)
        self.pins_figure = AsFigure(self.pins.figure, lab_state, self._report_error)
        self._pins_box = w.VBox(
            [w.HBox([self.pins.bars, self.pins_figure.button]), self.pins.table, self.pins_figure.output]
        )
        buttons = w.HBox([self.pin, self.back, self.use, self.scale])
        buttons.add_class("dtfm-what-if-buttons")
        left = w.VBox([self.controls.view, buttons])
        left.add_class("dtfm-what-if-left")
        right = w.VBox([self.answer, self.problem, self.progress.view, self.curves, self.curve_figure.button])
        right.add_class("dtfm-what-if-right")
        style = stylesheet(Path(__file__).with_name("what_if.css"))
        self.view = w.VBox([style, w.HBox([left, right]), self.curve_figure.output, self._pins_box])
        self.view.add_class("dtfm-what-if")
        self.pin.on_click(lambda _: self._pin())
        self.use.on_click(lambda _: self._use())
        self.scale.on_click(lambda _: self._scale())
        self.back.on_click(lambda _: self._back())
        self.progress.stop.on_click(lambda _: self._stop())
        lab_state.observe(lambda _: self._follow(), ["plan", "schedule", "queueing", "choices"])
        self._follow()

    @property
    def setting(self) -> Setting | None:
        """What the controls are turned to; None while there is no plan."""
        return self.controls.setting

    @property
    def base(self) -> Setting | None:
        """The setting that the lab has; None while there is no plan."""
        return self.controls.base

    def settings(self) -> dict[str, Any]:
        if self._saved is not None:
            return dict(self._saved)
        setting = self.setting
        return {
            "setting": None if setting is None else setting.values,
            "pins": self.pins.settings(),
            "bars": self.pins.bars.value,
        }

    def restore(self, settings: dict[str, Any]) -> None:
        """Set the controls and pins to what ``settings`` returned, as soon as there is a plan."""
        self._saved = dict(settings)
        self._restore_saved()

    def redo(self) -> None:
        if self.answers is not None:
            self.answers.clear()
            self.pins.clear_answers()
        self._ask()

    def observe_edits(self, call: Callable[[], None]) -> None:
        """Call back when a pin comes or goes."""
        self.pins.table.observe(lambda _: call(), "children")

    def _restore_saved(self) -> None:
        saved, base = self._saved, self.base
        if saved is None or base is None:
            return
        self._saved = None
        if saved.get("bars") in [measure.name for measure in MEASURES]:
            self.pins.bars.value = saved["bars"]
        if isinstance(setting := saved.get("setting"), Mapping):
            self.controls.show(with_valid(base, setting))
        if "pins" in saved:
            self.pins.restore(saved["pins"], base)
        self._ask()

    def _follow(self) -> None:
        """Take over another plan, or what is chosen for it."""
        plan, base, problem = self._lab_state.plan, None, ""
        try:
            chosen = self._lab_state.chosen_plan
            if chosen is not None:
                chosen.job.modelled()
                base = Setting.of(chosen, self._lab_state.schedule, self._lab_state.queueing)
        except LabError as error:
            problem = str(error)
        if plan is not self._plan:
            self._plan = plan
            self.answers = None if plan is None else AnswerCache(plan)
            self.pins.clear_answers()
            if plan is not None:
                compilation.start()  # compiles the kernel before the first slider moves
        self.controls.set_base(None if plan is None else plan.job, base)
        if plan is not None and plan.topology.fingerprint == self._scaled_to:
            self._scaled_to = ""  # the network has these factors now, so nothing is left to multiply
            self.controls.bandwidth.value = self.controls.latency.value = 1.0
        self._restore_saved()
        if base is None:
            self._show_nothing(problem)
        self._ask()

    def _show_nothing(self, problem: str) -> None:
        self.last = None
        self.pins.set_base(None)
        self.answer.value = answer_text.empty(
            "What if cannot be asked of this plan." if problem else "No plan yet: plan first, then move a slider."
        )
        self.curves.value, self.problem.value = "", markup.line(escape(problem), "warning")

    def _ask(self) -> None:
        """Compute the answer to the setting; while another is computed, right after it."""
        self._n_requested += 1
        self._is_stopped = False
        self._update_buttons()
        if self.setting is not None and not self._is_working:
            self._is_working = True
            begin(self._work(), self._report_error)

    async def _work(self) -> None:
        try:
            while self._n_begun < self._n_requested and self.setting is not None and not self._is_stopped:
                self._n_begun = self._n_requested
                await self._answer_newest()
        finally:
            self._is_working = False
            self._update_buttons()
        self._compute_rest()

    async def _answer_newest(self) -> None:
        setting, base, answers = self.setting, self.base, self.answers
        if setting is None or base is None or answers is None:
            return
        try:
            work = partial(answers.with_base, setting, base)
            found = await self.progress.wait(work, self._count_actions(setting, answers), self._set_slow)
        except LabError as error:
            if answers is self.answers and setting == self.setting:
                self._refuse(str(error))
            return
        if found is None or answers is not self.answers or base != self.base:
            return
        now, then = found
        self.last = now
        self._number += 1
        self.pins.set_base(then)
        self.answer.value = answer_text.answer(now, then, setting.describe_changes(base), self._number)
        mark(self.answer, "dtfm-what-if-old", False)
        self.problem.value = ""
        self._draw_curves()

    def _count_actions(self, setting: Setting, answers: AnswerCache) -> int:
        """Return about how many actions an iteration has; 0 where the answer will be an error."""
        try:
            return n_actions(setting.on(answers.plan))
        except LabError:
            return 0

    def _set_slow(self, is_slow: bool) -> None:
        """Mark the answer on the screen as old while a new one takes long."""
        self._lab_state.set_busy("what-if", is_slow)
        mark(self.answer, "dtfm-what-if-old", is_slow)

    def _refuse(self, problem: str) -> None:
        """Show why there is no answer, and mark the one on the screen as old."""
        self.last = None
        mark(self.answer, "dtfm-what-if-old", True)
        self.problem.value = markup.line(escape(problem), "warning")

    def _compute_rest(self) -> None:
        """Compute pins without an answer, then the curves, unless a control is turned meanwhile."""
        self._update_buttons()
        if self._is_working or self.answers is None or self.base is None:
            return
        self._n_follow_ups += 1
        begin(self._compute_quietly(self.answers, (self._n_requested, self._n_follow_ups)), self._report_error)

    async def _compute_quietly(self, answers: AnswerCache, request: tuple[int, int]) -> None:
        """Compute pins and curves one by one until a newer request comes."""
        await asyncio.sleep(QUIET_S)
        for pin in self.pins.pins:
            if request != (self._n_requested, self._n_follow_ups):
                return
            if not pin.is_computed:
                try:
                    answer, problem = await asyncio.to_thread(answers.answer, pin.setting), ""
                except LabError as error:
                    answer, problem = None, str(error)
                if answers is self.answers:
                    self.pins.set_answer(pin.setting, answer, problem)
        setting = self.setting
        if self.last is None or setting is None or n_actions(setting.on(answers.plan)) > CURVE_UP_TO:
            return
        for axis in FACTORS:
            while (factor := answers.next_factor(setting, axis)) is not None:
                if request != (self._n_requested, self._n_follow_ups):
                    return
                await asyncio.to_thread(answers.add_point, setting, axis, factor)
                self._draw_curves()

    def _draw_curves(self) -> None:
        setting, answers = self.setting, self.answers
        if setting is None or answers is None or self.last is None:
            return
        if n_actions(setting.on(answers.plan)) > CURVE_UP_TO:
            self.curves.value = markup.line("Too many actions for curves that follow a slider; As figure draws them.")
            return
        here = self.last.iteration_s
        points = {axis: answers.points(setting, axis) for axis in FACTORS}
        most_s = max((seconds for of in points.values() for _, seconds in of), default=0.0)
        drawn = (
            answer_text.curve(axis, points[axis], (getattr(self.last.setting, axis), here), "drawing…", most_s)
            for axis in FACTORS
        )
        self.curves.value = f'<div class="dtfm-what-if-curves">{"".join(drawn)}</div>'

    def _pin(self) -> None:
        setting, base = self.setting, self.base
        if setting is not None and base is not None:
            self.pins.add(setting, self.last if self.last and self.last.setting == setting else None, base)

    def _load(self, setting: Setting) -> None:
        self.controls.show(setting)
        self._ask()

    def _use(self) -> None:
        """Take over all but the factors, which are the network's."""
        setting, plan = self.setting, self._plan
        if setting is None or plan is None or self.last is None:
            return
        always = {option.name for option in tried_options()}
        with self._lab_state.hold_trait_notifications():
            self._lab_state.schedule, self._lab_state.queueing = setting.schedule, setting.queueing
            self._lab_state.choices = {
                name: value
                for name, value in (self._lab_state.choices | setting.job_changes).items()
                if name in always or value != getattr(plan.job, name)  # the batch as planned is no choice
            }

    def _scale(self) -> None:
        setting, network = self.setting, self._lab_state.topology
        if setting is None or self._plan is None:
            return
        try:
            scaled = (network or self._plan.topology).scaled(latency=setting.latency, bandwidth=setting.bandwidth)
        except LabError as error:
            self._report_error(str(error))
            return
        self._lab_state.topology = scaled
        self._scaled_to = "" if self._lab_state.topology is None else self._lab_state.topology.fingerprint

    def _back(self) -> None:
        if self.base is not None:
            self._load(self.base)

    def _stop(self) -> None:
        self._is_stopped = True
        self.problem.value = markup.line("Stopped; what is shown is of the setting before.")

    def _update_buttons(self) -> None:
        setting, base = self.setting, self.base
        turned = set() if setting is None or base is None else set(setting.changes_from(base))
        self.pin.disabled = self.curve_figure.button.disabled = setting is None
        self.back.disabled = not turned
        self.use.disabled = not turned - set(FACTORS)
        self.scale.disabled = not turned & set(FACTORS)
        show(self._pins_box, bool(self.pins.pins))

    def _draw_factors(self) -> go.Figure | None:
        return None if self.setting is None or self.answers is None else self.answers.figure(self.setting)

    def _report_error(self, message: str) -> None:
        self._lab_state.report_error("what-if", message)
