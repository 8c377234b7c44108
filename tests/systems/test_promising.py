"""The few plans that a closed form ranks first are as fast as any, where all can be tried."""

import pytest

import dtfm_lab as lab
from dtfm_lab.systems import Budget, work_of
from dtfm_lab.systems.modelled.diloco import DiLoCo
from dtfm_lab.systems.modelled.sailor import Sailor
from dtfm_lab.systems.modelled.swarm import Swarm

JOB = lab.load_job("gpt3-xl", global_batch=64, microbatch=1)


@pytest.mark.parametrize("system", [DiLoCo(), Sailor(), Swarm()], ids=lambda one: one.name)
@pytest.mark.parametrize("network", ["islands", "raspberry-pi", "shared-cards"])
def test_those_that_are_simulated_are_within_a_tenth_of_the_fastest(system, network):
    topology, budget = lab.load_topology(network), Budget()
    given = {DiLoCo: (work_of(JOB),), Sailor: (system.trained(work_of(JOB)), 0.4)}
    job = given.get(type(system), (system.trained(work_of(JOB)), budget))
    fitting = [one for one in system._candidates(topology, *job) if one.fits]
    fastest_s = min(system.seconds(one.plan, budget) for one in fitting)
    found_s = min(system.seconds(plan, budget) for plan in system.plans(topology, work_of(JOB), budget))
    assert found_s <= 1.1 * fastest_s


def test_cards_are_part_of_what_routed_plans_are_ranked_by():
    topology, budget, system = lab.load_topology("islands"), Budget(queueing="cards"), Swarm()
    fitting = [one for one in system._candidates(topology, system.trained(work_of(JOB)), budget) if one.fits]
    fastest_s = min(system.seconds(one.plan, budget) for one in fitting)
    found_s = min(system.seconds(plan, budget) for plan in system.plans(topology, work_of(JOB), budget))
    assert found_s <= 1.1 * fastest_s


@pytest.mark.parametrize("name", ["diloco", "streaming-diloco", "swarm", "sailor"])
def test_a_model_that_is_too_large_is_told_by_what_memory_lacks(name):
    outcome = lab.strategies("lecture-hall", "llama-2-7b", systems=name)[name]
    assert outcome.found is None
    assert "none of its plans fits the devices" in outcome.reason
