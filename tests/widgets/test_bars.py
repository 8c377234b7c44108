"""What the Gantt canvas is told of a trace: bars, what they waited for, messages, the path; and what leaves it."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtfm_lab import lab
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import SENDS, Kind, Lane, synchronisations
from dtfm_lab.files.traces import chrome_events
from dtfm_lab.simulation import schedules, simulate
from dtfm_lab.widgets.schedule.predictions import GanttExports, chrome_text
from dtfm_lab.widgets.views.candidates import CandidatesView
from dtfm_lab.widgets.views.gantt import GanttView
from dtfm_lab.widgets.views.gantt.bars import (
    DISPLAYED,
    FIRST_MESSAGE,
    KIND_INDEX,
    NO_BAR,
    NO_BARS,
    ROWS_PER_DEVICE,
    Bars,
    Chart,
    ChartRows,
    lateness_s,
    legend,
    units_of,
)
from dtfm_lab.widgets.views.gantt.bars import _place as place


@pytest.fixture(scope="module")
def plan() -> Plan:
    topology = lab.load_topology("lecture-hall")
    return lab.plan(topology, lab.load_job("tiny", n_stages=4, n_replicas=2), objective="communication", steps=1)


@pytest.fixture(scope="module")
def crowd() -> Plan:
    topology = lab.load_topology("worldwide")
    return lab.plan(topology, lab.load_job("dtfm-gpt3-xl", global_batch=64), objective="communication", steps=1)


def charted(plan, schedule, queueing="pairs"):
    trace = simulate(plan, schedule, queueing=queueing)
    rows = ChartRows(trace.context)
    return trace, rows, rows.chart(trace)


def test_every_kind_has_a_bar_or_is_the_receive_of_one():
    assert {*DISPLAYED, *SENDS.values()} == set(Kind)


@pytest.mark.parametrize("schedule", sorted(schedules))
def test_everything_but_receives_gets_one_bar_on_its_devices_rows(plan, schedule):
    trace, rows, chart = charted(plan, schedule)
    told = trace.to_frame()
    told = told[told["lane"] != Lane.RECEIVE.value]
    assert len(chart.bars.start) == len(told)
    device = {name: i for i, name in enumerate(name for group in trace.context.devices for name in group)}
    expected = told["device"].map(device) * 2 + (told["lane"] == Lane.SEND.value)
    assert sorted(chart.bars.row.tolist()) == sorted(expected.tolist())
    assert chart.bars.row.max() < len(rows.labels)


@pytest.mark.parametrize("queueing", ["pairs", "nics"])
@pytest.mark.parametrize("schedule", sorted(schedules))
def test_a_bar_starts_when_what_it_waited_for_is_over(plan, schedule, queueing):
    _, _, chart = charted(plan, schedule, queueing)
    waited = chart.after
    bars, messages = chart.bars, chart.messages
    for_bar, for_message = waited > NO_BAR, waited <= FIRST_MESSAGE
    assert bars.start[for_bar] == pytest.approx(bars.end[waited[for_bar]], rel=1e-5)
    assert bars.start[for_message] == pytest.approx(messages.arrives[FIRST_MESSAGE - waited[for_message]], rel=1e-5)
    assert np.all(bars.start[waited == NO_BAR] == 0)
    in_time = bars.kind == KIND_INDEX[Kind.FORWARD]
    assert for_message[in_time].any()


def test_a_message_goes_from_its_senders_row_to_its_receivers(plan):
    trace, rows, chart = charted(plan, "1f1b")
    frame = trace.to_frame()
    links = frame.loc[frame["lane"] == Lane.SEND.value, "link"]
    label = [name.split(" · ")[1] for name in rows.names for _ in range(ROWS_PER_DEVICE)]
    drawn = [f"{label[a]} -> {label[b]}" for a, b in zip(chart.messages.source, chart.messages.target, strict=True)]
    assert sorted(drawn) == sorted(links)
    assert np.all(chart.messages.arrives > chart.messages.leaves)


@pytest.mark.parametrize("synchronisation", sorted(synchronisations))
@pytest.mark.parametrize("which", ["plan", "crowd"])
def test_the_path_goes_from_the_beginning_to_the_end_without_a_step_back(which, synchronisation, request):
    plan = request.getfixturevalue(which)
    tried = replace(plan, job=replace(plan.job, synchronisation=synchronisation))
    trace, _, chart = charted(tried, "1f1b")
    path = chart.path
    assert path.start[0] == 0
    assert path.end[-1] == pytest.approx(trace.iteration_s)
    assert np.all(path.end >= path.start)
    assert np.all(path.start[1:] >= path.end[:-1] - 1e-5 * trace.iteration_s)
    on_bars = path.bar != NO_BAR
    assert np.array_equal(chart.bars.row[path.bar[on_bars]], path.row[on_bars])


def test_of_many_devices_a_row_is_a_stage_with_computations_messages_and_its_devices(crowd):
    _, rows, chart = charted(crowd, "gpipe")
    units = units_of(rows, {name: f"region {name[0]}" for name in rows.devices})
    assert [unit["stage"] for unit in units] == list(range(8))
    assert [len(unit["members"]) for unit in units] == [8] * 8
    assert {row for unit in units for one in unit["members"] for row in one["rows"]} == set(range(128))
    for unit in units:
        assert unit["rows"] == unit["members"][0]["rows"], "a closed stage shows its first pipeline"
        above, below = (set(chart.bars.kind[chart.bars.row == row]) for row in unit["rows"])
        assert not {DISPLAYED[kind] for kind in above} & set(SENDS)
        assert {DISPLAYED[kind] for kind in below} <= set(SENDS)
        assert below, "synchronisation is not left out"
        assert "of pipeline 0" in unit["tip"]


def test_a_device_with_two_stages_names_both_and_shades_their_passes(plan):
    _, rows, chart = charted(plan, "interleaved-1f1b")
    assert rows.names[0].startswith("S0, S4 · ")
    assert set(chart.bars.stage.tolist()) == set(range(8))
    shades = {entry["name"]: entry["shades"] for entry in legend(2)}
    assert len(set(shades["forward"])) == 2
    assert len(shades["activation"]) == 1


def test_what_bars_are_called_survives_the_sorting_of_the_view(plan):
    _, rows, chart = charted(plan, "zb-h1")
    view = GanttView()
    view.set_predicted(chart, rows=rows.labels, kinds=legend(1))
    start, end = (np.frombuffer(column, "<f4") for column in (view.start, view.end))
    after, bar = np.frombuffer(view.after, "<i4"), np.frombuffer(view.path["bar"], "<i4")
    assert start[after > NO_BAR] == pytest.approx(end[after[after > NO_BAR]], rel=1e-5)
    on_bars = bar != NO_BAR
    assert np.array_equal(start[bar[on_bars]], np.frombuffer(view.path["start"], "<f4")[on_bars])
    assert sorted(after[after <= FIRST_MESSAGE]) == sorted(chart.after[chart.after <= FIRST_MESSAGE])
    view.clear()
    assert (view.start, view.after, view.path["bar"], view.rows) == (b"", b"", b"", [])


def test_a_trace_that_does_not_know_what_waited_for_what_has_bars_only(plan):
    measured = replace(simulate(plan, "gpipe"), after=None)
    chart = ChartRows(measured.context).chart(measured)
    assert len(chart.bars.start)
    assert (chart.after, len(chart.path.bar), len(chart.messages.leaves)) == (None, 0, 0)


def drawn(plan: Plan, schedule: str = "1f1b") -> GanttView:
    trace = simulate(plan, schedule)
    rows = ChartRows(trace.context)
    chart = rows.chart(trace)
    view = GanttView(title="<one> & iteration", caption="a < b")
    view.set_predicted(chart, rows=rows.labels, kinds=legend(1), devices=rows.devices)
    return view


def test_the_table_of_schedules_has_words():
    rows = [
        {"name": "gpipe", "iteration_s": 2.0, "bubble": 0.5, "memory": "1 GiB of 2 GiB on <ada>", "fits": True},
        {"name": "1f1b", "problem": "cannot be"},
        {"name": "zb-h1"},
    ]
    assert CandidatesView(rows=rows, title="Schedules").alt_text() == "Schedules: gpipe 2 s"


def test_the_trace_that_is_offered_is_the_one_that_is_saved(plan):
    trace = simulate(plan, "1f1b")
    assert json.loads(chrome_text(trace))["traceEvents"] == chrome_events(trace)


def test_files_travel_packed_and_only_where_there_is_something(plan):
    view, sent = drawn(plan), []
    view.send = lambda content, buffers=(): sent.append((content, buffers))
    view.offer("a.svg", "image/svg+xml", b"<svg/>")
    exports = GanttExports(view, lambda: None, print)
    exports.png.click()
    assert sent[0][0] == {"kind": "file", "name": "a.svg", "type": "image/svg+xml"}
    assert gzip.decompress(sent[0][1][0]) == b"<svg/>"
    assert sent[1][0] == {"kind": "png", "name": "iteration.png"}
    assert not exports.trace.disabled
    view.clear()
    assert exports.trace.disabled


some_bars = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(-1, 3), st.integers(0, 2)), max_size=30
)


@settings(max_examples=40)
@given(some_bars, st.floats(-5, 5), st.randoms(use_true_random=False))
def test_every_bar_of_a_shifted_copy_is_late_by_the_shift(actions, shift_s, random):
    start = np.arange(len(actions), dtype=float)
    row, kind, microbatch, stage = np.array(actions, dtype=int).reshape(-1, 4).T
    upper = Bars.of(start, start + 1, row, kind, microbatch, stage)
    mixed = list(range(len(actions)))
    random.shuffle(mixed)
    lower = Bars.of(
        *(np.asarray(c)[mixed] for c in (start + shift_s, start + 1 + shift_s, row, kind, microbatch, stage))
    )
    assert lateness_s(upper, lower) == pytest.approx(np.full(len(actions), shift_s), abs=1e-5)


def test_actions_of_many_bars_and_many_micro_batches_are_told_apart():
    n, last = 300, 999_999
    start = np.arange(n, dtype=float)
    upper = Bars.of([*start, 0], [*(start + 1), 1], [0] * n + [1], [0] * (n + 1), [-1] * n + [last])
    lower = Bars.of([*start, 0], [*(start + 1.5), 3], [0] * n + [1], [0] * (n + 1), [-1] * n + [last])
    assert lateness_s(upper, lower).tolist() == [0.5] * n + [2.0]
    assert upper.microbatch[-1] == last


def test_what_the_other_chart_does_not_do_has_no_lateness():
    upper = Bars.of([0.0], [1.0], [0], [0], [0])
    lower = Bars.of([0.0, 1.0], [1.5, 2.0], [0, 0], [0, 0], [0, 1])
    assert lateness_s(upper, lower).tolist() == pytest.approx([0.5, np.nan], nan_ok=True)
    assert np.isnan(lateness_s(NO_BARS, lower)).all()
    assert GanttView().alt_text() == "Schedule: No schedule yet"


def test_measured_bars_come_with_how_much_later_they_end():
    view, sent = GanttView(), []
    view.send = lambda content, buffers=(): sent.append((content, buffers))
    chart = Chart(Bars.of([0, 1], [1, 2], [0, 0], [0, 0], [0, 1]))
    view.set_predicted(chart, rows=["ada"], kinds=[{"name": "forward"}])
    view.reset_measured(3)
    view.extend_measured([0.5], [1.5], [0], [0], [0])
    assert [end["text"] for end in view.ends] == ["predicted 2 s"], "the iteration is not whole yet"
    view.extend_measured([1.5], [2.75], [0], [0], [1])
    late_s = [np.frombuffer(buffers[-1], "<f4").tolist() for _, buffers in sent]
    assert late_s == [[0.5], [0.75]]
    assert [end["text"] for end in view.ends] == ["predicted 2 s", "iteration 3 measured 2.75 s, +750 ms (+37.5 %)"]


def test_every_device_of_a_few_is_drawn_once_with_its_two_rows(plan):
    rows = ChartRows(simulate(plan, "gpipe").context)
    units = units_of(rows, {})
    assert [unit["device"] for unit in units] == rows.devices[::ROWS_PER_DEVICE]
    assert [row for unit in units for row in unit["rows"]] == list(range(len(rows.devices)))


def test_what_was_stays_as_a_line_with_a_mark_where_it_ended(plan):
    view = drawn(plan)
    before, ends = view.predicted, view.ends
    assert ends == []
    chart = Chart(Bars.of([0.0], [1.0], [0], [0], [0]))
    view.set_predicted(chart, rows=["ada"], kinds=[{"name": "forward"}], before=before)
    assert len(np.frombuffer(view.ghost["start"], "<f4")) == len(before.start)
    assert [(end["text"][:4], end["dashed"]) for end in view.ends] == [("was ", True)]
    assert view.ends[0]["at"] == before.end.max()


@pytest.mark.parametrize(
    ("regions", "told"),
    [
        (("Oregon", "Tokyo"), "Ore + Tok"),
        (("site-a", "site-b"), "…e-a + …e-b"),
        (("Delhi", "Delhi"), "Delhi"),
        (("Paris", "Delhi", "Paris", "Tokyo"), "Paris +2"),
    ],
)
def test_a_stage_in_several_regions_is_told_by_where_their_names_differ_or_by_their_number(regions, told):
    assert place(regions) == told


def test_a_stage_in_no_region_is_told_by_its_first_device_and_the_number_of_others():
    rows = ChartRows(simulate(lab.plan("worldwide", steps=1), "gpipe").context)
    labels = [unit["label"] for unit in units_of(rows, {})]
    assert labels == [f"{rows.devices[8 * stage * ROWS_PER_DEVICE]} +7" for stage in range(8)]
