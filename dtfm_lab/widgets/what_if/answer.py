"""What one iteration of a plan comes to under a setting. It contains no widget."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from dtfm_lab import lab
from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.trace import CAUSES, Trace
from dtfm_lab.planning import Cancellation, price_placement
from dtfm_lab.widgets.lab_state import roles_of
from dtfm_lab.widgets.planner.short_searches import replanned
from dtfm_lab.widgets.schedule.predictions import ChartedPrediction
from dtfm_lab.widgets.what_if.setting import WhatIfSetting, n_actions

MOST_KEPT = 12
"""Answers that are kept, each with all that a chart draws of it: sliders go back and forth between a few."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What one iteration comes to. None where a number is unknown, such as a price."""

    setting: WhatIfSetting
    prediction: ChartedPrediction = field(compare=False, repr=False)
    iteration_s: float
    tokens_per_s: float | None
    mfu: float | None
    bubble: float
    """Share of device time without computing."""
    cause: str
    """The largest cause of the bubble."""
    parts: dict[str, float]
    """Seconds of an iteration that a device computes, and that it waits for each cause, the mean of all devices."""
    communication_s: float
    """The paper's cost of the placement."""
    peak_bytes: float
    """Peak memory of the device that lacks most, or has least to spare."""
    limit_bytes: float
    """Memory of that device."""
    worst: str
    """Name of that device."""
    n_over: int
    """Number of devices whose memory does not suffice."""
    price_per_million_tokens: float | None

    @classmethod
    def of(cls, plan: Plan, setting: WhatIfSetting, trace: Trace) -> Answer:
        """What the trace of the plan under the setting says."""
        tried = setting.on(plan)
        prediction = ChartedPrediction.of(tried, trace)
        known, bubble, held = trace.metrics, trace.bubble, prediction.memory
        waits = {cause.value: float(bubble[f"{cause}_s"].mean()) for cause in CAUSES}
        parts = {"computing": float(bubble["busy_s"].mean()), **waits}
        position, replica = held.worst
        return cls(
            setting=setting,
            prediction=prediction,
            iteration_s=trace.iteration_s,
            tokens_per_s=known["tokens_per_s"],
            mfu=known["mfu"],
            bubble=sum(waits.values()) / whole_s if (whole_s := sum(parts.values())) > 0 else 0.0,
            cause=max(waits, key=lambda cause: waits[cause]),
            parts=parts,
            communication_s=price_placement(tried.topology, tried.job, tried.placement.devices).total_s,
            peak_bytes=float(held.peak_bytes[position, replica]),
            limit_bytes=float(held.limit_bytes[position, replica]),
            worst=held.devices[position][replica],
            n_over=int((held.over_bytes > 0).sum()),
            price_per_million_tokens=known["price_per_million_tokens"],
        )


class PlannedAnew(NamedTuple):
    """A plan that suits a setting, and its iteration."""

    plan: Plan
    trace: Trace

    @property
    def tasks(self) -> dict[str, list[int]]:
        """[stage, replica] of each device that serves, by its name."""
        return roles_of(self.plan)


class Answers:
    """Answers about one plan; the newest are kept. Any thread may call it."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.trace = lru_cache(MOST_KEPT)(lambda setting: lab.simulate(setting.on(plan), **setting.simulated_with))
        """Return the iteration under a setting. Raises a LabError where that is not possible."""
        self.answer = lru_cache(MOST_KEPT)(lambda setting: Answer.of(plan, setting, self.trace(setting)))
        """Return the answer to a setting. Raises a LabError where that is not possible."""

    def forget(self) -> None:
        """Compute all answers anew when they are asked for."""
        self.trace.cache_clear()
        self.answer.cache_clear()

    def with_base(self, setting: WhatIfSetting, base: WhatIfSetting) -> tuple[Answer, Answer | None]:
        """Return the answer and the base's, None where the base is not possible.

        Raises a LabError where the setting is not possible.
        """
        try:
            before = self.answer(base)
        except LabError:
            before = None
        return self.answer(setting), before

    def count_actions(self, setting: WhatIfSetting) -> int:
        """Return about how many actions an iteration has; 0 where the answer will be an error."""
        try:
            return n_actions(setting.on(self.plan))
        except LabError:
            return 0

    def quick(self, setting: WhatIfSetting) -> float | None:
        """Return the seconds of an iteration alone; None where the setting is not possible."""
        try:
            return self.trace(setting).iteration_s
        except LabError:  # as where a schedule lacks memory
            return None

    def planned_anew(self, setting: WhatIfSetting, cancelled: Cancellation) -> PlannedAnew | None:
        """Return what a short search from the plan finds under a setting; None where that fails."""
        try:
            held = setting.on(self.plan)
            found = replanned(self.plan, held.topology, held.job, cancelled)
            return (
                None if found is None else PlannedAnew(found.plan, lab.simulate(found.plan, **setting.simulated_with))
            )
        except LabError:
            return None
