"""What the lower halves of the chart show: measured bars, or a second prediction of the same shape."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import ipywidgets as w
from traitlets import TraitError

from dtfm_lab.domain.units import format_s
from dtfm_lab.simulation import schedules, simulate
from dtfm_lab.widgets.schedule.predictions import Prediction

MEASURED = "measured"
SCHEDULE = "schedule: "
PINNED = "pinned: "
MOST_PINS = 6


@dataclass(frozen=True, eq=False)
class Second:
    """A prediction to compare with, and what it is called."""

    name: str
    prediction: Prediction


class CompareWith:
    """``control`` chooses, ``pin`` keeps the prediction at hand to choose it later; ``changed`` hears of a choice."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._pins: dict[str, Prediction] = {}
        self._at_hand: Prediction | None = None
        self.control = w.Dropdown(
            options=[("measured bars", MEASURED)],
            description="Compare with",
            layout=w.Layout(width="330px"),
            style={"description_width": "105px"},
            tooltip="What the lower halves of the rows show",
        )
        self.pin = w.Button(
            description="Pin",
            icon="thumb-tack",
            disabled=True,
            tooltip="Keep this prediction, to compare another one with it",
            layout=w.Layout(width="80px"),
        )
        self.control.observe(lambda _: self._changed(), "value")
        self.pin.on_click(lambda _: self._keep())

    @property
    def chosen(self) -> str:
        return str(self.control.value)

    def choose(self, value: str) -> None:
        """A choice that is not offered is ignored."""
        with suppress(TraitError):
            self.control.value = value

    def offer(self, at_hand: Prediction | None) -> None:
        """Every schedule on the plan at hand, and pinned predictions of as many stages and replicas."""
        self._at_hand = at_hand
        self.pin.disabled = at_hand is None
        options: list[tuple[str, Any]] = [("measured bars", MEASURED)]
        if at_hand is not None:
            options += [(label, PINNED + label) for label, pin in self._pins.items() if _alike(pin, at_hand)]
            options += [(f"{name}, same plan and choices", SCHEDULE + name) for name in schedules]
        chosen = self.chosen
        if options != list(self.control.options):
            values = [value for _, value in options]
            self.control.options = options
            self.control.value = chosen if chosen in values else MEASURED

    def asked(self) -> Callable[[], Second] | None:
        """What makes the second prediction that is chosen now, for the one at hand; None for measured bars.

        To be called on whatever thread: it is heavy, and raises LabError.
        """
        at_hand, chosen = self._at_hand, self.chosen
        if at_hand is None or chosen == MEASURED:
            return None
        if chosen.startswith(PINNED):
            name = chosen.removeprefix(PINNED)
            return partial(Second, name, self._pins[name])
        return partial(_played, at_hand, chosen.removeprefix(SCHEDULE))

    def _keep(self) -> None:
        at_hand = self._at_hand
        if at_hand is None:
            return
        known = next((name for name, pin in self._pins.items() if pin is at_hand), None)
        if known is not None:
            self.choose(PINNED + known)
            return
        label = f"{at_hand.trace.context.schedule}, {format_s(at_hand.trace.iteration_s)}"
        number = 1
        while (name := label if number == 1 else f"{label} ({number})") in self._pins:
            number += 1
        self._pins[name] = at_hand
        while len(self._pins) > MOST_PINS:
            del self._pins[next(iter(self._pins))]
        self.offer(at_hand)
        self.choose(PINNED + name)


def _played(at_hand: Prediction, schedule: str) -> Second:
    """Another schedule under what the one at hand was predicted from."""
    context = at_hand.trace.context
    # what follows a run is predicted from its profile, and so is what it is compared with
    like = None if context.clock == "model" else context
    trace = simulate(at_hand.plan, schedule, like=like, queueing=context.queueing)
    return Second(schedule, Prediction.of(at_hand.plan, trace))


def _alike(one: Prediction, other: Prediction) -> bool:
    return one.rows.shape == other.rows.shape
