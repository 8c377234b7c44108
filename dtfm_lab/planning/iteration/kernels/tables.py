"""What the kernels know of a network and a job, as arrays and numbers; units as in ``IterationProblem``."""

from typing import NamedTuple

import numpy as np

from dtfm_lab.domain.compiling import compiled
from dtfm_lab.domain.job.options import Coding
from dtfm_lab.domain.job.options import coded_bytes as bytes_in_messages
from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.iteration.problem import Passes

SECONDS, DOLLARS = range(2)
"""What is minimised."""
LATENCY, PER_BYTE, HOP = range(3)
SPEED, MEMORY, PRICE, REGION, ALIKE, CLUSTER, KIND = range(7)
FLOP, PARAMETERS, KEPT, FROZEN, PASSING, GROUP, CODING, NEXT, BEGIN, END = range(10)
"""Rows of ``Tables.link``, of ``Tables.device``, and of ``Passes.layer`` and ``State.stage``."""


class Tables(NamedTuple):
    """One network, one job, one size of micro-batches, one objective."""

    link: FloatArray
    """(2 + K, N, N) from row to column: LATENCY seconds, PER_BYTE seconds for which a byte occupies the link where it
    was not measured, from HOP on ``Passes.hop_s``."""
    device: FloatArray
    """(7, N) rows: SPEED, a factor on how fast the device passes blocks; MEMORY in bytes; PRICE in dollars a second;
    the REGION's number; ALIKE, the number of its class, as exchanging two devices of a class changes nothing; CLUSTER,
    the number of those near to each other; KIND, the row of ``forward_s``."""
    near: IntArray
    """(N, K) the devices nearest to each, the nearest first."""
    passes: Passes
    """Of one size of micro-batches."""
    message_bytes: FloatArray
    """(K,) sizes of measured messages; none where K is 0."""
    charged_bytes: FloatArray
    """(N, N, K) bytes that a measured message counts as; NaN where it was not measured."""
    tied_parameters: float
    forward_s: FloatArray
    """(K, L + 1), as ``PassTable.forward_s``; with the messages of sharded parameters, on average."""
    backward_s: FloatArray
    ends_s: FloatArray
    """(2, 2, K)"""
    receive_s: FloatArray
    """(K, L + 1)"""
    gradient: Coding
    """What gradients take in messages."""
    returned: Coding
    """What comes back takes: averages or, where replicas split the optimiser's states, parameters."""
    splits_states: bool
    static_bytes: float
    """Bytes a parameter: itself, its gradient, the optimiser's state."""
    codes_gradients: bool
    codec_bytes_per_s: float
    synchronisation: int
    """``costs.seconds.way_of``."""
    synchronise_every: int
    nics: bool
    """Whether all messages of a device share one NIC; only the estimate regards it."""
    objective: int
    most_dollars_per_s: float
    most_s: float


@compiled
def moving_s(tables: Tables, sender: int, receiver: int, n_bytes: float) -> float:
    """Seconds for which a message occupies its link."""
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
