"""What happened, or is predicted to happen, on every device."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from dtfm_lab.domain.schedule import LANE, Lane
from dtfm_lab.domain.trace import causes
from dtfm_lab.domain.trace.columns import Span, TraceColumns
from dtfm_lab.domain.trace.interval import interval as interval_of
from dtfm_lab.domain.trace.run_context import ComputeTime
from dtfm_lab.domain.units import FloatArray


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
        rows: list[Any] = list(self.context.profile)
        return pd.DataFrame(rows, columns=list(ComputeTime._fields))

    @property
    def metrics(self) -> dict[str, float | None]:
        """Throughput, utilisation and price of ``iteration_s``: see ``RunContext.metrics``."""
        return self.context.metrics(self.iteration_s)
