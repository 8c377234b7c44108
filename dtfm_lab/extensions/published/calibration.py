"""Fit one factor to measured rows: its value, its spread, and predictions of each row from the others.

Each row has its own factor, with which its prediction equals the measurement. The fit is the median of these factors on
a log scale, so a single outlier does not move it.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import scipy

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.plan import Plan
from dtfm_lab.simulation.simulate import iteration_seconds

CLOSE = 1e-5
"""Relative accuracy to which a row's own factor is computed."""
LEAST_FACTOR = 1e-3
"""Default lower end of the range in which a row's own factor is searched."""
MOST_FACTOR = 1.0
"""Default upper end of this range."""


def median(factors: Sequence[float]) -> float:
    """Return the median on a log scale; for an even number of factors, the geometric mean of the middle two.

    Raises LabError if there are no factors.
    """
    if not factors:
        raise LabError("no measured row to fit a factor to; wanted one or more")
    return float(np.exp(np.median(np.log(np.asarray(factors, dtype=float)))))


def leave_one_out(factors: Sequence[float]) -> list[float]:
    """Return, for each row, the factor fitted to all others. Raises LabError for fewer than two rows."""
    if len(factors) < 2:
        raise LabError(f"{len(factors)} measured row to leave one out of; wanted two or more")
    return [median([*factors[:one], *factors[one + 1 :]]) for one in range(len(factors))]


def own_factor(
    predict: Callable[[float], float], measured: float, low: float = LEAST_FACTOR, high: float = MOST_FACTOR
) -> float:
    """Return the factor in [low, high] at which ``predict(factor)`` equals the measurement.

    ``predict`` must only rise or only fall: seconds fall with the efficiency, a throughput rises. Raises LabError if no
    factor in the range gives the measured number.
    """

    def error(log_factor: float) -> float:
        # Logarithms, because predictions are wrong by a factor.
        return math.log(predict(math.exp(log_factor)) / measured)

    at_low, at_high = error(math.log(low)), error(math.log(high))
    # At an end of the range, rounding could hide the change of sign that the search needs.
    for end, off in ((low, at_low), (high, at_high)):
        if abs(off) < CLOSE:
            return end
    if at_low * at_high > 0:
        ends = sorted(measured * math.exp(off) for off in (at_low, at_high))
        raise LabError(
            f"{measured:.4g} was measured, and efficiencies from {low:g} to {high:g} predict {ends[0]:.4g} to "
            f"{ends[1]:.4g}; wanted a number in that range"
        )
    # on a log scale, where predictions are nearly straight lines
    return math.exp(scipy.optimize.brentq(error, math.log(low), math.log(high), xtol=CLOSE))


class SecondsLine(NamedTuple):
    """The seconds of an iteration as a straight line over 1 / efficiency.

    This holds to 0.1 % as long as the order of passes does not change.
    """

    fixed_s: float
    slope_s: float
    """Seconds at efficiency 1 that grow as the efficiency falls: an iteration takes ``fixed_s + slope_s /
    efficiency``."""

    @classmethod
    def of(cls, plan: Plan, tried: tuple[float, float]) -> "SecondsLine":
        """Return the line through the simulated seconds at two efficiencies."""
        (x0, s0), (x1, s1) = ((1 / one, iteration_seconds(plan, efficiency=one)) for one in tried)
        slope_s = (s1 - s0) / (x1 - x0)
        return cls(s0 - slope_s * x0, slope_s)

    def seconds(self, efficiency: float) -> float:
        """Return the seconds at an efficiency."""
        return self.fixed_s + self.slope_s / efficiency

    def efficiency(self, measured_s: float) -> float:
        """Return the efficiency that predicts these seconds."""
        return self.slope_s / (measured_s - self.fixed_s)
