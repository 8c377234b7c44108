"""Compare the predicted and the measured history of one availability: by how much goodput differs, why, and in which
interval."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from dtfm_lab.domain.errors import TraceError
from dtfm_lab.domain.units import FloatArray, format_s, signed_share
from dtfm_lab.extensions.elasticity.history import History, TimeUse

SAME = 1e-3
"""The predicted and the measured seconds of changes count as equal if they differ by less than this share of the whole
time."""
SHOWN = (TimeUse.TRAINING, TimeUse.REDONE, TimeUse.RECONFIGURING, TimeUse.IDLE)


@dataclass(frozen=True, eq=False)
class HistoryComparison:
    """The predicted and the measured history of the same availability. Raises TraceError if their availabilities
    differ."""

    predicted: History
    measured: History

    def __post_init__(self) -> None:
        one, other = self.predicted.availability, self.measured.availability
        if one.end_s != other.end_s or one.changes != other.changes:
            raise TraceError(
                f"histories of {one.name}, {one.end_s:g} s, and {other.name}, {other.end_s:g} s; wanted the same hours"
            )

    def __repr__(self) -> str:
        return f"<HistoryComparison: {self.text}>"

    @property
    def goodput_error(self) -> float:
        """Measured samples per second divided by predicted ones, minus one. NaN if none were predicted."""
        return _error(self.predicted.goodput, self.measured.goodput)

    @property
    def pace_error(self) -> float:
        """Measured samples per second of useful training divided by predicted ones, minus one. NaN if none were
        predicted. Other plans or slower steps cause it."""
        return _error(_pace(self.predicted), _pace(self.measured))

    @property
    def time_error(self) -> float:
        """Measured seconds of useful training divided by predicted ones, minus one. Slower changes and lost work cause
        it.

        ``1 + goodput_error`` is the product of ``1 + pace_error`` and ``1 + time_error``.
        """
        return _error(self.predicted.seconds["training"], self.measured.seconds["training"])

    @property
    def text(self) -> str:
        """Both goodputs and why they differ, in one line."""
        was, now = self.predicted, self.measured
        lost_s = now.seconds["reconfiguring"] - was.seconds["reconfiguring"]
        changes = f"changes took {format_s(abs(lost_s))} {'more' if lost_s > 0 else 'less'}"
        if abs(lost_s) < SAME * now.availability.end_s:
            changes = "changes took as long as predicted"
        return (
            f"measured {now.goodput:.4g} samples per second, predicted {was.goodput:.4g} "
            f"({signed_share(self.goodput_error)}): "
            f"{signed_share(self.pace_error)} from the speed of steps, {signed_share(self.time_error)} "
            f"from the time spent on them; {changes}"
        )

    def to_frame(self) -> pd.DataFrame:
        """Return one row per interval between two changes of the fleet.

        Columns are ``start_s``, ``end_s``, and for both histories the useful steps that end in the interval, and its
        seconds of training, redone, reconfiguring and idle.
        """
        times = [change.time_s for change in self.predicted.availability.changes]
        end_s = self.predicted.availability.end_s
        # Both histories on the same edges, or their rows could not be compared.
        edges = np.unique([0.0, *(time for time in times if 0 < time < end_s), end_s])
        columns: dict[str, FloatArray] = {"start_s": edges[:-1], "end_s": edges[1:]}
        for which, history in (("predicted", self.predicted), ("measured", self.measured)):
            columns[f"{which}_steps"] = _steps(history, edges)
        for state in SHOWN:
            for which, history in (("predicted", self.predicted), ("measured", self.measured)):
                columns[f"{which}_{state.name.lower()}_s"] = _seconds(history, state, edges)
        return pd.DataFrame(columns)


def _pace(history: History) -> float:
    training_s = history.seconds["training"]
    return history.samples / training_s if training_s else 0.0


def _error(predicted: float, measured: float) -> float:
    return measured / predicted - 1 if predicted else np.nan


def _steps(history: History, edges: FloatArray) -> FloatArray:
    which = np.clip(np.searchsorted(edges, history.end_s, side="left") - 1, 0, len(edges) - 2)
    return np.asarray(np.bincount(which, weights=history.steps, minlength=len(edges) - 1).astype(float))


def _seconds(history: History, state: TimeUse, edges: FloatArray) -> FloatArray:
    lasts = np.where(history.state == state, history.end_s - history.start_s, 0.0)
    so_far = np.interp(edges, np.append(0.0, history.end_s), np.append(0.0, np.cumsum(lasts)))
    return np.asarray(np.diff(so_far))
