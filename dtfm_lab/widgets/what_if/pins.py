"""A table of pinned settings: a row each, the best of every column marked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from html import escape
from itertools import count
from typing import Any

import ipywidgets as w
import plotly.graph_objects as go

from dtfm_lab.domain.units import format_s
from dtfm_lab.figures.results.alternatives import pinned
from dtfm_lab.widgets.controls import classed, icon_button, menu
from dtfm_lab.widgets.lab_state import Guard
from dtfm_lab.widgets.what_if.answer import Answer
from dtfm_lab.widgets.what_if.answer_text import MEASURES, Measure
from dtfm_lab.widgets.what_if.setting import WhatIfSetting, with_valid

COLUMNS = ("tokens_per_s", "mfu", "bubble", "communication_s", "peak_bytes", "price_per_million_tokens")
MOST_LETTERS = 60
"""Letters of a name; what is beyond is cut off."""
MOST_RESTORED = 100
"""Rows that a saved workspace may bring."""


@dataclass(frozen=True)
class Pin:
    """A setting under a name; without an answer and a problem it is still to be computed."""

    name: str
    setting: WhatIfSetting
    answer: Answer | None = None
    problem: str = ""
    """Why there is no answer, as one line."""

    @property
    def is_computed(self) -> bool:
        """Whether nothing is left to compute."""
        return self.answer is not None or bool(self.problem)


class Pins:
    """The table. ``load`` is called with the setting of a row that is clicked, ``changed`` when rows come or go."""

    def __init__(self, load: Callable[[WhatIfSetting], None], changed: Callable[[], None]) -> None:
        self._load, self._changed = load, changed
        self._pins: tuple[Pin, ...] = ()
        self._base: Answer | None = None
        self.rows: list[PinRow] = []
        self.bars = menu(
            "Bars",
            "230px",
            "34px",
            [(measure.title, measure.name) for measure in MEASURES],
            "What the bars of the table show",
        )
        self.table = classed(w.VBox(), "dtfm-pins")
        self.chips = classed(w.HBox(), "dtfm-pin-chips")
        """A row of one height: a button for each pin, with its seconds, and one that removes it."""
        self._head = w.HTML()
        self.chips.children = [_no_pins()]
        self.bars.observe(lambda _: self._show(), "value")

    @property
    def measure(self) -> Measure:
        """The measure that the bars show."""
        return next(measure for measure in MEASURES if measure.name == self.bars.value)

    @property
    def pins(self) -> tuple[Pin, ...]:
        return self._pins

    @pins.setter
    def pins(self, pins: tuple[Pin, ...]) -> None:
        count_differs = len(pins) != len(self._pins)
        self._pins = pins
        if count_differs:
            self.rows = [self._row(number) for number in range(len(pins))]
            self.table.children = [self._header(), *(row.view for row in self.rows)] if pins else []
            self.chips.children = [row.chip for row in self.rows] or [_no_pins()]
        self._show()

    def add(self, setting: WhatIfSetting, answer: Answer | None, base: WhatIfSetting) -> None:
        """Add a row at the end; its name lists the differences from ``base``."""
        name = _free(setting.describe_changes(base) or "the plan", self._pins)
        self.pins = (*self._pins, Pin(name, setting, answer))
        self._changed()

    def set_base(self, base: Answer | None) -> None:
        """From now on show differences from this answer."""
        self._base = base
        self._show()

    def clear_answers(self) -> None:
        self.pins = tuple(Pin(pin.name, pin.setting) for pin in self._pins)

    def set_answer(self, setting: WhatIfSetting, answer: Answer | None, problem: str = "") -> None:
        """Show the answer, or the problem, in every row of the setting."""
        self.pins = tuple(
            replace(pin, answer=answer, problem=problem) if pin.setting == setting else pin for pin in self._pins
        )

    def figure(self) -> go.Figure | None:
        """Return a figure of the bars; None where no pin has them."""
        measure, answers = self.measure, [(pin.name, pin.answer) for pin in self._pins if pin.answer is not None]
        rows = [(name, value, answer.fits) for name, answer in answers if (value := measure.of(answer)) is not None]
        return pinned(rows, measure.title, measure.text, more_is_better=measure.more_is_better) if rows else None

    def settings(self) -> list[dict[str, Any]]:
        return [{"name": pin.name, "setting": pin.setting.values} for pin in self._pins]

    def restore(self, given: object, base: WhatIfSetting) -> None:
        """Set the rows from what ``settings`` returned; anything else is left out."""
        pins: list[Pin] = []
        for one in given[:MOST_RESTORED] if isinstance(given, list | tuple) else []:
            setting = one.get("setting") if isinstance(one, Mapping) else None
            if isinstance(setting, Mapping):
                pins.append(Pin(_free(str(one.get("name") or "pinned"), pins), with_valid(base, setting)))
        self.pins = tuple(pins)

    def _row(self, number: int) -> PinRow:
        return PinRow(
            rename=partial(self._rename, number),
            load=partial(self._click, number),
            remove=partial(self._remove, number),
        )

    def _rename(self, number: int, name: str) -> None:
        before, after = self._pins[:number], self._pins[number + 1 :]
        named = replace(self._pins[number], name=_free(name.strip() or "pinned", [*before, *after]))
        self.pins = (*before, named, *after)

    def _click(self, number: int) -> None:
        self._load(self._pins[number].setting)

    def _remove(self, number: int) -> None:
        self.pins = (*self._pins[:number], *self._pins[number + 1 :])
        self._changed()

    def _header(self) -> w.HBox:
        space = w.HTML(layout=w.Layout(width="286px", flex="none"))
        return classed(w.HBox([space, self._head]), "dtfm-pin", "dtfm-pin-head")

    def _show(self) -> None:
        by_name, measured = {measure.name: measure for measure in MEASURES}, self.measure
        columns = [by_name[name] for name in ("iteration_s", *COLUMNS) if name != measured.name][:6]
        answers = [pin.answer for pin in self._pins if pin.answer is not None]
        titles = "".join(
            f"<span>{escape(measure.title.replace('communication', 'comm.'))}</span>" for measure in columns
        )
        self._head.value = (
            f'<div class="dtfm-pin-cells"><span class="dtfm-pin-bar">{escape(measured.title)}</span>{titles}</div>'
        )
        for pin, row in zip(self._pins, self.rows, strict=True):
            row.show(pin, self._cells(pin, measured, columns, answers))

    def _cells(self, pin: Pin, measured: Measure, columns: list[Measure], answers: list[Answer]) -> str:
        if pin.answer is None:
            text = escape(pin.problem) if pin.problem else "computing…"
            return f'<div class="dtfm-pin-cells"><span class="dtfm-pin-problem">{text}</span></div>'
        cells = [_bar(pin.answer, measured, answers, self._base)]
        cells += [_cell(pin.answer, measure, answers, self._base) for measure in columns]
        return f'<div class="dtfm-pin-cells">{"".join(cells)}</div>'


class PinRow:
    """A name that can be edited, the numbers, and two buttons; ``chip`` is the same in little."""

    def __init__(self, rename: Callable[[str], None], load: Callable[[], None], remove: Callable[[], None]) -> None:
        self.name = w.Text(continuous_update=False, layout=w.Layout(width="190px", flex="none"))
        self.load = icon_button("sliders", "Turn the sliders back to this")
        self.remove = icon_button("times", "Remove this row")
        self.cells = w.HTML()
        self._is_showing = Guard()
        self.name.observe(lambda change: None if self._is_showing else rename(change["new"]), "value")
        self.load.on_click(lambda _: load())
        self.remove.on_click(lambda _: remove())
        self.view = classed(w.HBox([self.name, self.load, self.remove, self.cells]), "dtfm-pin")
        self.short_load = w.Button(layout=w.Layout(width="auto"))
        short_remove = w.Button(icon="times", tooltip="Remove this pin", layout=w.Layout(width="24px"))
        self.short_load.on_click(lambda _: load())
        short_remove.on_click(lambda _: remove())
        self.chip = classed(w.HBox([self.short_load, short_remove]), "dtfm-pin-chip")

    def show(self, pin: Pin, cells: str) -> None:
        with self._is_showing:
            self.name.value, self.name.tooltip = pin.name, pin.name
        self.cells.value = cells
        known = "…" if not pin.is_computed else format_s(pin.answer.iteration_s) if pin.answer else "not possible"
        self.short_load.description = f"{pin.name}  {known}"
        self.short_load.tooltip = pin.problem or f"Turn the sliders to {pin.name}: {known}"


def _no_pins() -> w.HTML:
    return w.HTML('<span class="dtfm-pin-none">Pin this keeps a setting here, to compare it with others.</span>')


def _free(name: str, others: Sequence[Pin]) -> str:
    """Return the name, with a number behind it where another pin has it: figures and code need names that differ."""
    taken, name = {pin.name for pin in others}, name[:MOST_LETTERS]
    numbered = (f"{name[: MOST_LETTERS - 6]} ({number})" for number in count(2))
    return name if name not in taken else next(other for other in numbered if other not in taken)


def _bar(answer: Answer, measure: Measure, answers: list[Answer], base: Answer | None) -> str:
    value = measure.of(answer)
    if value is None:
        return '<span class="dtfm-pin-bar">unknown</span>'
    longest = max(number for each in answers if (number := measure.of(each)) is not None)
    share = 100 * value / longest if longest > 0 else 0.0
    change = "" if base is None else measure.difference(answer, base)
    best = ' class="dtfm-pin-best"' if _is_best(answer, measure, answers) else ""
    return (
        f'<span class="dtfm-pin-bar"><i style="width:{share:.1f}%"></i><b{best}>{escape(measure.text(value))}</b>'
        f"<em>{escape(change)}</em></span>"
    )


def _is_best(answer: Answer, measure: Measure, answers: list[Answer]) -> bool:
    counts = answer.fits or not any(each.fits for each in answers)
    return counts and measure.of(answer) == measure.best(answers)


def _cell(answer: Answer, measure: Measure, answers: list[Answer], base: Answer | None) -> str:
    value = measure.of(answer)
    if value is None:
        return "<span>–</span>"
    change = "" if base is None else measure.difference(answer, base)
    if measure.name == "peak_bytes":
        change = "fits" if answer.fits else f"{answer.n_over:,} do not fit"
    best = ' class="dtfm-pin-best"' if _is_best(answer, measure, answers) else ""
    small = f"<small>{escape(change)}</small>" if change else ""
    return f"<span{best}>{escape(measure.text(value))}{small}</span>"
