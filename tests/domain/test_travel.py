"""How long messages travel in an iteration, and how much of that computation hides."""

from __future__ import annotations

import numpy as np
import pytest

import dtfm_lab as lab
from dtfm_lab.domain.trace import Trace
from dtfm_lab.simulation import schedules

PLAN = lab.evaluate("lecture-hall", "tiny", stages=[[0, 2], [4, 6], [1, 3], [5, 7]])


def by_hand(trace: Trace) -> tuple[float, float]:
    """The same, moment by moment: who is at an end of a message between two ends of anything, and who computes."""
    frame = trace.to_frame()
    sent, received = trace.message_rows()
    names = [name for group in trace.context.devices for name in group]
    moments = np.unique(np.concatenate([trace.start_s, trace.end_s, [0.0]]))
    middle, length_s = (moments[1:] + moments[:-1]) / 2, np.diff(moments)
    travel_s = hidden_s = 0.0
    for name in names:
        ends = [(s, r) for s, r in zip(sent, received, strict=True) if name in frame["link"][s].split(" -> ")]
        spans = [(trace.start_s[s], trace.end_s[r]) for s, r in ends]
        own = frame[(frame["device"] == name) & (frame["lane"] == "compute")]
        travels = np.any([(a < middle) & (middle < b) for a, b in spans], axis=0) if spans else np.zeros(len(middle))
        passes = zip(own["start_s"], own["end_s"], strict=True)
        computes = np.any([(a < middle) & (middle < b) for a, b in passes], axis=0)
        travel_s += float(length_s @ travels)
        hidden_s += float(length_s @ (travels * computes))
    return travel_s / len(names), hidden_s / len(names)


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "zb-h1"])
@pytest.mark.parametrize("choices", [{}, {"transport": "blocking"}, {"synchronisation": "ring", "compression": "fp16"}])
def test_travel_is_what_a_walk_through_all_moments_finds(name: str, choices: dict[str, str]) -> None:
    trace = lab.simulate(PLAN.changed(job=PLAN.job.with_fields(**choices)), name)
    assert trace.travel == pytest.approx(by_hand(trace))


@pytest.mark.parametrize("name", sorted(set(schedules) - {"interleaved-1f1b"}))
def test_no_more_is_hidden_than_travels_and_no_more_travels_than_there_is_time(name: str) -> None:
    trace = lab.simulate(PLAN, name)
    assert 0 <= trace.travel.hidden_s <= trace.travel.travel_s <= trace.iteration_s
    assert trace.travel.hidden_s <= float(trace.bubble["busy_s"].mean()) * (1 + 1e-9)


def test_a_device_alone_sends_nothing() -> None:
    assert lab.simulate(lab.evaluate("lecture-hall", "tiny", stages=[[0]])).travel == (0.0, 0.0)
