"""Back, next and play through the paper's five steps."""

import asyncio
from collections.abc import Callable

import ipywidgets as w

from dtfm_lab.widgets.controls import classed, icon_button, segments
from dtfm_lab.widgets.groups.group_texts import STEPS
from dtfm_lab.widgets.tasks import begin

PLAY = "Walk through all steps"
STAYS_S = 2.6
"""Seconds that each step is shown while all are played."""


class Stepper:
    """``step`` holds the letter of the step that is shown; ``view`` is a narrow row of buttons."""

    def __init__(self, letter: str, report_error: Callable[[str], None]) -> None:
        self._report_error, self._why_not = report_error, ""
        self._plays = 0
        self.step = classed(
            segments(
                [(f"({each})", each) for each in STEPS],
                [f"Step ({each}) of the paper: {word}" for each, word in STEPS.items()],
                "34px",
                value=letter,
            ),
            "dtfm-segmented",
        )
        self.back = icon_button("chevron-left", "The step before")
        self.next = icon_button("chevron-right", "The step after")
        self.play = icon_button("play", PLAY)
        self._playing = False
        self.view = w.HBox([self.step, self.back, self.next, self.play])
        self.step.observe(lambda _: self._update_buttons(), "value")
        self.back.on_click(lambda _: self._go(-1))
        self.next.on_click(lambda _: self._go(1))
        self.play.on_click(lambda _: self._play_or_stop())
        self.enable("there is no plan yet")

    @property
    def playing(self) -> bool:
        return self._playing

    def enable(self, why_not: str) -> None:
        """Enable the buttons, or say on them why they do nothing."""
        self._why_not = why_not
        self.step.disabled = self.play.disabled = bool(why_not)
        self._update_buttons()

    def _update_buttons(self) -> None:
        letters = list(STEPS)
        first, last = self.step.value == letters[0], self.step.value == letters[-1]
        self.back.disabled, self.next.disabled = self.step.disabled or first, self.step.disabled or last
        self.back.tooltip = self._why_not or ("This is the first step" if first else "The step before")
        self.next.tooltip = self._why_not or ("This is the last step" if last else "The step after")
        self.play.tooltip = self._why_not or ("Stop" if self._playing else PLAY)

    def _go(self, by: int) -> None:
        letters = list(STEPS)
        self.step.value = letters[max(0, min(len(letters) - 1, letters.index(self.step.value) + by))]

    def _play_or_stop(self) -> None:
        self._plays += 1
        self._playing = not self._playing
        self.play.icon = "stop" if self._playing else "play"
        self._update_buttons()
        if self._playing:
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
