"""The panel that trains for real, on an event loop like the kernel's; the chart beside it is a plain one."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from loops import send, until

from dtfm_lab import lab
from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.trace import Fault
from dtfm_lab.domain.units import format_s
from dtfm_lab.runtime.client.launch import Secret
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.running.mystery_controls import MysteryControls
from dtfm_lab.widgets.running.run_option_controls import CLOCKS, explain_clock, on_this_machine
from dtfm_lab.widgets.running.run_panel import RunPanel
from dtfm_lab.widgets.schedule.predictions import ChartedPrediction
from dtfm_lab.widgets.views.gantt import GanttView

PLAN = lab.evaluate("lecture-hall", "tiny", stages=[[0, 2], [4, 6]])


class Chart:
    """Where a run's predictions and measured bars go."""

    def __init__(self) -> None:
        self.chart = GanttView()
        self.shown: list[ChartedPrediction] = []

    def show(self, prediction: ChartedPrediction) -> None:
        self.shown.append(prediction)


def panel_of(plan: Plan = PLAN) -> tuple[LabState, RunPanel]:
    lab_state = LabState()
    panel = RunPanel(lab_state, Chart())  # type: ignore[arg-type]
    lab_state.plan = plan
    return lab_state, panel


async def test_a_device_that_is_taken_off_the_network_leaves_the_run_which_follows_the_next_plan() -> None:
    pytest.importorskip("torch")
    lab_state, panel = panel_of()
    lab_state.topology = PLAN.topology
    panel.iterations.value = 5_000
    panel.start.click()
    await until(lambda: len(panel.run.losses) > 2)
    left = PLAN.topology.subset([i for i, name in enumerate(PLAN.topology.names) if name != "ada"])
    lab_state.topology = left
    assert "<b>ada</b> left permanently: the run waits for a plan without it" in panel.happened.value
    smaller = lab.evaluate(left, PLAN.job.with_fields(n_replicas=1), stages=[["barbara"], ["john"]])
    lab_state.job, lab_state.plan = smaller.job, smaller
    await until(lambda: "a new plan from iteration" in panel.happened.value)
    assert "2 workers continued, " in panel.happened.value
    assert [device["name"] for device in panel.faults.devices.devices] == ["barbara", "john"]
    since = panel.run.replans[0]["iteration"]
    assert since > 2
    await until(lambda: len(panel.run.losses) > since + 1)
    await until(lambda: panel._schedule.shown[-1].trace.context.devices == (("barbara",), ("john",)))
    panel.stop.click()
    await until(lambda: lab_state.comparison is not None)
    assert lab_state.ran is not None
    assert lab_state.ran.stages == smaller.stages
    assert [trace.n_iterations for trace in panel.run.earlier] == [since]


async def test_a_device_is_killed_paused_and_slowed_at_its_tile_and_what_became_of_it_is_told() -> None:
    pytest.importorskip("torch")
    lab_state, panel = panel_of()
    devices = panel.faults.devices
    assert [device["name"] for device in devices.devices] == ["ada", "edsger", "barbara", "john"]
    panel.iterations.value = 5_000
    panel.start.click()
    assert panel.start.disabled
    assert devices.running
    await until(lambda: len(panel.run.losses) > 0)
    for _ in range(2):
        send(devices, {"kind": "act", "device": "ada", "do": "slow"})
    assert devices.states["ada"]["said"] == "4 x slower"
    send(devices, {"kind": "act", "device": "ada", "do": "resume"})
    assert devices.states["ada"]["condition"] == ""
    send(devices, {"kind": "act", "device": "john", "do": "kill"})
    assert devices.states["john"]["condition"] == "killed"
    await until(lambda: devices.states["john"]["condition"] == "recovered")
    assert devices.states["john"]["said"].endswith(", state from edsger")
    assert "<b>john</b> was killed by SIGKILL in iteration" in panel.happened.value
    send(devices, {"kind": "act", "device": "john", "do": "pause"})
    assert devices.states["john"]["said"] == "paused, 0.0 s"
    await until(lambda: "<b>john</b> stood still in iteration" in panel.happened.value)
    first, second = panel.run.faults
    for fault in (first, second):
        assert f"in iteration {fault.iteration}; a replacement takes over" in panel.happened.value
        assert f"training continues, {format_s(fault.lost_s)} lost" in panel.happened.value
    await until(lambda: lab_state.note_of("run") == "")
    assert re.fullmatch(r"\d+ of 5,000 iterations done", lab_state.run_progress)
    took = f"its copy took over in {format_s(second.lost_s)}, with the state of edsger; 1 earlier fault"
    assert lab_state.run_story == f"john stood still in iteration {second.iteration}: {took}", "kept until the run ends"
    send(devices, {"kind": "act", "device": "nobody", "do": "kill"})
    assert lab_state.message.startswith("no device of this run named 'nobody'")
    again = len(panel.run.losses)
    await until(lambda: len(panel.run.losses) > again)
    assert panel.losses.training[0] == panel.run.losses[0]
    panel.stop.click()
    assert "stopping" in panel.progress.line.value
    await until(lambda: not panel.run.running)
    await until(lambda: lab_state.comparison is not None)
    assert [fault.device for fault in lab_state.measured.context.faults] == ["john", "john"]
    assert not devices.running
    assert devices.states["ada"]["may"] == ()
    assert "stopped after" in panel.progress.line.value
    assert 'download="losses.csv"' in panel.written.value


async def test_a_run_of_a_part_has_numbers_of_its_own_and_leaves_the_plans_prediction_alone(monkeypatch) -> None:
    pytest.importorskip("torch")
    lab_state, panel = panel_of()
    monkeypatch.setattr(RunPanel, "run_options", property(lambda self: {"workers": (2, 1)}))
    own = lab_state.predicted = lab.simulate(PLAN)
    panel.iterations.value = 2
    panel.start.click()
    await until(lambda: lab_state.comparison is not None)
    assert lab_state.predicted is own
    assert lab_state.measured.context.part == "one pipeline of 2"
    assert lab_state.comparison.predicted.context.rehearsed == lab_state.measured.context.rehearsed
    assert lab_state.comparison.error_sentence.startswith("One pipeline of 2: measured ")
    assert "One pipeline of 2: measured " in panel.happened.value


async def test_a_run_that_ends_after_another_network_was_opened_measures_nothing_there() -> None:
    pytest.importorskip("torch")
    lab_state, panel = panel_of()
    lab_state.topology, lab_state.job = PLAN.topology, PLAN.job
    panel.iterations.value = 2
    panel.start.click()
    lab_state.topology = lab.load_topology("mixed-gpus")
    await until(lambda: "which is no longer open" in panel.happened.value)
    assert lab_state.measured is None
    assert f"{PLAN.job.name} on lecture-hall" in panel.happened.value


async def test_a_mystery_is_named_by_what_is_selected_and_told_right_or_wrong() -> None:
    pytest.importorskip("torch")
    lab_state, panel = panel_of()
    panel.iterations.value = 3
    assert not panel.mystery.disabled
    panel.begin_mystery(np.random.default_rng(1))
    assert lab_state.is_mystery
    assert panel.mystery.disabled
    assert not panel.faults.devices.running, "one fault at a time"
    secret = panel.guessing._secret
    ends = secret.name.split(" -> ")
    await until(lambda: lab_state.comparison is not None)
    assert secret.name.replace("->", "→") not in panel.happened.value
    assert panel.guessing.name.disabled
    others = [name for names in PLAN.device_names for name in names if name not in ends]
    lab_state.selected = (others[0],)
    panel.guessing.name.click()
    assert f"no, it is not {others[0]}: its computations take" in panel.happened.value
    assert lab_state.is_mystery
    lab_state.selected = () if len(ends) == 2 else (secret.name,)
    lab_state.selected_link = tuple(reversed(ends)) if len(ends) == 2 else ()
    panel.guessing.name.click()
    assert "found on try 2" in panel.happened.value
    assert not lab_state.is_mystery
    panel.begin_mystery(np.random.default_rng(2))
    panel.guessing.reveal.click()
    assert "revealed after 0 tries" in panel.happened.value
    panel.stop.click()
    await until(lambda: not panel.run.running)


def test_a_score_has_a_square_for_each_guess() -> None:
    state, told = LabState(topology=PLAN.topology), []
    guessing = MysteryControls(state, told.append)
    secret = Secret("link", "ada -> alan", 3.0)
    guessing.begin(secret, "mystery of a day")
    for link in (("john", "grace"), ("ada", "barbara"), ("alan", "ada")):
        state.selected_link = link
        guessing.name.click()
    assert guessing.score == "mystery of a day ⬛🟨🟩"
    assert guessing.score in guessing.line.value
    assert guessing.view.layout.display != "none"
    assert guessing.reveal.layout.display == "none"
    guessing.begin(secret, "another")
    guessing.reveal.click()
    assert guessing.score == "another 🟥"
    guessing.begin(secret)
    guessing.reveal.click()
    assert "Share your score" not in guessing.line.value
    assert guessing.view.layout.display == "none"


async def test_what_a_resumed_run_warns_of_is_a_line_in_place(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    lab_state, panel = panel_of()
    panel.restore({"iterations": 2, "options": {"checkpoint_folder": str(tmp_path / "kept"), "sample_bytes": 0}})
    panel.redo()
    await until(lambda: lab_state.comparison is not None)
    assert "note: " not in panel.happened.value
    other = tmp_path / "other.txt"
    other.write_text("It is a truth universally acknowledged. " * 500)
    panel.restore({"options": {"resume_from": str(tmp_path / "kept"), "checkpoint_folder": "", "text": str(other)}})
    panel.redo()
    assert lab_state.message == ""
    await until(lambda: "note: " in panel.happened.value)
    assert "text" in panel.happened.value
    panel.stop.click()
    await until(lambda: not panel.run.running)


async def test_a_run_that_cannot_begin_is_one_line_and_leaves_the_button() -> None:
    lab_state, panel = panel_of()
    panel.options.by_name["text"].value = "nowhere.txt"
    panel.redo()
    assert lab_state.step == "run"
    assert "nowhere.txt: no such file" in lab_state.message
    assert not panel.start.disabled
    assert panel.run is None


def test_a_measurement_of_before_comes_with_its_losses_and_faults() -> None:
    lab_state, panel = panel_of()
    ran = lab.simulate(PLAN, "gpipe")
    fault = Fault(1, "ada", "was killed by SIGKILL", "alan", 0.1)
    lab_state.measured = replace(
        ran, context=replace(ran.context, source="measured", losses=(5.0, 4.0), faults=(fault,))
    )
    assert panel.losses.training == [5.0, 4.0]
    assert panel.losses.marks == [{"at": 1, "text": "ada replaced"}]
    assert "<b>ada</b> was killed by SIGKILL in iteration 1" in panel.happened.value


def test_without_a_plan_nothing_starts() -> None:
    panel = RunPanel(LabState(), Chart())  # type: ignore[arg-type]
    assert panel.start.disabled
    panel.redo()
    assert panel.run is None


def test_every_clock_is_explained_and_what_few_cores_mean_for_it() -> None:
    for clock in CLOCKS:
        text = explain_clock(clock, 8, 2)
        assert f"<b>{clock}</b>" in text
        assert "8 workers share 2 cores" in text
        assert "4 workers on 8 cores" in on_this_machine(clock, 4, 8)
    assert on_this_machine("real", None, 2) == ""
    with pytest.raises(LabError, match="clock"):
        lab.start(PLAN, "gpipe", clock="model")
