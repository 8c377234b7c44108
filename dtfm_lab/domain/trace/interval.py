"""The interval in which an iteration lies: of a prediction from how sure its inputs are, of a measurement from how its
iterations differ.

All computations of a prediction err by one factor, and all messages by another: kernels and frameworks are misjudged
alike on all devices, and an iteration waits for the slowest of many links, so that errors of their own would not
cancel. What each factor makes of the iteration was simulated (``RunContext.swings``); the two, and the noise of a
measurement, are independent.
"""

import math
from statistics import NormalDist

import numpy as np

from dtfm_lab.domain.errors import TraceError
from dtfm_lab.domain.network import as_number, shortened
from dtfm_lab.domain.trace.columns import TraceColumns
from dtfm_lab.domain.trace.run_context import SWING

REPEAT_NOISE = 0.035
"""One standard deviation of the logarithm of the seconds of one plan measured again: 15 plans that Sailor's authors
measured twice differ by 5.0 % in the mean, 3.5 % a measurement. No prediction is surer."""
CONFIDENCE = 0.9
"""Where none is asked for."""
UNKNOWN = 0.0, math.inf
"""The interval of a number of which nothing says how sure it is."""
OF_A_MEDIAN = math.sqrt(math.pi / 2)
"""Standard error of a median over that of a mean, for normal noise."""


def interval(trace: TraceColumns, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Seconds from which to which ``iteration_s`` is, with this confidence.

    A prediction's follows from how sure its computations and links are, and is of what a measurement would show; a
    measurement's from how its iterations differ. From 0 to infinite where nothing states that.

    Raises TraceError for a confidence that is not between 0 and 1.
    """
    share = as_number(confidence)
    if share is None or not 0 < share < 1:
        raise TraceError(f"confidence is {shortened(confidence)}; wanted more than 0 and less than 1")
    if trace.context.source == "measured":
        return _of_iterations(trace, share)
    middle_s, swings = trace.iteration_s, trace.context.swings
    if not swings or not middle_s > 0:
        return (middle_s, middle_s) if swings else UNKNOWN
    if not all(0 < end_s < math.inf for swing in swings for end_s in swing):  # a damaged file
        return UNKNOWN
    deviations = NormalDist().inv_cdf((1 + share) / 2)
    low, high = (
        deviations * math.hypot(REPEAT_NOISE, *(math.log(swing[end] / middle_s) / SWING for swing in swings))
        for end in (0, 1)
    )
    return middle_s * math.exp(-low), middle_s * math.exp(high)


def predicted_ends(trace: TraceColumns, length_s: float) -> tuple[float, float] | None:
    """Seconds between which a predicted iteration that is drawn ``length_s`` long ends with 90 % confidence; None of a
    measured one, and where nothing states a spread."""
    low_s, high_s = interval(trace, CONFIDENCE)
    if trace.context.source == "measured" or not trace.iteration_s > 0 or not math.isfinite(high_s):
        return None
    return low_s * length_s / trace.iteration_s, high_s * length_s / trace.iteration_s


def _of_iterations(trace: TraceColumns, confidence: float) -> tuple[float, float]:
    """Student's interval of the median, about ``iteration_s``; of iterations of two kinds, of their weighted mean."""
    variance, freedom = 0.0, 0
    ends_s, weights = trace.iteration_ends_s, trace.iteration_weights
    for weight in np.unique(weights):
        alike = ends_s[weights == weight]
        if len(alike) < 2:
            return UNKNOWN
        variance += float((weight * len(alike)) ** 2 * alike.var(ddof=1) / len(alike))
        freedom += len(alike) - 1
    from scipy.special import stdtrit  # loading it takes a while, for which every kernel would wait

    half_s = float(stdtrit(freedom, (1 + confidence) / 2)) * OF_A_MEDIAN * math.sqrt(variance)
    return max(0.0, trace.iteration_s - half_s), trace.iteration_s + half_s
