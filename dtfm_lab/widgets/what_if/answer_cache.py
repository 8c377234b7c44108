"""AnswerCache about one plan, each computed once: what sliders ask for again and again."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import Any

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.plan import Plan
from dtfm_lab.widgets.what_if.setting import LEAST_FACTOR, MOST_FACTOR, Answer, Setting, iteration_s, rounded

MOST_KEPT = 1000
N_POINTS = 9
"""of a curve"""


def _factors() -> tuple[float, ...]:
    """From the middle to both ends, so that a curve is soon seen."""
    ladder = [rounded(LEAST_FACTOR * (MOST_FACTOR / LEAST_FACTOR) ** (i / (N_POINTS - 1))) for i in range(N_POINTS)]
    return tuple(sorted(ladder, key=lambda factor: (factor not in (LEAST_FACTOR, 1.0, MOST_FACTOR), factor)))


CURVE_FACTORS = _factors()


class AnswerCache:
    """Remembers; may be asked from a thread."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._kept: OrderedDict[Setting, Answer] = OrderedDict()
        self._seconds: OrderedDict[Setting, float | None] = OrderedDict()
        """of an iteration; None where it cannot be"""

    def forget(self) -> None:
        self._kept.clear()
        self._seconds.clear()

    def both(self, setting: Setting, base: Setting) -> tuple[Answer, Answer | None]:
        """The answer, and the base's to lay it beside, None where the base cannot be. Raises a LabError where the
        setting cannot be."""
        now = self.one(setting)
        try:
            return now, self.one(base)
        except LabError:
            return now, None

    def one(self, setting: Setting) -> Answer:
        """Raises a LabError where it cannot be."""
        answer = self._kept.get(setting)
        if answer is None:
            answer = Answer.of(self.plan, setting)
            _keep(self._kept, setting, answer)
            _keep(self._seconds, setting, answer.iteration_s)
        return answer

    def points(self, setting: Setting, axis: str) -> list[tuple[float, float]]:
        """(factor, seconds) of this axis that are known, all else as set."""
        along = ((factor, self._seconds.get(replace(setting, **{axis: factor}))) for factor in CURVE_FACTORS)
        return sorted((factor, seconds) for factor, seconds in along if seconds is not None)

    def next_factor(self, setting: Setting, axis: str) -> float | None:
        """The point to compute next; None when the curve is whole."""
        missing = (f for f in CURVE_FACTORS if replace(setting, **{axis: f}) not in self._seconds)
        return next(missing, None)

    def add_point(self, setting: Setting, axis: str, factor: float) -> None:
        at = replace(setting, **{axis: factor})
        try:
            _keep(self._seconds, at, iteration_s(self.plan, at))
        except LabError:  # as where memory leaves a schedule nothing to choose
            _keep(self._seconds, at, None)


def _keep(kept: OrderedDict[Any, Any], key: Setting, value: object) -> None:
    kept[key] = value
    while len(kept) > MOST_KEPT:
        kept.popitem(last=False)
