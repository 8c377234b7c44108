"""What one iteration of a plan comes to under a setting, and a cache of such answers. It contains no widget."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from dtfm_lab import figures, lab
from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.trace import CAUSES, Trace
from dtfm_lab.planning import Cancellation, price_placement
from dtfm_lab.widgets.planner.short_searches import replanned
from dtfm_lab.widgets.schedule.predictions import ChartedPrediction
from dtfm_lab.widgets.what_if.setting import FACTORS, WhatIfSetting, n_actions

MOST_KEPT = 1000
"""Answers that are kept; the oldest are dropped."""
MOST_DRAWN = 6
"""Predictions with all their bars that are kept."""
SWEPT = {"bandwidth": (0.1, 0.18, 0.32, 0.56, 1.0, 1.8, 3.2, 5.6, 10.0), "latency": (0.1, 1.0, 10.0)}
"""Factors that the figure shows."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What one iteration comes to. None where a number is unknown, such as a price."""

    setting: WhatIfSetting
    iteration_s: float
    tokens_per_s: float | None
    mfu: float | None
    bubble: float
    """Share of device time without computing."""
    cause: str
    """The largest cause of the bubble."""
    parts: dict[str, float]
    """Seconds of an iteration that a GPU computes, and that it waits for each cause, the mean of all GPUs."""
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

    @property
    def fits(self) -> bool:
        """Whether every device has enough memory."""
        return self.n_over == 0

    @classmethod
    def read(cls, prediction: ChartedPrediction, setting: WhatIfSetting) -> Answer:
        """Read what a prediction under the setting comes to."""
        tried, trace, held = prediction.plan, prediction.trace, prediction.memory
        known, parts = trace.metrics, _parts(trace)
        waits = {cause.value: parts[cause.value] for cause in CAUSES}
        position, replica = held.worst
        return cls(
            setting=setting,
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


def predict(plan: Plan, setting: WhatIfSetting) -> ChartedPrediction:
    """Simulate the plan under the setting. Raises a LabError where that is not possible."""
    tried = setting.on(plan)
    return ChartedPrediction.of(tried, lab.simulate(tried, setting.schedule, queueing=setting.queueing))


def _parts(trace: Trace) -> dict[str, float]:
    frame = trace.bubble
    waits = {cause.value: float(frame[f"{cause}_s"].mean()) for cause in CAUSES}
    return {"computing": float(frame["busy_s"].mean()), **waits}


class AnswerCache:
    """Answers about one plan. They are kept, as sliders return to the same settings. Any thread may call it."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._answers: OrderedDict[WhatIfSetting, Answer] = OrderedDict()
        self._drawn: OrderedDict[WhatIfSetting, ChartedPrediction] = OrderedDict()

    def clear(self) -> None:
        """Drop every answer."""
        self._answers.clear()
        self._drawn.clear()

    def with_base(self, setting: WhatIfSetting, base: WhatIfSetting) -> tuple[Answer, Answer | None]:
        """Return the answer and the base's, None where the base is not possible.

        Raises a LabError where the setting is not possible.
        """
        try:
            before = self.answer(base)
        except LabError:
            before = None
        return self.answer(setting), before

    def answer(self, setting: WhatIfSetting) -> Answer:
        """Return the answer. Raises a LabError where the setting is not possible."""
        prediction, answer = self.prediction(setting), self._answers.get(setting)
        if answer is None:
            answer = Answer.read(prediction, setting)
            _keep(self._answers, setting, answer)
        return answer

    def prediction(self, setting: WhatIfSetting) -> ChartedPrediction:
        """Return all that a chart draws. Raises a LabError where the setting is not possible."""
        prediction = self._drawn.get(setting)
        if prediction is None:
            prediction = predict(self.plan, setting)
            _keep(self._drawn, setting, prediction, MOST_DRAWN)
        return prediction

    def count_actions(self, setting: WhatIfSetting) -> int:
        """Return about how many actions an iteration has; 0 where the answer will be an error."""
        try:
            return n_actions(setting.on(self.plan))
        except LabError:
            return 0

    def quick(self, setting: WhatIfSetting) -> float | None:
        """Return the seconds of an iteration alone; None where the setting is not possible."""
        known = self._answers.get(setting)
        try:
            return known.iteration_s if known is not None else self._seconds(self.plan, setting)
        except LabError:  # as where a schedule lacks memory
            return None

    def _seconds(self, plan: Plan, setting: WhatIfSetting) -> float:
        return lab.simulate(setting.on(plan), setting.schedule, queueing=setting.queueing).iteration_s

    def drawn(self, setting: WhatIfSetting) -> ChartedPrediction | None:
        """Return the prediction where it is still kept."""
        return self._drawn.get(setting)

    def planned_anew(self, setting: WhatIfSetting, cancelled: Cancellation) -> float | None:
        """Return the seconds of an iteration after a short search from the plan; None where that fails."""
        try:
            held = setting.on(self.plan)
            found = replanned(self.plan, held.topology, held.job, cancelled)
            if found is None:
                return None
            return lab.simulate(found.plan, setting.schedule, queueing=setting.queueing).iteration_s
        except LabError:
            return None

    def figure(self, setting: WhatIfSetting) -> go.Figure:
        """Return a figure of the iteration over both factors, all else as in the setting. This is slow."""
        held = {name: value for name, value in setting.values.items() if name not in FACTORS}
        return figures.sweep(lab.sweep(self.plan, **held | SWEPT), x="bandwidth")


def _keep(kept: OrderedDict[Any, Any], key: WhatIfSetting, value: object, most: int = MOST_KEPT) -> None:
    kept[key] = value
    while len(kept) > most:
        kept.popitem(last=False)
