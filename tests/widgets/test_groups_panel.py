"""The groups' panel without a browser: steps, prices of other places, moves by hand, selections that are shared."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loops import send, until

from dtfm_lab import Job, Topology
from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.plan import Plan
from dtfm_lab.planning import evaluate, explain
from dtfm_lab.widgets.groups import STEPS, GroupsPanel, describe_step
from dtfm_lab.widgets.groups.hand_moves import change, exchanged, offers
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.views.groups import GroupsView, cost_of, groups_of, matching_of, network_of


def plan_of(n_stages: int = 4, n_replicas: int = 2, n_idle: int = 0, seed: int = 0, n_regions: int = 3) -> Plan:
    """A random placement on a random network, directions unlike."""
    rng = np.random.default_rng(seed)
    n = n_stages * n_replicas + n_idle
    regions = [f"region-{i * n_regions // n}" for i in range(n)]
    topology = Topology.from_matrices(rng.uniform(5, 200, (n, n)), rng.uniform(0.3, 5, (n, n)), regions=regions)
    job = Job.from_bytes(n_stages, n_replicas, gradient_bytes=6.5e8, activation_bytes=4.7e8)
    placed = rng.permutation(n)[: n_stages * n_replicas].reshape(n_stages, n_replicas)
    return evaluate(topology, job, stages=placed.tolist())


shapes = st.tuples(st.integers(2, 5), st.integers(1, 4), st.integers(0, 3), st.integers(0, 10_000))


def panel_of(plan: Plan | None) -> tuple[LabState, GroupsPanel]:
    lab_state = LabState()
    panel = GroupsPanel(lab_state)
    lab_state.plan = plan
    return lab_state, panel


def gesture(panel: GroupsPanel, **content: object) -> None:
    """What the page sends."""
    send(panel.groups, content)


@settings(max_examples=40)
@given(shapes)
def test_an_offer_is_what_the_plan_costs_after_the_move(shape):
    plan = plan_of(*shape)
    device = plan.topology.names[shape[3] % len(plan.topology)]
    offered = offers(explain(plan), device)
    for partner, (cost_s, _) in offered["devices"].items():
        assert exchanged(plan, device, partner).cost.total_s == pytest.approx(cost_s, rel=1e-9)
    places = explain(plan).places(device)
    best = {-1 if stage is None else stage: cost_s for stage, cost_s in zip(
        places["stage"].astype(object).where(places["stage"].notna(), None), places["cost_after_s"], strict=True
    )}  # fmt: skip
    assert {place["stage"]: pytest.approx(place["cost_s"]) for place in offered["groups"]} == best
    assert [place["cost_s"] for place in offered["groups"]] == sorted(place["cost_s"] for place in offered["groups"])


def test_a_move_keeps_what_was_proven():
    plan = plan_of()
    proven = replace(plan, lower_bound_s=1.1 * plan.lower_bound_s, planner="another")
    moved = exchanged(proven, plan.stages[0][0], plan.stages[2][1])
    assert moved.lower_bound_s == proven.lower_bound_s
    assert moved.planner == "given"


def test_devices_of_one_group_have_nothing_to_exchange():
    plan = plan_of(n_idle=2)
    first, second = plan.stages[1]
    with pytest.raises(PlanError, match="both of stage 1"):
        exchanged(plan, first, second)
    with pytest.raises(PlanError, match="both idle"):
        exchanged(plan, *(plan.topology.names[i] for i in plan.idle_devices))


def test_a_change_has_a_sign():
    assert change(0.512, 13.4) == "+0.51 s"
    assert change(-0.003, 13.4) == "−3 ms"
    assert change(1e-12, 13.4) == "no change"
    assert change(0.012, 0.4) == "+12 ms"


@given(shapes)
def test_a_matching_is_slowest_first_and_its_two_ways_make_its_seconds(shape):
    plan = plan_of(*shape)
    for a in range(plan.job.n_stages):
        for b in range(a + 1, plan.job.n_stages):
            pairs = matching_of(plan, a, b)
            assert [pair[2] for pair in pairs] == sorted((pair[2] for pair in pairs), reverse=True)
            assert all(total == pytest.approx(there + back) for _, _, total, there, back in pairs)
            assert pairs[0][2] == pytest.approx(plan.cost.weights_s[a, b])
            assert {pair[0] for pair in pairs} == set(plan.stages[a])
            assert {pair[1] for pair in pairs} == set(plan.stages[b])


@given(shapes)
def test_the_parts_of_the_cost_make_its_seconds(shape):
    plan = plan_of(*shape)
    cost = cost_of(plan)
    assert cost["averaging_s"] + sum(hop["seconds"] for hop in cost["hops"]) == pytest.approx(plan.cost.total_s)
    assert cost["bound_s"] == plan.lower_bound_s
    for stage, hop in enumerate(cost["hops"]):
        source, target = (plan.topology.index(name) for name in hop["devices"])
        assert hop["seconds"] == pytest.approx(matching_of(plan, stage, stage + 1)[0][2])
        assert hop["gbps"] == pytest.approx(plan.topology.bandwidth_bytes_per_s[source, target] * 8 / 1e9, rel=1e-3)
        assert hop["ms"] == pytest.approx(plan.topology.latency_s[source, target] * 1e3, rel=1e-3)


def test_a_group_takes_as_long_as_its_slowest_device():
    plan = plan_of(4, 3)
    for group in groups_of(plan):
        assert max(group["device_s"]) == pytest.approx(group["cost_s"])


@pytest.mark.parametrize(("n_devices", "n_regions"), [(1, 1), (2, 2), (64, 8), (128, 64), (256, 1)])
def test_a_network_of_any_size_is_drawn_with_few_lines(n_devices, n_regions):
    plan = plan_of(n_devices, 1, n_regions=n_regions)
    drawn = network_of(plan.topology)
    assert len(drawn["devices"]) == n_devices
    assert len(drawn["links"]) + len(drawn["bundles"]) <= max(120, 4 * n_devices + 64)
    assert all(0 <= line[2] <= 1 for line in [*drawn["links"], *drawn["bundles"]])


def test_the_steps_tell_the_numbers_of_this_plan():
    plan = plan_of(n_idle=1)
    words = {letter: describe_step(plan, letter) for letter in STEPS}
    assert "9 devices and 72 directed links" in words["a"].numbers
    assert f"{plan.cost.data_parallel_s:.4g} s, the slowest: it sets the data-parallel cost" in words["b"].numbers
    assert "1 device stays idle" in words["b"].numbers
    assert "8 devices and 28 pairs of them become 4 nodes and 6 edges" in words["c"].numbers
    assert f"{plan.cost.weights_s[np.triu_indices(4, 1)].max():.4g} s" in words["d"].numbers
    assert f"{plan.cost.total_s:.4g} s" in words["e"].numbers
    assert [words[letter].source for letter in "bcde"] == [
        "equation 2", "equation 3", "equation 3", "equations 4 and 1",
    ]  # fmt: skip


@pytest.mark.parametrize("shape", [(1, 1), (1, 6), (6, 1), (2, 2)])
def test_the_steps_of_the_smallest_plans_are_told(shape):
    plan = plan_of(*shape)
    for letter in STEPS:
        assert all(describe_step(plan, letter))


@pytest.mark.parametrize("shape", [(8, 8), (20, 2)])
def test_a_view_says_how_many_groups_it_shows(shape):
    view = GroupsView()
    view.show(plan_of(*shape))
    assert f"{shape[0]} groups of {shape[1]}" in view.alt_text()


def test_without_a_plan_there_is_a_hint_and_nothing_to_press():
    _, panel = panel_of(None)
    assert panel.groups.alt_text() == "No plan yet: draw at least two devices"
    assert panel.line.value == ""
    hand = panel.hand
    assert all(control.disabled for control in (panel.step, hand.move, hand.undo, hand.redo))
    assert all(button.tooltip for button in (hand.move, hand.undo, hand.redo)), "a button that does nothing says why"


def test_a_selection_is_shared_both_ways():
    plan = plan_of(n_idle=1)
    lab_state, panel = panel_of(plan)
    panel.groups.selected = [plan.stages[1][0]]
    assert lab_state.selected == (plan.stages[1][0],)
    lab_state.selected = (plan.stages[2][1], "of another network")
    assert panel.groups.selected == [plan.stages[2][1]]
    assert lab_state.selected == (plan.stages[2][1], "of another network"), "what is not here stays selected elsewhere"


def test_a_selected_group_is_the_labs_stage_until_a_device_is_selected():
    lab_state, panel = panel_of(plan := plan_of())
    with panel.groups.hold_trait_notifications():
        panel.groups.selected, panel.groups.selected_group = list(plan.stages[2]), 2
    assert (lab_state.selected_stage, lab_state.selected) == (2, tuple(plan.stages[2]))
    lab_state.selected = (plan.stages[0][1],)
    assert panel.groups.selected_group == -1
    lab_state.selected_stage = 1
    assert panel.groups.selected_group == 1


def test_a_hop_and_an_edge_beside_the_path_select_their_slowest_pair_as_the_link():
    lab_state, panel = panel_of(plan := plan_of())
    panel.groups.selected_edge = 1
    slowest = max(panel.groups.matchings[1], key=lambda pair: pair[2])
    assert lab_state.selected_link == tuple(slowest[:2])
    assert slowest[2] == pytest.approx(plan.cost.hop_s[1])
    panel.groups.other_edge = [0, 2]
    assert panel.groups.other_matching == matching_of(plan, 0, 2)
    assert lab_state.selected_link == tuple(panel.groups.other_matching[0][:2])


async def test_a_drag_is_priced_and_a_drop_on_a_device_exchanges_the_two() -> None:
    lab_state, panel = panel_of(plan := plan_of())
    device, partner = plan.stages[0][0], plan.stages[2][1]
    gesture(panel, kind="lift", device=device)
    await until(lambda: panel.groups.offers.get("device") == device)
    priced_s, _ = panel.groups.offers["devices"][partner]
    gesture(panel, kind="drop", device=device, partner=partner)
    await until(lambda: lab_state.plan is not plan)
    assert lab_state.plan.cost.total_s == pytest.approx(priced_s, rel=1e-9)
    assert device in lab_state.plan.stages[2]
    assert partner in lab_state.plan.stages[0]
    assert "You swapped" in panel.line.value
    assert panel.groups.offers == {}, "prices of another plan"


async def test_the_seconds_of_an_iteration_follow_the_prices_of_a_move() -> None:
    from dtfm_lab import lab

    plan = lab.plan(lab.load_topology("lecture-hall"), lab.load_job("tiny", n_stages=4, n_replicas=2), steps=3)
    lab_state, panel = panel_of(plan)
    lab_state.schedule = "1f1b"
    device = plan.stages[0][0]
    lab_state.selected = (device,)
    await until(lambda: all("iteration_change_s" in place for place in panel.groups.offers.get("groups", [{}])))
    now_s = lab.simulate(plan, "1f1b").iteration_s
    for place in panel.groups.offers["groups"]:
        moved_s = lab.simulate(exchanged(plan, device, place["partner"]), "1f1b").iteration_s
        assert place["iteration_change_s"] == pytest.approx(moved_s - now_s, abs=1e-9)
    assert "with the predicted iteration in brackets" in panel.line.value


async def test_offers_of_a_plan_that_was_replaced_while_the_pane_was_hidden_are_gone() -> None:
    """The other plan may not have the stages that they name."""
    plan = plan_of(5, 1)
    lab_state, panel = panel_of(plan)
    panel.groups.selected = [plan.topology.names[0]]
    await until(lambda: len(panel.groups.offers.get("groups", ())) > 1)
    lab_state.shown_panes = ("schedule",)
    lab_state.plan = evaluate(lab_state.plan.topology, lab_state.plan.job.with_fields(n_stages=1), stages=[[0]])
    assert panel.groups.offers == {}
    lab_state.shown_panes = ("groups",)
    assert len(panel.groups.groups) == 1
    # Two changes while it is hidden, the second one an undo: the moves are offered again.
    lab_state.shown_panes = ("schedule",)
    small, lab_state.plan = lab_state.plan, plan
    lab_state.plan = small
    lab_state.plan = plan
    lab_state.shown_panes = ("groups",)
    panel.groups.selected = [plan.topology.names[0]]
    await until(lambda: len(panel.groups.offers.get("groups", ())) > 1)


async def test_a_drop_on_a_group_takes_the_cheapest_partner_an_idle_one_too() -> None:
    plan = plan_of(n_idle=3)
    lab_state, panel = panel_of(plan)
    device = plan.stages[1][1]
    best = next(place for place in offers(explain(plan), device)["groups"] if place["stage"] == -1)
    gesture(panel, kind="drop", device=device, stage=-1)
    await until(lambda: lab_state.plan is not plan)
    assert lab_state.plan.cost.total_s == pytest.approx(best["cost_s"])
    assert device in {lab_state.plan.topology.names[i] for i in lab_state.plan.idle_devices}


async def test_moves_by_hand_are_undone_and_made_again_also_after_a_planner_has_answered() -> None:
    lab_state, panel = panel_of(plan := plan_of())
    device, partner = plan.stages[0][0], plan.stages[3][0]
    gesture(panel, kind="drop", device=device, partner=partner)
    await until(lambda: lab_state.plan is not plan)
    moved = lab_state.plan
    panel.hand.undo.click()
    assert lab_state.plan is plan
    assert panel.hand.undo.disabled
    gesture(panel, kind="redo")
    assert lab_state.plan is moved
    assert panel.hand.redo.disabled
    lab_state.plan = plan_of(seed=1)
    assert panel.hand.note == "", "this plan was not made by hand"
    assert panel.hand.undo.tooltip == f"Undo: {device} and {partner} swapped"
    panel.hand.undo.click()
    assert lab_state.plan is plan


async def test_a_device_is_moved_without_dragging() -> None:
    lab_state, panel = panel_of(plan := plan_of())
    device = plan.stages[3][1]
    lab_state.selected = (device,)
    await until(lambda: not panel.hand.move.disabled)
    assert len(panel.hand.move_to.options) == 3
    label, partner = panel.hand.move_to.options[0]
    assert label.startswith(f"stage {next(s for s, group in enumerate(plan.stages) if partner in group)}")
    panel.hand.move.click()
    await until(lambda: lab_state.plan is not plan)
    assert partner in lab_state.plan.stages[3]


async def test_a_move_that_is_not_possible_is_one_calm_line() -> None:
    lab_state, panel = panel_of(plan := plan_of())
    gesture(panel, kind="drop", device=plan.stages[0][0], partner="nobody")
    await until(lambda: lab_state.message != "")
    assert lab_state.step == "groups"
    assert "nobody" in lab_state.message
    assert lab_state.plan is plan


async def test_why_so_answers_for_the_plan_and_for_a_device() -> None:
    lab_state, panel = panel_of(plan := plan_of())
    await until(lambda: "The plan" in panel.why.value)
    device = plan.stages[1][0]
    lab_state.selected = (device,)
    await until(lambda: f"{device} serves stage 1" in panel.why.value)
