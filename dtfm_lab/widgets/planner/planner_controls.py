"""Controls that a search and a race have in common, and the search that they steer."""

from collections.abc import Callable, Iterator

import ipywidgets as w

from dtfm_lab.planning import PlanStep
from dtfm_lab.widgets.controls import button, labelled
from dtfm_lab.widgets.planner.background_search import SPEEDS, BackgroundSearch

AXES = ("evaluations", "seconds")
"""What a convergence curve may be drawn against."""


class SearchControls:
    """Seed, pace, Pause and Stop of the search that runs; ``changed`` is called when it is paused or goes on."""

    def __init__(self, changed: Callable[[], None], pause_tooltip: str, stop_tooltip: str) -> None:
        self._changed = changed
        self.search: BackgroundSearch | None = None
        """The search that runs; None while none does."""
        self.seed = labelled(
            w.BoundedIntText,
            "Seed",
            "110px",
            "38px",
            0,
            min=0,
            max=2**31,
            tooltip="Equal seeds and generations give equal plans",
        )
        self.speed = labelled(
            w.SelectionSlider,
            "Speed",
            "265px",
            "45px",
            options=list(SPEEDS),
            value="to watch",
            tooltip="How long an improvement stays on the screen; may be moved while it runs, and costs no budget",
        )
        self.pause = button("Pause", "pause", pause_tooltip)
        self.stop = button("Stop", "stop", stop_tooltip)
        self.speed.observe(lambda _: self._set_pace(), "value")
        self.pause.on_click(lambda _: self._toggle())
        self.stop.on_click(lambda _: self._stop())

    def start(self, steps: Iterator[PlanStep]) -> BackgroundSearch:
        """Run the steps on a thread at the chosen pace."""
        self.search = BackgroundSearch(steps, SPEEDS[self.speed.value])
        return self.search

    def update(self) -> None:
        """Enable the buttons while a search runs; Pause is Resume while it is paused."""
        self.pause.disabled = self.stop.disabled = self.search is None
        paused = self.search is not None and self.search.paused
        self.pause.description, self.pause.icon = ("Resume", "play") if paused else ("Pause", "pause")

    def _stop(self) -> None:
        if self.search is not None:
            self.search.stop()

    def _toggle(self) -> None:
        if self.search is not None:
            (self.search.resume if self.search.paused else self.search.pause)()
        self._changed()

    def _set_pace(self) -> None:
        if self.search is not None:
            self.search.pace = SPEEDS[self.speed.value]
