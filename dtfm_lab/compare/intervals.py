"""Estimates from repeated measurements: Student's intervals over iterations, and robust slopes."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtrit

from dtfm_lab.domain.trace.interval import OF_A_MEDIAN
from dtfm_lab.domain.units import FloatArray, IntArray

CONFIDENCE = 0.95
FEW_ITERATIONS = 3
"""Fewest iterations from which the differences between iterations are estimated."""


class Estimate(NamedTuple):
    """A value with its interval of 95 % confidence, which is infinite for a single measurement."""

    value: float
    low: float
    high: float


def estimate(values: FloatArray, iteration: IntArray, centre: Callable[[FloatArray], object]) -> Estimate:
    """The mean over iterations of each one's ``centre``, as measurements within an iteration are not independent.

    With one or two iterations, the centre of all values, as if they were independent.
    """
    numbers = np.unique(iteration)
    if len(numbers) < FEW_ITERATIONS:
        worse = OF_A_MEDIAN if centre is np.median else 1.0
        return around(float(np.asarray(centre(values))), values, worse)
    each = np.array([centre(values[iteration == number]) for number in numbers], dtype=np.float64)
    return around(float(each.mean()), each)


def around(value: float, samples: FloatArray, worse: float = 1.0) -> Estimate:
    """Student's interval of the samples' mean, ``worse`` times as wide, centred on a value."""
    n = len(samples)
    if n < 2:
        return Estimate(value, -np.inf, np.inf)
    half = worse * half_width(float(samples.std(ddof=1) / np.sqrt(n)), n - 1)
    return Estimate(value, value - half, value + half)


def half_width(standard_error: float, freedom: int) -> float:
    """Half width of Student's interval with so many degrees of freedom."""
    return float(stdtrit(freedom, (1 + CONFIDENCE) / 2)) * standard_error


def theil_sen(x: FloatArray | IntArray, y: FloatArray) -> Any:
    """The median slope of y over x (Theil and Sen): ``slope``, and ``low_slope`` to ``high_slope``, its interval."""
    from scipy.stats import theilslopes  # loading it takes a third of a second, for which every kernel would wait

    return theilslopes(y, x, CONFIDENCE)
