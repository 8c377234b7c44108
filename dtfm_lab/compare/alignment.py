"""Which predicted iteration is compared with which measured one, and the error of the whole iteration."""

import numpy as np

from dtfm_lab.compare.errors import share_of
from dtfm_lab.domain.errors import TraceError
from dtfm_lab.domain.trace import Trace
from dtfm_lab.domain.units import IntArray


def iteration_error(predicted: Trace, measured: Trace) -> float:
    """Error of the iteration as a share of its prediction: +0.03 is three per cent longer than predicted."""
    predicted_s = predicted_iteration_s(predicted, measured)
    return share_of(measured.iteration_s - predicted_s, predicted_s)


def predicted_iteration_s(predicted: Trace, measured: Trace) -> float:
    """``predicted.iteration_s``; where only every H-th synchronises and none of the measured does, the prediction of
    one that does not."""
    compared = np.unique(predicted_by(predicted, measured))
    if len(compared) > 1:
        return predicted.iteration_s
    return float(predicted.iteration_ends_s[np.unique(predicted.iteration) == compared][0])


def predicted_by(predicted: Trace, measured: Trace) -> IntArray:
    """By measured iteration, the number of the predicted one with which it is compared."""
    known, wanted = np.unique(predicted.iteration), np.unique(measured.iteration)
    every = predicted.context.synchronise_every
    if len(known) == 1:
        return np.repeat(known, len(wanted))
    if predicted.context.source == "simulated" and every > 1:
        together = (wanted + 1) % every == 0
        stands_for: IntArray = np.where(together, known[-1], known[0])
        return stands_for
    if len(known) != len(wanted):
        raise TraceError(f"predicted has {len(known)} iterations, measured {len(wanted)}; wanted one or as many")
    return wanted
