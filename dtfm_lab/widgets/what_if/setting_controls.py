"""Controls of a WhatIfSetting that offer what the job allows, three of them as large sliders. Also pinned settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.options import Option
from dtfm_lab.domain.units import format_s
from dtfm_lab.widgets import quiet as w
from dtfm_lab.widgets.controls import classed, control_for, label_of, labelled, mark
from dtfm_lab.widgets.lab_state import Guard
from dtfm_lab.widgets.views.sliders import SlidersView
from dtfm_lab.widgets.what_if.setting import (
    BATCH_OPTIONS,
    EVERY,
    FACTORS,
    LEAST_FACTOR,
    MOST_FACTOR,
    WhatIfSetting,
    batches_of,
    link_words,
    microbatches_of,
    rounded,
    setting_options,
    with_valid,
)

MOST_LETTERS = 60
"""Maximum letters of a pin's name. The rest is cut off."""
MOST_RESTORED = 100
"""Maximum number of pins that a saved workspace may bring."""


@dataclass(frozen=True)
class Pin:
    """A setting under a name. Without seconds and without a problem, it is still to be computed."""

    name: str
    setting: WhatIfSetting
    iteration_s: float | None = None
    problem: str = ""
    """Why there is no answer, as one line."""

    @property
    def is_computed(self) -> bool:
        """True if nothing is left to compute."""
        return self.iteration_s is not None or bool(self.problem)

    @property
    def known(self) -> str:
        """The seconds of an iteration, or that they are not known yet or not possible."""
        if self.iteration_s is None:
            return "not possible" if self.problem else "…"
        return format_s(self.iteration_s)


class Pins:
    """The row of pinned settings.

    ``load`` is called with the setting of a clicked pin, ``changed`` when pins are added or removed.
    """

    def __init__(self, load: Callable[[WhatIfSetting], None], changed: Callable[[], None]) -> None:
        self._load, self._changed = load, changed
        self._pins: tuple[Pin, ...] = ()
        self.chips = classed(w.HBox([_no_pins()]), "dtfm-pin-chips")
        """A row of fixed height. Each pin has a button that loads it and one that removes it."""

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
            chip.children[0].tooltip = pin.problem or f"Set the sliders to {pin.name}: {pin.known}"

    def add(self, setting: WhatIfSetting, base: WhatIfSetting) -> None:
        """Add a pin at the end. Its name lists the differences from ``base``."""
        name = _free(setting.describe_changes(base) or "the plan", self._pins)
        self.pins = (*self._pins, Pin(name, setting))
        self._changed()

    def clear_answers(self) -> None:
        self.pins = tuple(Pin(pin.name, pin.setting) for pin in self._pins)

    def rescale(self, factors: Mapping[str, float], base: WhatIfSetting) -> None:
        """Divide the pins' factors by ``factors``, by which the network was scaled, so that their links stay the same.

        Their new names list the differences from ``base``.
        """
        pins: list[Pin] = []
        for pin in self._pins:
            own = {name: float(f"{pin.setting.values[name] / factor:.6g}") for name, factor in factors.items()}
            setting = pin.setting.with_values(**own)
            pins.append(Pin(_free(setting.describe_changes(base) or "the plan", pins), setting))
        self.pins = tuple(pins)

    def set_answer(self, setting: WhatIfSetting, iteration_s: float | None, problem: str = "") -> None:
        """Show the answer, or the problem, in every pin with this setting."""
        self.pins = tuple(
            replace(pin, iteration_s=iteration_s, problem=problem) if pin.setting == setting else pin
            for pin in self._pins
        )

    def settings(self) -> list[dict[str, Any]]:
        return [{"name": pin.name, "setting": saved(pin.setting)} for pin in self._pins]

    def restore(self, given: object, base: WhatIfSetting) -> None:
        """Set the pins from what ``settings`` returned. Anything else is left out."""
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


def saved(setting: WhatIfSetting) -> dict[str, Any]:
    """Return a setting as a workspace keeps it, for ``with_valid``."""
    return setting.values | ({"link": list(setting.link)} if setting.link else {})


def _no_pins() -> w.HTML:
    return w.HTML(
        '<span class="dtfm-pin-none">No pins yet: press Pin this to keep a setting here for comparison.</span>'
    )


def _free(name: str, others: Sequence[Pin]) -> str:
    """Return the name, with a number appended if another pin has it."""
    taken, name = {pin.name for pin in others}, name[:MOST_LETTERS]
    numbered = (f"{name[: MOST_LETTERS - 6]} ({number})" for number in count(2))
    return name if name not in taken else next(other for other in numbered if other not in taken)


MOVED = "dtfm-moved"
"""CSS class of a control that differs from the lab's own setting."""
LABEL_WIDTH = "98px"
SLIDER_WIDTH = "410px"
MENU_WIDTH = "410px"
SLIDERS = (*BATCH_OPTIONS, "synchronise_every")
"""Job options shown as sliders over the values that the plan allows. Others get the control of their type."""
MAIN = {
    "bandwidth": ("Bandwidth", "of every link"),
    "latency": ("Latency", "of every link"),
    "global_batch": ("Batch", ""),
}
"""The three large sliders. The other controls are behind a button.

Each has a name, and the rest of its label, which is left out if there is little room.
"""
STOPS = 101
"""Number of stops of a factor, evenly spaced on a logarithmic axis, with 1 in the middle."""
FACTOR_STOPS = [rounded(LEAST_FACTOR * (MOST_FACTOR / LEAST_FACTOR) ** (i / (STOPS - 1))) for i in range(STOPS)]
HELD = "same placement"
"""Note on a slider that was moved. The placement stays the plan's."""
AS_PLANNED = "as planned"
"""Note on a slider that is where the plan has it."""
NO_LINK = "Select a link on the network first"


class SettingControls:
    """Shows ``setting``. Calls ``changed`` when a person turns a control, but not in ``show``.

    ``sliders`` has a large slider for each of the three most used controls. ``view`` has the other controls.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._is_showing, self._is_sliding = Guard(), Guard()
        self._job: Job | None = None
        self.base: WhatIfSetting | None = None
        """The lab's setting, from which differences are shown."""
        self._link: tuple[str, ...] | None = ()
        self.by_name: dict[str, Any] = {name: _control(option) for name, option in setting_options().items()}
        self.sliders = SlidersView()
        for control in self.by_name.values():
            control.observe(self._turned, "value")
        self.sliders.observe(lambda _: self._slid(), "values")
        rarer = [control for name, control in self.by_name.items() if name not in MAIN]
        self.view = w.VBox(sorted(rarer, key=lambda control: isinstance(control, w.Checkbox)))
        self._mark()

    @property
    def setting(self) -> WhatIfSetting | None:
        """The setting of the controls. None if there is no plan."""
        if self.base is None:
            return None
        values = {name: control.value for name, control in self.by_name.items()}
        values |= {name: rounded(values[name]) for name in FACTORS}
        turned = any(values[name] != 1 for name in FACTORS)
        return replace(self.base.with_values(**values), link=self._link or () if turned else ())

    @property
    def link(self) -> tuple[str, ...] | None:
        """The link that bandwidth and latency apply to. Empty for every link, None if one has yet to be selected."""
        return self._link

    @link.setter
    def link(self, link: tuple[str, ...] | None) -> None:
        if link != self._link:
            self._link = link
            self._mark()
            self._changed()

    def set_base(self, job: Job | None, base: WhatIfSetting | None) -> None:
        """Show differences from ``base`` from now on. Controls that were not turned are set to it."""
        before, shown = self.base, self.setting
        self._job, self.base = job, base
        if base is not None:
            turned = {} if before is None or shown is None else shown.changes_from(before)
            self.show(replace(base.with_values(**turned), link=self._link or ()))
        self._mark()

    def show(self, setting: WhatIfSetting) -> None:
        """Turn the controls to a setting. If the job does not allow the batch or the micro-batch, the base's is shown
        instead."""
        if self._job is None or self.base is None:
            return
        with self._is_showing:
            values, schedule = setting.values, self.by_name["schedule"]
            if values["schedule"] not in [name for _, name in schedule.options]:  # registered later, or unknown here
                schedule.options = [*schedule.options, (values["schedule"], values["schedule"])]
            # A saved setting may hold a number that the slider does not offer.
            _offer(self.by_name["synchronise_every"], sorted({*EVERY, values["synchronise_every"]}), _iterations)
            values |= self._allowed(values["microbatch"], values["global_batch"])
            self._offer_batches(values["microbatch"], values["global_batch"])
            for name, control in self.by_name.items():
                control.value = values[name]
        if any(values[name] != 1 for name in FACTORS):
            self._link = setting.link
        self._mark()

    def _allowed(self, microbatch: int, batch: int) -> dict[str, int]:
        assert self._job is not None
        assert self.base is not None
        planned = [self.base.values[name] for name in BATCH_OPTIONS]
        # As much of the setting as the job allows: both values, else the batch, else the micro-batch.
        for pair in ((microbatch, batch), (planned[0], batch), (microbatch, planned[1])):
            if pair[1] % pair[0] == 0 and pair[1] // pair[0] >= self._job.n_replicas:
                return dict(zip(BATCH_OPTIONS, pair, strict=True))
        return dict(zip(BATCH_OPTIONS, planned, strict=True))

    def _turned(self, change: dict[str, Any]) -> None:
        if self._is_showing or self.base is None:
            return
        microbatch, batch = (self.by_name[name] for name in BATCH_OPTIONS)
        if change["owner"] in (microbatch, batch):
            with self._is_showing:
                self._offer_batches(microbatch.value, batch.value)
        self._mark()
        self._changed()

    def _offer_batches(self, microbatch: int, batch: int) -> None:
        assert self._job is not None
        assert self.base is not None
        planned = self.base.values["global_batch"]
        _offer(self.by_name["microbatch"], microbatches_of(self._job, batch, microbatch), _sequences)
        _offer(self.by_name["global_batch"], batches_of(self._job, microbatch, planned, batch), _sequences)

    def _mark(self) -> None:
        """Mark the controls that differ from the base. Without a base they are disabled."""
        shown = self.setting
        moved = {} if shown is None or self.base is None else shown.changes_from(self.base)
        for name, control in self.by_name.items():
            control.disabled = self.base is None
            mark(control, MOVED, name in moved)
        if not self._is_sliding:
            self._show_sliders()

    def _show_sliders(self) -> None:
        """Move the large sliders to the values of their controls."""
        sliders, values = [], {}
        base = None if self.base is None else self.base.values
        for name, (label, rest) in MAIN.items():
            stops, texts = self._stops(name)
            # A factor changes nothing at 1, other numbers at the plan's own value.
            neutral = 1.0 if name in FACTORS else stops[0] if base is None else base[name]
            zero = _nearest(stops, neutral)
            values[name] = at = _nearest(stops, self.by_name[name].value)
            slider = {"key": name, "label": label, "rest": rest, "texts": texts, "neutral": zero}
            slider["note"] = "" if base is None else AS_PLANNED if at == zero else HELD
            slider["why_not"] = "No plan yet: press Plan first" if base is None else ""
            if name in FACTORS and base is not None:
                slider["rest"] = f"of {link_words(self._link)}" if self._link else rest
                slider["why_not"] = NO_LINK if self._link is None else ""
            sliders.append(slider)
        with self._is_sliding, self.sliders.hold_sync():
            self.sliders.sliders, self.sliders.values = sliders, values

    def _slid(self) -> None:
        """Turn the controls to where a large slider was moved."""
        if self._is_sliding or self.base is None:
            return
        with self._is_sliding:
            for name in MAIN:
                stops, at, control = self._stops(name)[0], self.sliders.values.get(name), self.by_name[name]
                # The page sends positions, which may be of a list that has just become shorter.
                if isinstance(at, int) and 0 <= at < len(stops) and at != _nearest(stops, control.value):
                    control.value = stops[at]
        self._show_sliders()

    def _stops(self, name: str) -> tuple[list[Any], list[str]]:
        """Return the values that a slider stops at, and their texts."""
        if name in FACTORS:
            return FACTOR_STOPS, [f"× {factor:g}" for factor in FACTOR_STOPS]
        options = self.by_name[name].options
        return [value for _, value in options], [text.replace("seq", "sequences") for text, _ in options]


def _offer(control: w.SelectionSlider, values: list[int], text: Callable[[int], str]) -> None:
    """Offer other values. The slider keeps its value if it is among them."""
    options = [(text(value), value) for value in values]
    if tuple(options) == tuple(control.options):
        return
    kept = control.value
    with control.hold_sync():  # hold_trait_notifications would check the index against the old options
        control.options = options
        control.index = values.index(kept) if kept in values else 0


def _control(option: Option) -> w.ValueWidget:
    if option.name in SLIDERS:
        offered = {"options": [("–", 1)], "tooltip": option.help, "continuous_update": True}
        return labelled(w.SelectionSlider, label_of(option).capitalize(), SLIDER_WIDTH, LABEL_WIDTH, **offered)
    chosen = replace(option, may_be_none=False)  # a finished plan leaves nothing to the planner
    control = control_for(chosen, width=MENU_WIDTH, label_width=LABEL_WIDTH)
    if isinstance(control, w.Checkbox):
        control.layout = w.Layout(width="auto", margin="2px 2px 2px 106px")
    return control


def _sequences(n: int) -> str:
    return f"{n:,} seq"


def _iterations(n: int) -> str:
    return "iteration" if n == 1 else f"{n:,} iterations"


def _nearest(stops: list[Any], value: float) -> int:
    return min(range(len(stops)), key=lambda at: abs(stops[at] - value))
