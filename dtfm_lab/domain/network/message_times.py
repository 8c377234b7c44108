"""Measured times of messages of several sizes, which a network may have beyond latency and bandwidth.

Between two measured sizes the time is linear; a smaller message takes as long as the smallest, a larger one continues
the line through the last two. A pair that was not measured has NaN, and its latency and bandwidth count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dtfm_lab.domain.errors import TopologyError
from dtfm_lab.domain.network.conversions import matrix_of
from dtfm_lab.domain.units import FloatArray, IntArray

MOST_SIZES = 64
"""Most sizes of measured messages; each is a matrix."""
MOST_TIMES = 2**26
"""Most times, over pairs and sizes: half a gigabyte."""
LARGEST = 1e30
"""Most bytes and seconds of a measured message."""


def segment_of(message_bytes: FloatArray, n_bytes: float | FloatArray) -> tuple[IntArray, FloatArray]:
    """Position of sizes, of any shape, among the measured ones.

    Returns the index of the upper end of each size's segment, and its position in that segment: 0 at the lower end
    and for sizes below all measured ones, 1 at the upper end, more for sizes above all.
    """
    upper = np.clip(np.searchsorted(message_bytes, n_bytes), 1, len(message_bytes) - 1)
    low, high = message_bytes[upper - 1], message_bytes[upper]
    return upper, np.maximum((n_bytes - low) / (high - low), 0.0)


def check_sizes(n_sizes: int, n_devices: int) -> None:
    """Raises TopologyError for too few or too many times, before anything of size (N, N, K) is made."""
    if not 2 <= n_sizes <= MOST_SIZES:
        raise TopologyError(f"message_bytes has {n_sizes} sizes; wanted from 2 to {MOST_SIZES}")
    if (times := n_devices**2 * n_sizes) > MOST_TIMES:
        raise TopologyError(
            f"{n_sizes} message_bytes between {n_devices} devices are {times} times; wanted at most {MOST_TIMES}"
        )


def checked_times(
    names: Sequence[str], message_bytes: Any, message_s: Any
) -> tuple[FloatArray, FloatArray] | tuple[None, None]:
    """Read-only copies, (K,) and (N, N, K) with a diagonal of NaN; None and None where no pair was measured.

    Raises
    ------
    TopologyError
        Only one of the two is given, shapes differ, sizes do not grow, or a pair was measured at some sizes
        only, takes negative time, or takes less for a larger message.
    """
    if message_bytes is None and message_s is None:
        return None, None
    if message_bytes is None or message_s is None:
        there, missing = ("message_s", "message_bytes") if message_bytes is None else ("message_bytes", "message_s")
        raise TopologyError(f"{there} comes without {missing}; wanted both, or neither")
    sizes, times = np.array(matrix_of("message_bytes", message_bytes)), np.array(matrix_of("message_s", message_s))
    n = len(names)
    if sizes.ndim != 1:
        raise TopologyError(f"message_bytes has shape {sizes.shape}; wanted (K,)")
    check_sizes(len(sizes), n)
    if not (sizes[0] >= 0 and sizes[-1] <= LARGEST and (sizes[1:] > sizes[:-1]).all()):
        raise TopologyError(f"message_bytes is {sizes.tolist()}; wanted sizes from 0 on, each larger than the last")
    if times.shape != (wanted := (n, n, len(sizes))):
        raise TopologyError(f"message_s has shape {times.shape}; wanted {wanted}: one time a pair and size")
    times[np.arange(n), np.arange(n)] = np.nan
    unknown = np.isnan(times)
    some, every = unknown.any(axis=2), unknown.all(axis=2)
    falls = (times[:, :, 1:] < times[:, :, :-1]).any(axis=2)
    outside = ((times < 0) | (times > LARGEST)).any(axis=2)
    if (bad := np.argwhere(falls | outside | (some & ~every))).size:
        i, j = bad[0]
        raise TopologyError(
            f"link {names[i]} -> {names[j]}: message_s is {times[i, j].tolist()}; wanted a time from 0 on for every "
            f"size, none below the one before it"
        )
    if every.all():
        return None, None
    sizes.setflags(write=False)
    times.setflags(write=False)
    return sizes, times
