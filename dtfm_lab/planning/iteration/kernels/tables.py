"""The kernels' view of a network and a job, as arrays and numbers. Units are as in ``IterationProblem``."""

from typing import NamedTuple

import numpy as np

from dtfm_lab.domain.compiling import compiled
from dtfm_lab.domain.job.options import Coding
from dtfm_lab.domain.job.options import coded_bytes as bytes_in_messages
from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.iteration.problem import Passes

SECONDS, DOLLARS = range(2)
"""The values of ``Tables.objective``."""
LATENCY, PER_BYTE, HOP = range(3)
"""Rows of ``Tables.link``. From HOP on, one row per message size."""
SPEED, MEMORY, PRICE, REGION, ALIKE, CLUSTER, KIND, HOST = range(8)
"""Rows of ``Tables.device``."""
FLOP, PARAMETERS, KEPT, FROZEN, PASSING, GROUP, CODING, NEXT, BEGIN, END = range(10)
"""Rows of ``Passes.layer`` and ``SearchState.stage``. The first four are common to both."""


class Tables(NamedTuple):
    """One network, one job, one micro-batch size, one objective."""

    link: FloatArray
    """(2 + K, N, N) rows, each from sender to receiver:

    - LATENCY: seconds
    - PER_BYTE: seconds for which a byte occupies the link; bytes of measured messages are ``charged_bytes``
    - HOP and the following rows: ``Passes.hop_s``
    """
    device: FloatArray
    """(8, N) rows:

    - SPEED: factor on the device's computing speed, 1 by default
    - MEMORY: bytes
    - PRICE: US dollars per second
    - REGION: number of the region
    - ALIKE: number of the class; exchanging two devices of a class changes nothing
    - CLUSTER: number of the cluster of devices near each other
    - KIND: row of ``forward_s``
    - HOST: number of the host
    """
    near: IntArray
    """(N, K) the devices nearest to each device, the nearest first."""
    passes: Passes
    """Costs of micro-batches of one size."""
    message_bytes: FloatArray
    """(K,) sizes of measured messages. K is 0 if none were measured."""
    charged_bytes: FloatArray
    """(N, N, K) bytes that a measured message counts as; NaN if it was not measured."""
    slowdowns: FloatArray
    """(N + 1,) as ``Links.slowdowns``; empty if the number of hosts does not matter."""
    tied_parameters: float
    forward_s: FloatArray
    """(K, L + 1) as ``PassTable.forward_s``. With zero-2 and zero-3, one factor per kind of device makes all passes
    longer, to cover the messages that replicas exchange in them."""
    backward_s: FloatArray
    ends_s: FloatArray
    """(2, 2, K) as ``PassTable.ends_s``."""
    receive_s: FloatArray
    """(K, L + 1) as ``PassTable.receive_s``."""
    gradient: Coding
    """How gradients are coded in messages."""
    returned: Coding
    """How the values that come back are coded: averages or, if replicas split the optimizer states, parameters."""
    splits_states: bool
    static_bytes: float
    """Bytes that a device holds per trained parameter: the parameter, its gradient and its optimizer state. Sharding
    and extra copies are included."""
    codes_gradients: bool
    codec_bytes_per_s: float
    synchronisation: int
    """Number of the way to synchronise, from ``costs.seconds.way_of``."""
    synchronise_every: int
    nics: bool
    """True if all messages of a device share one NIC. Only the estimate takes it into account."""
    objective: int
    most_dollars_per_s: float
    most_s: float


@compiled
def moving_s(tables: Tables, sender: int, receiver: int, n_bytes: float) -> float:
    """Return the seconds for which a message occupies its link."""
    sizes = tables.message_bytes
    per_byte = float(tables.link[PER_BYTE, sender, receiver])
    if len(sizes) == 0:
        return n_bytes * per_byte
    upper = 1
    while upper < len(sizes) - 1 and sizes[upper] < n_bytes:
        upper += 1
    low = float(tables.charged_bytes[sender, receiver, upper - 1])
    high = float(tables.charged_bytes[sender, receiver, upper])
    share = max((n_bytes - sizes[upper - 1]) / (sizes[upper] - sizes[upper - 1]), 0.0)
    charged = low + share * (high - low)
    return (n_bytes if np.isnan(charged) else charged) * per_byte


coded_bytes = compiled(bytes_in_messages)
