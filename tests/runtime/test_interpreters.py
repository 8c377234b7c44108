"""Simulator and workers play the same schedule by the same table."""

from __future__ import annotations

import pytest
from run_helpers import even_plan, lecture_hall_plan, small_model, small_plan

import dtfm_lab as lab
from dtfm_lab.domain.schedule import COMPUTE, RECEIVES, Kind
from dtfm_lab.domain.trace import Trace


@pytest.fixture(scope="module", params=["adaptive-1f1b", "interleaved-1f1b"])
def virtual(request: pytest.FixtureRequest) -> tuple[Trace, Trace]:
    plan = lecture_hall_plan(2, 2, model=small_model(), global_batch=8)
    measured = lab.run(plan, request.param, iterations=2, clock="virtual")
    return lab.simulate(plan, like=measured), measured


def test_every_row_of_one_is_a_row_of_the_other(virtual: tuple[Trace, Trace]) -> None:
    predicted, measured = virtual
    comparison = lab.compare(predicted, measured)
    assert len(comparison.rows) == len(measured) == 2 * len(predicted)
    assert comparison.rows.notna().all().all()


def test_both_keep_the_same_order_on_every_lane(virtual: tuple[Trace, Trace]) -> None:
    predicted, measured = (trace.to_frame() for trace in virtual)
    lane = ["replica", "stage", "lane", "link"]
    action = ["kind", "microbatch", "peer"]
    for iteration, rows in measured.groupby("iteration"):
        for key, ours in rows.sort_values("start_s", kind="stable").groupby(lane):
            theirs = predicted.sort_values("start_s", kind="stable").groupby(lane).get_group(key)
            assert ours[action].to_numpy().tolist() == theirs[action].to_numpy().tolist(), (iteration, key)


def test_a_measured_message_takes_what_the_drawn_link_takes(virtual: tuple[Trace, Trace]) -> None:
    rows = lab.compare(*virtual).rows
    messages = rows[rows["lane"] != "compute"]
    assert messages["duration_s_error"].abs().max() < 1e-9
    sends = {
        (r.iteration, r.replica, r.stage, r.kind, r.microbatch, r.link): r
        for r in messages.itertuples()
        if r.lane == "send" and r.peer == -1
    }
    for r in messages[(messages["lane"] == "receive") & (messages["peer"] == -1)].itertuples():
        from_stage = r.stage - 1 if r.kind == Kind.RECV_F else r.stage + 1
        send = sends[r.iteration, r.replica, from_stage, RECEIVES[Kind(r.kind)].value, r.microbatch, r.link]
        lag_s = r.start_s_measured - send.start_s_measured
        assert lag_s == pytest.approx(r.start_s_predicted - _predicted_start(rows, send), abs=1e-9), "the latency"


def _predicted_start(rows, send) -> float:
    return float(rows.at[send.Index, "start_s_predicted"])


def test_the_profile_was_known_before_the_first_iteration(virtual: tuple[Trace, Trace]) -> None:
    predicted, measured = virtual
    assert predicted.context.profile == measured.context.profile
    known = [(row.stage, row.replica, row.kind) for row in measured.context.profile]
    done = {(span.action.stage, span.replica, span.action.kind) for span in measured.spans()}
    assert sorted(known) == sorted(work for work in done if work[2] in COMPUTE)
    assert all(row.seconds > 0 for row in measured.context.profile)


def test_the_paced_clock_agrees_when_nothing_was_late() -> None:
    plan = small_plan(2, 2, global_batch=8)
    for _ in range(3):  # a busy machine may be late, or have a profile that is slower than the run: then again
        measured = lab.run(plan, iterations=2, clock="paced")
        context = measured.context
        assert (context.clock, context.links) == ("paced", "emulated")
        if context.late_messages == context.overruns == 0:
            break
    error = lab.compare(lab.simulate(plan, like=measured), measured).iteration_error
    print(f"paced: {error:+.3%}, {context.late_messages} late, {context.overruns} overruns, x{context.time_scale:.1f}")
    assert context.time_scale >= 1
    if context.late_messages == context.overruns == 0:
        assert abs(error) < 0.04
    else:
        assert error < 0.04, "what is late is measured as late"


def test_a_single_pipeline_of_unequal_stages_runs_on_real_links() -> None:
    plan = even_plan(3, 1, global_batch=2)
    assert plan.layers == (4, 3, 3)
    measured = lab.run(plan, iterations=1, clock="real")
    assert (measured.context.clock, measured.context.links) == ("real", "real")
    assert measured.iteration_s > 0
    predicted = lab.simulate(plan, like=measured)
    assert predicted.context.links == "real"
    assert len(lab.compare(predicted, measured).rows) == len(measured)
    assert set(measured.to_frame()["kind"]) == {"F", "B", "SEND_F", "RECV_F", "SEND_B", "RECV_B", "STEP"}
