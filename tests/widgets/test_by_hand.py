"""The mode By hand: exchanges, prices, the score and the hint; every price is the lab's."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from loops import on_a_loop, until
from plan_widgets import JOB, irregular

from dtfm_lab.domain.errors import PlanError
from dtfm_lab.planning.cost import price_placement

pytest.importorskip("anywidget", reason="needs the lab extra")

from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.planner.hand_game import HandGame
from dtfm_lab.widgets.planner.plan_panel import BY_HAND, PlanPanel


def a_game(**given: object) -> HandGame:
    return HandGame(irregular(), JOB, **given)


def test_the_price_is_the_labs_after_every_exchange():
    game, rng = a_game(), np.random.default_rng(0)
    for _ in range(10):
        game.swap(*rng.choice(16, 2, replace=False).tolist())
        cost = price_placement(game.topology, JOB, game.grid)
        assert game.cost_s == pytest.approx(cost.total_s)
        assert game.cost_s == pytest.approx(game.groups_s.max() + game.hops_s.sum())
    assert sorted(game.row.tolist()) == list(range(16))


def test_undo_goes_back_to_the_start():
    game = a_game()
    game.swap(0, 1)
    game.swap(1, 2)
    game.undo()
    game.undo()
    game.undo()
    assert np.array_equal(game.row, game.start)
    assert game.moves == []


def test_the_hint_is_the_best_single_exchange():
    game = a_game()
    found = game.best_swap()
    costs = []
    for one, other in itertools.combinations(range(16), 2):
        game.swap(one, other)
        costs.append(game.cost_s)
        game.undo()
    assert found.cost_s == pytest.approx(min(costs))
    before = game.cost_s
    game.swap(found.one, found.other)
    assert before - game.cost_s == pytest.approx(found.gain_s)


def test_following_the_hints_comes_to_an_end_and_the_score_never_falls():
    game = a_game(planner_s=1e-3)
    scores = [game.score]
    for _ in range(200):
        hint = game.best_swap()
        if hint is None:
            break
        game.swap(hint.one, hint.other)
        scores.append(game.score)
    assert hint is None
    assert scores == sorted(scores)


def test_the_score_is_0_at_chances_median_and_100_at_the_planners_cost():
    game = a_game()
    assert game.score == 0.0, "nothing is known of the planner yet"
    game.planner_s = game.cost_s
    assert game.score == 100.0
    assert not game.has_beaten
    game.planner_s = game.cost_s * 1.01
    assert game.score == 100.0
    assert game.has_beaten
    game.chance_s, game.planner_s = game.cost_s, game.cost_s / 2
    assert game.score == 0.0


def test_an_even_beginning_gives_each_stage_some_of_every_neighbourhood():
    assert a_game(beginning="even").grid[:, 0].tolist() == [0, 1, 2, 3]


def test_a_device_does_not_change_places_with_itself_nor_two_idle_ones():
    game = HandGame(irregular(18), JOB)
    with pytest.raises(PlanError, match="with itself"):
        game.swap(3, 3)
    with pytest.raises(PlanError, match="both devices are idle"):
        game.swap(*game.idle.tolist())
    game.swap(int(game.idle[0]), int(game.grid[0, 0]))
    assert len(game.moves) == 1


@on_a_loop
async def test_the_network_shows_the_arrangement_and_the_plan_follows_only_when_taken_over():
    lab_state = LabState(topology=irregular(), pane="plan")
    panel = PlanPanel(lab_state, JOB)
    panel.mode.value = BY_HAND
    hand = panel.by_hand
    one, other = hand.game.topology.names[0], hand.game.topology.names[1]
    before = dict(lab_state.shown_stages)
    hand.board.received({"kind": "swap", "devices": [one, other]}, [])
    assert lab_state.shown_stages[one] == before[other]
    assert "after 1 move" in lab_state.search_note
    await until(lambda: hand.game.planner_s > 0)
    assert hand.board.state["bound_s"] <= hand.board.state["planner_s"] <= hand.board.state["chance_s"]
    assert lab_state.plan is None
    hand.hint.click()
    await until(lambda: len(hand.board.hinted) == 2)
    hand.swap(*hand.board.hinted)
    assert all(best.score > 0 and best.n_moves <= 2 for best in hand.bests.values())
    assert hand.board.hinted == []
    hand.take.click()
    await until(lambda: lab_state.plan is not None)
    assert np.array_equal(lab_state.plan.placement.devices, hand.game.grid)
    panel.mode.value = "Real"
    assert lab_state.shown_stages == {}
