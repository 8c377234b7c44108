"""The chains of actions that waited for each other, cut into segments with a cause each.

On a chain over ``Trace.after`` the segment of an action runs from the end before it to its own end, so that
segments leave no gap and do not overlap: all of a computation or a send, of a receive the latency (or, where
messages queue at the receiving card, the time since the previous one was received).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from dtfm_lab.domain.errors import TraceError
from dtfm_lab.domain.schedule import ACROSS_STAGES, PASSES, RECEIVES, SENDS, Kind
from dtfm_lab.domain.trace.columns import TraceColumns
from dtfm_lab.domain.units import FloatArray, IntArray

Flags = npt.NDArray[np.bool_]


class Cause(StrEnum):
    """Cause of a segment of a chain, and of the idle time of a device that waits for it."""

    DEPENDENCY = "dependency"
    """A forward or backward on another device, up to the median duration of its kind."""
    LATENCY = "latency"
    BANDWIDTH = "bandwidth"
    """The bytes of a pipeline's message occupying their link."""
    QUEUE = "queue"
    """Another message on the same link or network card, sent before the one waited for."""
    SYNCHRONISATION = "synchronisation"
    """Averaging gradients, its messages included, and the optimiser's step."""
    STRAGGLER = "straggler"
    """The part of a forward or backward beyond the median of its kind over all devices."""


CAUSES = tuple(Cause)
ROUNDING = 1e-9
"""Largest error of a time, as a share of the whole trace."""


@dataclass(frozen=True, eq=False)
class Chains:
    """Per row of a trace, its segment on any chain that leads through it.

    Raises TraceError where the trace has no column ``after``, or where that contradicts the times.
    """

    after: IntArray
    begin_s: FloatArray
    """Beginning of the row's own segment, which ends with the row."""
    cause: IntArray
    """Cause of the segment, as a position in CAUSES."""
    carries: Flags
    """Whether the row is a message of a pipeline."""
    if_queued: IntArray
    """The same where another message queued behind the row."""
    sends: Flags
    receives: Flags
    slow_from_s: FloatArray
    """When the median duration of the row's kind is over; infinite for anything but a forward or backward."""

    @classmethod
    def of(cls, trace: TraceColumns) -> Chains:
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
        is_part = np.array([kind is Kind.PART for kind in kinds])[trace.action]
        cause[is_pass | is_part] = CAUSES.index(Cause.DEPENDENCY)
        if_queued = np.where(carries, CAUSES.index(Cause.QUEUE), cause)
        return cls(after, begin_s, cause, carries, if_queued, sends, receives, _slow_from_s(trace, is_pass))

    def queued(self, row: IntArray, waiting: IntArray, was_queued: Flags) -> Flags:
        """Whether ``waiting`` queued behind ``row``, at whose end it started.

        Behind a message at the receiving card, it queued behind both its receive and its send; so did a pipeline's
        message that went out when the one before it on a link of both directions had arrived.
        """
        sent_after = self.sends[row] & self.sends[waiting]
        received_after = self.receives[row] & self.receives[waiting]
        in_turn = self.receives[row] & self.sends[waiting] & self.carries[row] & self.carries[waiting]
        flags: Flags = sent_after | received_after | in_turn | (self.sends[row] & self.receives[waiting] & was_queued)
        return flags

    def check_length(self, steps: int) -> None:
        if steps > len(self.after):
            raise TraceError("trace column after runs in a circle; wanted a chain back to the iteration's beginning")


def _pipeline_messages(trace: TraceColumns) -> Flags:
    across = [action.kind in ACROSS_STAGES for action in trace.actions]
    flags: Flags = np.array(across)[trace.action]
    return flags


def _slow_from_s(trace: TraceColumns, is_pass: Flags) -> FloatArray:
    """Per row, when the median duration of its kind is over."""
    seconds = trace.end_s - trace.start_s
    slow_from_s = np.full(len(seconds), np.inf)
    kinds = np.array([PASSES.index(a.kind) if a.kind in PASSES else -1 for a in trace.actions])[trace.action]
    for kind in np.unique(kinds[is_pass]):
        alike = kinds == kind
        slow_from_s[alike] = trace.start_s[alike] + np.median(seconds[alike])
    return slow_from_s
