"""The sliders and menus of a WhatIfSetting: they offer what the job allows. Three sliders are large."""

from collections.abc import Callable, Mapping
from typing import Any

import ipywidgets as w

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.options import Option
from dtfm_lab.simulation import schedules
from dtfm_lab.widgets.controls import control_for, label_of, labelled, mark, menu
from dtfm_lab.widgets.lab_state import Guard
from dtfm_lab.widgets.schedule.choice_controls import queueing_control
from dtfm_lab.widgets.views.sliders import SlidersView
from dtfm_lab.widgets.what_if.setting import (
    BATCH_OPTIONS,
    EVERY,
    FACTORS,
    LEAST_FACTOR,
    MOST_FACTOR,
    WhatIfSetting,
    batches_of,
    job_options,
    microbatches_of,
    rounded,
)

MOVED = "dtfm-moved"
"""CSS class of a control that differs from the plan."""
LABEL_WIDTH, SLIDER_WIDTH, MENU_WIDTH = "98px", "410px", "330px"
SLIDERS = (*BATCH_OPTIONS, "synchronise_every")
"""Job options that are sliders over the values that the plan allows; others get the control of their type."""
MAIN = {
    "bandwidth": ("Bandwidth", "of every link"),
    "latency": ("Latency", "of every link"),
    "global_batch": ("Batch", ""),
}
"""What the three large sliders turn; the others are behind a button. The name of each slider, and what is left out of
it where there is little room."""
STOPS = 101
"""Stops of a factor, evenly on a logarithmic axis, 1 in the middle."""
FACTOR_STOPS = [rounded(LEAST_FACTOR * (MOST_FACTOR / LEAST_FACTOR) ** (i / (STOPS - 1))) for i in range(STOPS)]
HELD, AS_PLANNED = "plan held", "as planned"


class SettingControls:
    """Shows ``setting``; calls ``changed`` when a person turns a control, but not in ``show``.

    ``sliders.view`` has the three that are used most, ``view`` the others.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._is_showing = Guard()
        self._job: Job | None = None
        self.base: WhatIfSetting | None = None
        """The setting that the lab has; differences are shown from it."""
        self.bandwidth = _factor("Bandwidth", "Times the bandwidth of all links of the plan's network")
        self.latency = _factor("Latency", "Times the latency of all links of the plan's network")
        self.schedule = menu(
            "Schedule", MENU_WIDTH, LABEL_WIDTH, list(schedules), "In which order devices pass micro-batches on"
        )
        self.queueing = queueing_control(MENU_WIDTH, LABEL_WIDTH)
        of_job = {name: _job_control(option) for name, option in job_options().items()}
        self.microbatch, self.global_batch = (of_job.pop(name) for name in BATCH_OPTIONS)
        self.by_name: dict[str, Any] = {
            "bandwidth": self.bandwidth,
            "latency": self.latency,
            "microbatch": self.microbatch,
            "global_batch": self.global_batch,
            "schedule": self.schedule,
            **of_job,
            "queueing": self.queueing,
        }
        for control in self.by_name.values():
            control.observe(self._turned, "value")
        self.sliders = MainSliders({name: self.by_name[name] for name in MAIN})
        rarer = [control for name, control in self.by_name.items() if name not in MAIN]
        self.view = w.VBox(sorted(rarer, key=lambda control: isinstance(control, w.Checkbox)))
        self._mark()

    @property
    def setting(self) -> WhatIfSetting | None:
        """What the controls are turned to; None while there is no plan."""
        if self.base is None:
            return None
        values = {name: control.value for name, control in self.by_name.items()}
        return self.base.with_values(**values | {name: rounded(values[name]) for name in FACTORS})

    def set_base(self, job: Job | None, base: WhatIfSetting | None) -> None:
        """Show differences from ``base`` from now on; controls that were not turned are set to it."""
        before, shown = self.base, self.setting
        self._job, self.base = job, base
        if base is not None:
            turned = {} if before is None or shown is None else shown.changes_from(before)
            self.show(base.with_values(**turned))
        self._mark()

    def show(self, setting: WhatIfSetting) -> None:
        """Turn the controls to a setting; a batch that the job does not allow stays at the base's."""
        if self._job is None or self.base is None:
            return
        with self._is_showing:
            if setting.schedule not in self.schedule.options:  # registered after the menu was made, or unknown here
                self.schedule.options = [*self.schedule.options, setting.schedule]
            values = setting.values
            _offer(self.by_name["synchronise_every"], sorted({*EVERY, values["synchronise_every"]}), _iterations)
            values["microbatch"], values["global_batch"] = self._allowed(values["microbatch"], values["global_batch"])
            self._offer_batches(values["microbatch"], values["global_batch"])
            for name, control in self.by_name.items():
                control.value = values[name]
        self._mark()

    def _allowed(self, microbatch: int, batch: int) -> tuple[int, int]:
        assert self._job is not None
        assert self.base is not None
        before = self.base.job_changes
        planned = before["microbatch"], before["global_batch"]
        for pair in ((microbatch, batch), (planned[0], batch), (microbatch, planned[1])):
            if pair[1] % pair[0] == 0 and pair[1] // pair[0] >= self._job.n_replicas:
                return pair
        return planned

    def _turned(self, change: dict[str, Any]) -> None:
        if self._is_showing or self.base is None:
            return
        if change["owner"] in (self.microbatch, self.global_batch):
            with self._is_showing:
                self._offer_batches(self.microbatch.value, self.global_batch.value)
        self._mark()
        self._changed()

    def _offer_batches(self, microbatch: int, batch: int) -> None:
        assert self._job is not None
        assert self.base is not None
        _offer(self.microbatch, microbatches_of(self._job, batch, microbatch), _sequences)
        planned = self.base.job_changes["global_batch"]
        _offer(self.global_batch, batches_of(self._job, microbatch, planned, batch), _sequences)

    def _mark(self) -> None:
        """Mark the controls that differ from the base; without a base nothing can be turned."""
        shown = self.setting
        moved = {} if shown is None or self.base is None else shown.changes_from(self.base)
        for name, control in self.by_name.items():
            control.disabled = self.base is None
            mark(control, MOVED, name in moved)
        base = None if self.base is None else self.base.values
        self.sliders.show(base, "" if base is not None else "There is no plan to ask this of yet")


def _offer(control: w.SelectionSlider, values: list[int], text: Callable[[int], str]) -> None:
    """Offer other values; the slider keeps its value where that is among them."""
    options = [(text(value), value) for value in values]
    if tuple(options) == tuple(control.options):
        return
    kept = control.value
    with control.hold_sync():  # not hold_trait_notifications: that would check the index against the options before
        control.options = options
        control.index = values.index(kept) if kept in values else 0


def _job_control(option: Option) -> w.ValueWidget:
    if option.name in SLIDERS:
        return _slider(label_of(option).capitalize(), option.help)
    control = control_for(option, width=MENU_WIDTH, label_width=LABEL_WIDTH)
    if isinstance(control, w.Checkbox):
        control.layout = w.Layout(width="auto", margin="2px 2px 2px 106px")
    return control


def _sequences(n: int) -> str:
    return f"{n:,} seq"


def _iterations(n: int) -> str:
    return "iteration" if n == 1 else f"{n:,} iterations"


def _factor(name: str, tooltip: str) -> w.FloatLogSlider:
    return labelled(
        w.FloatLogSlider,
        f"{name} ×",
        SLIDER_WIDTH,
        LABEL_WIDTH,
        1.0,
        base=10,
        min=-1.0,
        max=1.0,
        step=0.02,
        readout_format=".3g",
        tooltip=f"{tooltip}, from {LEAST_FACTOR:g} to {MOST_FACTOR:g}",
        continuous_update=True,
    )


def _slider(label: str, tooltip: str) -> w.SelectionSlider:
    return labelled(
        w.SelectionSlider, label, SLIDER_WIDTH, LABEL_WIDTH, options=[("–", 1)], tooltip=tooltip, continuous_update=True
    )


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
                    "label": MAIN[name][0],
                    "rest": MAIN[name][1],
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
