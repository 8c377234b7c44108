"""One factor from measured rows: what it is, how far the rows spread, and predictions that never saw their own row.

Each row has a factor of its own, that which makes its prediction equal to what was measured. The fit is their median in
logarithms, so one row that is far off does not move it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dtfm_lab.domain.errors import LabError

CLOSE = 1e-6
"""Relative error of a prediction at which a search for its factor ends."""
MOST_STEPS = 60
LEAST_FACTOR, MOST_FACTOR = 1e-3, 1.0


@dataclass(frozen=True)
class Fit:
    """A factor fitted to several rows, and its range."""

    value: float
    low: float
    high: float
    n: int


def fit(factors: Sequence[float]) -> Fit:
    """The median of the rows' own factors in logarithms, and their range. Raises LabError where there are none."""
    if not factors:
        raise LabError("no measured row to fit a factor to; wanted one or more")
    return Fit(median(factors), min(factors), max(factors), len(factors))


def median(factors: Sequence[float]) -> float:
    """The median, the geometric mean of the middle two where their number is even."""
    return float(np.exp(np.median(np.log(np.asarray(factors, dtype=float)))))


def leave_one_out(factors: Sequence[float]) -> list[float]:
    """For each row the factor that is fitted to all others. Raises LabError where there is one row only."""
    if len(factors) < 2:
        raise LabError(f"{len(factors)} measured row to leave one out of; wanted two or more")
    return [median([*factors[:one], *factors[one + 1 :]]) for one in range(len(factors))]


def own_factor(
    predict: Callable[[float], float], measured: float, low: float = LEAST_FACTOR, high: float = MOST_FACTOR
) -> float:
    """The factor in [low, high] at which ``predict(factor)`` is what was measured, by bisection in logarithms.

    ``predict`` is monotone: seconds that fall with an efficiency, or a throughput that rises. The nearer end of the
    range where no factor in it gives the measured number.
    """
    at_low, at_high = predict(low), predict(high)
    rising = at_high > at_low
    for end, value in ((low, at_low), (high, at_high)):
        if math.isclose(value, measured, rel_tol=CLOSE):
            return end
    if (measured < at_low) == rising:
        return low
    if (measured > at_high) == rising:
        return high
    for _ in range(MOST_STEPS):
        middle = math.sqrt(low * high)
        value = predict(middle)
        if math.isclose(value, measured, rel_tol=CLOSE):
            break
        low, high = (low, middle) if (value > measured) == rising else (middle, high)
    return middle
