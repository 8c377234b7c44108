"""The real search while it is watched: what its steps carry to the page, live after an edit, asked for, and left."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from loops import until
from plan_widgets import JOB, irregular

import dtfm_lab as lab
from dtfm_lab.planning import Cancellation, search
from dtfm_lab.planning.problem import SHOWN
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.live_search import OF_A_PLAN, OF_BESTS, LiveSearch, SearchFrames
from dtfm_lab.widgets.planner.plan_panel import RACE, REAL, PlanPanel
from dtfm_lab.widgets.planner.replanning import LiveReplanning
from dtfm_lab.widgets.planner.short_searches import first_plan, improved


def a_live_lab(mode: str = REAL) -> tuple[LabState, PlanPanel, LiveReplanning]:
    state = LabState(topology=irregular())
    panel = PlanPanel(state, JOB)
    panel.mode.value = mode
    return state, panel, LiveReplanning(state)


def test_searches_that_follow_each_other_count_on_and_never_get_worse():
    topology, live = irregular(), LiveSearch()
    found = first_plan(topology, JOB, Cancellation(), {}, live)
    first = live.newest
    found = improved(found, JOB, Cancellation(), 0.2, live)
    assert live.n_searches == 2
    steps = [one.step for one in live.shown]
    for what in ("generation", "evaluations", "seconds"):
        counts = [getattr(step, what) for step in steps]
        assert counts == sorted(counts)
    assert live.newest.evaluations > first.evaluations
    assert all(a.best_s >= b.best_s and a.bound_s <= b.bound_s for a, b in pairwise(steps))
    assert all(step.held is None for step in steps), "no search is kept alive by what is shown of it"
    assert found.plan.cost.total_s <= live.newest.best_s * (1 + 5e-3)


def test_an_individual_keeps_its_number_and_no_other_gets_it():
    live = LiveSearch()
    first_plan(irregular(), JOB, Cancellation(), {}, live)
    known = {}
    frames = [one.frame for one in live.shown if one.frame is not None]
    assert frames
    assert len(frames[-1].individuals) <= SHOWN
    for one in (one for frame in frames for one in frame.individuals):
        assert np.array_equal(known.setdefault(one.number, one).grid, one.grid)
        assert known[one.number].cost_s == one.cost_s


def test_a_planner_without_a_population_shows_the_best_that_it_had():
    frames = SearchFrames()
    found = search(irregular(8), JOB.with_fields(n_stages=2), "random", seconds=0.5)
    steps = [replace(step, held=None) for step in found]
    made = [frame for frame in map(frames.of, steps) if frame is not None]
    assert made[-1].rule == OF_BESTS
    assert not made[-1].has_generations, "so no control for generations is shown"
    assert made[-1].individuals[0].cost_s == steps[-1].best_s


async def test_the_pictures_follow_every_edit_while_they_are_looked_at():
    state, panel, replanning = a_live_lab()
    view, curve = panel.real.population, panel.real.curve
    await until(lambda: replanning._task is None and state.plan is not None)
    assert not view.frames, "nothing is drawn that nobody looks at"
    state.pane = "plan"
    await until(lambda: view.is_over)
    first = state.live_search
    assert view.frame == len(view.frames) - 1, "the newest is shown"
    assert view.cells["names"] == list(state.topology.names)
    best_s = curve.points["evolutionary"][-1, 2]
    assert best_s == first.newest.best_s == pytest.approx(state.plan.cost.total_s, rel=5e-3)
    assert curve.caption.startswith("live: ")
    state.topology = irregular(seed=5)
    await until(lambda: state.live_search is not first and view.is_over and panel.real._displayed is state.live_search)
    assert curve.points["evolutionary"][-1, 2] == state.live_search.newest.best_s != best_s
    assert not curve.caption.startswith("before")


async def test_a_race_that_has_not_been_run_shows_the_live_search_and_then_itself():
    state, panel, replanning = a_live_lab(RACE)
    state.pane = "plan"
    await until(lambda: replanning._task is None and "evolutionary" in panel.race.curve.points)
    assert panel.race.curve.caption.startswith("No race yet; live: ")
    for name, box in panel.race.planners.items():
        box.value = name == "random"
    panel.race.seconds.value = 0.1
    panel.race.redo()
    await until(lambda: panel.race.search is None)
    assert set(panel.race.curve.points) == {"random"}


async def test_a_search_that_is_asked_for_takes_the_place_of_the_live_one():
    state, panel, replanning = a_live_lab()
    state.pane = "plan"
    await until(lambda: replanning._task is None and panel.real.population.is_over)
    panel.real.planner.value, panel.real.seconds.value = "dtfm", 0.3
    panel.real.redo()
    await until(lambda: panel.real.search is None)
    view = panel.real.population
    assert state.live_search is None
    assert set(panel.real.curve.points) == {"dtfm"}
    assert view.is_over
    assert len(view.frames[-1].individuals) == SHOWN
    assert view.frames[-1].best.cost_s == pytest.approx(state.plan.cost.total_s)
    panel.mode.value = RACE
    panel.mode.value = REAL
    await asyncio.sleep(0.1)
    assert set(panel.real.curve.points) == {"dtfm"}, "looking away and back changes nothing"


async def test_it_is_played_again_to_the_last():
    state, panel, replanning = a_live_lab()
    state.pane = "plan"
    view = panel.real.population
    await until(lambda: replanning._task is None and view.is_over)
    view.frame = max(0, len(view.frames) - 3)
    view.playing = True
    await until(lambda: not view.playing)
    assert view.frame == len(view.frames) - 1


def test_a_plan_that_no_search_has_made_here_is_shown_itself():
    state = LabState(topology=irregular())
    panel = PlanPanel(state, JOB)
    panel.mode.value = REAL
    state.pane = "plan"
    assert not panel.real.population.frames
    state.plan = lab.evaluate(state.topology, JOB, stages=np.arange(16).reshape(4, 4))
    (frame,) = panel.real.population.frames
    assert np.array_equal(frame.best.grid, state.plan.placement.devices)
    assert frame.best.cost_s == state.plan.cost.total_s
    assert frame.rule == OF_A_PLAN


async def test_a_plan_of_another_network_takes_the_place_of_the_search_before_it():
    state, panel, replanning = a_live_lab()
    state.pane = "plan"
    view = panel.real.population
    await until(lambda: replanning._task is None and view.is_over)
    replanning.switch.value = False
    other = irregular(12)
    with state.hold_trait_notifications():
        state.topology = other
        state.plan = lab.evaluate(other, JOB.with_fields(n_replicas=3), stages=np.arange(12).reshape(4, 3))
    state.job = JOB.with_fields(n_replicas=3)
    assert view.cells["names"] == list(other.names)
    assert len(view.frames[-1].individuals) == 1


async def test_after_an_edit_without_a_new_plan_the_last_search_says_that_it_is_of_before():
    state, panel, replanning = a_live_lab()
    await until(lambda: replanning._task is None and state.plan is not None)
    replanning.switch.value = False
    state.topology = irregular(seed=5)
    state.pane = "plan"
    assert panel.real.curve.caption.startswith("before the last edit: live: ")
