"""Rows of what happened: refused when they contradict each other, the same as spans, columns or frame."""

from dataclasses import replace

import numpy as np
import pytest

from dtfm_lab.domain.errors import TraceError
from dtfm_lab.domain.schedule import Action, Kind
from dtfm_lab.domain.trace import ComputeTime, RunContext, Span, Trace, TracedPlan

F0, B0, SEND, RECV = Action(0, Kind.FORWARD, 0), Action(0, Kind.BACKWARD, 0), Kind.SEND_F, Kind.RECV_F
PLAN = TracedPlan(devices=(("a", "b"), ("c", "d")))
CONTEXT = RunContext(
    source="measured",
    clock="virtual",
    schedule="gpipe",
    links="emulated",
    plan=PLAN,
    profile=(ComputeTime(0, 0, Kind.FORWARD, 1.5),),
)


def columns(**changed):
    good = {"iteration": [0, 0], "replica": [0, 0], "action": [0, 1], "start_s": [0.0, 1.0], "end_s": [1.0, 3.0]}
    return {name: np.array(values) for name, values in (good | changed).items()}


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"end_s": [1.0]}, "columns have lengths .*'end_s': 1.*; wanted one length"),
        ({"end_s": [1.0, 0.5]}, r"row 1 \(0B0\) ends before it starts"),
        ({"action": [0, 0]}, "holds an action of one iteration and replica twice"),
        ({key: [] for key in columns()}, "no rows; wanted at least one"),
        ({"action": [0, 2]}, "action"),
        ({"action": [0, -1]}, "action"),
        ({"replica": [0, 99]}, "replica"),
        ({"replica": [0, -1]}, "replica"),
    ],
    ids=str,
)
def test_rows_that_contradict_each_other_are_refused(changed, says):
    with pytest.raises(TraceError, match=says):
        Trace(CONTEXT, (F0, B0), **columns(**changed))


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        (
            {"plan": replace(PLAN, synchronise_every=0)},
            "synchronise_every of the trace is 0; wanted a whole number",
        ),
        (
            {"plan": replace(PLAN, stages_per_device=10**30)},
            "stages_per_device of the trace is 10*; wanted a whole number",
        ),
        ({"schedule": "two\nlines"}, "schedule of the trace is .*; wanted text without control characters"),
        (
            {"plan": replace(PLAN, devices=(("a", "b\n"), ("c", "d")))},
            "a device of the trace is .*; wanted text without control characters",
        ),
    ],
)
def test_a_context_that_is_of_no_run_is_refused_in_one_line(changed, says):
    with pytest.raises(TraceError, match=says):
        Trace(replace(CONTEXT, **changed), (F0, B0), **columns())


def test_a_microbatch_beyond_all_counts_is_refused():
    with pytest.raises(TraceError, match="which no device of 2 stages x 2 replicas does"):
        Trace(CONTEXT, (F0, B0._replace(microbatch=2**63)), **columns())


def test_spans_in_any_order_make_the_same_trace():
    spans = [Span(i, r, a, 4.0 * i + s, 4.0 * i + s + 1) for i in (0, 1) for r in (0, 1) for a, s in ((F0, 0), (B0, 2))]
    trace = Trace.from_spans(CONTEXT, reversed(spans))
    assert trace.spans() == spans == Trace.from_spans(CONTEXT, spans).spans()
    assert len(trace) == 8
    assert trace.n_iterations == 2


def test_one_slow_start_does_not_count():
    ends = [50.0, 3.0, 5.0]
    trace = Trace.from_spans(CONTEXT, [Span(i, 0, F0, 0.0, end) for i, end in enumerate(ends)])
    assert trace.iteration_ends_s.tolist() == ends
    assert trace.iteration_s == 5


def test_the_compute_share_leaves_transfers_and_gaps_out():
    spans = [Span(0, 0, F0, 0, 2), Span(0, 0, Action(0, SEND, 0), 2, 10), Span(0, 0, B0, 8, 10)]
    assert Trace.from_spans(CONTEXT, spans).compute_share == pytest.approx((2 + 2) / (4 * 10))


def test_a_frame_names_devices_and_links_in_the_direction_of_the_bytes():
    spans = [
        Span(0, 1, F0, 0, 1),
        Span(0, 1, Action(0, SEND, 0), 1, 2),
        Span(0, 1, Action(1, RECV, 0), 2, 3),
        Span(0, 1, Action(1, Kind.SEND_G, peer=1), 4, 5),
        Span(0, 1, Action(1, Kind.RECV_G, peer=1), 5, 6),
    ]
    frame = Trace.from_spans(CONTEXT, spans).to_frame()
    assert frame["device"].tolist() == ["b", "b", "d", "d", "d"]
    assert frame["link"].tolist() == ["", "b -> d", "b -> d", "d -> c", "c -> d"]
    assert frame["lane"].tolist() == ["compute", "send", "receive", "send", "receive"]
    assert frame["microbatch"].tolist() == [0, 0, 0, -1, -1]
    assert frame["peer"].tolist() == [-1, -1, -1, 1, 1]


def test_the_profile_is_a_table():
    trace = Trace(CONTEXT, (F0, B0), **columns())
    assert trace.profile_frame().to_dict("records") == [{"stage": 0, "replica": 0, "kind": "F", "seconds": 1.5}]
