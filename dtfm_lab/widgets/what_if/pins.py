"""Pinned settings: a button each, with the seconds of its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any

import ipywidgets as w

from dtfm_lab.domain.units import format_s
from dtfm_lab.widgets.controls import classed
from dtfm_lab.widgets.what_if.setting import WhatIfSetting, with_valid

MOST_LETTERS = 60
"""Letters of a name; what is beyond is cut off."""
MOST_RESTORED = 100
"""Pins that a saved workspace may bring."""


@dataclass(frozen=True)
class Pin:
    """A setting under a name; without its seconds and a problem it is still to be computed."""

    name: str
    setting: WhatIfSetting
    iteration_s: float | None = None
    problem: str = ""
    """Why there is no answer, as one line."""

    @property
    def is_computed(self) -> bool:
        """Whether nothing is left to compute."""
        return self.iteration_s is not None or bool(self.problem)

    @property
    def known(self) -> str:
        """The seconds of an iteration, or that they are not known yet, or not possible."""
        if self.iteration_s is None:
            return "not possible" if self.problem else "…"
        return format_s(self.iteration_s)


class Pins:
    """The pins. ``load`` is called with the setting of one that is clicked, ``changed`` when pins come or go."""

    def __init__(self, load: Callable[[WhatIfSetting], None], changed: Callable[[], None]) -> None:
        self._load, self._changed = load, changed
        self._pins: tuple[Pin, ...] = ()
        self.chips = classed(w.HBox([_no_pins()]), "dtfm-pin-chips")
        """A row of one height: for each pin a button that loads it, and one that removes it."""

    @property
    def pins(self) -> tuple[Pin, ...]:
        return self._pins

    @pins.setter
    def pins(self, pins: tuple[Pin, ...]) -> None:
        if len(pins) != len(self._pins):
            self.chips.children = [self._chip(number) for number in range(len(pins))] or [_no_pins()]
        self._pins = pins
        for pin, chip in zip(pins, self.chips.children, strict=False):
            chip.children[0].description = f"{pin.name} · {pin.known}"
            chip.children[0].tooltip = pin.problem or f"Turn the sliders to {pin.name}: {pin.known}"

    def add(self, setting: WhatIfSetting, base: WhatIfSetting) -> None:
        """Add a pin at the end; its name lists the differences from ``base``."""
        name = _free(setting.describe_changes(base) or "the plan", self._pins)
        self.pins = (*self._pins, Pin(name, setting))
        self._changed()

    def clear_answers(self) -> None:
        self.pins = tuple(Pin(pin.name, pin.setting) for pin in self._pins)

    def set_answer(self, setting: WhatIfSetting, iteration_s: float | None, problem: str = "") -> None:
        """Show the answer, or the problem, in every pin of the setting."""
        self.pins = tuple(
            replace(pin, iteration_s=iteration_s, problem=problem) if pin.setting == setting else pin
            for pin in self._pins
        )

    def settings(self) -> list[dict[str, Any]]:
        return [{"name": pin.name, "setting": pin.setting.values} for pin in self._pins]

    def restore(self, given: object, base: WhatIfSetting) -> None:
        """Set the pins from what ``settings`` returned; anything else is left out."""
        pins: list[Pin] = []
        for one in given[:MOST_RESTORED] if isinstance(given, list | tuple) else []:
            setting = one.get("setting") if isinstance(one, Mapping) else None
            if isinstance(setting, Mapping):
                pins.append(Pin(_free(str(one.get("name") or "pinned"), pins), with_valid(base, setting)))
        self.pins = tuple(pins)

    def _chip(self, number: int) -> w.HBox:
        load = w.Button(layout=w.Layout(width="auto"))
        remove = w.Button(icon="times", tooltip="Remove this pin", layout=w.Layout(width="24px"))
        load.on_click(lambda _: self._load(self._pins[number].setting))
        remove.on_click(partial(self._remove, number))
        return classed(w.HBox([load, remove]), "dtfm-pin-chip")

    def _remove(self, number: int, _button: w.Button) -> None:
        self.pins = (*self._pins[:number], *self._pins[number + 1 :])
        self._changed()


def _no_pins() -> w.HTML:
    return w.HTML('<span class="dtfm-pin-none">Pin this keeps a setting here, to compare it with others.</span>')


def _free(name: str, others: Sequence[Pin]) -> str:
    """Return the name, with a number behind it where another pin has it."""
    taken, name = {pin.name for pin in others}, name[:MOST_LETTERS]
    numbered = (f"{name[: MOST_LETTERS - 6]} ({number})" for number in count(2))
    return name if name not in taken else next(other for other in numbered if other not in taken)
