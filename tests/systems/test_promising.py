"""Of all plans that are looked at the fastest is taken, though few are simulated."""

import pytest

import dtfm_lab as lab
from dtfm_lab.systems import Budget, outcome_of, work_of
from dtfm_lab.systems.branch import priced
from dtfm_lab.systems.modelled.diloco import DiLoCo
from dtfm_lab.systems.modelled.sailor import Sailor
from dtfm_lab.systems.modelled.swarm import Swarm

JOB = lab.load_job("gpt3-xl", global_batch=64, microbatch=1)


@pytest.mark.parametrize("system", [DiLoCo(), Sailor(), Swarm()], ids=lambda one: one.name)
@pytest.mark.parametrize("network", ["islands", "raspberry-pi"])
def test_the_plan_is_the_fastest_of_all_candidates(system, network):
    topology, budget = lab.load_topology(network), Budget()
    fitting = [one for one in system.candidates(topology, work_of(JOB), budget) if one.fits]
    fastest_s = min(system.seconds(plan, budget) for one in fitting for plan in map(priced, one.plans()))
    assert outcome_of(system, topology, JOB, budget).iteration_s == pytest.approx(fastest_s, rel=1e-9)


@pytest.mark.parametrize("name", ["diloco", "streaming-diloco", "swarm", "sailor"])
def test_a_model_that_is_too_large_is_told_by_what_memory_lacks(name):
    outcome = lab.strategies("lecture-hall", "llama-2-7b", systems=name)[name]
    assert outcome.found is None
    assert "none of its plans fits the devices" in outcome.reason
