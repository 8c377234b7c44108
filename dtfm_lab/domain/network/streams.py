"""How fast TCP moves bytes: what one stream reaches over a distance, and what several reach together.

A sender may have at most one window of unacknowledged bytes in flight. Then it waits for an acknowledgement, which
takes one round trip. So a stream moves at most one window per round trip, however fast the link is. Several streams add
up until they fill the link (RFC 9293, section 3.8.6; RFC 7323, section 1.1).
"""

import math

import numpy as np

from dtfm_lab.domain.errors import TopologyError
from dtfm_lab.domain.network.device import as_number, shortened
from dtfm_lab.domain.units import FloatArray

MiB = 2**20
LINUX_WINDOW_BYTES = 3.0 * MiB
"""Largest window of a stream between Linux hosts. It is half of the 6 MiB to which a receiver's buffer grows by
default: see ``tcp_rmem`` and ``tcp_adv_win_scale`` in the kernel's ip-sysctl. Kernels of 2025 let it grow to 32 MB."""
INITIAL_WINDOW_BYTES = 10 * 1460.0
"""Bytes in a stream's first window: ten segments (RFC 6928)."""


def streams_bandwidth(
    link_bytes_per_s: float | FloatArray,
    round_trip_s: float | FloatArray,
    n_streams: int = 1,
    window_bytes: float | FloatArray = LINUX_WINDOW_BYTES,
) -> FloatArray:
    """Return the bytes/s of several TCP streams over a link: one window per round trip each, up to the link's
    bandwidth.

    Arguments are numbers or arrays of one shape. Raises TopologyError unless there is at least one stream with a
    window.
    """
    if isinstance(n_streams, bool) or not isinstance(n_streams, int | np.integer) or n_streams < 1:
        raise TopologyError(f"TCP streams of a link are {shortened(n_streams)}; wanted a whole number, 1 or more")
    if not isinstance(window_bytes, np.ndarray) and not (as_number(window_bytes) or 0) > 0:
        raise TopologyError(f"window of a TCP stream is {shortened(window_bytes)}; wanted more than 0 bytes")
    with np.errstate(divide="ignore"):  # without a round trip, only the link is a limit
        return np.minimum(link_bytes_per_s, n_streams * window_bytes / np.asarray(round_trip_s))


def slow_start_s(round_trip_s: float, window_bytes: float = LINUX_WINDOW_BYTES) -> float:
    """Return the seconds by which a new stream lags behind one whose window is fully open.

    A new stream doubles what it sends every round trip. It needs log2(window / first window) round trips to open its
    window. During these it sends about one window, so it lags one round trip less (RFC 5681, section 3.1).
    """
    return round_trip_s * max(math.log2(window_bytes / INITIAL_WINDOW_BYTES) - 1, 0.0)
