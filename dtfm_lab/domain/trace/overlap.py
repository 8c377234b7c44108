"""How long each device's messages travel in an iteration, and for how much of that it computes meanwhile."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dtfm_lab.domain.schedule import Lane
from dtfm_lab.domain.trace.columns import TraceColumns
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
