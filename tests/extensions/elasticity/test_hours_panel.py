"""The pane Hours: replayed beside the page, each history once, and told as the histories are."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest
from loops import WAIT_S, until

import dtfm_lab as lab
from dtfm_lab.extensions.elasticity import pane as hours
from dtfm_lab.extensions.elasticity.history import History
from dtfm_lab.extensions.elasticity.pane import NOBODY, OTHER, HoursPanel, race
from dtfm_lab.extensions.elasticity.pane.race import sentence, title_of
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.views.systems import words_of

POLICIES = ("goodput", "restart", "varuna")


@pytest.fixture(autouse=True)
def few_policies(monkeypatch) -> None:
    monkeypatch.setattr(hours, "policies", POLICIES)


def a_panel(network: str = "lecture-hall", job: str = "small") -> HoursPanel:
    panel = HoursPanel(LabState(topology=lab.load_topology(network), job=lab.load_job(job)))
    panel.hours.value = 2
    return panel


async def replayed(panel: HoursPanel) -> list[History]:
    panel.start.click()
    await until(lambda: not panel._asked.is_running)
    return panel.histories


async def test_the_numbers_shown_are_those_of_lab_replay() -> None:
    panel = a_panel()
    found = await replayed(panel)
    here = lab.load_availability("bamboo-g4dn").until(7200)
    for one, row in zip(found, panel.race.rows, strict=True):
        made = lab.replay(panel._lab_state.topology, panel._lab_state.job, here, one.policy)
        assert (one.samples, one.share_of_bound) == (made.samples, made.share_of_bound)
        assert words_of(row) == f"{made.goodput:.4g}/s, {made.share_of_bound:.2f}"
        assert sum(seconds for _, seconds in row["parts"]) == pytest.approx(7200)
    assert [one.samples for one in found] == sorted((one.samples for one in found), reverse=True)
    assert panel._lab_state.note_of("hours") == sentence(found)
    assert panel.chart.figure is not None
    panel.race.chosen = "restart"
    drawn = {trace.name: trace for trace in panel.chart.figure.data}["samples"]
    assert 1e3 * np.asarray(drawn.y)[-1] == pytest.approx(panel.history.samples)
    assert panel.history.policy == "restart"


async def test_a_visit_starts_nothing_and_the_button_replays_nothing_twice(monkeypatch) -> None:
    played = []

    def counted(*arguments, **options):
        played.append(arguments[3])
        return lab.replay(*arguments, **options)

    monkeypatch.setattr(race, "replay", counted)
    panel = a_panel()
    panel._lab_state.shown_panes = ("hours",)
    assert not panel._asked.n_requested
    assert "Press Replay" in panel.race.empty_words
    assert len(await replayed(panel)) == len(POLICIES)
    assert sorted(played) == sorted(POLICIES)
    panel.policy.value = "varuna"
    await until(lambda: not panel._asked.is_running)
    assert [row["name"] for row in panel.race.rows] == ["varuna"]
    panel._lab_state.shown_panes = ()
    panel._lab_state.shown_panes = ("hours",)
    await replayed(panel)
    assert sorted(played) == sorted(POLICIES)


async def test_an_edit_of_the_network_makes_it_stale_and_another_job_too() -> None:
    panel = a_panel()
    state = panel._lab_state
    await replayed(panel)
    before = state.topology
    state.topology = before.scaled(bandwidth=0.5)
    assert panel.staleness(state) == panel.race.stale == OTHER
    assert state.note_of("hours") == ""
    state.topology = before
    assert panel.staleness(state) == ""
    state.job = lab.load_job("small", global_batch=32)
    assert panel.staleness(state) == OTHER
    await replayed(panel)
    assert panel.staleness(state) == ""


async def test_a_replay_is_stopped_and_what_was_replayed_is_kept(monkeypatch) -> None:
    panel, goes_on, replay = a_panel(), threading.Event(), race.replay
    monkeypatch.setattr(race, "replay", lambda *about, **told: goes_on.wait(WAIT_S) and replay(*about, **told))
    panel.start.click()
    await until(lambda: panel._is_replaying)
    panel.stop.click()
    goes_on.set()
    await until(lambda: not panel._asked.is_running)
    assert "stopped:" in panel.race.caption
    assert panel.stop.layout.display == "none"
    assert len(await replayed(panel)) == len(POLICIES)


async def test_what_cannot_be_replayed_is_said() -> None:
    panel = a_panel()
    panel._lab_state.job = lab.Job.from_bytes(4, 2, 1e6, 1e6)
    assert panel.start.disabled
    assert "no FLOP" in panel.race.empty_words
    panel = a_panel()
    nobody = replace(lab.load_availability("bamboo-g4dn"), time_s=[], device=[], comes=[])
    panel._here = lambda topology: nobody.on(topology)
    await replayed(panel)
    assert (panel.race.rows, panel.race.empty_words) == ([], NOBODY)
    panel = a_panel()
    panel._lab_state.topology = panel._lab_state.topology.subset([0])
    found = await replayed(panel)
    assert found or "fits no plan" in panel.race.empty_words


def test_the_sentence_names_who_wins_and_says_what_it_is() -> None:
    made = [lab.replay({1: 10.0, 2: 19.0}, 190, "oobleck-every-10m", policy) for policy in ("oobleck", "restart")]
    told = sentence(sorted(made, key=lambda one: -one.samples))
    assert "in the lab's replay" in told
    assert title_of("oobleck") in told
    assert sentence([]) == ""


async def test_with_many_devices_it_waits_to_be_asked() -> None:
    panel = a_panel("worldwide", "dtfm-gpt3-xl")
    panel._lab_state.shown_panes = ("hours",)
    assert not panel._asked.n_requested
    assert "With 64 devices" in panel.race.empty_words
