"""Step 5: what another batch, schedule or network would make of the same placement, at once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from html import escape
from typing import Any

import ipywidgets as w
import plotly.graph_objects as go

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.plan import Plan
from dtfm_lab.simulation.kernels import compilation
from dtfm_lab.widgets import markup
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.schedule.choice_controls import TRIED
from dtfm_lab.widgets.tasks import begin
from dtfm_lab.widgets.views.as_figure import AsFigure
from dtfm_lab.widgets.what_if import answer_markup
from dtfm_lab.widgets.what_if.answer_cache import AnswerCache
from dtfm_lab.widgets.what_if.figures import of_factors, of_pins
from dtfm_lab.widgets.what_if.measures import MEASURES
from dtfm_lab.widgets.what_if.pins import Pins
from dtfm_lab.widgets.what_if.setting import FACTORS, Answer, Setting, n_actions, with_known
from dtfm_lab.widgets.what_if.setting_controls import SettingControls
from dtfm_lab.widgets.what_if.what_if_patience import Patience

QUIET_S = 0.15
"""without a move before curves are drawn, so that they never keep an answer waiting"""
CURVE_UP_TO = 100_000
"""actions; a curve of more would take minutes"""


class WhatIfPanel:
    """Asks ``lab.simulate`` about ``lab_state.plan`` under other settings; takes over what a person wants taken over.

    Sets ``lab_state.schedule``, ``lab_state.queueing`` and ``lab_state.choices`` when told to, and
    ``lab_state.topology`` by a button of its own. ``last`` is the newest answer.
    """

    def __init__(self, lab_state: LabState) -> None:
        self._lab_state = lab_state
        self.last: Answer | None = None
        self._asked = self._answered = self._number = self._looked = 0
        self._working = self._stopped = False
        self._plan: Plan | None = None
        self._answers: AnswerCache | None = None
        self._wanted: Mapping[str, Any] | None = None
        self._scaled_to = ""
        self.controls = SettingControls(self._ask)
        self.bandwidth, self.latency = self.controls.bandwidth, self.controls.latency
        self.pins = Pins(self._load, self._look_around)
        self.pin = _button("Pin", "thumb-tack", "Keep these settings and their answer in the table below")
        self.use = _button("Use these", "check", "Take schedule, messages, batch and averaging over into the lab")
        self.scale = _button("Scale the network", "expand", "Multiply the drawn network's links by these factors")
        self.back = _button("Back to the plan", "undo", "Turn everything back to the plan")
        self.patience = Patience()
        self.answer, self.curves, self.problem = w.HTML(), w.HTML(), w.HTML()
        self._curve_figure = AsFigure(self._curve, lab_state, self._report_error)
        self._pins_figure = AsFigure(self._bars, lab_state, self._report_error)
        self._pins_box = w.VBox(
            [w.HBox([self.pins.bars, self._pins_figure.button]), self.pins.table, self._pins_figure.output]
        )
        buttons = w.HBox([self.pin, self.back, self.use, self.scale])
        buttons.add_class("dtfm-what-if-buttons")
        left = w.VBox([self.controls.view, buttons])
        left.add_class("dtfm-what-if-left")
        answers = w.VBox([self.answer, self.problem, self.patience.view, self.curves, self._curve_figure.button])
        answers.add_class("dtfm-what-if-right")
        self.view = w.VBox(
            [
                w.HTML(f"<style>{answer_markup.CSS}</style>", layout=w.Layout(display="none")),
                w.HBox([left, answers]),
                self._curve_figure.output,
                self._pins_box,
            ]
        )
        self.view.add_class("dtfm-what-if")
        self.pin.on_click(lambda _: self._pin())
        self.use.on_click(lambda _: self._use())
        self.scale.on_click(lambda _: self._scale())
        self.back.on_click(lambda _: self._back())
        self.patience.stop.on_click(lambda _: self._stop())
        lab_state.observe(lambda _: self._rest(), ["plan", "schedule", "queueing", "choices"])
        self._rest()

    @property
    def setting(self) -> Setting | None:
        """What is turned to now; None while there is no plan."""
        return self.controls.setting

    @property
    def base(self) -> Setting | None:
        """What the lab is turned to."""
        return self.controls.base

    def settings(self) -> dict[str, Any]:
        setting = self.setting
        if self._wanted is not None:
            return dict(self._wanted)  # as told, until there is a plan
        return {
            "setting": None if setting is None else setting.to_mapping(),
            "pins": self.pins.settings(),
            "bars": self.pins.bars.value,
        }

    def restore(self, settings: Mapping[str, Any]) -> None:
        """Turn to what ``settings`` told: now, or as soon as there is a plan."""
        self._wanted = dict(settings)
        self._take_wanted()

    def redo(self) -> None:
        """AnswerCache anew."""
        if self._answers is not None:
            self._answers.forget()
            self.pins.forget_answers()
        self._ask()

    def _take_wanted(self) -> None:
        wanted, base = self._wanted, self.base
        if wanted is None or base is None:
            return
        self._wanted = None
        if wanted.get("bars") in [measure.name for measure in MEASURES]:
            self.pins.bars.value = wanted["bars"]
        if isinstance(setting := wanted.get("setting"), Mapping):
            self.controls.show(with_known(base, setting))
        if "pins" in wanted:
            self.pins.restored(wanted["pins"], base)
        self._ask()

    def _rest(self) -> None:
        """The plan, or what is chosen for it, is another one."""
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
            self._answers = None if plan is None else AnswerCache(plan)
            self.pins.forget_answers()
            if plan is not None:
                compilation.start()  # compiled before the first slider moves
        self.controls.rest_on(None if plan is None else plan.job, base)
        if plan is not None and plan.topology.fingerprint == self._scaled_to:
            self._scaled_to = ""  # the network is what was tried: there is nothing left to multiply
            self.controls.bandwidth.value = self.controls.latency.value = 1.0
        self._take_wanted()
        if base is None:
            self._nothing(problem)
        self._ask()

    def _nothing(self, problem: str) -> None:
        self.last = None
        self.pins.rest_on(None)
        self.answer.value = answer_markup.empty(
            "What if cannot be asked of this plan." if problem else "No plan yet: plan first, then move a slider."
        )
        self.curves.value, self.problem.value = "", markup.line(escape(problem), "warning")

    def _ask(self) -> None:
        """Answer what is turned to now; while an answer is under way, that is done right after it."""
        self._asked += 1
        self._stopped = False  # what was stopped is not what is asked now
        self._buttons()
        if self.setting is not None and not self._working:
            self._working = True
            begin(self._work(), self._report_error)

    async def _work(self) -> None:
        try:
            while self._answered < self._asked and self.setting is not None and not self._stopped:
                self._answered = self._asked
                await self._answer_newest()
        finally:
            self._working = False
            self._buttons()
        self._look_around()

    async def _answer_newest(self) -> None:
        setting, base, answers = self.setting, self.base, self._answers
        if setting is None or base is None or answers is None:
            return
        work = asyncio.ensure_future(asyncio.to_thread(answers.both, setting, base))
        try:
            found = await self.patience.wait(work, self._count(setting, answers), self._slow)
        except LabError as error:
            if answers is self._answers and setting == self.setting:
                self._refuse(str(error))
            return
        if found is None or answers is not self._answers or base != self.base:
            return
        now, then = found
        self.last = now
        self._number += 1
        self.pins.rest_on(then)
        self.answer.value = answer_markup.answer(now, then, setting.said(base), self._number)
        self.answer.remove_class("dtfm-what-if-old")
        self.problem.value = ""
        self._draw_curves()

    def _count(self, setting: Setting, answers: AnswerCache) -> int:
        """Actions of an iteration, about; 0 where the work will say why it cannot be."""
        try:
            return n_actions(setting.on(answers.plan))
        except LabError:
            return 0

    def _slow(self, is_slow: bool) -> None:
        """What is shown is old while something takes its time."""
        self._lab_state.set_busy("what-if", is_slow)
        (self.answer.add_class if is_slow else self.answer.remove_class)("dtfm-what-if-old")

    def _refuse(self, problem: str) -> None:
        """What is shown is of another setting, and looks it."""
        self.last = None
        self.answer.add_class("dtfm-what-if-old")
        self.problem.value = markup.line(escape(problem), "warning")

    def _look_around(self) -> None:
        """Pins that have no answer yet, then the curves, once nobody moves anything."""
        self._buttons()
        if self._working or self._answers is None or self.base is None:
            return
        self._looked += 1
        begin(self._around(self._answers, (self._asked, self._looked)), self._report_error)

    async def _around(self, answers: AnswerCache, moment: tuple[int, int]) -> None:
        await asyncio.sleep(QUIET_S)
        for pin in self.pins.pins:
            if moment != (self._asked, self._looked):
                return
            if not pin.known:
                try:
                    answer, problem = await asyncio.to_thread(answers.one, pin.setting), ""
                except LabError as error:
                    answer, problem = None, str(error)
                if answers is self._answers:
                    self.pins.answered(pin.setting, answer, problem)
        setting = self.setting
        if self.last is None or setting is None or n_actions(setting.on(answers.plan)) > CURVE_UP_TO:
            return
        for axis in FACTORS:
            while (factor := answers.next_factor(setting, axis)) is not None:
                if moment != (self._asked, self._looked):
                    return
                await asyncio.to_thread(answers.add_point, setting, axis, factor)
                self._draw_curves()

    def _draw_curves(self) -> None:
        setting, answers = self.setting, self._answers
        if setting is None or answers is None or self.last is None:
            return
        if n_actions(setting.on(answers.plan)) > CURVE_UP_TO:
            self.curves.value = markup.line("Too many actions for curves that follow a slider; As figure draws them.")
            return
        here = self.last.iteration_s
        points = {axis: answers.points(setting, axis) for axis in FACTORS}
        most_s = max((seconds for of in points.values() for _, seconds in of), default=0.0)
        drawn = (
            answer_markup.curve(axis, points[axis], (getattr(self.last.setting, axis), here), "drawing…", most_s)
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
        """All but the factors, which are the network's."""
        setting, plan = self.setting, self._plan
        if setting is None or plan is None or self.last is None:
            return
        with self._lab_state.hold_trait_notifications():
            self._lab_state.schedule, self._lab_state.queueing = setting.schedule, setting.queueing
            self._lab_state.choices = {
                what: value
                for what, value in (self._lab_state.choices | setting.of_the_job).items()
                if what in TRIED or value != getattr(plan.job, what)  # the batch as planned is no choice
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
            self.controls.show(self.base)
            self._ask()

    def _stop(self) -> None:
        self._stopped = True
        self.problem.value = markup.line("Stopped; what is shown is of the setting before.")

    def _buttons(self) -> None:
        setting, base = self.setting, self.base
        turned = {} if setting is None or base is None else setting.beside(base)
        scaled = set(turned) & set(FACTORS)
        self.pin.disabled = setting is None
        self.back.disabled = not turned
        self.use.disabled = not set(turned) - set(FACTORS)
        self.scale.disabled = not scaled
        self._curve_figure.button.disabled = setting is None
        self._pins_box.layout.display = "" if self.pins.pins else "none"

    def _curve(self) -> go.Figure | None:
        return None if self.setting is None or self._plan is None else of_factors(self._plan, self.setting)

    def _bars(self) -> go.Figure | None:
        return of_pins(self.pins.pins, self.pins.measure)

    def _report_error(self, message: str) -> None:
        self._lab_state.report_error("what-if", message)


def _button(text: str, icon: str, tooltip: str) -> w.Button:
    return w.Button(description=text, icon=icon, tooltip=tooltip, layout=w.Layout(width="auto"))
