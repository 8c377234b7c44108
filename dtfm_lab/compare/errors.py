"""The single definition of a prediction's error: measured minus predicted, also as a share of the prediction.

For a whole iteration, it also says which predicted iteration is compared with which measured one. The module also
estimates from repeated measurements: Student's intervals over iterations, and robust slopes.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy

from dtfm_lab.domain.errors import TraceError
from dtfm_lab.domain.trace import Trace
from dtfm_lab.domain.trace.trace import OF_A_MEDIAN
from dtfm_lab.domain.units import FloatArray, IntArray, counted, format_s, signed_share

ROUNDING = 5e-4
"""Below this share of the prediction, an error is written as zero."""


def share_of(error_s: float, predicted_s: float) -> float:
    """Return the error relative to the prediction: +0.03 means three per cent longer. 0 if the prediction is 0."""
    return error_s / predicted_s if predicted_s > 0 else 0.0


def format_error(error_s: float, predicted_s: float) -> str:
    """Format an error: ``+43 ms (+9.5 %)``, ``0 s (0.0 %)`` if it is only rounding, without a share if 0 was
    predicted."""
    if predicted_s <= 0:
        return signed_s(error_s)
    if abs(error_s) < ROUNDING * predicted_s:
        return "0 s (0.0 %)"
    return f"{signed_s(error_s)} ({signed_share(share_of(error_s, predicted_s))})"


def signed_s(seconds: float) -> str:
    """Format seconds with a sign: ``+0.4 s``, ``−12 ms``, ``0 s``."""
    text = format_s(abs(seconds))
    sign = "\u2212" if seconds < 0 else "+"
    return text if text == "0 s" else sign + text


def iteration_error(predicted: Trace, measured: Trace) -> float:
    """Return the error of the iteration relative to its prediction: +0.03 means three per cent longer than
    predicted."""
    predicted_s = predicted_iteration_s(predicted, measured)
    return share_of(measured.iteration_s - predicted_s, predicted_s)


def predicted_iteration_s(predicted: Trace, measured: Trace) -> float:
    """Return the predicted seconds that ``measured.iteration_s`` is compared with.

    These are ``predicted.iteration_s``, or the seconds of a single predicted iteration if all measured ones are
    compared with it. A single one is used, for example, if only every H-th iteration synchronises and none of the
    measured ones does.
    """
    compared = np.unique(predicted_by(predicted, measured))
    if len(compared) > 1:
        return predicted.iteration_s
    return float(predicted.iteration_ends_s[np.unique(predicted.iteration) == compared][0])


def predicted_by(predicted: Trace, measured: Trace) -> IntArray:
    """Return, for each measured iteration, the number of the predicted one to compare it with.

    A single predicted iteration is compared with all. A simulation of local updates has one iteration of each kind. Its
    last one is compared with the iterations that synchronise, its first one with the others. Otherwise, raises
    TraceError unless as many iterations were predicted as measured.
    """
    known, wanted = np.unique(predicted.iteration), np.unique(measured.iteration)
    every = predicted.context.synchronise_every
    # A prediction of one iteration stands for all.
    if len(known) == 1:
        return np.repeat(known, len(wanted))
    # With local updates, iterations that average differ from the others, and the simulation has one of each.
    if predicted.context.source == "simulated" and every > 1:
        together = (wanted + 1) % every == 0
        return np.asarray(np.where(together, known[-1], known[0]))
    if len(known) != len(wanted):
        raise TraceError(
            f"predicted has {counted(len(known), 'iteration')}, measured {len(wanted)}; wanted one or as many"
        )
    return wanted


CONFIDENCE = 0.95
FEW_ITERATIONS = 3
"""Minimum number of iterations for an interval that follows from the differences between them (see ``estimate``)."""


class ConfidenceInterval(NamedTuple):
    """A value with its 95 % confidence interval, which is infinite for a single measurement."""

    value: float
    low: float
    high: float


def estimate(values: FloatArray, iteration: IntArray, centre: Callable[[FloatArray], object]) -> ConfidenceInterval:
    """Compute the ``centre`` (mean or median) of each iteration, and return the average over iterations.

    Values of one iteration are not independent, so the interval follows from the differences between iterations. With
    one or two iterations, all values are treated as independent, and the result is their centre.
    """
    numbers = np.unique(iteration)
    if len(numbers) < FEW_ITERATIONS:
        worse = OF_A_MEDIAN if centre is np.median else 1.0
        return around(float(np.asarray(centre(values))), values, worse)
    each = np.array([centre(values[iteration == number]) for number in numbers], dtype=np.float64)
    return around(float(each.mean()), each)


def around(value: float, samples: FloatArray, worse: float = 1.0) -> ConfidenceInterval:
    """Return Student's 95 % interval of the samples' mean, moved so that ``value`` is its centre and widened by the
    factor ``worse``. It is infinite for fewer than two samples."""
    n = len(samples)
    if n < 2:
        return ConfidenceInterval(value, -np.inf, np.inf)
    half = worse * half_width(float(samples.std(ddof=1) / np.sqrt(n)), n - 1)
    return ConfidenceInterval(value, value - half, value + half)


def half_width(standard_error: float, freedom: int) -> float:
    """Return the half width of Student's 95 % interval with ``freedom`` degrees of freedom."""
    return float(scipy.special.stdtrit(freedom, (1 + CONFIDENCE) / 2)) * standard_error


def theil_sen(x: FloatArray | IntArray, y: FloatArray) -> Any:
    """Return the median slope of y over x (Theil and Sen): ``slope``, with its interval ``low_slope`` to
    ``high_slope``."""
    return scipy.stats.theilslopes(y, x, CONFIDENCE)
