"""What leaves the chart: words, traces for viewers, and how two charts are laid on each other."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("anywidget", reason="needs the lab extra")

from dtfm_lab import lab
from dtfm_lab.domain.plan import Plan
from dtfm_lab.files.traces import chrome_events
from dtfm_lab.simulation import simulate
from dtfm_lab.widgets.schedule.schedule_chart import GanttExports
from dtfm_lab.widgets.views.candidates import CandidatesView
from dtfm_lab.widgets.views.gantt import GanttView
from dtfm_lab.widgets.views.gantt.bars import ChartRows, arranged
from dtfm_lab.widgets.views.gantt.columns import NO_BARS, Bars, lateness_s


@pytest.fixture(scope="module")
def plan() -> Plan:
    return lab.plan(lab.load_topology("lecture-hall"), lab.load_job("tiny", n_stages=4, n_replicas=2), steps=1)


def drawn(plan: Plan, schedule: str = "1f1b") -> GanttView:
    trace = simulate(plan, schedule)
    rows = ChartRows(trace.context)
    chart = rows.chart(trace)
    view = GanttView(title="<one> & iteration", caption="a < b")
    view.set_predicted(
        *chart.bars, rows=rows.labels, kinds=rows.legend, devices=rows.devices, after=chart.after, path=chart.path
    )
    return view


def test_nothing_to_draw_is_a_word():
    assert GanttView().alt_text() == "Schedule: No schedule yet"


def test_the_table_of_schedules_has_words():
    rows = [
        {"name": "gpipe", "iteration_s": 2.0, "bubble": 0.5, "memory": "1 GiB of 2 GiB on <ada>", "fits": True},
        {"name": "1f1b", "problem": "cannot be"},
        {"name": "zb-h1"},
    ]
    assert CandidatesView(rows=rows, title="Schedules").alt_text() == "Schedules: gpipe 2 s"


def test_the_trace_that_is_offered_is_the_one_that_is_saved(plan):
    trace = simulate(plan, "1f1b")
    exports = GanttExports(drawn(plan), lambda: trace, print)
    assert json.loads(exports.chrome_trace())["traceEvents"] == chrome_events(trace)
    assert GanttExports(GanttView(), lambda: None, print).chrome_trace() == ""


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


def test_what_the_other_schedule_does_not_do_has_no_lateness(plan):
    upper = Bars.of([0.0], [1.0], [0], [0], [0])
    lower = Bars.of([0.0, 1.0], [1.5, 2.0], [0, 0], [0, 0], [0, 1])
    assert lateness_s(upper, lower)[0] == 0.5
    assert np.isnan(lateness_s(upper, lower)[1])
    assert np.isnan(lateness_s(NO_BARS, lower)).all()


def test_actions_of_many_bars_and_many_micro_batches_are_told_apart():
    n, last = 300, 999_999
    start = np.arange(n, dtype=float)
    upper = Bars.of([*start, 0], [*(start + 1), 1], [0] * n + [1], [0] * (n + 1), [-1] * n + [last])
    lower = Bars.of([*start, 0], [*(start + 1.5), 3], [0] * n + [1], [0] * (n + 1), [-1] * n + [last])
    assert lateness_s(upper, lower).tolist() == [0.5] * n + [2.0]
    assert upper.microbatch[-1] == last


def test_measured_bars_come_with_how_much_later_they_end():
    view, sent = GanttView(), []
    view.send = lambda content, buffers=(): sent.append((content, buffers))
    view.set_predicted([0, 1], [1, 2], [0, 0], [0, 0], [0, 1], rows=["ada"], kinds=[{"name": "forward"}])
    view.reset_measured(3)
    view.extend_measured([0.5], [1.5], [0], [0], [0])
    assert [end["text"] for end in view.ends] == ["predicted 2 s"], "the iteration is not whole yet"
    view.extend_measured([1.5], [2.75], [0], [0], [1])
    late_s = [np.frombuffer(buffers[-1], "<f4").tolist() for _, buffers in sent]
    assert late_s == [[], [0.5], [0.75]]
    assert [end["text"] for end in view.ends] == ["predicted 2 s", "iteration 3 measured 2.75 s, +750 ms (+37.5 %)"]


@pytest.mark.parametrize("by", ["stage", "pipeline", "region"])
@pytest.mark.parametrize("network", [True, False])
def test_every_order_draws_every_device_once_under_its_heading(plan, by, network):
    rows = ChartRows(simulate(plan, "gpipe").context)
    regions = dict.fromkeys(rows.devices[::4], "north")
    units = arranged(rows, by, regions, network=network)
    assert sorted(unit["device"] for unit in units) == sorted(set(rows.devices))
    assert all(len(unit["rows"]) == (2 if network else 1) for unit in units)
    assert all(rows.devices[row] == unit["device"] for unit in units for row in unit["rows"])
    headings = [unit["heading"] for unit in units if unit["heading"]]
    assert headings == {"stage": [], "pipeline": ["pipeline 0", "pipeline 1"], "region": ["no region", "north"]}[by]
    if by == "region":
        begins = next(at for at, unit in enumerate(units) if unit["heading"] == "north")
        assert {unit["device"] for unit in units[begins:]} == set(regions)


def test_what_was_stays_as_a_line_with_a_mark_where_it_ended(plan):
    view = drawn(plan)
    before, ends = view.predicted, view.ends
    assert ends == []
    view.set_predicted([0.0], [1.0], [0], [0], [0], rows=["ada"], kinds=[{"name": "forward"}], before=before)
    assert len(np.frombuffer(view.ghost_start, "<f4")) == len(before.start)
    assert [(end["text"][:4], end["dashed"]) for end in view.ends] == [("was ", True)]
    assert view.ends[0]["at"] == before.end.max()
