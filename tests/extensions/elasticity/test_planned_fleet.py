"""What a planned fleet says of its operations, in closed form on a few devices."""

import numpy as np
import pytest

from dtfm_lab.costs.memory import static_memory
from dtfm_lab.domain.network import Topology
from dtfm_lab.extensions.elasticity.api import (
    PlannedFleet,
    ReconfigurationCosts,
    foresight,
    policies,
    policy_of,
    replay,
)
from dtfm_lab.extensions.elasticity.availability_files import load_availability
from dtfm_lab.extensions.elasticity.history import Operation
from dtfm_lab.extensions.elasticity.replaying import replay as replay_of_lab
from dtfm_lab.files import load_job, load_topology
from dtfm_lab.planning import evaluate, plan, simulated
from dtfm_lab.simulation import simulate

LATENCY_MS, GBPS = 5.0, 1.0
BYTES_PER_S = GBPS * 1e9 / 8


def alike(n: int) -> Topology:
    return Topology.from_matrices(np.full((n, n), LATENCY_MS), np.full((n, n), GBPS), name=f"{n} alike")


def fleet_of(n: int, stages: list[list[int]]) -> tuple[PlannedFleet, Operation]:
    network, n_replicas = alike(n), len(stages[0])
    job = load_job("tiny", n_stages=len(stages), n_replicas=n_replicas, global_batch=4 * n_replicas, microbatch=1)
    fleet = PlannedFleet(network=network, job=job.with_fields(n_stages=None, n_replicas=None))
    return fleet, fleet.of(simulated(evaluate(network, job, stages=stages)))


def test_devices_that_change_places_fetch_each_others_state():
    fleet, before = fleet_of(2, [[0], [1]])
    _, after = fleet_of(2, [[1], [0]])
    held = static_memory(before.plan.job, 2)
    largest = float((held.parameters + held.optimizer).max())
    assert fleet.move_s(before, after) == pytest.approx(largest / BYTES_PER_S + LATENCY_MS / 1e3)
    assert fleet.move_s(before, before) == 0.0
    assert fleet.move_s(None, after) == 0.0


def test_who_serves_the_same_stage_fetches_nothing_and_a_lost_stage_has_no_copy():
    fleet, before = fleet_of(4, [[0, 1], [2, 3]])
    _, crossed = fleet_of(4, [[1, 0], [3, 2]])
    assert fleet.move_s(before, crossed) == 0.0
    assert fleet.survives(before, frozenset({0, 2}))
    assert not fleet.survives(before, frozenset({0, 1}))
    assert fleet.rerouted(before, frozenset({2, 3})) is None
    assert fleet.without(before, frozenset({0, 3})) is None


def test_a_peer_that_shares_work_is_busy_for_both():
    fleet, before = fleet_of(2, [[0, 1]])
    trace = simulate(before.plan)
    busy_s = trace.bubble["busy_s"].to_numpy()
    shared = fleet.rerouted(before, frozenset({1}))
    assert shared.devices == {0}
    assert shared.left == {1}
    assert shared.samples == before.samples
    assert shared.step_s == pytest.approx(max(trace.iteration_s, busy_s.sum()))


def test_a_plan_for_more_devices_works_with_holes_where_peers_have_time():
    network = load_topology("campus")
    fleet = PlannedFleet(network=network, job=load_job("gpt3-xl", n_stages=6, n_replicas=3))
    larger = frozenset(range(24))
    whole = fleet.operation(larger)
    assert whole is not None
    for lost in (frozenset({8}), frozenset({0, 9, 16})):
        present = larger - lost
        found = fleet.shared(larger, present, whole, 0.0)
        assert found is not None
        assert found.devices <= present
        assert found.step_s >= whole.step_s
        # alike devices have changed places, which is as fast; and holes are nowhere worse than where they came about
        assert simulate(found.plan).iteration_s == pytest.approx(whole.step_s)
        by_chance = fleet.rerouted(whole, lost & whole.devices)
        assert by_chance is None or found.step_s <= by_chance.step_s + 1e-6
        assert fleet.shared(larger, present, whole, whole.samples_per_s) is None  # it cannot be faster than that
    assert fleet.move_s(whole, fleet.shared(larger, larger - {8}, whole, 0.0)) >= 0


def test_a_pipeline_that_leaves_takes_its_share_of_the_batch():
    fleet, before = fleet_of(4, [[0, 1], [2, 3]])
    smaller = fleet.without(before, frozenset({3}))
    assert smaller.devices == {0, 2}
    assert smaller.samples == before.samples / 2
    assert smaller.plan.job.n_replicas == 1
    assert smaller.step_s == pytest.approx(simulate(smaller.plan).iteration_s)


def test_a_job_of_one_shape_is_bounded_though_survivors_work_where_no_plan_fits():
    """Fewer devices than the shape needs have no plan; those who share the work of the lost still train."""
    network = alike(4)
    job = load_job("tiny", n_stages=2, n_replicas=2, global_batch=8, microbatch=1)
    fleet = PlannedFleet(network=network, job=job)
    assert fleet.operation(frozenset({0, 1, 2})) is None
    availability = load_availability("oobleck-every-10m").on(network)
    for name in policies:
        policy = policy_of(name)
        history = replay(availability, fleet, policy, ReconfigurationCosts())
        limit = foresight(availability, fleet, ReconfigurationCosts(), full_batch=policy.full_batch)[1][-1]
        assert history.samples - history.skipping_samples <= limit * (1 + 1e-9), name


def test_the_lab_shares_plans_from_call_to_call_and_leaves_the_shape_open():
    first = replay_of_lab("lecture-hall", "tiny", load_availability("bamboo-g4dn").until(7200), "swarm")
    again = replay_of_lab("lecture-hall", "tiny", load_availability("bamboo-g4dn").until(7200), "swarm")
    assert first.to_frame().equals(again.to_frame())
    assert first.operations[0].plan is not None
    assert 0 < first.share_of_bound <= 1
    assert len({len(operation.devices) for operation in first.operations}) > 1


def test_hours_of_the_whole_network_are_bounded_as_its_plans_are():
    network, job = load_topology("lecture-hall"), load_job("small", n_stages=None, n_replicas=None)
    searched = plan(network, job, objective="iteration", seed=1, steps=2)
    rate = PlannedFleet(network=network, job=job).most_samples_per_s(frozenset(range(len(network))), full_batch=True)
    assert job.global_batch / rate >= searched.iteration_lower_bound_s * (1 - 1e-9)
