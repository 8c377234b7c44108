"""What has become of a run's devices, and how that and the losses travel to the page; no worker starts here."""

from __future__ import annotations

from typing import Any

import pytest
from loops import send

from dtfm_lab import lab
from dtfm_lab.runtime.client.record import RunRecord
from dtfm_lab.runtime.protocol.run_options import RunSpec
from dtfm_lab.simulation import build
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.running.fault_controls import KILL, PAUSE, RESUME, SLOW, ConditionMonitor, FaultControls
from dtfm_lab.widgets.running.run_progress import RunProgress
from dtfm_lab.widgets.views.devices import DevicesView
from dtfm_lab.widgets.views.losses import LossView

PLAN = lab.evaluate("lecture-hall", "tiny", stages=[[0, 2], [4, 6], [1, 3], [5, 7]])
FIRST, SECOND = (PLAN.device_names[stage][0] for stage in (0, 1))
RECOVERED = {"event": "recovered", "iteration": 0, "how": "was killed by SIGKILL", "state_from": "ada", "lost_s": 1.3}


class Clock:
    """Goes on when told to."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def running() -> RunRecord:
    orders = build(PLAN, "gpipe").orders
    record = RunRecord(RunSpec(plan=PLAN, schedule="gpipe", orders=orders, iterations=4, clock="virtual"))
    record.absorb({"event": "ready", "torch": "2"})
    record.absorb({"event": "profile", "rows": [], "time_scale": 1.0, "stretched": 0})
    return record


def sent(view: LossView) -> list[tuple[dict[str, Any], int]]:
    """What goes to the page from now on, with the bytes of its buffers."""
    heard: list[tuple[dict[str, Any], int]] = []
    view.send = lambda content, buffers=(): heard.append((content, sum(map(len, buffers))))  # type: ignore[method-assign]
    return heard


def test_a_killed_device_is_replaced_and_recovers_and_seconds_are_told() -> None:
    clock, run = Clock(), running()
    monitor = ConditionMonitor(run, clock)
    assert {state["may"] for state in monitor.look().values()} == {(KILL, PAUSE, SLOW)}
    monitor.disturbed(FIRST, KILL)
    assert monitor.look()[FIRST]["condition"] == "killed"
    assert monitor.look()[FIRST]["may"] == ()
    run.absorb({"event": "lost", "device": FIRST, "iteration": 0, "how": "was killed by SIGKILL"})
    monitor.look()
    clock.now_s = 0.44
    assert monitor.look()[FIRST]["said"] == "being replaced, 0.4 s"
    run.absorb(RECOVERED | {"device": FIRST})
    found = monitor.look()[FIRST]
    assert (found["condition"], found["said"]) == ("recovered", "recovered in 1.3 s, state from ada")
    monitor.disturbed(FIRST, KILL)
    assert monitor.look()[FIRST]["condition"] == "killed", "a second time"


def test_a_paused_device_can_be_resumed_until_another_worker_has_taken_its_place() -> None:
    run = running()
    monitor = ConditionMonitor(run)
    run.conditions[FIRST] = "paused"
    found = monitor.look()[FIRST]
    assert found["may"] == (KILL, RESUME, SLOW)
    run.absorb(RECOVERED | {"device": FIRST, "how": "stood still"})
    found = monitor.look()[FIRST]
    assert found["said"] == "recovered in 1.3 s, state from ada"
    assert RESUME not in found["may"]


def test_a_message_that_is_none_does_nothing() -> None:
    done = []
    view = DevicesView(lambda *act: done.append(act))
    for content in ({}, {"kind": "act"}, {"kind": "act", "device": 3, "do": "kill"}, {"kind": "act", "device": "ada"}):
        send(view, content)
    assert done == []
    send(view, {"kind": "act", "device": "ada", "do": "kill"})
    assert done == [("ada", "kill")]


def test_devices_are_selected_here_as_elsewhere() -> None:
    lab_state = LabState()
    faults = FaultControls(lab_state, lambda _: None, lambda *_: None)
    faults.offer(PLAN)
    assert [device["name"] for device in faults.devices.devices[:4]] == [names[0] for names in PLAN.device_names]
    lab_state.selected = (FIRST, "not-of-this-plan")
    assert faults.devices.selected == [FIRST]
    assert lab_state.selected == (FIRST, "not-of-this-plan"), "what is not here stays selected elsewhere"
    faults.devices.selected = [SECOND]
    assert lab_state.selected == (SECOND,)
    assert "8 devices, 4 per pipeline" in faults.devices.alt_text()
    faults.act(FIRST, KILL)
    assert faults.devices.states == {}, "nothing runs"
    faults.offer(None)
    assert faults.devices.devices == []


def test_of_a_plan_that_is_too_large_the_part_that_would_run_is_shown() -> None:
    faults = FaultControls(LabState(), lambda _: None, lambda *_: None)
    faults.offer(lab.evaluate("worldwide", "gpt3-xl", stages=[list(range(8 * s, 8 * s + 8)) for s in range(8)]))
    assert len(faults.devices.devices) == 8
    assert "all 8 stages, pipeline 0 of 8" in faults.devices.caption


def test_of_losses_only_the_new_travel_and_a_lost_worker_takes_some_back() -> None:
    view = LossView()
    heard = sent(view)
    losses = [5.0 - 1e-4 * i for i in range(10_000)]
    view.follow(losses[:9_998])
    view.follow(losses, [(8, 3.5)], 3.1)
    view.follow(losses, [(8, 3.5)], 3.1)
    assert [(content["from"], n_bytes) for content, n_bytes in heard] == [(0, 9_998 * 8), (9_998, 2 * 8)]
    assert heard[-1][0]["held_out"] == [[8, 3.5]]
    view.follow([*losses[:20], 7.0], [(8, 3.5)], 3.1)
    assert (heard[-1][0], heard[-1][1]) == ({"kind": "losses", "from": 20}, 8)
    send(view, {"kind": "hello"})
    assert (heard[-1][0]["from"], heard[-1][1]) == (0, 21 * 8)
    assert (
        view.alt_text() == "Loss: 5.000 to 7.000 nats per token in 21 iterations, held-out 3.500, unigram entropy 3.100"
    )


def test_what_is_left_is_told_at_the_pace_of_the_last_iterations() -> None:
    clock, run = Clock(), running()
    progress = RunProgress(clock)
    progress.begin()
    for done in range(3):
        clock.now_s = 2.0 * done
        progress.show(run)
        run.absorb({"event": "iteration", "iteration": done, "loss": 1.0, "late_messages": 0, "overruns": 0})
    assert progress.left_s(4) == pytest.approx(4.0)
    clock.now_s += 1.0
    assert progress.left_s(4) == pytest.approx(3.0)
    assert "2 of 4 iterations done, about 4 s left" in progress.line.value
    run.absorb({"event": "stopped"})
    progress.show(run)
    assert "stopped after 3 of 4 iterations" in progress.line.value
