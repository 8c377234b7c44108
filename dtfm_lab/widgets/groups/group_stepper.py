"""Back, next and play through the paper's five steps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import ipywidgets as w

from dtfm_lab.widgets.groups.group_steps import STEPS
from dtfm_lab.widgets.tasks import begin

STAYS_S = 2.6
"""of a step while all are played"""


class Stepper:
    """``step`` holds the letter; ``view`` is the row of buttons."""

    def __init__(self, letter: str, report_error: Callable[[str], None]) -> None:
        self._report_error = report_error
        self._plays = 0
        self.step = w.ToggleButtons(
            options=[(f"({each}) {word}", each) for each, word in STEPS.items()],
            value=letter,
            style={"button_width": "96px"},
            tooltips=[f"Step ({each}) of the paper" for each in STEPS],
        )
        self.back = _button("Back", "chevron-left", "The step before")
        self.next = _button("Next", "chevron-right", "The step after")
        self.play = _button("Play", "play", "Walk through all steps")
        self.view = w.HBox([self.step, self.back, self.next, self.play])
        self.step.observe(lambda _: self._buttons(), "value")
        self.back.on_click(lambda _: self._go(-1))
        self.next.on_click(lambda _: self._go(1))
        self.play.on_click(lambda _: self._play_or_stop())
        self.enable(False)

    def enable(self, there_is_a_plan: bool) -> None:
        self.step.disabled = self.play.disabled = not there_is_a_plan
        self._buttons()

    def _buttons(self) -> None:
        letters = list(STEPS)
        self.back.disabled = self.step.disabled or self.step.value == letters[0]
        self.next.disabled = self.step.disabled or self.step.value == letters[-1]

    def _go(self, by: int) -> None:
        letters = list(STEPS)
        self.step.value = letters[max(0, min(len(letters) - 1, letters.index(self.step.value) + by))]

    def _play_or_stop(self) -> None:
        self._plays += 1
        playing = self.play.description == "Play"
        self.play.description, self.play.icon = ("Stop", "stop") if playing else ("Play", "play")
        if playing:
            begin(self._walk(self._plays), self._report_error)

    async def _walk(self, mine: int) -> None:
        """From the step that is shown, or from the first where that is the last, to the last."""
        first, *_, last = STEPS
        if self.step.value == last:
            self.step.value = first
        while self.step.value != last:
            await asyncio.sleep(STAYS_S)
            if mine != self._plays:
                return
            self._go(1)
        self._play_or_stop()


def _button(text: str, icon: str, tooltip: str) -> w.Button:
    return w.Button(description=text, icon=icon, tooltip=tooltip, layout=w.Layout(width="84px"))
