"""The sliders and menus of a Setting: they offer what the job allows."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import ipywidgets as w

from dtfm_lab.domain.job import COMPRESSIONS, Job
from dtfm_lab.domain.schedule import synchronisations
from dtfm_lab.simulation import schedules
from dtfm_lab.widgets.schedule.choice_controls import QUEUES
from dtfm_lab.widgets.what_if.setting import (
    FACTORS,
    LEAST_FACTOR,
    MOST_FACTOR,
    Setting,
    batches_of,
    everies_of,
    microbatches_of,
    rounded,
)

MOVED = "dtfm-moved"
"""class of a control that differs from the plan"""


class SettingControls:
    """Shows ``setting``; calls ``changed`` when a person turns something, and not when it is shown another one."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._filling = False
        self._job: Job | None = None
        self.base: Setting | None = None
        self.bandwidth = _factor("Bandwidth", "Times the bandwidth of all links of the plan's network")
        self.latency = _factor("Latency", "Times the latency of all links of the plan's network")
        self.microbatch = _steps("Micro-batch", "Sequences of a pipeline step; what the batch can be divided into")
        self.global_batch = _steps("Batch", "Sequences of an iteration, over all replicas")
        self.synchronise_every = _steps(
            "Every", "Iterations from one averaging to the next (H); between two, replicas take their steps alone"
        )
        self.schedule = _menu(list(schedules), "Schedule", "In which order devices pass micro-batches on")
        self.queueing = _menu(
            list(QUEUES.items()), "Messages", "Who waits: messages of a pair of devices, or of a card"
        )
        self.synchronisation = _menu(
            list(synchronisations), "Averaging", "How the replicas of a stage average their gradients"
        )
        self.compression = _menu(
            list(COMPRESSIONS), "Compression", "What activations and gradients are rounded to on their way"
        )
        self.recompute = w.Checkbox(
            False,
            description="Recompute activations",
            indent=False,
            layout=w.Layout(width="auto", margin="2px 2px 2px 106px"),
            tooltip="Keep a stage's input only and run its forward again before the backward: less memory, more time",
        )
        self._by_field: dict[str, Any] = {
            "bandwidth": self.bandwidth,
            "latency": self.latency,
            "microbatch": self.microbatch,
            "global_batch": self.global_batch,
            "schedule": self.schedule,
            "synchronisation": self.synchronisation,
            "synchronise_every": self.synchronise_every,
            "compression": self.compression,
            "queueing": self.queueing,
            "recompute": self.recompute,
        }
        for control in self._by_field.values():
            control.observe(self._turned, "value")
        self.view = w.VBox(list(self._by_field.values()))
        self._mark()

    @property
    def setting(self) -> Setting | None:
        """None while there is no plan."""
        if self.base is None:
            return None
        values = {what: control.value for what, control in self._by_field.items()}
        return Setting(**values | {what: rounded(values[what]) for what in FACTORS})

    def rest_on(self, job: Job | None, base: Setting | None) -> None:
        """From now on differences are those to ``base``; what was not turned stays on the base."""
        before, shown = self.base, self.setting
        self._job, self.base = job, base
        if base is not None:
            turned = {} if before is None or shown is None else shown.beside(before)
            self.show(replace(base, **turned))
        self._mark()

    def show(self, setting: Setting) -> None:
        """Turn to a setting; what the job does not allow stays on the base, without a word."""
        if self._job is None or self.base is None:
            return
        with self._quietly():
            _offer_too(self.schedule, setting.schedule)
            for what in (*FACTORS, "schedule", "synchronisation", "compression", "queueing", "recompute"):
                self._by_field[what].value = getattr(setting, what)
            _offer(self.synchronise_every, everies_of(setting.synchronise_every), _iterations)
            self.synchronise_every.value = setting.synchronise_every
            microbatch, batch = self._allowed(setting)
            self._offer_batches(microbatch, batch)
            self.microbatch.value, self.global_batch.value = microbatch, batch
        self._mark()

    def _allowed(self, setting: Setting) -> tuple[int, int]:
        assert self._job is not None
        assert self.base is not None
        for microbatch, batch in (
            (setting.microbatch, setting.global_batch),
            (self.base.microbatch, setting.global_batch),
            (setting.microbatch, self.base.global_batch),
        ):
            if batch % (self._job.n_replicas * microbatch) == 0:
                return microbatch, batch
        return self.base.microbatch, self.base.global_batch

    def _turned(self, change: dict[str, Any]) -> None:
        if self._filling or self.base is None:
            return
        if change["owner"] in (self.microbatch, self.global_batch):
            with self._quietly():
                self._offer_batches(self.microbatch.value, self.global_batch.value)
        self._mark()
        self._changed()

    def _offer_batches(self, microbatch: int, batch: int) -> None:
        assert self._job is not None
        assert self.base is not None
        _offer(self.microbatch, microbatches_of(self._job, batch, microbatch), _sequences)
        _offer(self.global_batch, batches_of(self._job, microbatch, self.base.global_batch, batch), _sequences)

    def _mark(self) -> None:
        """Names of what differs from the base stand out; nothing can be turned without one."""
        shown = self.setting
        moved = {} if shown is None or self.base is None else shown.beside(self.base)
        for what, control in self._by_field.items():
            control.disabled = self.base is None
            (control.add_class if what in moved else control.remove_class)(MOVED)

    @contextlib.contextmanager
    def _quietly(self) -> Iterator[None]:
        before, self._filling = self._filling, True
        try:
            yield
        finally:
            self._filling = before


def _offer(control: w.SelectionSlider, values: list[int], said: Callable[[int], str]) -> None:
    """Other options, the value kept where it is among them."""
    options = [(said(value), value) for value in values]
    if tuple(options) == tuple(control.options):
        return
    kept = control.value
    with control.hold_trait_notifications():
        control.options = options
        control.index = values.index(kept) if kept in values else 0


def _offer_too(menu: w.Dropdown, name: str) -> None:
    """A name that was registered after the menu was made, or is of no schedule here, which the answer then says."""
    if name not in menu.options:
        menu.options = [*menu.options, name]


def _sequences(n: int) -> str:
    return f"{n:,} seq"


def _iterations(n: int) -> str:
    return "each" if n == 1 else f"{n:,} iter"


STYLE = {"description_width": "98px"}
WIDE = "390px"


def _factor(name: str, tooltip: str) -> w.FloatLogSlider:
    return w.FloatLogSlider(
        1.0,
        base=10,
        min=-1.0,
        max=1.0,
        step=0.02,
        description=f"{name} ×",
        readout_format=".3g",
        tooltip=f"{tooltip}, from {LEAST_FACTOR:g} to {MOST_FACTOR:g}",
        continuous_update=True,
        style=STYLE,
        layout=w.Layout(width=WIDE),
    )


def _steps(name: str, tooltip: str) -> w.SelectionSlider:
    return w.SelectionSlider(
        options=[("–", 1)],
        description=name,
        tooltip=tooltip,
        continuous_update=True,
        style=STYLE,
        layout=w.Layout(width=WIDE),
    )


def _menu(options: Any, name: str, tooltip: str) -> w.Dropdown:
    return w.Dropdown(options=options, description=name, tooltip=tooltip, style=STYLE, layout=w.Layout(width="310px"))
