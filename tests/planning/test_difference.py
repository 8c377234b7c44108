"""Two plans side by side: only what moved has moved, and every change of the cost has one cause."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planning_networks import KINDS, network

from dtfm_lab.domain.job import JOBS, Job
from dtfm_lab.files import load_topology
from dtfm_lab.planning import Difference, evaluate, price_placement

TOPOLOGY = network("jittered", 14, 1)
JOB = Job.from_bytes(4, 3, 1e8, 2e8)
STAGES = np.arange(12).reshape(4, 3)
BEFORE = evaluate(TOPOLOGY, JOB, stages=STAGES)
seeds = st.integers(0, 10_000)


def changes(difference) -> dict[str, str]:
    devices = difference.to_frame()
    return {row.device: row.change for row in devices.itertuples() if row.change not in ("stays", "idle")}


@given(seeds)
def test_stages_in_another_order_and_pipelines_by_other_numbers_move_nobody(seed):
    rng = np.random.default_rng(seed)
    stages = [rng.permutation(group).tolist() for group in rng.permutation(STAGES)]
    difference = Difference(BEFORE, evaluate(TOPOLOGY, JOB, stages=stages))
    assert changes(difference) == {}
    for after, before in difference.matched_stages.items():
        assert set(stages[after]) == set(STAGES[before])


def test_a_reversed_plan_is_the_same_plan():
    pipelines = np.random.default_rng(0).permutation(3)
    grid = BEFORE.placement.devices[::-1, pipelines]
    ranks = [None] * 14
    for (stage, replica), device in np.ndenumerate(grid):
        ranks[device] = int(replica * 4 + stage)
    difference = Difference(BEFORE, evaluate(TOPOLOGY, JOB, rank_map=ranks))
    assert difference.new_pipelines == []
    assert difference.matched_stages == {0: 3, 1: 2, 2: 1, 3: 0}
    assert difference.parts["change_s"].abs().max() == pytest.approx(0)
    assert "No device changed its stage (the same stages in another order or numbering)" in difference.text


def test_stages_that_share_as_much_with_each_are_matched_by_their_numbers():
    job = Job.from_bytes(2, 2, 1e8, 2e8)
    before, after = (evaluate(TOPOLOGY, job, stages=stages) for stages in ([[0, 1], [2, 3]], [[0, 2], [1, 3]]))
    assert Difference(before, after).matched_stages == {0: 0, 1: 1}


def test_an_exchange_moves_two_devices():
    stages = STAGES.tolist()
    stages[0][1], stages[2][0] = stages[2][0], stages[0][1]
    difference = Difference(BEFORE, evaluate(TOPOLOGY, JOB, stages=stages[::-1]))
    assert changes(difference) == {"device-1": "moved", "device-6": "moved"}
    assert "2 devices changed stage (device-1 and device-6)" in difference.text


def test_devices_go_idle_and_come_in():
    stages = STAGES.tolist()
    stages[3][2] = 13
    difference = Difference(BEFORE, evaluate(TOPOLOGY, JOB, stages=stages))
    assert changes(difference) == {"device-11": "gone idle", "device-13": "come in"}
    assert difference.devices.set_index("device")["change"]["device-12"] == "idle"


def test_no_overlap_at_all_moves_everybody():
    topology = network("jittered", 8, 0)
    job = Job.from_bytes(2, 2, 1e8, 2e8)
    difference = Difference(
        evaluate(topology, job, stages=[[0, 1], [2, 3]]), evaluate(topology, job, stages=[[4, 5], [6, 7]])
    )
    assert difference.matched_stages == {}
    assert sorted(set(changes(difference).values())) == ["come in", "gone idle"]
    assert len(difference.new_pipelines) == 2


@given(st.sampled_from(KINDS), seeds)
@settings(max_examples=10)
def test_parts_add_up_to_the_total(kind, seed):
    rng = np.random.default_rng(seed)
    topology = network(kind, 12, seed)
    before, after = (evaluate(topology, JOB, stages=rng.permutation(12).reshape(4, 3)) for _ in "ba")
    parts = Difference(before, after).parts
    for column, cost in (("before_s", before.cost), ("carried_s", before.cost), ("after_s", after.cost)):
        assert parts[column]["pipeline"] == pytest.approx(cost.pipeline_s)
        assert parts[column]["total"] == pytest.approx(parts[column]["data parallel"] + parts[column]["pipeline"])


def test_the_networks_doing_and_the_planners_are_told_apart():
    slower = TOPOLOGY.with_link(*BEFORE.placement.devices[:2, 0].tolist(), latency_s=50.0)
    carried = price_placement(slower, JOB, BEFORE.placement.devices)
    stages = np.random.default_rng(3).permutation(12).reshape(4, 3)
    after = evaluate(slower, JOB, stages=stages)
    difference = Difference(BEFORE, after)
    assert difference.changed_links == 2
    assert difference.carried.total_s == pytest.approx(carried.total_s)
    assert carried.total_s > BEFORE.cost.total_s + 99
    assert "2 links of the network changed." in difference.text
    assert "the network made" in difference.text


def test_a_network_that_changed_elsewhere_is_no_cause():
    elsewhere = TOPOLOGY.with_link(12, 13, latency_s=50.0)
    difference = Difference(BEFORE, evaluate(elsewhere, JOB, stages=STAGES))
    assert difference.changed_links == 2
    assert "the network made" not in difference.text


def test_another_job_is_a_cause_of_its_own():
    heavier = replace(JOB, given_hop_bytes=4e8)
    difference = Difference(BEFORE, evaluate(TOPOLOGY, heavier, stages=STAGES))
    assert not difference.same_messages
    assert "the job made" in difference.text
    assert difference.carried.total_s == pytest.approx(
        price_placement(TOPOLOGY, heavier, BEFORE.placement.devices).total_s
    )


def test_devices_of_one_network_only_are_named():
    without = TOPOLOGY.subset([d for d in range(14) if d != 4])
    stages = [[f"device-{d if d != 4 else 12}" for d in group] for group in STAGES]
    there = evaluate(without, JOB, stages=stages)
    gone = Difference(BEFORE, there)
    assert changes(gone) == {"device-4": "removed", "device-12": "come in"}
    assert gone.carried is None
    assert "the earlier placement needs device-4" in gone.text
    back = Difference(there, BEFORE)
    assert changes(back) == {"device-4": "added", "device-12": "gone idle"}
    assert back.carried is not None


def test_plans_of_other_shapes_are_compared_as_far_as_they_go():
    after = evaluate(TOPOLOGY, JOB, stages=[[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]])
    difference = Difference(BEFORE, after)
    assert difference.text.startswith("From 4 x 3 to 2 x 6.")
    assert sorted(difference.matched_stages) == [0, 1]
    assert sum(change == "moved" for change in changes(difference).values()) == 6
    assert np.isfinite(difference.parts.loc["total"]).all()
    assert json.loads(json.dumps(difference.summary()))["cost_after_s"] == after.cost.total_s


def test_a_shape_that_the_later_batch_does_not_allow_is_priced_for_the_earlier_job():
    topology = load_topology("lecture-hall")
    odd = evaluate(
        topology, replace(JOBS["tiny"], n_stages=2, n_replicas=3, global_batch=18), stages=[[0, 1, 2], [3, 4, 5]]
    )
    even = evaluate(topology, JOBS["tiny"], stages=[[0, 1], [2, 3], [4, 5], [6, 7]])
    assert Difference(odd, even).carried.total_s == pytest.approx(odd.cost.total_s)
    assert np.isfinite(Difference(even, odd).parts.loc["total"]).all()
