"""The three large sliders of the what-ifs: bandwidth, latency and batch."""

from collections.abc import Mapping
from typing import Any

import ipywidgets as w

from dtfm_lab.widgets.lab_state import Guard
from dtfm_lab.widgets.views.sliders import SlidersView
from dtfm_lab.widgets.what_if.setting import FACTORS, LEAST_FACTOR, MOST_FACTOR, rounded

LABELS = {
    "bandwidth": ("Bandwidth", "of every link"),
    "latency": ("Latency", "of every link"),
    "global_batch": ("Batch", ""),
}
"""The name of each slider, and what is left out of it where there is little room."""
STOPS = 101
"""Stops of a factor, evenly on a logarithmic axis, 1 in the middle."""
FACTOR_STOPS = [rounded(LEAST_FACTOR * (MOST_FACTOR / LEAST_FACTOR) ** (i / (STOPS - 1))) for i in range(STOPS)]
HELD, AS_PLANNED = "plan held", "as planned"


class MainSliders:
    """``view`` turns the controls that it is given, and follows them."""

    def __init__(self, controls: Mapping[str, w.ValueWidget]) -> None:
        self._controls = controls
        self._base: Mapping[str, Any] | None = None
        self._why_not = ""
        self._is_following = Guard()
        self.view = SlidersView()
        self.view.observe(lambda _: self._moved(), "values")
        for control in controls.values():
            control.observe(lambda _: self._write(), "value")
        controls["global_batch"].observe(lambda _: self._write(), "options")
        self._write()

    def show(self, base: Mapping[str, Any] | None, why_not: str) -> None:
        """Show values against these; ``why_not`` says why nothing can be moved."""
        self._base, self._why_not = base, why_not
        self._write()

    def _stops(self, name: str) -> tuple[list[Any], list[str]]:
        """Return the values that a slider stops at, and how they read."""
        if name in FACTORS:
            return FACTOR_STOPS, [f"× {factor:.2g}" for factor in FACTOR_STOPS]
        options = self._controls[name].options
        return [value for _, value in options], [text.replace("seq", "sequences") for text, _ in options]

    def _write(self) -> None:
        if self._is_following:
            return
        sliders, values = [], {}
        for name, control in self._controls.items():
            stops, texts = self._stops(name)
            neutral = 1.0 if name in FACTORS else (self._base or {}).get(name, stops[0])
            at, zero = _nearest(stops, control.value), _nearest(stops, neutral)
            note = "" if self._base is None else AS_PLANNED if at == zero else HELD
            sliders.append(
                {
                    "key": name,
                    "label": LABELS[name][0],
                    "rest": LABELS[name][1],
                    "texts": texts,
                    "neutral": zero,
                    "note": note,
                }
                | {"why_not": self._why_not}
            )
            values[name] = at
        with self._is_following, self.view.hold_sync():
            self.view.sliders, self.view.values = sliders, values

    def _moved(self) -> None:
        if self._is_following or self._base is None:
            return
        for name, control in self._controls.items():
            stops, at = self._stops(name)[0], self.view.values.get(name)
            if isinstance(at, int) and 0 <= at < len(stops) and at != _nearest(stops, control.value):
                control.value = stops[at]


def _nearest(stops: list[Any], value: float) -> int:
    return min(range(len(stops)), key=lambda at: abs(stops[at] - value))
