"""Schedules side by side, where the time goes, and what devices hold."""

import importlib
from dataclasses import replace

import numpy as np
import pytest

from dtfm_lab import figures
from dtfm_lab.domain.errors import TraceError, UnknownName
from dtfm_lab.domain.schedule import Lane
from dtfm_lab.figures.palette import CAUSE_COLORS
from dtfm_lab.simulation import simulate
from dtfm_lab.simulation.memory import memory

NAMES = ("gpipe", "1f1b", "zb-h1", "interleaved-1f1b")


@pytest.fixture(scope="module")
def traces(small_plan):
    return [simulate(small_plan, name) for name in NAMES]


def headings(figure):
    return [note.text for note in figure.layout.annotations if note.text.startswith("<b>")]


def with_memory(plan, n_bytes):
    """The plan on devices that have so much."""
    devices = tuple(replace(device, memory_bytes=n_bytes) for device in plan.topology.devices)
    return replace(plan, topology=replace(plan.topology, devices=devices))


def test_side_by_side_draws_the_computations_of_one_pipeline_of_each_trace(traces):
    figure = figures.side_by_side(traces, replica=1)
    computes = [[a.lane is Lane.COMPUTE for a in t.actions] for t in traces]
    wanted = [int((np.array(c)[t.action] & (t.replica == 1)).sum()) for c, t in zip(computes, traces, strict=True)]
    drawn = [sum(len(bar.x) for bar in figure.data if bar.yaxis == f"y{i or ''}") for i in (0, 2, 3, 4)]
    assert drawn == wanted


def test_side_by_side_says_time_bubble_and_activations_of_each(traces):
    figure = figures.side_by_side(traces)
    words = headings(figure)
    assert [word.split("</b>")[0] for word in words] == [f"<b>{name}" for name in NAMES]
    assert f"{1 - traces[0].compute_share:.1%} bubble" in words[0]
    assert "4 activations held at most" in words[0]
    assert "8 activations of smaller stages held at most" in words[3]
    assert figure.layout.title.text.startswith("gpipe is fastest; interleaved-1f1b takes ")


def test_side_by_side_has_one_time_axis_that_holds_all(traces):
    figure = figures.side_by_side(traces)
    ends = {tuple(axis.range) for axis in figure.select_xaxes()}
    assert len(ends) == 1
    [(low, high)] = ends
    assert low == 0
    assert high >= max(trace.iteration_s for trace in traces) * 1e3


def test_a_kind_is_in_the_legend_once_over_all_schedules(traces):
    shown = [bar.name for bar in figures.side_by_side(traces).data if bar.showlegend]
    assert len(shown) == len(set(shown)) == 6


def test_the_pipeline_drawn_is_the_one_that_ends_last(traces):
    subtitle = figures.side_by_side(traces[:1]).layout.title.subtitle.text
    computes = np.array([a.lane is Lane.COMPUTE for a in traces[0].actions])[traces[0].action]
    ends = [traces[0].end_s[computes & (traces[0].replica == r)].max() for r in range(2)]
    assert f"pipeline {int(np.argmax(ends))}, one of 2" in subtitle


def test_one_schedule_under_two_settings_is_told_apart_by_them(small_plan):
    figure = figures.side_by_side([simulate(small_plan, "1f1b", queueing=queueing) for queueing in ("pairs", "cards")])
    names = [word.split("</b>")[0] for word in headings(figure)]
    assert names == ["<b>1f1b, queueing pairs", "<b>1f1b, queueing cards"]


def test_equal_schedules_have_no_fastest(traces):
    assert figures.side_by_side([traces[0]] * 2).layout.title.text.endswith(" an iteration with each")


def test_what_cannot_stand_side_by_side_is_refused(traces, large_plan):
    with pytest.raises(TraceError, match="no traces"):
        figures.side_by_side([])
    with pytest.raises(TraceError, match="different placements"):
        figures.side_by_side([traces[0], simulate(large_plan)])
    with pytest.raises(TraceError, match="replica is 2; wanted 0 to 1"):
        figures.side_by_side(traces, replica=2)


def test_the_bubble_of_each_device_adds_up_to_the_iteration(predicted):
    figure = figures.bubble(predicted)
    total = np.sum([bar.x for bar in figure.data], axis=0)
    assert total == pytest.approx(np.full(8, predicted.iteration_s * 1e3))
    assert {bar.marker.color for bar in figure.data} <= set(CAUSE_COLORS.values())


def test_a_bubble_without_a_cause_has_no_legend_entry_for_it(predicted):
    names = [bar.name for bar in figures.bubble(predicted).data]
    assert names[0] == "computing"
    assert "waiting for messages behind others" not in names


def test_the_title_of_the_bubble_names_its_largest_part(predicted):
    mean = predicted.bubble.filter(like="_s").drop(columns=["busy_s", "iteration_s"]).mean()
    assert f"largest idle part is {mean.idxmax().removesuffix('_s')}, " in figures.bubble(predicted).layout.title.text


def test_a_measured_trace_has_no_bubble_to_draw(measured):
    with pytest.raises(TraceError, match="does not know what each action waited for"):
        figures.bubble(measured)


def test_the_bands_of_memory_add_up_to_the_peak(small_plan, predicted):
    report = memory(small_plan, trace=predicted)
    figure = figures.memory_over_time(report, devices=["ada"])
    bands = [trace for trace in figure.data if trace.stackgroup]
    names = [name for group in report.devices for name in group]
    peak = report.peak_bytes.ravel()[names.index("ada")]
    n = max(len(band.y) for band in bands)
    # what never changes has a point at both ends only
    held = [band.y if len(band.y) == n else np.full(n, band.y[0]) for band in bands]
    assert np.sum(held, axis=0).max() == pytest.approx(peak / 2**20)
    assert all(band.x[0] == bands[-1].x[0] and band.x[-1] == bands[-1].x[-1] for band in bands)
    assert "(ms)" in figure.layout.xaxis.title.text


def test_before_any_simulation_time_counts_computations(small_plan):
    figure = figures.memory_over_time(memory(small_plan, "gpipe"))
    axes = {axis.title.text for axis in figure.select_xaxes() if axis.title.text}
    assert axes == {"computations of the device"}
    assert len(headings(figure)) == 8


def test_of_many_devices_those_with_least_to_spare_are_drawn(large_plan):
    report = memory(large_plan, "gpipe")
    figure = figures.memory_over_time(report)
    assert len(headings(figure)) == 8
    spare = (report.limit_bytes - report.peak_bytes).ravel()
    names = np.array([name for group in report.devices for name in group])
    tightest = set(names[np.argsort(spare, kind="stable")[:8]])
    assert {word.split(" · ")[1].split("</b>")[0] for word in headings(figure)} == tightest
    assert "8 of 64 devices" in figure.layout.title.subtitle.text


def test_what_is_over_the_limit_is_marked_and_said(small_plan):
    report = memory(with_memory(small_plan, 12 * 2**20), "gpipe")
    figure = figures.memory_over_time(report)
    over = [trace for trace in figure.data if trace.name == "over the limit"]
    assert len(over) == np.count_nonzero(report.over_bytes)
    assert all(min(trace.y) == pytest.approx(12) for trace in over)
    assert sum(" over</b>" in word for word in headings(figure)) == len(over)
    assert "do not fit" in figure.layout.title.text
    limits = [trace for trace in figure.data if trace.name == "what the device has"]
    assert len(limits) == 8
    assert sum(bool(trace.showlegend) for trace in limits) == 1


def test_a_limit_far_above_does_not_press_the_curves_flat(small_plan):
    figure = figures.memory_over_time(memory(small_plan, "gpipe"))
    assert not [trace for trace in figure.data if trace.name == "what the device has"]
    assert figure.layout.yaxis.title.text == "MiB"


def test_a_long_timeline_keeps_its_peak(small_plan, monkeypatch):
    monkeypatch.setattr(importlib.import_module("dtfm_lab.figures.timeline.memory_over_time"), "MOST_POINTS", 5)
    report = memory(small_plan, "gpipe")
    figure = figures.memory_over_time(report, devices=["ada"])
    [activations] = [trace for trace in figure.data if trace.name == "activations"]
    assert len(activations.x) <= 6
    names = [name for group in report.devices for name in group]
    assert max(activations.y) == pytest.approx(report.activations_bytes.ravel()[names.index("ada")] / 2**20)


def test_a_device_that_is_not_there_is_refused(small_plan):
    with pytest.raises(UnknownName, match="no device of this plan named 'eve'"):
        figures.memory_over_time(memory(small_plan), devices=["eve"])


def test_an_iteration_that_the_report_does_not_cover_is_refused(small_plan):
    with pytest.raises(TraceError, match="iteration is 1; wanted 0 to 0"):
        figures.memory_over_time(memory(small_plan), iteration=1)


def test_all_panels_are_as_wide_as_the_iteration_of_all_devices(small_plan, predicted):
    report = memory(small_plan, trace=predicted)
    ends = {figures.memory_over_time(report, devices=[name]).layout.xaxis.range[1] for name in ("ada", "john")}
    assert len(ends) == 1


def test_side_by_side_says_how_many_micro_batches_each_pipeline_has_where_they_differ(small_plan):
    counts = small_plan.job.microbatch_counts
    uneven = replace(small_plan.job, microbatches_per_replica=(counts[0] + 1, counts[1] - 1, *counts[2:]))
    both = [simulate(plan, "1f1b") for plan in (small_plan, replace(small_plan, job=uneven))]
    figure = figures.side_by_side(both, replica=1)
    names = [word.split("</b>")[0].removeprefix("<b>") for word in headings(figure)]
    assert names == [f"1f1b, {counts[0]} micro-batches", f"1f1b, {counts[0] - 1} to {counts[0] + 1} micro-batches"]
    assert f"pipeline 1, one of {len(counts)} · with {counts[0] - 1} or {counts[0]} micro-batches of its own" in (
        figure.layout.title.subtitle.text or ""
    )
    figures.gantt(both[1])
