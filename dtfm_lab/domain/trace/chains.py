"""What each action of a trace waited for, and what its stretch of such a chain is.

On a chain over ``Trace.after`` an action owns the stretch from the end before it to its own end, so that
stretches leave no gap and do not overlap: all of a computation or a send, of a receive the latency (or,
where messages queue at the receiving card, the time since the one before it was in).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dtfm_lab.domain.errors import TraceError
from dtfm_lab.domain.schedule import PASSES, RECEIVES, SENDS
from dtfm_lab.domain.units import FloatArray, IntArray

if TYPE_CHECKING:
    from dtfm_lab.domain.trace.trace import Trace

Flags = npt.NDArray[np.bool_]


class Cause(StrEnum):
    """What a stretch of a chain is; of a device that waits for it: why it is idle."""

    DEPENDENCY = "dependency"
    """a forward or backward elsewhere, as long as such computations are"""
    LATENCY = "latency"
    BANDWIDTH = "bandwidth"
    """a message of a pipeline leaving"""
    QUEUE = "queue"
    """another message in the way of the one waited for, on its link or network card"""
    SYNCHRONISATION = "synchronisation"
    """averaging gradients, its messages included, and the optimiser's step"""
    STRAGGLER = "straggler"
    """a forward or backward, beyond the median of its kind over all devices"""


CAUSES = tuple(Cause)
ROUNDING = 1e-9
"""share of the whole that times may be off by"""


@dataclass(frozen=True, eq=False)
class Chains:
    """Per row of a trace, what it is on a chain.

    Raises TraceError where nobody knows what waited for what, or where that contradicts the times.
    """

    after: IntArray
    begin_s: FloatArray
    """of its own stretch, which ends with it"""
    cause: IntArray
    """position in CAUSES"""
    if_queued: IntArray
    """the same where the row was in another message's way"""
    sends: Flags
    receives: Flags
    slow_from_s: FloatArray
    """from here on it takes longer than the median of its kind; never where it is no forward or backward"""

    @classmethod
    def of(cls, trace: Trace) -> Chains:
        after = trace.after
        if after is None:
            source = trace.context.source
            missing = f"this {source} trace does not know what each action waited for"
            raise TraceError(f"{missing}; wanted one that does, as simulations do")
        waited = after >= 0
        begin_s = np.where(waited, trace.end_s[after], 0.0)
        kinds = [action.kind for action in trace.actions]
        is_pass, sends, receives = (
            np.array([kind in some for kind in kinds])[trace.action] for some in (PASSES, SENDS, RECEIVES)
        )
        apart = ~receives & (np.abs(trace.start_s - begin_s) > ROUNDING * trace.end_s.max())
        apart |= (begin_s > trace.end_s) | (waited & (trace.iteration[after] != trace.iteration))
        if (bad := np.flatnonzero(apart)).size:
            row, what = bad[0], trace.actions[trace.action[bad[0]]]
            wanted = f"row {after[row]}, which it waited for, ends" if waited[row] else "its iteration begins"
            raise TraceError(f"trace row {row} ({what}) begins at {trace.start_s[row]} s; wanted where {wanted}")
        cause = np.full(len(after), CAUSES.index(Cause.SYNCHRONISATION))
        carries = _pipeline_messages(trace)
        cause[carries & sends] = CAUSES.index(Cause.BANDWIDTH)
        # behind another message at the receiving card, what is left of a receive is its own bytes coming in
        behind = receives & waited & receives[after]
        cause[carries & receives] = CAUSES.index(Cause.LATENCY)
        cause[carries & behind] = CAUSES.index(Cause.BANDWIDTH)
        cause[is_pass] = CAUSES.index(Cause.DEPENDENCY)
        if_queued = np.where(carries, CAUSES.index(Cause.QUEUE), cause)
        return cls(after, begin_s, cause, if_queued, sends, receives, _slow_from_s(trace, is_pass))

    def queued(self, row: IntArray, waiting: IntArray, was_queued: Flags) -> Flags:
        """Whether ``row`` was in the way of ``waiting``, the message that its end let go.

        A message in the way at the receiving card is so with its receive and its send.
        """
        sent_after = self.sends[row] & self.sends[waiting]
        received_after = self.receives[row] & self.receives[waiting]
        flags: Flags = sent_after | received_after | (self.sends[row] & self.receives[waiting] & was_queued)
        return flags

    def check_length(self, steps: int) -> None:
        if steps > len(self.after):
            raise TraceError("trace column after runs in a circle; wanted a chain back to the iteration's beginning")


def _pipeline_messages(trace: Trace) -> Flags:
    across = [action.kind in (*SENDS, *RECEIVES) and action.peer is None for action in trace.actions]
    flags: Flags = np.array(across)[trace.action]
    return flags


def _slow_from_s(trace: Trace, is_pass: Flags) -> FloatArray:
    """Per row, when the median duration of its kind is over."""
    seconds = trace.end_s - trace.start_s
    slow_from_s = np.full(len(seconds), np.inf)
    kinds = np.array([PASSES.index(a.kind) if a.kind in PASSES else -1 for a in trace.actions])[trace.action]
    for kind in np.unique(kinds[is_pass]):
        alike = kinds == kind
        slow_from_s[alike] = trace.start_s[alike] + np.median(seconds[alike])
    return slow_from_s
