"""Hosts that share a NIC, planned: NICs only delay, so bounds hold, and the search counts what they delay."""

from dataclasses import replace

import numpy as np
import pytest
from every_plan import FAMILIES, Drawn, check_bound, drawn, every_plan

import dtfm_lab as lab
from dtfm_lab.domain.job import gpt
from dtfm_lab.planning import search
from dtfm_lab.planning.iteration.problem import IterationProblem, SearchTarget
from dtfm_lab.planning.iteration.structured.candidates import PlanPricer
from dtfm_lab.simulation import simulate


def on_hosts(case: Drawn, seed: int) -> Drawn:
    """The case with its devices on at most two hosts."""
    hosts = np.random.default_rng(seed).integers(0, 2, len(case.topology))
    devices = tuple(replace(d, host=f"host {h}") for d, h in zip(case.topology.devices, hosts, strict=True))
    return replace(case, topology=replace(case.topology, devices=devices))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", range(3))
def test_no_plan_on_hosts_is_faster_than_its_bound(seed, family):
    case = on_hosts(drawn(seed, most_devices=3), seed)
    check_bound(case, family, (seconds for seconds, _ in every_plan(case, family, np.random.default_rng(0), 60)))


def test_devices_of_different_hosts_are_not_alike_and_those_of_one_host_are():
    shared = lab.load_topology("shared-nics")
    alike = IterationProblem.of(shared, lab.load_job("gpt3-xl")).alike
    assert alike.tolist() == [i // 8 for i in range(32)]
    apart = replace(shared, devices=tuple(replace(d, host=d.name) for d in shared.devices))
    flat = replace(apart, bandwidth_bytes_per_s=np.full((32, 32), 1e9), latency_s=np.zeros((32, 32)))
    assert set(IterationProblem.of(flat, lab.load_job("gpt3-xl")).alike) == {0}


def test_the_simulator_judges_where_devices_share_a_nic():
    job = lab.load_job("gpt3-xl")
    target = SearchTarget(dollars=False, max_price_per_hour=np.inf, max_iteration_s=np.inf)
    shared = lab.load_topology("shared-nics")
    apart = replace(shared, devices=tuple(replace(d, host="") for d in shared.devices))
    assert not PlanPricer(IterationProblem.of(shared, job), target).replays
    assert PlanPricer(IterationProblem.of(apart, job), target).replays


@pytest.mark.parametrize("objective", ["iteration", "price"])
def test_sharing_a_nic_never_makes_the_best_plan_faster(objective):
    """Of a small network, whose best plans are found with and without hosts."""
    shared = lab.load_topology("shared-nics").subset([0, 1, 8, 9])
    apart = replace(shared, devices=tuple(replace(d, host="") for d in shared.devices))
    model = gpt(n_layers=4, d_model=1024, n_heads=4, seq_len=512, vocab_size=1000)
    job = lab.Job(model=model, n_stages=None, n_replicas=None, global_batch=16, microbatch=1)
    plans = [
        list(search(network, job, objective=objective, seed=0, steps=6, improve_bound=False))[-1].plan
        for network in (shared, apart)
    ]
    for plan in plans:
        assert plan.iteration_s == simulate(plan).iteration_s
    moved_s = simulate(plans[1].changed(topology=shared)).iteration_s
    assert plans[1].iteration_s <= moved_s
    assert plans[0].iteration_s <= moved_s * 1.05


def test_an_explanation_says_what_sharing_a_nic_costs():
    shared = lab.load_topology("shared-nics").subset([0, 1, 8, 9])
    job = lab.load_job("tiny", n_stages=2, n_replicas=2)
    across = lab.evaluate(shared, job, stages=[[0, 1], [2, 3]]).changed(objective="iteration")
    assert "share its NIC; with a NIC for each it would take" in lab.explain(across).text
    apart = replace(shared, devices=tuple(replace(d, host="") for d in shared.devices))
    assert "NIC" not in lab.explain(across.changed(topology=apart)).text
