"""What the Gantt canvas is told of a trace: bars, what they waited for, messages and the critical path."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("anywidget", reason="needs the lab extra")

from dtfm_lab import lab
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import SENDS, Kind, Lane, synchronisations
from dtfm_lab.simulation import schedules, simulate
from dtfm_lab.widgets.views.gantt import GanttView
from dtfm_lab.widgets.views.gantt.bars import DRAWN, KIND_INDEX, ROWS_PER_DEVICE, ChartRows, arranged
from dtfm_lab.widgets.views.gantt.columns import FIRST_MESSAGE, NO_BAR


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
    assert {*DRAWN, *SENDS.values()} == set(Kind)


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


@pytest.mark.parametrize("queueing", ["pairs", "cards"])
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


def test_many_devices_have_rows_for_messages_too(crowd):
    trace, rows, chart = charted(crowd, "gpipe")
    assert len(rows.labels) == 128
    sends = sum(trace.actions[a].kind in SENDS for a in trace.action)
    assert np.isin(chart.bars.kind, [KIND_INDEX[kind] for kind in SENDS]).sum() == len(chart.messages.leaves) == sends


def test_of_many_devices_a_row_is_a_stage_with_computations_messages_and_its_devices(crowd):
    _, rows, chart = charted(crowd, "gpipe")
    units = arranged(rows, "stage", {name: f"region {name[0]}" for name in rows.devices}, network=True)
    assert [unit["stage"] for unit in units] == list(range(8))
    assert [len(unit["members"]) for unit in units] == [8] * 8
    assert {row for unit in units for one in unit["members"] for row in one["rows"]} == set(range(128))
    for unit in units:
        assert unit["rows"] == unit["members"][0]["rows"], "a closed stage shows its first pipeline"
        above, below = (set(chart.bars.kind[chart.bars.row == row]) for row in unit["rows"])
        assert not {DRAWN[kind] for kind in above} & set(SENDS)
        assert {DRAWN[kind] for kind in below} <= set(SENDS)
        assert below, "synchronisation is not left out"
        assert "of pipeline 0" in unit["tip"]


def test_a_device_with_two_stages_names_both_and_shades_their_passes(plan):
    _, rows, chart = charted(plan, "interleaved-1f1b")
    assert rows.names[0].startswith("S0, S4 · ")
    assert set(chart.bars.stage.tolist()) == set(range(8))
    shades = {entry["name"]: entry["shades"] for entry in rows.legend}
    assert len(set(shades["forward"])) == 2
    assert len(shades["activation"]) == 1


def test_what_bars_are_called_survives_the_sorting_of_the_view(plan):
    _, rows, chart = charted(plan, "zb-h1")
    view = GanttView()
    view.set_predicted(
        *chart.bars, rows=rows.labels, kinds=rows.legend, after=chart.after, path=chart.path, messages=chart.messages
    )
    start, end = (np.frombuffer(column, "<f4") for column in (view.start, view.end))
    after, bar = np.frombuffer(view.after, "<i4"), np.frombuffer(view.path_bar, "<i4")
    assert start[after > NO_BAR] == pytest.approx(end[after[after > NO_BAR]], rel=1e-5)
    on_bars = bar != NO_BAR
    assert np.array_equal(start[bar[on_bars]], np.frombuffer(view.path_start, "<f4")[on_bars])
    assert sorted(after[after <= FIRST_MESSAGE]) == sorted(chart.after[chart.after <= FIRST_MESSAGE])
    view.clear()
    assert (view.start, view.after, view.path_bar, view.rows) == (b"", b"", b"", [])


def test_a_trace_that_does_not_know_what_waited_for_what_has_bars_only(plan):
    measured = replace(simulate(plan, "gpipe"), after=None)
    chart = ChartRows(measured.context).chart(measured)
    assert len(chart.bars.start)
    assert (chart.after, len(chart.path.bar), len(chart.messages.leaves)) == (None, 0, 0)
