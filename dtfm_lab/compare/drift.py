"""Where an iteration leaves its prediction, and whether the error grows from iteration to iteration."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dtfm_lab.compare.attribution import ACTION
from dtfm_lab.compare.intervals import Estimate, theil_sen
from dtfm_lab.domain.schedule import Action, Kind
from dtfm_lab.domain.units import format_s, plain_rows

FEWEST = 5
"""Fewest iterations from which growth is estimated: by chance, five rise or fall in a row once in 60 times."""
SHARE = 0.01
"""Share of the predicted iteration from which an action counts as late or early."""
FIRST = ["stage", "replica", "device", "link", "action", "at_s", "late_s"]


@dataclass(frozen=True, eq=False)
class Drift:
    """Where each device and each iteration leaves its prediction."""

    threshold_s: float
    """Seconds of error at its end from which an action counts as having left the prediction."""
    devices: pd.DataFrame
    """One row a device that leaves the prediction, the first on top: stage and replica of the action, device, link
    ("a -> b", empty for a computation), action, at_s (when it ended) and late_s (negative: too early), medians over
    iterations."""
    iterations: pd.DataFrame
    """One row an iteration: late_s of its end, and the columns of ``devices`` for its first action that left the
    prediction, with late_s called first_late_s; missing where none did."""
    growth_s: Estimate
    """Seconds by which an iteration's lateness grows from one to the next: the median slope (Theil and Sen) with its
    95 % interval, infinitely wide for fewer than five iterations."""

    @property
    def grows(self) -> bool:
        """Whether the error changes over the iterations, by more than chance and by more than the threshold in all."""
        n = len(self.iterations)
        sure = self.growth_s.low > 0 or self.growth_s.high < 0
        return sure and abs(self.growth_s.value) * (n - 1) > self.threshold_s

    @property
    def sentence(self) -> str:
        close = f"within {format_s(self.threshold_s)}"
        if not len(self.devices):
            begin = f"every action ends {close} of its prediction"
        else:
            first = self.devices.iloc[0]
            where = f" ({first['link']})" if first["link"] else ""
            begin = (
                f"actions end {close} of their predictions until {format_s(first['at_s'])}, when {first['action']}"
                f"{where} ends on {first['device']} {format_s(abs(first['late_s']))} "
                f"{'late' if first['late_s'] > 0 else 'early'}"
            )
        return f"{begin}; {self.growth}" if self.growth else begin

    @property
    def growth(self) -> str:
        """Whether later iterations are further off, in words; empty for fewer than five."""
        if (n := len(self.iterations)) < FEWEST:
            return ""
        if not self.grows:
            return f"over {n} iterations the error neither grows nor shrinks"
        way = "later" if self.growth_s.value > 0 else "earlier"
        return f"each iteration ends {format_s(abs(self.growth_s.value))} {way} than the one before"

    def summary(self) -> dict[str, Any]:
        """The fields as plain types."""
        growth = {name: value if np.isfinite(value) else None for name, value in self.growth_s._asdict().items()}
        return {
            "threshold_s": self.threshold_s,
            "devices": self.devices.to_dict("records"),
            "iterations": plain_rows(self.iterations.reset_index()),
            "growth_s": growth,
            "grows": self.grows,
            "sentence": self.sentence,
        }


def drift(rows: pd.DataFrame, iterations: pd.DataFrame, predicted_iteration_s: float) -> Drift:
    """The drift of ``Comparison.rows`` and ``Comparison.iterations``."""
    threshold_s = SHARE * predicted_iteration_s
    ends = pd.DataFrame(
        {
            **{name: rows[name] for name in ["iteration", *ACTION, "device", "link"]},
            "at_s": rows["end_s_measured"],
            "late_s": -rows["end_s_error"],
        }
    )
    usual = ends.groupby(ACTION, sort=False, as_index=False).agg(
        {"device": "first", "link": "first", "at_s": "median", "late_s": "median"}
    )
    devices = _first(usual, "device", threshold_s).sort_values("at_s", kind="stable", ignore_index=True)[FIRST]
    late_s = -iterations["error_s"]
    each = (
        _first(ends, "iteration", threshold_s).set_index("iteration")[FIRST].rename(columns={"late_s": "first_late_s"})
    )
    numbers = np.unique(rows["iteration"])
    table = pd.DataFrame({"late_s": late_s.to_numpy()}, index=pd.Index(numbers, name="iteration")).join(each)
    return Drift(threshold_s, devices, table, _growth(table["late_s"]))


def _first(ends: pd.DataFrame, by: str, threshold_s: float) -> pd.DataFrame:
    """The first action of each device or iteration that ended too late or too early."""
    off = ends[ends["late_s"].abs() > threshold_s].sort_values("at_s", kind="stable").drop_duplicates(by)
    written = [_written(row) for row in off[ACTION].itertuples(index=False)]
    return off.assign(action=pd.Series(written, index=off.index, dtype=object))


def _written(row: Any) -> str:
    return str(Action(row.stage, Kind(row.kind), *(None if n < 0 else n for n in (row.microbatch, row.peer))))


def _growth(late_s: pd.Series) -> Estimate:
    if len(late_s) < FEWEST:
        return Estimate(0.0, -np.inf, np.inf)
    found = theil_sen(late_s.index.to_numpy(), late_s.to_numpy())
    return Estimate(float(found.slope), float(found.low_slope), float(found.high_slope))
