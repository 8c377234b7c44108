"""Back, next and play through the paper's five steps."""

import asyncio
from collections.abc import Callable

import ipywidgets as w

from dtfm_lab.widgets.controls import button
from dtfm_lab.widgets.groups.group_texts import STEPS
from dtfm_lab.widgets.tasks import begin

STAYS_S = 2.6
"""Seconds that each step is shown while all are played."""


class Stepper:
    """``step`` holds the letter of the step that is shown; ``view`` is the row of buttons."""

    def __init__(self, letter: str, report_error: Callable[[str], None]) -> None:
        self._report_error = report_error
        self._plays = 0
        self.step = w.ToggleButtons(
            options=[(f"({each}) {word}", each) for each, word in STEPS.items()],
            value=letter,
            style={"button_width": "96px"},
            tooltips=[f"Step ({each}) of the paper" for each in STEPS],
        )
        self.back = button("Back", "chevron-left", "The step before", "84px")
        self.next = button("Next", "chevron-right", "The step after", "84px")
        self.play = button("Play", "play", "Walk through all steps", "84px")
        self.view = w.HBox([self.step, self.back, self.next, self.play])
        self.step.observe(lambda _: self._update_buttons(), "value")
        self.back.on_click(lambda _: self._go(-1))
        self.next.on_click(lambda _: self._go(1))
        self.play.on_click(lambda _: self._play_or_stop())
        self.enable(False)

    def enable(self, has_plan: bool) -> None:
        self.step.disabled = self.play.disabled = not has_plan
        self._update_buttons()

    def _update_buttons(self) -> None:
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

    async def _walk(self, number: int) -> None:
        """Show step after step up to the last; from the first one where the last is shown already."""
        first, *_, last = STEPS
        if self.step.value == last:
            self.step.value = first
        while self.step.value != last:
            await asyncio.sleep(STAYS_S)
            if number != self._plays:
                return
            self._go(1)
        self._play_or_stop()
