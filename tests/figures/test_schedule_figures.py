"""Where the time goes, and what devices hold."""

import importlib
from dataclasses import replace

import numpy as np
import pytest

from dtfm_lab import figures
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


def test_the_bubble_of_each_device_adds_up_to_the_iteration(predicted):
    figure = figures.bubble(predicted)
    total = np.sum([bar.x for bar in figure.data], axis=0)
    assert total == pytest.approx(np.full(8, predicted.iteration_s * 1e3))
    assert {bar.marker.color for bar in figure.data} <= set(CAUSE_COLORS.values())


def test_the_title_of_the_bubble_names_its_largest_part(predicted):
    mean = predicted.bubble.filter(like="_s").drop(columns=["busy_s", "iteration_s"]).mean()
    assert f"largest idle part is {mean.idxmax().removesuffix('_s')}, " in figures.bubble(predicted).layout.title.text


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
    limits = [trace for trace in figure.data if trace.name == "what a plan may use"]
    assert len(limits) == 8
    assert sum(bool(trace.showlegend) for trace in limits) == 1


def test_a_limit_far_above_does_not_press_the_curves_flat(small_plan):
    figure = figures.memory_over_time(memory(small_plan, "gpipe"))
    assert not [trace for trace in figure.data if trace.name == "what a plan may use"]
    assert figure.layout.yaxis.title.text == "MiB"


def test_a_long_timeline_keeps_its_peak(small_plan, monkeypatch):
    monkeypatch.setattr(importlib.import_module("dtfm_lab.figures.timeline.memory_over_time"), "MOST_POINTS", 5)
    report = memory(small_plan, "gpipe")
    figure = figures.memory_over_time(report, devices=["ada"])
    [activations] = [trace for trace in figure.data if trace.name == "activations"]
    assert len(activations.x) <= 6
    names = [name for group in report.devices for name in group]
    assert max(activations.y) == pytest.approx(report.activations_bytes.ravel()[names.index("ada")] / 2**20)


def test_all_panels_are_as_wide_as_the_iteration_of_all_devices(small_plan, predicted):
    report = memory(small_plan, trace=predicted)
    ends = {figures.memory_over_time(report, devices=[name]).layout.xaxis.range[1] for name in ("ada", "john")}
    assert len(ends) == 1
