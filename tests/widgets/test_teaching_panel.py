"""The mode Teaching: what it shows, when, and what of it reaches the network and the plan."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from loops import until
from plan_widgets import JOB, irregular

from dtfm_lab.domain.network import Topology
from dtfm_lab.planning.cost import price_placement
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.planner.plan_panel import RACE, REAL, TEACHING, PlanPanel
from dtfm_lab.widgets.planner.teaching_panel import PACES
from dtfm_lab.widgets.views.population import NOBODY, PopulationView, cells_of

FAST = list(PACES)[-1]


def a_panel(topology: Topology | None = None) -> tuple[LabState, PlanPanel]:
    lab_state = LabState(topology=topology or irregular())
    panel = PlanPanel(lab_state, JOB)
    panel.mode.value = TEACHING
    return lab_state, panel


async def searched(topology: Topology | None = None) -> tuple[LabState, PlanPanel, PopulationView]:
    """A pane that is looked at and whose search is over, with the view of it."""
    lab_state, panel = a_panel(topology)
    panel.teaching.pace.value = FAST
    lab_state.pane = "plan"
    await until(lambda: panel.teaching.view.is_over)
    return lab_state, panel, panel.teaching.view


async def test_nothing_is_searched_before_the_pane_is_looked_at():
    lab_state, panel = a_panel()
    await asyncio.sleep(0.1)
    assert not panel.teaching.view.frames
    assert lab_state.shown_stages == {}
    lab_state.pane = "plan"
    await until(lambda: panel.teaching.view.is_over)
    assert panel.teaching.view.frame == 0, "it waits for Play"
    assert sorted(lab_state.shown_stages.values()) == sorted(list(range(4)) * 4)
    assert lab_state.note_of("plan") == panel.teaching.sentence
    assert "20 random placements, generation 0" in lab_state.note_of("plan")


async def test_scrubbing_moves_the_network_and_leaving_gives_it_back():
    lab_state, panel, view = await searched()
    first = lab_state.shown_stages
    view.frame = len(view.frames) - 1
    names, best = lab_state.topology.names, view.frames[-1].best
    assert lab_state.shown_stages == {names[d]: s for s, group in enumerate(best.grid.tolist()) for d in group} != first
    panel.mode.value = REAL
    assert lab_state.shown_stages == {}
    assert lab_state.note_of("plan") == ""


async def test_playing_turns_a_generation_after_the_other_to_the_last():
    _, _, view = await searched(irregular(6))
    view.frame = len(view.frames) - 4
    seen = []
    view.observe(lambda change: seen.append(change["new"]), "frame")
    view.playing = True
    await until(lambda: not view.playing)
    assert seen == list(range(len(view.frames) - 3, len(view.frames)))


async def test_the_reference_is_what_the_planner_finds():
    lab_state, panel = a_panel()
    lab_state.pane = "plan"
    await until(lambda: panel.teaching.reference is not None and panel.teaching.view.is_over)
    reference, view = panel.teaching.reference, panel.teaching.view
    assert 0 < reference.lower_bound_s <= reference.cost.total_s == view.planner_s
    assert all(frame.best.cost_s >= reference.lower_bound_s * (1 - 1e-9) for frame in view.frames)
    assert panel.teaching.sentence.startswith("Best ")


async def test_the_plan_at_hand_is_kept_until_an_individual_is_taken_over():
    lab_state, _, view = await searched()
    assert lab_state.plan is None
    one = view.frames[3].individuals[7]
    view.received({"kind": "take", "number": one.number}, [])
    await until(lambda: lab_state.plan is not None)
    assert np.array_equal(lab_state.plan.placement.devices, one.grid)
    assert lab_state.plan.cost.total_s == pytest.approx(one.cost_s)


async def test_another_network_or_seed_begins_anew():
    lab_state, panel, view = await searched()
    first = view.frames[0].best.cost_s
    panel.teaching.seed.value = 5
    await until(lambda: view.is_over and bool(view.frames))
    assert view.frames[0].best.cost_s != first
    lab_state.topology = irregular(16, seed=3)
    await until(lambda: view.is_over and bool(view.frames))
    grid = view.frames[0].best.grid
    assert view.frames[0].best.cost_s == pytest.approx(price_placement(lab_state.topology, JOB, grid).total_s)


async def test_a_search_that_runs_ends_when_the_network_goes():
    lab_state, panel = a_panel(irregular(64))
    lab_state.pane = "plan"
    search = panel.teaching.search
    lab_state.topology = None
    await until(lambda: not search.running)
    assert panel.teaching.search is None
    assert not panel.teaching.view.frames


async def test_a_page_that_opens_late_is_sent_every_frame_and_individual():
    _, _, view = await searched()
    sent: list[tuple] = []
    view.send = lambda content, buffers=None: sent.append((content, buffers))
    view.received({"kind": "hello"}, [])
    (reset, _), (content, buffers) = sent
    assert reset == {"kind": "reset"}
    assert len(content["frames"]) == len(view.frames)
    stages = np.frombuffer(buffers[0], "<i2").reshape(-1, 16)
    known = {one["number"] for one in content["people"]}
    assert len(stages) == len(content["people"]) == len(known)
    assert all(set(frame["numbers"]) <= known for frame in content["frames"])
    assert all(set(one["parents"]) <= known for one in content["people"])


def test_a_saved_mode_is_restored_and_an_unknown_one_ignored():
    _, panel = a_panel()
    panel.restore({"mode": "Search"})
    assert panel.mode.value == TEACHING
    panel.restore({"mode": RACE})
    assert panel.mode.value == RACE


@pytest.mark.parametrize("sizes", [(8, 8, 8, 8), (1, 7), (64,), (3, 40, 1)])
def test_no_two_devices_share_a_cell_and_places_share_no_column(sizes):
    place_of = np.repeat(np.arange(len(sizes)), sizes)
    cells = cells_of(place_of, [f"place {n}" for n in range(len(sizes))], [""] * sum(sizes))
    at = cells["at"]
    assert len({tuple(one) for one in at}) == sum(sizes)
    assert all(0 <= column < cells["columns"] and 0 <= row < cells["rows"] for column, row in at)
    located = list(zip(at, place_of, strict=True))
    columns = [{column for (column, _), place in located if place == n} for n in range(len(sizes))]
    assert sum(map(len, columns)) == len(set().union(*columns)) == cells["columns"]


def test_a_view_without_frames_shows_nobody():
    view = PopulationView()
    assert view.shown is None
    assert view.chosen == NOBODY
