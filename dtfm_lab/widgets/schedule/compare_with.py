"""The choice of what the lower halves of the chart show: measured bars, or a second prediction of the same shape."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from traitlets import TraitError

from dtfm_lab.domain.units import format_s
from dtfm_lab.simulation import schedules, simulate
from dtfm_lab.widgets.controls import button, menu
from dtfm_lab.widgets.schedule.predictions import ChartedPrediction

MEASURED = "measured"
SCHEDULE = "schedule: "
PINNED = "pinned: "
MOST_PINS = 6


@dataclass(frozen=True, eq=False)
class SecondPrediction:
    """A prediction to compare with, and its name on the screen."""

    name: str
    prediction: ChartedPrediction


class CompareWith:
    """``control`` chooses, ``pin`` keeps the current prediction for later, ``changed`` is called on a choice."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._pins: dict[str, ChartedPrediction] = {}
        self._current: ChartedPrediction | None = None
        self.control = menu(
            "Compare with", "330px", "105px", [("measured bars", MEASURED)], "What the lower halves of the rows show"
        )
        self.pin = button(
            "Pin", "thumb-tack", "Keep this prediction, to compare another one with it", "80px", disabled=True
        )
        self.control.observe(lambda _: self._changed(), "value")
        self.pin.on_click(lambda _: self._keep())

    @property
    def chosen(self) -> str:
        """``measured``, ``schedule: NAME`` or ``pinned: NAME``."""
        return str(self.control.value)

    def choose(self, value: str) -> None:
        """Choose one of the offered values; any other is ignored."""
        with suppress(TraitError):
            self.control.value = value

    def offer(self, current: ChartedPrediction | None) -> None:
        """Offer every schedule on the current plan, and pinned predictions of as many stages and replicas."""
        self._current = current
        self.pin.disabled = current is None
        options: list[tuple[str, Any]] = [("measured bars", MEASURED)]
        if current is not None:
            options += [(label, PINNED + label) for label, pin in self._pins.items() if _alike(pin, current)]
            options += [(f"{name}, same plan and choices", SCHEDULE + name) for name in schedules]
        chosen = self.chosen
        if options != list(self.control.options):
            values = [value for _, value in options]
            self.control.options = options
            self.control.value = chosen if chosen in values else MEASURED

    def computation(self) -> Callable[[], SecondPrediction] | None:
        """Return a function that computes the chosen second prediction; None for measured bars.

        The function takes long, so a thread calls it. It may raise a LabError.
        """
        current, chosen = self._current, self.chosen
        if current is None or chosen == MEASURED:
            return None
        if chosen.startswith(PINNED):
            name = chosen.removeprefix(PINNED)
            return partial(SecondPrediction, name, self._pins[name])
        return partial(_simulated, current, chosen.removeprefix(SCHEDULE))

    def _keep(self) -> None:
        current = self._current
        if current is None:
            return
        known = next((name for name, pin in self._pins.items() if pin is current), None)
        if known is not None:
            self.choose(PINNED + known)
            return
        label = f"{current.trace.context.schedule}, {format_s(current.trace.iteration_s)}"
        number = 1
        while (name := label if number == 1 else f"{label} ({number})") in self._pins:
            number += 1
        self._pins[name] = current
        while len(self._pins) > MOST_PINS:
            del self._pins[next(iter(self._pins))]
        self.offer(current)
        self.choose(PINNED + name)


def _simulated(current: ChartedPrediction, schedule: str) -> SecondPrediction:
    """Simulate another schedule with the durations and links of the current prediction."""
    context = current.trace.context
    # a prediction after a run uses the run's profile, so the second one must use it, too
    like = None if context.clock == "model" else context
    trace = simulate(current.plan, schedule, like=like, queueing=context.queueing)
    return SecondPrediction(schedule, ChartedPrediction.of(current.plan, trace))


def _alike(one: ChartedPrediction, other: ChartedPrediction) -> bool:
    return one.rows.shape == other.rows.shape
