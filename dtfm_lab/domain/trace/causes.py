"""Why an iteration took as long as it did: its critical path, and each device's idle time by cause.

Both follow the column ``after`` backward, from an action to the one whose end it waited for last. On such a chain, an
action's segment runs from the previous end to its own end, so segments neither overlap nor leave gaps. The segment
covers all of a computation or a send. For a receive it covers the latency or, if messages queue at the receiving NIC,
the time since the previous one was received.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dtfm_lab.domain.errors import TraceError
from dtfm_lab.domain.schedule import ACROSS_STAGES, PASSES, RECEIVES, SENDS, Kind, Lane
from dtfm_lab.domain.trace.columns import TraceColumns
from dtfm_lab.domain.units import BoolArray, FloatArray, IntArray

if TYPE_CHECKING:
    import pandas as pd

COMPUTE = "compute"
"""Name under which forwards and backwards appear among the causes of a critical path."""
PATH = ["row", "replica", "stage", "device", "link", "action", "kind", "microbatch", "what", "start_s", "end_s"]


class Cause(StrEnum):
    """Why a device waits. The same causes name the segments of a chain of actions that wait for each other."""

    DEPENDENCY = "dependency"
    """A forward or backward on another device, up to the median duration of its kind."""
    LATENCY = "latency"
    BANDWIDTH = "bandwidth"
    """The bytes of a pipeline's message occupy their link."""
    QUEUE = "queue"
    """Another message, sent earlier, occupies the same link or NIC."""
    SYNCHRONISATION = "synchronisation"
    """Averaging gradients, including its messages, and the optimizer step."""
    STRAGGLER = "straggler"
    """The part of a forward or backward beyond the median of its kind over all devices."""


CAUSES = tuple(Cause)
GATHERING = "gathering"
"""Messages inside a pass: parameters gathered and gradients scattered layer by layer, and the messages within a group
of GPUs (tensor, context and expert parallelism)."""
STACKED = (COMPUTE, GATHERING, *(cause.value for cause in CAUSES if cause is not Cause.DEPENDENCY))
"""Causes, without ``dependency``, in the order in which all bar charts stack them."""
ROUNDING = 1e-9
"""Maximum rounding error of a time, relative to the whole trace."""


@dataclass(frozen=True, eq=False)
class Chains:
    """For each row of a trace, its segment on any chain through it.

    Raises TraceError if the trace has no column ``after``, or if that column contradicts the times.
    """

    after: IntArray
    begin_s: FloatArray
    """Start of the row's own segment, which ends with the row."""
    cause: IntArray
    """Cause of the segment, as an index into CAUSES."""
    carries: BoolArray
    """True if the row is a message along a pipeline: activations or their gradients."""
    if_queued: IntArray
    """Cause of the segment if the next row of the chain was queued behind this one."""
    sends: BoolArray
    receives: BoolArray
    slow_from_s: FloatArray
    """Time at which the row has lasted as long as the median of its kind; infinite unless the row is a forward or
    backward."""

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
        is_pass, is_part, sends, receives, carries = (
            np.array([kind in some for kind in kinds])[trace.action]
            for some in (PASSES, (Kind.PART,), SENDS, RECEIVES, ACROSS_STAGES)
        )
        apart = ~receives & (np.abs(trace.start_s - begin_s) > ROUNDING * trace.end_s.max())
        apart |= (begin_s > trace.end_s) | (waited & (trace.iteration[after] != trace.iteration))
        if (bad := np.flatnonzero(apart)).size:
            row, what = bad[0], trace.actions[trace.action[bad[0]]]
            wanted = f"row {after[row]}, which it waited for, ends" if waited[row] else "its iteration begins"
            raise TraceError(f"trace row {row} ({what}) begins at {trace.start_s[row]} s; wanted where {wanted}")
        cause = np.full(len(after), CAUSES.index(Cause.SYNCHRONISATION))
        cause[carries & sends] = CAUSES.index(Cause.BANDWIDTH)
        # behind another message at the receiving NIC, what is left of a receive is its own bytes coming in
        behind = receives & waited & receives[after]
        cause[carries & receives] = CAUSES.index(Cause.LATENCY)
        cause[carries & behind] = CAUSES.index(Cause.BANDWIDTH)
        cause[is_pass | is_part] = CAUSES.index(Cause.DEPENDENCY)
        if_queued = np.where(carries, CAUSES.index(Cause.QUEUE), cause)
        return cls(after, begin_s, cause, carries, if_queued, sends, receives, _slow_from_s(trace, is_pass))

    def queued(self, row: IntArray, waiting: IntArray, was_queued: BoolArray) -> BoolArray:
        """Return True for each row ``waiting`` that started at the end of ``row`` because it was queued behind it.

        ``was_queued`` is True if the next row of the chain was queued behind ``waiting``. A message that queues behind
        another one at the receiving NIC is queued behind both the receive and the send of that message. So is a
        pipeline's message on a link whose directions take turns, if it leaves when the previous message has arrived.
        """
        sent_after = self.sends[row] & self.sends[waiting]
        received_after = self.receives[row] & self.receives[waiting]
        in_turn = self.receives[row] & self.sends[waiting] & self.carries[row] & self.carries[waiting]
        flags: BoolArray = (
            sent_after | received_after | in_turn | (self.sends[row] & self.receives[waiting] & was_queued)
        )
        return flags

    def check_length(self, steps: int) -> None:
        if steps > len(self.after):
            raise TraceError("trace column after runs in a circle; wanted a chain back to the iteration's beginning")


def critical_path(trace: TraceColumns, iteration: int | None = None) -> pd.DataFrame:
    """Return the actions that determine the length of an iteration, in time order.

    Each starts where the previous one ends, and together they are as long as the iteration. Other chains may be equally
    long. Segments of zero length are left out.

    Parameters
    ----------
    iteration
        Number of the iteration. None selects the one whose length is nearest to ``iteration_s``.

    Returns
    -------
    One row per action. Columns:

    - row (in the trace), replica, stage, device, link ("a -> b", empty for computations)
    - action, kind, microbatch (-1: none), what ("compute" or a Cause)
    - start_s and end_s of its segment

    Raises
    ------
    TraceError
        There is no such iteration, or the trace has no column ``after``, or that column contradicts the times.
    """
    chains = Chains.of(trace)
    chosen = trace.typical_iteration if iteration is None else iteration
    rows = np.flatnonzero(trace.iteration == chosen)
    if not len(rows):
        known = f"{trace.iteration.min()} to {trace.iteration.max()}"
        raise TraceError(f"iteration is {iteration}; wanted one that was traced, {known}")
    # Follow the path backwards: the last row to end waited for the row that its `after` names, and so on.
    path = [int(rows[trace.end_s[rows].argmax()])]
    while (before := int(chains.after[path[-1]])) >= 0:
        path.append(before)
        chains.check_length(len(path))
    back = np.array(path)
    queued = np.zeros(len(back), dtype=bool)
    for i in range(1, len(back)):
        queued[i] = chains.queued(back[i], back[i - 1], queued[i - 1])
    causes = np.where(queued, chains.if_queued[back], chains.cause[back])
    frame = _described(trace, back)
    frame["what"] = [COMPUTE if CAUSES[c] is Cause.DEPENDENCY else CAUSES[c].value for c in causes]
    frame["start_s"], frame["end_s"] = chains.begin_s[back], trace.end_s[back]
    # Actions that take no time would be lines without a length.
    frame = frame[frame["end_s"] > frame["start_s"]]
    return frame.iloc[::-1].reset_index(drop=True)[PATH]


def critical_summary(trace: TraceColumns, iteration: int | None = None) -> pd.DataFrame:
    """Return the seconds on the critical path by cause ("what"), by device (computations) and by link (messages).

    One row per name: by ("what", "device" or "link"), name, seconds, share of the iteration, longest first. The rows of
    "device" and "link" together add up to the iteration, and so do the rows of "what".
    """
    import pandas as pd  # takes a while to load

    path = critical_path(trace, iteration)
    seconds = path["end_s"] - path["start_s"]
    parts = []
    for by in ("what", "device", "link"):
        counted = (path["link"] != "") if by == "link" else (path["link"] == "") | (by == "what")
        sums = seconds[counted].groupby(path.loc[counted, by]).sum().sort_values(ascending=False, kind="stable")
        parts.append(pd.DataFrame({"by": by, "name": sums.index, "seconds": sums.to_numpy()}))
    summary = pd.concat(parts, ignore_index=True)
    whole_s = float(seconds.sum())
    summary["share"] = summary["seconds"] / whole_s if whole_s > 0 else 0.0
    return summary


def bubble(trace: TraceColumns) -> pd.DataFrame:
    """Return each device's time in an iteration: busy, and idle by cause.

    A device is busy during all its computations, including synchronisation and the optimizer step. A gap between two
    computations is divided along the chain that the next computation waited for. Gaps include the time before the first
    computation, and the time after the last, which is divided along the iteration's critical path.

    Returns
    -------
    One row per device: stage (the first that it holds), replica, device, busy_s, then idle seconds by cause from
    ``dependency_s`` to ``straggler_s``, and iteration_s, which is their sum. Several iterations are averaged, with
    ``iteration_weights``.

    Raises
    ------
    TraceError
        The trace has no column ``after``, or that column contradicts the times.
    """
    import pandas as pd  # takes a while to load

    chains, iterations = Chains.of(trace), np.unique(trace.iteration)
    devices, n_causes = trace.context.devices, len(CAUSES)
    n_devices = sum(len(group) for group in devices)
    weight = trace.iteration_weights
    busy_s, gaps = _gaps(trace, iterations)
    idle_s = np.zeros(n_devices * n_causes)
    row, gap = gaps.row, np.arange(len(gaps.row))
    queued = np.zeros(len(row), dtype=bool)
    steps = 0
    while len(row):
        chains.check_length(steps := steps + 1)
        begin_s, end_s = np.maximum(chains.begin_s[row], gaps.begin_s[gap]), trace.end_s[row]
        slow_s = np.maximum(end_s - np.maximum(begin_s, chains.slow_from_s[row]), 0.0)
        share = weight[gaps.where[gap] // n_devices]
        device = gaps.where[gap] % n_devices * n_causes
        cause = np.where(queued, chains.if_queued[row], chains.cause[row])
        np.add.at(idle_s, device + cause, share * (end_s - begin_s - slow_s))
        np.add.at(idle_s, device + CAUSES.index(Cause.STRAGGLER), share * slow_s)
        goes_on = (chains.begin_s[row] > gaps.begin_s[gap]) & (chains.after[row] >= 0)
        row, gap, queued = row[goes_on], gap[goes_on], queued[goes_on]
        before = chains.after[row]
        queued = chains.queued(before, row, queued)
        row = before
    return pd.DataFrame(
        {
            "stage": np.repeat(np.arange(len(devices)), [len(group) for group in devices]),
            "replica": [replica for group in devices for replica in range(len(group))],
            "device": [name for group in devices for name in group],
            "busy_s": weight @ busy_s,
            **{f"{cause}_s": idle_s[i::n_causes] for i, cause in enumerate(CAUSES)},
            "iteration_s": float(weight @ trace.iteration_ends_s),
        }
    )


class _Gaps(NamedTuple):
    """Columns with one row per period in which a device does not compute."""

    where: IntArray
    """Where the gap is, as one number: iteration x devices + position x replicas + replica. Iterations are numbered
    from 0 in order."""
    begin_s: FloatArray
    row: IntArray
    """The trace row whose end closed the gap."""


def _gaps(trace: TraceColumns, iterations: IntArray) -> tuple[FloatArray, _Gaps]:
    """Return (iterations, devices) busy seconds, and the gaps before, between and after computations."""
    assert trace.after is not None
    context = trace.context
    n_replicas, n_positions = len(context.devices[0]), len(context.devices)
    n_devices = n_positions * n_replicas
    position = np.array([action.stage % n_positions for action in trace.actions])[trace.action]
    computes = np.flatnonzero(np.array([action.lane is Lane.COMPUTE for action in trace.actions])[trace.action])
    iteration = np.searchsorted(iterations, trace.iteration)
    owner = (iteration * n_devices + position * n_replicas + trace.replica)[computes]
    seconds = (trace.end_s - trace.start_s)[computes]
    busy_s: FloatArray = np.bincount(owner, seconds, minlength=len(iterations) * n_devices).astype(np.float64)
    order = np.lexsort((trace.end_s[computes], trace.start_s[computes], owner))
    rows, owner = computes[order], owner[order]
    first = np.ones(len(rows), dtype=bool)
    first[1:] = owner[1:] != owner[:-1]
    # A device is free when all its computations so far have ended: with overlap, sums of gradients that take no time
    # begin and end inside a backward. Ranks in place of seconds let one running maximum serve all owners.
    by_end_s = np.argsort(trace.end_s[rows], kind="stable")
    rank = np.empty(len(rows), dtype=np.int64)
    rank[by_end_s] = np.arange(len(rows))
    latest = by_end_s[np.maximum.accumulate(owner * len(rows) + rank) % max(len(rows), 1)]
    free_s = np.zeros(len(rows))
    free_s[1:] = np.where(first[1:], 0.0, trace.end_s[rows[latest[:-1]]])
    idle = (trace.start_s[rows] > free_s) & (trace.after[rows] >= 0)

    # after a device's last computation: until the iteration ends
    last_end_s = np.zeros(len(busy_s))
    np.maximum.at(last_end_s, owner, trace.end_s[rows])
    by_end = np.lexsort((-np.arange(len(trace)), trace.end_s, iteration))
    last_row = by_end[np.searchsorted(iteration[by_end], np.arange(len(iterations)), side="right") - 1]
    last_row = np.repeat(last_row, n_devices)
    tail = np.flatnonzero(trace.end_s[last_row] > last_end_s)

    parts = (owner[idle], tail), (free_s[idle], last_end_s[tail]), (trace.after[rows[idle]], last_row[tail])
    gaps = _Gaps(*map(np.concatenate, parts))
    return busy_s.reshape(len(iterations), n_devices), gaps


def _described(trace: TraceColumns, rows: IntArray) -> pd.DataFrame:
    """Return the columns of a critical path that describe these rows of the trace."""
    import pandas as pd  # takes a while to load

    actions = [trace.actions[a] for a in trace.action[rows]]
    replicas = trace.replica[rows].tolist()
    return pd.DataFrame(
        {
            "row": rows,
            "replica": replicas,
            "stage": [action.stage for action in actions],
            "device": [trace.device(action, r) for action, r in zip(actions, replicas, strict=True)],
            "link": [trace.link(action, r) for action, r in zip(actions, replicas, strict=True)],
            "action": [str(action) for action in actions],
            "kind": [action.kind.value for action in actions],
            "microbatch": [-1 if action.microbatch is None else action.microbatch for action in actions],
        }
    )


def _slow_from_s(trace: TraceColumns, is_pass: BoolArray) -> FloatArray:
    """Return, for each row, the time at which it has lasted as long as the median of its kind; infinite if it is not a
    pass."""
    seconds = trace.end_s - trace.start_s
    slow_from_s = np.full(len(seconds), np.inf)
    kinds = np.array([PASSES.index(a.kind) if a.kind in PASSES else -1 for a in trace.actions])[trace.action]
    for kind in np.unique(kinds[is_pass]):
        alike = kinds == kind
        slow_from_s[alike] = trace.start_s[alike] + np.median(seconds[alike])
    return slow_from_s
