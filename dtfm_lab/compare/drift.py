"""Find where an iteration departs from its prediction, and whether the error changes between iterations.

Three explanations of the errors of n iterations are tried. The errors stay the same, they shift at some iteration (once
or several times), or they grow by the same amount each time. The simplest explanation that fits is reported.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy

from dtfm_lab.compare.attribution import ACTION
from dtfm_lab.compare.errors import ConfidenceInterval, theil_sen
from dtfm_lab.domain.schedule import Action, Kind
from dtfm_lab.domain.units import FloatArray, IntArray, counted, format_s, plain_rows

if TYPE_CHECKING:
    import pandas as pd

FEWEST = 5
"""Minimum number of iterations to estimate growth or shifts. Five random values all rise or all fall once in 60
times."""
SHARE = 0.01
"""An action counts as late or early if it is off by more than this share of the predicted iteration."""
CHANCE = 0.01
"""Maximum probability of reporting a shift although all errors follow one normal distribution. It applies separately to
each number of shifts that is tried."""
ROUNDING = 1e-6
"""Standard errors are taken to be at least this share of the threshold; anything smaller is rounding."""
MOST_SHIFTS = 3
SHORTEST = 2
"""Minimum number of iterations before and after a shift. A single iteration could be an outlier."""
FIRST = ["stage", "replica", "device", "link", "action", "at_s", "late_s"]


class Shift(NamedTuple):
    """A lasting change of the error, from one iteration on."""

    iteration: int
    by_s: float
    """Seconds by which iterations are longer from then on; negative if they are shorter."""


@dataclass(frozen=True, eq=False)
class Drift:
    """Where each device and each iteration departs from its prediction."""

    threshold_s: float
    """An action has departed from the prediction if its end is off by more than this many seconds."""
    devices: pd.DataFrame
    """One row per device that departs from the prediction, the earliest first. Columns: stage and replica of the
    action, device, link ("a -> b", empty for a computation), action, at_s (when it ended) and late_s (negative: too
    early). Values are medians over iterations."""
    iterations: pd.DataFrame
    """One row per iteration: late_s of its end, and the columns of ``devices`` for its first action that departed from
    the prediction. The late_s of that action is named first_late_s. Values are missing if no action departed."""
    growth_s: ConfidenceInterval
    """Seconds by which lateness grows from one iteration to the next: the median slope (Theil and Sen) with its 95 %
    interval. The interval is infinitely wide for fewer than five iterations."""
    shifts: tuple[Shift, ...]
    """The lasting changes of the error, in order. Empty if the error stays the same or grows steadily."""

    @property
    def grows(self) -> bool:
        """True if the error grows or shrinks steadily, by more than chance and in total by more than the threshold."""
        n = len(self.iterations)
        sure = self.growth_s.low > 0 or self.growth_s.high < 0
        return not self.shifts and sure and abs(self.growth_s.value) * (n - 1) > self.threshold_s

    @property
    def sentence(self) -> str:
        close = f"within {format_s(self.threshold_s)}"
        if not len(self.devices):
            begin = f"every action ends {close} of its prediction"
        else:
            first = self.devices.iloc[0]
            where = f" ({first['link'].replace('->', '→')})" if first["link"] else ""
            begin = (
                f"actions end {close} of their predictions until {format_s(first['at_s'])}, when {first['action']}"
                f"{where} ends on {first['device']} {format_s(abs(first['late_s']))} "
                f"{'late' if first['late_s'] > 0 else 'early'}"
            )
        return f"{begin}; {self.growth}" if self.growth else begin

    @property
    def growth(self) -> str:
        """Sentence on whether later iterations are further off; empty for fewer than five iterations."""
        if (n := len(self.iterations)) < FEWEST:
            return ""
        if self.shifts:
            first, *later = (
                f"from iteration {shift.iteration} on {format_s(abs(shift.by_s))} "
                f"{'longer' if shift.by_s > 0 else 'shorter'}"
                for shift in self.shifts
            )
            return f"{first} than before" + "".join(f", {text}" for text in later)
        if not self.grows:
            return f"over {counted(n, 'iteration')} the error stays the same, within noise"
        way = "later" if self.growth_s.value > 0 else "earlier"
        return f"each iteration ends {format_s(abs(self.growth_s.value))} {way} than the one before"

    def summary(self) -> dict[str, Any]:
        """Return the fields as plain types."""
        growth = {name: value if np.isfinite(value) else None for name, value in self.growth_s._asdict().items()}
        return {
            "threshold_s": self.threshold_s,
            "devices": self.devices.to_dict("records"),
            "iterations": plain_rows(self.iterations.reset_index()),
            "growth_s": growth,
            "grows": self.grows,
            "shifts": [shift._asdict() for shift in self.shifts],
            "sentence": self.sentence,
        }


def drift(rows: pd.DataFrame, iterations: pd.DataFrame, predicted_iteration_s: float) -> Drift:
    """Find the drift in ``Comparison.rows`` and ``Comparison.iterations``."""
    import pandas as pd  # takes a while to load

    threshold_s = SHARE * predicted_iteration_s
    ends = pd.DataFrame(
        {
            **{name: rows[name] for name in ["iteration", *ACTION, "device", "link"]},
            "at_s": rows["end_s_measured"],
            "late_s": rows["end_s_error"],
        }
    )
    usual = ends.groupby(ACTION, sort=False, as_index=False).agg(
        {"device": "first", "link": "first", "at_s": "median", "late_s": "median"}
    )
    devices = _first(usual, "device", threshold_s).sort_values("at_s", kind="stable", ignore_index=True)[FIRST]
    late_s = iterations["error_s"]
    each = (
        _first(ends, "iteration", threshold_s).set_index("iteration")[FIRST].rename(columns={"late_s": "first_late_s"})
    )
    numbers = np.unique(rows["iteration"])
    table = pd.DataFrame({"late_s": late_s.to_numpy()}, index=pd.Index(numbers, name="iteration")).join(each)
    growth_s, late = ConfidenceInterval(0.0, -np.inf, np.inf), table["late_s"].to_numpy(np.float64)
    if len(late) >= FEWEST:
        slope = theil_sen(numbers, late)
        growth_s = ConfidenceInterval(*map(float, (slope.slope, slope.low_slope, slope.high_slope)))
    return Drift(threshold_s, devices, table, growth_s, _shifts(late, numbers, threshold_s))


def _first(ends: pd.DataFrame, by: str, threshold_s: float) -> pd.DataFrame:
    """Return the first action of each device or iteration that ended too late or too early."""
    import pandas as pd  # takes a while to load

    off = ends[ends["late_s"].abs() > threshold_s].sort_values("at_s", kind="stable").drop_duplicates(by)
    written = [_written(row) for row in off[ACTION].itertuples(index=False)]
    return off.assign(action=pd.Series(written, index=off.index, dtype=object))


def _written(row: Any) -> str:
    return str(Action(row.stage, Kind(row.kind), *(None if n < 0 else n for n in (row.microbatch, row.peer))))


def _shifts(late_s: FloatArray, numbers: IntArray, threshold_s: float) -> tuple[Shift, ...]:
    """Return the shifts in (iterations,) errors; none if a straight line explains them better (Schwarz's criterion)."""
    begins = [0, *_change_points(late_s, threshold_s), len(late_s)]
    parts = [late_s[a:b] for a, b in itertools.pairwise(begins)]
    if len(parts) == 1:
        return ()
    slope_s, level_s = np.polyfit(numbers, late_s, 1)
    # above 0, so that errors that are rounding alone have a logarithm
    floor = len(late_s) * (ROUNDING * threshold_s) ** 2
    spreads = np.array([_spread(*parts), _spread(late_s - slope_s * numbers - level_s)]) + floor
    # parameters of each explanation: levels and cuts, or slope and level
    n_numbers = np.array([2 * len(parts) - 1, 2])
    by_parts, by_line = len(late_s) * np.log(spreads) + n_numbers * np.log(len(late_s))
    if by_line < by_parts:
        return ()
    means_s = [float(part.mean()) for part in parts]
    return tuple(
        Shift(int(numbers[at]), after_s - before_s)
        for at, (before_s, after_s) in zip(begins[1:-1], itertools.pairwise(means_s), strict=True)
    )


def _change_points(late_s: FloatArray, threshold_s: float) -> list[int]:
    """Return the indices of ``late_s`` at which the mean shifts; empty for fewer than FEWEST values.

    As many shifts as possible are returned, up to MOST_SHIFTS, such that each exceeds the threshold and is too large to
    be random (Student's t of the means before and after it). The probabilities are corrected for the number of ways to
    choose that many shifts.
    """
    n = len(late_s)
    # Most shifts first, so that two small ones are not taken for one in the middle.
    for n_shifts in range(MOST_SHIFTS, 0, -1) if n >= FEWEST else ():
        begins = _best_split(late_s, n_shifts + 1)
        if begins is None:
            continue
        parts = [late_s[a:b] for a, b in itertools.pairwise([0, *begins, n])]
        freedom = n - len(parts)
        one_s = np.sqrt(_spread(*parts) / freedom)
        by_s = np.array([abs(after.mean() - before.mean()) for before, after in itertools.pairwise(parts)])
        error_s = np.array([one_s * np.sqrt(1 / len(a) + 1 / len(b)) for a, b in itertools.pairwise(parts)])
        chance = (
            2
            * scipy.special.stdtr(freedom, -by_s / np.maximum(error_s, ROUNDING * threshold_s))
            * math.comb(n, n_shifts)
        )
        if (by_s > threshold_s).all() and (chance <= CHANCE).all():
            return begins
    return []


def _best_split(late_s: FloatArray, n_parts: int) -> list[int] | None:
    """Return the indices at which to cut ``late_s`` into ``n_parts`` parts with the smallest sum of squares.

    Each part has at least SHORTEST values. Return None if there are too few.

    Uses dynamic programming over the ends of the first parts, with running sums.
    """
    n = len(late_s)
    if n < n_parts * SHORTEST:
        return None
    sums, squares = (np.concatenate([[0.0], np.cumsum(each)]) for each in (late_s, late_s**2))
    least = np.full(n + 1, np.inf)
    least[0] = 0.0
    came_from = []
    for _ in range(n_parts):
        following, source = np.full(n + 1, np.inf), np.zeros(n + 1, dtype=np.int64)
        # Dynamic programming: the best split up to here extends a best split up to an earlier end.
        for end in range(SHORTEST, n + 1):
            begin = np.arange(end - SHORTEST + 1)
            # The sum of squares around the mean, from running sums.
            spread = squares[end] - squares[begin] - (sums[end] - sums[begin]) ** 2 / (end - begin)
            source[end] = (least[begin] + spread).argmin()
            following[end] = (least[begin] + spread)[source[end]]
        least = following
        came_from.append(source)
    cuts = [n]
    for source in reversed(came_from):
        cuts.append(int(source[cuts[-1]]))
    return cuts[-2:0:-1]


def _spread(*parts: FloatArray) -> float:
    """Return the sum, over all parts, of squares around the part's mean."""
    return float(sum(((part - part.mean()) ** 2).sum() for part in parts))
