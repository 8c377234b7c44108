"""What happened, or is predicted to happen, on every device, and the interval around an iteration's length.

All computations of a prediction share one error factor, and all messages another. Kernels and frameworks are misjudged
alike on all devices, and an iteration waits for the slowest of many links, so independent errors would not cancel. The
effect of each factor on the iteration is simulated (``RunContext.swings``). The two factors and the noise of a
measurement are independent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dtfm_lab.domain.errors import TraceError
from dtfm_lab.domain.network import as_number, shortened
from dtfm_lab.domain.schedule import LANE, Lane
from dtfm_lab.domain.trace import causes
from dtfm_lab.domain.trace.columns import Span, TraceColumns
from dtfm_lab.domain.trace.run_context import SWING, ComputeTime
from dtfm_lab.domain.units import FloatArray

if TYPE_CHECKING:
    import pandas as pd

REPEAT_NOISE = 0.035
"""Assumed standard deviation of the logarithm of a repeated measurement's seconds. Sailor's authors measured 15 plans
twice. The two measurements differ by 5.0 % on average, and this is 5.0 % / sqrt(2). For normal noise, the standard
deviation would be 4.4 %. No prediction is more certain than this."""
CONFIDENCE = 0.9
"""Default confidence of intervals."""
UNKNOWN = 0.0, math.inf
"""The interval of a number with unknown uncertainty."""
OF_A_MEDIAN = math.sqrt(math.pi / 2)
"""Standard error of a median divided by the standard error of a mean, for normal noise."""


def interval_of(trace: TraceColumns, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return the interval of ``iteration_s`` with this confidence, in seconds.

    A prediction's interval follows from the uncertainty of its computations and links, and covers what a measurement
    would show. A measurement's follows from the differences between its iterations. Without an uncertainty, or without
    a second iteration to compare, the interval is 0 to infinity.

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
    """Return the earliest and the latest end of a predicted iteration, in seconds, with 90 % confidence.

    The interval is scaled to ``length_s``, the length that a chart shows. None for a measured iteration, or if no
    spread is known.
    """
    low_s, high_s = interval_of(trace, CONFIDENCE)
    if trace.context.source == "measured" or not trace.iteration_s > 0 or not math.isfinite(high_s):
        return None
    return low_s * length_s / trace.iteration_s, high_s * length_s / trace.iteration_s


def _of_iterations(trace: TraceColumns, confidence: float) -> tuple[float, float]:
    """Return the interval of ``iteration_s`` that follows from the differences between iterations (Student's t).

    Iterations that synchronise and those that do not are compared separately, and their variances are added.
    """
    variance, freedom = 0.0, 0
    ends_s, weights = trace.iteration_ends_s, trace.iteration_weights
    for weight in np.unique(weights):
        alike = ends_s[weights == weight]
        if len(alike) < 2:
            return UNKNOWN
        variance += float((weight * len(alike)) ** 2 * alike.var(ddof=1) / len(alike))
        freedom += len(alike) - 1
    from scipy.special import stdtrit  # takes a while to load, and every notebook kernel would wait

    half_s = float(stdtrit(freedom, (1 + confidence) / 2)) * OF_A_MEDIAN * math.sqrt(variance)
    return max(0.0, trace.iteration_s - half_s), trace.iteration_s + half_s


class Travel(NamedTuple):
    """Seconds per iteration, averaged over all devices."""

    travel_s: float
    """Seconds with at least one message from or to the device in flight."""
    hidden_s: float
    """Part of ``travel_s`` in which the device also computes, so that the messages cost nothing."""


def travel(trace: TraceColumns) -> Travel:
    """Return how long messages are in flight, and how much of that time overlaps with computation.

    A message lasts from the start of its send to the end of its receive. It counts only if both are in the trace.
    Several iterations are averaged, with ``iteration_weights``.
    """
    n_positions, n_replicas = len(trace.context.devices), len(trace.context.devices[0])
    n_devices = n_positions * n_replicas
    position = np.array([action.stage % n_positions for action in trace.actions])[trace.action]
    _, iteration = np.unique(trace.iteration, return_inverse=True)
    owner = (iteration * n_positions + position) * n_replicas + trace.replica
    sent, received = trace.message_rows()
    rows = np.flatnonzero(np.array([action.lane is Lane.COMPUTE for action in trace.actions])[trace.action])
    messages = [
        # A message is under way for both its ends.
        np.concatenate([owner[sent], owner[received]]),
        np.tile(trace.start_s[sent], 2),
        np.tile(trace.end_s[received], 2),
    ]
    passes = [owner[rows], trace.start_s[rows], trace.end_s[rows]]
    either = [np.concatenate(pair) for pair in zip(messages, passes, strict=True)]
    weight = np.repeat(trace.iteration_weights, n_devices) / n_devices
    under_way_s, busy_s, either_s = (float(weight @ _covered_s(of, len(weight))) for of in (messages, passes, either))
    # Overlap = seconds of messages + seconds of computation - seconds of either.
    return Travel(under_way_s, max(0.0, under_way_s + busy_s - either_s))


def _covered_s(spans: Sequence[np.ndarray], n_owners: int) -> FloatArray:
    """Return (n_owners,) seconds that each owner's spans (owner, start_s, end_s) cover. Overlaps count once."""
    owner, start_s, end_s = spans
    if not len(owner):
        return np.zeros(n_owners)
    order = np.lexsort((start_s, owner))
    owner, start_s, end_s = owner[order], start_s[order], end_s[order]
    apart = owner * (float(end_s.max()) + 1.0)  # puts all owners on one time axis, one after the other
    reach = np.maximum.accumulate(apart + end_s)
    known = np.concatenate([[-np.inf], reach[:-1]]) - apart
    new_s = np.maximum(end_s - np.maximum(start_s, known), 0.0)
    covered: FloatArray = np.bincount(owner, new_s, minlength=n_owners).astype(np.float64)
    return covered


class Trace(TraceColumns):
    """When every action of every device started and ended, and what explains it."""

    def __repr__(self) -> str:
        c = self.context
        return f"<Trace {c.source} {c.schedule}, {c.clock} clock: {self.n_iterations} x {self.iteration_s:.6g} s>"

    interval = interval_of
    critical_path = causes.critical_path
    critical_summary = causes.critical_summary

    @property
    def bubble(self) -> pd.DataFrame:
        """Each device's busy seconds, and idle seconds by cause: see ``domain.trace.causes``."""
        return causes.bubble(self)

    @cached_property
    def travel(self) -> Travel:
        """How long a device's messages are in flight, and how much of that overlaps with computation."""
        return travel(self)

    def spans(self) -> list[Span]:
        columns = (self.iteration, self.replica, self.action, self.start_s, self.end_s)
        return [Span(i, r, self.actions[a], s, e) for i, r, a, s, e in zip(*(c.tolist() for c in columns), strict=True)]

    def to_frame(self) -> pd.DataFrame:
        """Return one row per action: iteration, replica, stage, device, kind, microbatch and peer (-1: none), lane,
        link ("a -> b", empty for computations), start_s, end_s."""
        import pandas as pd  # takes a while to load

        table = [
            (
                a.stage,
                self.device(a, replica),
                a.kind.value,
                -1 if a.microbatch is None else a.microbatch,
                -1 if a.peer is None else a.peer,
                LANE[a.kind].value,
                self.link(a, replica),
            )
            for replica in range(len(self.context.devices[0]))
            for a in self.actions
        ]
        columns = ["stage", "device", "kind", "microbatch", "peer", "lane", "link"]
        described = pd.DataFrame(table, columns=columns).iloc[self.replica * len(self.actions) + self.action]
        described = described.reset_index(drop=True)
        described.insert(0, "iteration", self.iteration)
        described.insert(1, "replica", self.replica)
        described["start_s"], described["end_s"] = self.start_s, self.end_s
        return described

    def profile_frame(self) -> pd.DataFrame:
        """Return the compute times known before the run: stage, replica, kind, seconds."""
        import pandas as pd  # takes a while to load

        rows: list[Any] = list(self.context.profile)
        return pd.DataFrame(rows, columns=list(ComputeTime._fields))

    @property
    def metrics(self) -> dict[str, float | None]:
        """Return throughput, utilisation and price at ``iteration_s``: see ``RunContext.metrics``."""
        return self.context.metrics(self.iteration_s)
