"""The lab without a browser: buttons pressed in Python, on an event loop like the kernel's."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable

import pytest

import dtfm_lab as lab

pytest.importorskip("anywidget", reason="needs the lab extra")


async def until(holds: Callable[[], bool], patience_s: float = 60.0) -> None:
    deadline = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(0.02)


async def at_rest(read: Callable[[], str], still_s: float = 0.5) -> str:
    """What is read once it no longer changes."""
    seen, since = read(), time.monotonic()

    def still() -> bool:
        nonlocal seen, since
        if read() != seen:
            seen, since = read(), time.monotonic()
        return time.monotonic() - since >= still_s

    await until(still)
    return seen


def on_a_loop(story: Callable) -> Callable:
    def test() -> None:
        asyncio.run(story())

    test.__name__, test.__doc__ = story.__name__, story.__doc__
    return test


@on_a_loop
async def test_planning_predicts_as_well() -> None:
    bench = lab.Lab("lecture-hall")
    bench.plan_panel.speed.value = "full speed"
    bench.plan_panel.plan.click()
    await until(lambda: bench.predicted is not None)
    assert bench.plan.gap == pytest.approx(0)
    curve = bench.plan_panel.curve.points["evolutionary"]
    assert curve[0, 2] > curve[-1, 2], "the cost fell"
    assert bench.schedule_panel.chart.start, "bars are drawn"
    assert len(bench.groups_panel.groups.groups) == bench.job.n_stages
    assert bench.network_panel.editor.highlight["stages"].keys() == set(bench.topology.names)


@on_a_loop
async def test_a_search_by_any_planner_pauses_steps_goes_on_and_stops_with_the_best_kept() -> None:
    bench = lab.Lab("volunteers")
    panel = bench.plan_panel
    panel.seconds.value, panel.speed.value = 600, "full speed"
    for planner in panel.planner.options:
        panel.planner.value = planner
        panel.plan.click()
        await until(lambda planner=planner: planner in panel.curve.points)
        panel.pause.click()
        seen = await at_rest(lambda: panel.curve.caption)
        assert panel.pause.description == "Resume"
        panel.step.click()
        await until(lambda seen=seen: panel.curve.caption != seen and panel.pause.description == "Resume")
        seen = panel.curve.caption
        panel.pause.click()
        await until(lambda seen=seen: panel.curve.caption != seen)
        panel.stop.click()
        await until(lambda planner=planner: bench.plan is not None and bench.plan.planner == planner)
    assert panel.step.disabled, "nothing to step through"


@on_a_loop
async def test_a_bound_that_rises_is_drawn_and_told() -> None:
    bench = lab.Lab("campus")
    panel = bench.plan_panel
    panel.planner.value, panel.speed.value = "exact", "full speed"
    panel.plan.click()
    await until(lambda: bench.plan is not None)
    bound_s = panel.curve.points["exact"][:, 3]
    assert bound_s[-1] > bound_s[0]
    assert panel.curve.caption.endswith("proven best")
    assert "gap 0.0%" in panel.note.value


@on_a_loop
async def test_an_edit_marks_the_plan_as_stale() -> None:
    bench = lab.Lab("lecture-hall")
    bench.plan_panel.plan.click()
    await until(lambda: bench.plan is not None)
    assert "gap" in bench.plan_panel.note.value
    document = bench.network_panel.editor.document
    bench.network_panel.editor.document = document | {"default": {"latency_ms": 500.0, "bandwidth_gbps": 0.01}}
    assert bench.bench.plan_is_stale
    assert "plan again" in bench.plan_panel.note.value


@on_a_loop
async def test_a_drawing_that_is_not_valid_is_said_and_nothing_is_lost() -> None:
    bench = lab.Lab("lecture-hall")
    editor = bench.network_panel.editor
    broken = editor.document | {"default": {"latency_ms": -5, "bandwidth_gbps": 0.1}}
    editor.document = broken
    assert "latency_ms" in editor.problem
    assert bench.topology is None
    assert bench.plan_panel.plan.disabled
    editor.document = broken | {"default": {"latency_ms": 5, "bandwidth_gbps": 0.1}}
    assert editor.problem == ""
    assert len(bench.topology) == 8
    assert not bench.plan_panel.plan.disabled


@on_a_loop
async def test_seven_devices_are_offered_shapes_that_a_batch_of_sixteen_allows() -> None:
    bench = lab.Lab("lecture-hall")
    document = bench.network_panel.editor.document
    bench.network_panel.editor.document = document | {"devices": document["devices"][:7]}
    offered = [shape for _, shape in bench.plan_panel.shape.options]
    assert (7, 1) in offered
    assert (1, 7) not in offered, "16 sequences do not divide among 7 replicas"


@on_a_loop
async def test_what_cannot_be_run_is_one_calm_line() -> None:
    bench = lab.Lab("worldwide")
    bench.plan_panel.speed.value, bench.plan_panel.seconds.value = "full speed", 0.2
    bench.plan_panel.plan.click()
    await until(lambda: bench.predicted is not None)
    bench.run_panel.start.click()
    assert "workers on a CPU run" in bench.bench.message
    assert bench.bench.step == "run", "said beside the button that was pressed"
    assert bench.run_panel.run is None


@on_a_loop
async def test_a_killed_worker_is_told_and_the_lab_can_run_again() -> None:
    pytest.importorskip("torch")
    bench = lab.Lab("lecture-hall")
    bench.plan_panel.speed.value = "full speed"
    bench.plan_panel.plan.click()
    await until(lambda: bench.predicted is not None)
    bench.run_panel.iterations.value = 500
    bench.run_panel.start.click()
    assert bench.run_panel.start.disabled
    await until(lambda: len(bench.run_panel.run.losses) > 0)
    bench.run_panel.run.kill("grace")
    await until(lambda: bench.bench.message != "")
    assert bench.bench.message.startswith("worker grace (stage")
    assert not bench.run_panel.start.disabled


@on_a_loop
async def test_a_cell_that_is_run_again_leaves_no_run_out_of_sight() -> None:
    pytest.importorskip("torch")
    first, second = lab.Lab("lecture-hall"), lab.Lab("lecture-hall")
    for bench in (first, second):
        bench.plan_panel.speed.value = "full speed"
        bench.plan_panel.plan.click()
        await until(lambda bench=bench: bench.predicted is not None)
        bench.run_panel.iterations.value = 500
        bench.run_panel.start.click()
        assert bench.run_panel.run.running
    await until(lambda: not first.run_panel.run.running)
    assert second.run_panel.run.running
    second.run_panel.stop.click()
    await until(lambda: not second.run_panel.run.running)


@on_a_loop
async def test_files_are_saved_opened_and_refused_in_words() -> None:
    with tempfile.TemporaryDirectory() as folder:
        bench = lab.Lab("lecture-hall")
        panel = bench.network_panel
        panel.save.click()
        assert bench.bench.message == "no file name; wanted one such as network.yaml"
        panel.path.value = f"{folder}/mine.yaml"
        panel.save.click()
        assert (bench.bench.message, panel.editor.summary) == ("", f"saved as {folder}/mine.yaml")
        panel.choose.value = "raspberry-pi"
        panel.open.click()
        assert bench.topology.fingerprint == lab.load_topology("lecture-hall").fingerprint
        assert panel.choose.value is None, "no shipped network is shown"
        panel.path.value = f"{folder}/other.yaml"
        panel.open.click()
        assert (bench.bench.step, bench.bench.message) == ("network", f"{folder}/other.yaml: no such file")
        assert len(bench.topology) == 8


def test_a_reader_without_widgets_is_told_what_was_here() -> None:
    bundle = lab.Lab("lecture-hall")._repr_mimebundle_()
    assert bundle["text/plain"] == "dtfm_lab.Lab on lecture-hall (8 devices) with job tiny: run the cell to use it"
    assert bundle["text/html"] == f"<em>{bundle['text/plain']}</em>"
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert "a blank canvas" in lab.Lab()._repr_mimebundle_()["text/plain"]
