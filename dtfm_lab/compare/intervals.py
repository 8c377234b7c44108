"""What repeated measurements say, and how sure that is: Student's intervals over iterations."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from dtfm_lab.domain.units import FloatArray, IntArray

CONFIDENCE = 0.95
FEW_ITERATIONS = 3
"""fewer say nothing about what differs from one iteration to the next"""
OF_A_MEDIAN = float(np.sqrt(np.pi / 2))
"""standard error of a median over that of a mean, where noise is normal"""


class Estimate(NamedTuple):
    """A value, and where it lies with 95 % confidence; infinitely far where one measurement is all there is."""

    value: float
    low: float
    high: float


def estimate(values: FloatArray, iteration: IntArray, centre: Callable[[FloatArray], object]) -> Estimate:
    """The mean of each iteration's ``centre``: what disturbs an iteration disturbs all of its measurements.

    Of one or two iterations, the centre of all values as if they were independent.
    """
    numbers = np.unique(iteration)
    if len(numbers) < FEW_ITERATIONS:
        worse = OF_A_MEDIAN if centre is np.median else 1.0
        return around(float(np.asarray(centre(values))), values, worse)
    each = np.array([centre(values[iteration == number]) for number in numbers], dtype=np.float64)
    return around(float(each.mean()), each)


def around(value: float, samples: FloatArray, worse: float = 1.0) -> Estimate:
    """Student's interval of the samples' mean, ``worse`` times as wide, laid around a value."""
    n = len(samples)
    if n < 2:
        return Estimate(value, -np.inf, np.inf)
    half = worse * half_width(float(samples.std(ddof=1) / np.sqrt(n)), n - 1)
    return Estimate(value, value - half, value + half)


def half_width(standard_error: float, freedom: int) -> float:
    """Of Student's interval with so many degrees of freedom."""
    return float(stdtrit(freedom, (1 + CONFIDENCE) / 2)) * standard_error
