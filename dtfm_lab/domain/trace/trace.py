"""What happened, or is predicted to happen, on every device, and the interval in which an iteration lies.

All computations of a prediction err by one factor, and all messages by another: kernels and frameworks are misjudged
alike on all devices, and an iteration waits for the slowest of many links, so that errors of their own would not
cancel. What each factor makes of the iteration was simulated (``RunContext.swings``); the two, and the noise of a
measurement, are independent.
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
"""One standard deviation of the logarithm of the seconds of one plan measured again: 15 plans that Sailor's authors
measured twice differ by 5.0 % in the mean, 3.5 % a measurement. No prediction is surer."""
CONFIDENCE = 0.9
"""Where none is asked for."""
UNKNOWN = 0.0, math.inf
"""The interval of a number of which nothing says how sure it is."""
OF_A_MEDIAN = math.sqrt(math.pi / 2)
"""Standard error of a median over that of a mean, for normal noise."""


def interval_of(trace: TraceColumns, confidence: float = CONFIDENCE) -> tuple[float, float]:
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
    low_s, high_s = interval_of(trace, CONFIDENCE)
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


class Travel(NamedTuple):
    """Seconds of an iteration, the mean of all devices."""

    travel_s: float
    """In which at least one message from or to the device is under way."""
    hidden_s: float
    """In which it also computes: what messages do not cost."""


def travel(trace: TraceColumns) -> Travel:
    """Return how long messages travel and how much of that computation hides.

    A message lasts from the start of its send to the end of its receive; where either was not traced it does not count.
    Of several iterations the mean; where only every H-th synchronises, it counts as one of H.
    """
    n_positions, n_replicas = len(trace.context.devices), len(trace.context.devices[0])
    n_devices = n_positions * n_replicas
    position = np.array([action.stage % n_positions for action in trace.actions])[trace.action]
    _, iteration = np.unique(trace.iteration, return_inverse=True)
    owner = (iteration * n_positions + position) * n_replicas + trace.replica
    sent, received = trace.message_rows()
    rows = np.flatnonzero(np.array([action.lane is Lane.COMPUTE for action in trace.actions])[trace.action])
    messages = [
        np.concatenate([owner[sent], owner[received]]),
        np.tile(trace.start_s[sent], 2),
        np.tile(trace.end_s[received], 2),
    ]
    passes = [owner[rows], trace.start_s[rows], trace.end_s[rows]]
    either = [np.concatenate(pair) for pair in zip(messages, passes, strict=True)]
    weight = np.repeat(trace.iteration_weights, n_devices) / n_devices
    under_way_s, busy_s, either_s = (float(weight @ _covered_s(of, len(weight))) for of in (messages, passes, either))
    return Travel(under_way_s, max(0.0, under_way_s + busy_s - either_s))


def _covered_s(spans: Sequence[np.ndarray], n_owners: int) -> FloatArray:
    """(n_owners,) seconds that the spans (owner, start_s, end_s) of each cover, those that overlap once."""
    owner, start_s, end_s = spans
    if not len(owner):
        return np.zeros(n_owners)
    order = np.lexsort((start_s, owner))
    owner, start_s, end_s = owner[order], start_s[order], end_s[order]
    apart = owner * (float(end_s.max()) + 1.0)  # on one axis, the owners one after the other
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
        """Each device's seconds busy, and idle by cause: see ``domain.trace.causes``."""
        return causes.bubble(self)

    @cached_property
    def travel(self) -> Travel:
        """How long a device's messages travel, and how much of that it computes: see ``domain.trace.overlap``."""
        return travel(self)

    def spans(self) -> list[Span]:
        columns = (self.iteration, self.replica, self.action, self.start_s, self.end_s)
        return [Span(i, r, self.actions[a], s, e) for i, r, a, s, e in zip(*(c.tolist() for c in columns), strict=True)]

    def to_frame(self) -> pd.DataFrame:
        """One row an action: iteration, replica, stage, device, kind, microbatch and peer (-1: none),
        lane, link ("a -> b", empty for computations), start_s, end_s."""
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
        """The compute times known before the run: stage, replica, kind, seconds."""
        import pandas as pd  # takes a while to load

        rows: list[Any] = list(self.context.profile)
        return pd.DataFrame(rows, columns=list(ComputeTime._fields))

    @property
    def metrics(self) -> dict[str, float | None]:
        """Throughput, utilisation and price of ``iteration_s``: see ``RunContext.metrics``."""
        return self.context.metrics(self.iteration_s)
