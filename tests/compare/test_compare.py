"""A prediction against a measurement: every row has its partner, and an error is where it was made."""

import itertools
import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from measured_traces import lecture_hall_plan

from dtfm_lab.compare import compare
from dtfm_lab.domain.errors import TraceError
from dtfm_lab.domain.schedule import Action, Kind
from dtfm_lab.domain.trace import Span, Trace
from dtfm_lab.simulation.schedules import schedules
from dtfm_lab.simulation.simulate import simulate


def measured(trace: Trace, n_iterations: int = 1, change=lambda span: span) -> Trace:
    """As if it had run: every row in every iteration, changed as told."""
    spans = [change(span._replace(iteration=i)) for i in range(n_iterations) for span in trace.spans()]
    return Trace.from_spans(replace(trace.context, source="measured", clock="virtual", links="emulated"), spans)


PREDICTED = simulate(lecture_hall_plan())


@pytest.mark.parametrize("name", sorted(schedules))
@pytest.mark.parametrize("n_iterations", [1, 3])
def test_every_measured_row_has_its_prediction(name, n_iterations):
    predicted = simulate(lecture_hall_plan(), name)
    ran = measured(predicted, n_iterations)
    rows = compare(predicted, ran).rows
    key = ["iteration", "replica", "stage", "kind", "microbatch", "peer"]
    assert len(rows) == len(ran) == n_iterations * len(predicted)
    assert not rows[key].duplicated().any()
    assert not rows.drop(columns="link").isna().any().any()


@pytest.mark.parametrize("n_iterations", [1, 3])
def test_a_trace_compared_to_itself_has_no_error(n_iterations):
    found = compare(PREDICTED, measured(PREDICTED, n_iterations))
    assert found.iteration_error == 0
    for what in ("start_s", "end_s", "duration_s"):
        assert (found.rows[f"{what}_error"] == 0).all()
    for table in (found.iterations, found.kinds, found.stages, found.devices, found.links):
        assert (table["error_s"] == 0).all()
    assert (found.links["arrival_error_s"] == 0).all()


@given(st.floats(0.1, 10), st.floats(0, 100))
@settings(max_examples=10)
def test_a_run_k_times_as_slow_and_later_was_predicted_at_a_kth(k, later_s):
    def slowed(span: Span) -> Span:
        return span._replace(start_s=k * span.start_s + later_s, end_s=k * span.end_s + later_s)

    found = compare(PREDICTED, measured(PREDICTED, 2, slowed))
    whole_s = PREDICTED.iteration_s
    assert found.iterations["error_s"].to_numpy() == pytest.approx((k - 1) * whole_s + later_s)
    assert found.iteration_error == pytest.approx(found.iterations["error_s"][0] / whole_s)
    assert found.rows["end_s_error"].to_numpy() == pytest.approx((k - 1) * found.rows["end_s_predicted"] + later_s)
    assert (found.kinds["count"] > 0).all()
    assert found.kinds["count"].sum() == 2 * len(PREDICTED)
    assert found.stages["relative_error"].to_numpy() == pytest.approx(k - 1)
    assert found.links["relative_error"].to_numpy() == pytest.approx(k - 1)


def test_one_slow_device_shows_on_its_stage_and_nowhere_else():
    def slower(span: Span) -> Span:
        slow = (span.replica, span.action.stage, span.action.kind) == (1, 2, Kind.FORWARD)
        return span._replace(end_s=span.end_s + 0.5) if slow else span

    found = compare(PREDICTED, measured(PREDICTED, 2, slower))
    n_microbatches = lecture_hall_plan().job.n_microbatches
    assert found.devices["error_s"].round(9).to_dict() == {
        (stage, device): 0.5 * n_microbatches if device == PREDICTED.context.devices[2][1] else 0.0
        for stage, devices in enumerate(lecture_hall_plan().stages)
        for device in devices
    }
    assert found.stages["error_s"].to_numpy() == pytest.approx([0, 0, 0.5 * n_microbatches / 2, 0])
    assert found.kinds.loc["B", "error_s"] == 0


def test_the_stage_table_is_the_computation_of_one_iteration():
    plan = lecture_hall_plan()
    time_of = {row[:3]: row.seconds for row in PREDICTED.context.profile}
    stages = compare(PREDICTED, measured(PREDICTED, 3)).stages
    for stage in range(4):
        each_s = time_of[stage, 0, Kind.FORWARD] + time_of[stage, 0, Kind.BACKWARD]
        assert stages.loc[stage, "measured_s"] == pytest.approx(plan.job.n_microbatches * each_s)


def test_the_link_table_counts_the_messages_of_one_iteration_in_their_direction():
    plan, links = lecture_hall_plan(), compare(PREDICTED, measured(PREDICTED, 3)).links
    neighbours = {(a, b) for pipe in plan.pipelines for pair in itertools.pairwise(pipe) for a, b in (pair, pair[::-1])}
    partners = {(a, b) for group in plan.stages for a in group for b in group if a != b}
    counts = {tuple(link.split(" -> ")): n for link, n in links["count"].items()}
    assert counts == dict.fromkeys(neighbours, plan.job.n_microbatches) | dict.fromkeys(partners, 2)


def test_a_worse_link_shows_on_its_own_direction_only():
    plan = lecture_hall_plan()
    slow = replace(plan, topology=plan.topology.with_link("ada", "barbara", bandwidth_bytes_per_s=1e6, one_way=True))
    errors = compare(simulate(plan), measured(simulate(slow))).links["error_s"]
    assert errors["ada -> barbara"] > 0
    assert errors.drop("ada -> barbara").to_numpy() == pytest.approx(0, abs=1e-12)


def test_a_prediction_of_one_iteration_serves_every_measured_one():
    later = measured(PREDICTED, 3, lambda s: s._replace(end_s=s.end_s + s.iteration))
    frame = compare(PREDICTED, later).iterations
    assert frame["error_s"].to_numpy() == pytest.approx([0, 1, 2])
    assert compare(later, later).iteration_error == 0


@pytest.mark.parametrize(("every", "n_iterations"), [(2, 1), (2, 3), (3, 1), (3, 2), (3, 3), (3, 5)])
def test_a_run_of_local_updates_has_no_error_however_few_of_its_iterations_were_measured(every, n_iterations):
    plan = lecture_hall_plan(synchronise_every=every)
    predicted = simulate(plan)
    alone, together = ([span for span in predicted.spans() if span.iteration == i] for i in (every - 2, every - 1))
    which = [together if (i + 1) % every == 0 else alone for i in range(n_iterations)]
    spans = [span._replace(iteration=i) for i in range(n_iterations) for span in which[i]]
    found = compare(predicted, Trace.from_spans(replace(predicted.context, source="measured"), spans))
    assert len(found.rows) == len(spans)
    assert (found.rows["end_s_error"] == 0).all()
    assert (found.iterations["error_s"] == 0).all()
    assert found.iteration_error == 0
    assert found.summary()["predicted_iteration_s"] == found.measured.iteration_s
    partners = {f"{a} -> {b}" for group in plan.stages for a in group for b in group if a != b}
    averaging = found.links["count"][found.links.index.isin(partners)]
    assert averaging.tolist() == pytest.approx(
        [2 * (n_iterations // every) / n_iterations] * 8 if n_iterations >= every else [], abs=0.01
    )


def test_the_summary_is_plain_json():
    found = compare(PREDICTED, measured(PREDICTED, 2))
    summary = json.loads(json.dumps(found.summary(), allow_nan=False))
    assert summary["rows"] == 2 * len(PREDICTED)
    assert summary["iteration_error"] == 0
    assert (summary["clock"], len(summary["iterations"]), len(summary["stages"])) == ("virtual", 2, 4)
    assert "error 0 s (0.0 %)" in found._repr_html_()


def extra(trace: Trace) -> Trace:
    return Trace.from_spans(trace.context, [*trace.spans(), Span(0, 0, Action(0, Kind.FORWARD, 99), 0.0, 1.0)])


@pytest.mark.parametrize(
    ("predicted", "ran", "says"),
    [
        (PREDICTED, simulate(lecture_hall_plan(), "zb-h1"), "zb-h1"),
        (
            PREDICTED,
            simulate(lecture_hall_plan(global_batch=8)),
            "in one trace only.* predicted one .*wanted the same actions",
        ),
        (PREDICTED, extra(PREDICTED), "1 action in one trace only, the first 0F in the measured one"),
        (extra(PREDICTED), PREDICTED, "1 action in one trace only, the first 0F in the predicted one"),
        (
            PREDICTED,
            simulate(lecture_hall_plan([(1, 0), (2, 3), (4, 5), (6, 7)])),
            "different placements; wanted two of one plan",
        ),
        (
            measured(PREDICTED, 2),
            measured(PREDICTED, 3),
            "predicted has 2 iterations, measured 3; wanted one or as many",
        ),
    ],
    ids=[
        "another schedule",
        "fewer micro-batches",
        "an action more",
        "an action less",
        "another placement",
        "other iterations",
    ],
)
def test_traces_of_different_things_are_refused_in_one_line(predicted, ran, says):
    with pytest.raises(TraceError, match=says):
        compare(predicted, ran)
