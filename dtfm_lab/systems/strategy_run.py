"""One system's plan run for real, beside its prediction and with its losses."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dtfm_lab.domain.trace import Trace
from dtfm_lab.domain.units import FloatArray
from dtfm_lab.systems.outcome import Outcome

SMOOTHED = 5
"""Iterations whose losses are averaged: each iteration's, and those of the four before it."""


@dataclass(frozen=True, eq=False, kw_only=True)
class StrategyRun:
    """A system's best plan, what it was predicted to take, and what workers took; a reason where none ran it."""

    outcome: Outcome
    predicted: Trace | None = None
    """What ran, predicted by ``simulate(plan, like=measured)``: the same clock, and the profile taken before it."""
    measured: Trace | None = None
    reason: str = ""
    """Why nothing was measured, or not all of it."""

    def __repr__(self) -> str:
        return f"<StrategyRun of {self.name}: {self.reason or f'{self.measured_s:.4g} s an iteration'}>"

    @property
    def name(self) -> str:
        """The system's name in the registry, with the assumptions that were changed."""
        return self.outcome.name

    @property
    def predicted_s(self) -> float | None:
        """Predicted seconds of an iteration of what ran."""
        return None if self.predicted is None else self.predicted.iteration_s

    @property
    def measured_s(self) -> float | None:
        """Measured seconds of an iteration: the median; with local updates the mean of H, of which one averages."""
        return None if self.measured is None else self.measured.iteration_s

    @property
    def is_part(self) -> bool:
        """Whether a part of a plan ran that is too large for this machine."""
        return self.measured is not None and self.measured.context.rehearsed is not None

    @property
    def error(self) -> float | None:
        """Measured minus predicted, as a share of the prediction."""
        if not self.predicted_s or self.measured_s is None:
            return None
        return self.measured_s / self.predicted_s - 1

    @cached_property
    def losses(self) -> FloatArray:
        """(iterations,) mean training loss of the last ``SMOOTHED`` iterations, of fewer at the beginning."""
        raw = [] if self.measured is None else list(self.measured.context.losses)
        windows = [raw[max(0, end - SMOOTHED) : end] for end in range(1, len(raw) + 1)]
        return np.array([float(np.mean(window)) for window in windows], dtype=np.float64)

    @property
    def seconds(self) -> FloatArray:
        """(iterations,) seconds of the run's clock until each iteration is done, all as long as ``measured_s``."""
        return np.arange(1.0, len(self.losses) + 1.0, dtype=np.float64) * (self.measured_s or 0.0)

    def time_to_loss(self, loss: float) -> float | None:
        """Seconds until the smoothed loss is first below this; None where it was not in this run."""
        below = np.flatnonzero(self.losses < loss)
        return float(self.seconds[below[0]]) if len(below) else None

    def to_dict(self) -> dict[str, Any]:
        """The run as plain values; what it has in common with others, such as the order, is in ``StrategyRuns``."""
        ran = None if self.measured is None else self.measured.context
        return {
            "system": self.name,
            "title": self.outcome.title,
            "model_s": self.outcome.iteration_s,
            "predicted_s": self.predicted_s,
            "measured_s": self.measured_s,
            "error": self.error,
            "iterations": None if self.measured is None else self.measured.n_iterations,
            "final_loss": float(self.losses[-1]) if len(self.losses) else None,
            "mathematics": self.outcome.strategy.mathematics,
            "ran": "" if ran is None else "all of it" if ran.rehearsed is None else ran.rehearsed.sentence,
            "stand_in": "" if ran is None else ran.stand_in,
            "stretched": None if ran is None else ran.stretched,
            "late": None if ran is None else ran.late_messages,
            "overran": None if ran is None else ran.overruns,
            "reason": self.reason,
        }
