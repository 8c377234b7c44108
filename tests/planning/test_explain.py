"""An explanation's numbers are prices of placements: pricing the same placement gives each of them back."""

import itertools
import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planning_networks import KINDS, network

from dtfm_lab.domain.errors import UnknownName
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.planning import evaluate, explain, plan, price_placement

seeds = st.integers(0, 10_000)
shapes = st.sampled_from([(7, 3, 2), (8, 2, 4), (7, 2, 3), (6, 6, 1), (5, 1, 4), (9, 4, 2)])


def any_plan(kind: str, shape: tuple[int, int, int], seed: int) -> Plan:
    """A random placement in which the pipelines are not paired well."""
    n, n_stages, n_replicas = shape
    ranks = np.full(n, -1)
    ranks[np.random.default_rng(seed).permutation(n)[: n_stages * n_replicas]] = np.arange(n_stages * n_replicas)
    job = Job.from_bytes(n_stages, n_replicas, 1e8, 2e8)
    return evaluate(network(kind, n, seed), job, rank_map=[None if r < 0 else int(r) for r in ranks])


def exchanged_s(before: Plan, a: int, b: int) -> float:
    """The cost after two devices change places, stage order kept, pipelines paired anew."""
    other = {a: b, b: a}
    stages = [[other.get(d, d) for d in group] for group in before.placement.devices.tolist()]
    return evaluate(before.topology, before.job, stages=stages).cost.total_s


def stage_of(plan: Plan, device: int) -> int | None:
    return next((s for s, group in enumerate(plan.placement.devices.tolist()) if device in group), None)


@given(st.sampled_from(KINDS), shapes, seeds)
def test_what_binds_adds_up_to_the_cost(kind, shape, seed):
    explanation = explain(any_plan(kind, shape, seed))
    priced = price_placement(explanation.plan.topology, explanation.plan.job, explanation.plan.placement.devices)
    assert [group.cost_s for group in explanation.groups] == pytest.approx(priced.group_s.tolist())
    assert [hop.cost_s for hop in explanation.hops] == pytest.approx(priced.hop_s.tolist())
    assert explanation.binding_group.cost_s == pytest.approx(priced.data_parallel_s)
    assert 0 <= explanation.latency_s <= priced.total_s * (1 + 1e-12)
    own = explanation.service
    assert own["group_s"].max() == pytest.approx(priced.data_parallel_s)
    slowest = own.groupby("stage")["hop_after_s"].max().to_numpy()[:-1]
    assert slowest == pytest.approx(priced.hop_s)


@given(st.sampled_from(KINDS), shapes, seeds)
@settings(max_examples=12)
def test_every_devices_best_exchange_is_the_cheapest_of_all_and_costs_what_is_said(kind, shape, seed):
    explanation = explain(any_plan(kind, shape, seed))
    before, names = explanation.plan, explanation.plan.topology.names
    best_s = np.inf
    for a, row in enumerate(explanation.to_frame().itertuples()):
        partners = [b for b in range(len(names)) if stage_of(before, a) != stage_of(before, b)]
        costs = {b: exchanged_s(before, a, b) for b in partners}
        if not costs:
            assert pd.isna(row.partner)
            continue
        assert row.cost_after_s == pytest.approx(min(costs.values()), rel=1e-8)
        assert row.cost_after_s == pytest.approx(costs[names.index(row.partner)])
        assert row.change_s == pytest.approx(row.cost_after_s - before.cost.total_s, abs=1e-6)
        best_s = min(best_s, *costs.values())
        for place in explanation.places(a).itertuples():
            there = [b for b in partners if stage_of(before, b) == (None if pd.isna(place.stage) else place.stage)]
            assert place.cost_after_s == pytest.approx(min(costs[b] for b in there), rel=1e-8)
    if explanation.best_swap is not None:
        assert explanation.best_swap.cost_s == pytest.approx(best_s, rel=1e-8)
    at_best_s = min(best_s, explanation.repaired_s)
    assert explanation.is_local_optimum == (at_best_s >= before.cost.total_s * (1 - 1e-9))


def test_exchange_after_exchange_ends_in_a_local_optimum():
    topology, job = network("geometric", 24, 3), Job.from_bytes(4, 5, 1e8, 2e8)
    explanation = explain(evaluate(topology, job, stages=np.arange(20).reshape(4, 5)))
    while not explanation.is_local_optimum:
        assert "Not a local optimum: exchanging" in explanation.text
        swap = explanation.best_swap
        stages = explanation.swaps.exchanged(swap.device, swap.partner)
        after = evaluate(topology, job, stages=stages)
        assert after.cost.total_s == pytest.approx(swap.cost_s)
        assert after.cost.total_s < explanation.plan.cost.total_s
        explanation = explain(after)
    assert "a local optimum" in explanation.text
    assert explanation.to_frame()["change_s"].min() >= 0


def test_pipelines_that_could_be_paired_better_are_told():
    topology, job = network("jittered", 6, 4), Job.from_bytes(2, 3, 1e8, 2e8)
    best = evaluate(topology, job, stages=[[0, 1, 2], [3, 4, 5]])
    costs = {}
    for order in itertools.permutations(range(3)):
        ranks = [0, 2, 4, *(2 * k + 1 for k in order)]
        paired = evaluate(topology, job, rank_map=ranks)
        explanation = explain(paired)
        costs[order] = paired.cost.total_s
        assert explanation.repaired_s == pytest.approx(best.cost.total_s)
        told = "Pairing the same groups again would cost" in explanation.text
        assert told == (paired.cost.total_s > best.cost.total_s * (1 + 1e-9))
    assert len(set(costs.values())) > 1


@given(st.sampled_from(["jittered", "asymmetric", "geometric"]), seeds)
@settings(max_examples=10)
def test_the_best_pairing_of_a_hop_is_the_best_there_is(kind, seed):
    explanation = explain(any_plan(kind, (12, 4, 3), seed))
    hop_s, grid = explanation.pair.hop_s, explanation.plan.placement.devices
    for hop in explanation.hops:
        here, there = grid[hop.stage], grid[hop.stage + 1]
        pairings = [hop_s[here, there[list(columns)]].max() for columns in itertools.permutations(range(3))]
        assert hop.best_pairing_s == pytest.approx(min(pairings))


def test_latency_and_bandwidth_of_a_pair_are_those_of_its_links():
    explanation = explain(any_plan("asymmetric", (9, 4, 2), 1))
    topology, job = explanation.plan.topology, explanation.plan.job
    pair = explanation.binding_hop.pair
    a, b = (topology.index(name) for name in pair.devices)
    latency_s = topology.latency_s[a, b] + topology.latency_s[b, a]
    bandwidth = topology.bandwidth_bytes_per_s
    assert pair.latency_s == pytest.approx(latency_s)
    assert pair.bandwidth_s == pytest.approx(job.hop_bytes / bandwidth[a, b] + job.hop_bytes / bandwidth[b, a])
    dearest = explanation.binding_group.dearest
    assert explanation.binding_group.dearest_share == pytest.approx(
        dearest.cost_s / explanation.plan.cost.data_parallel_s
    )


@pytest.mark.parametrize("shape", [(1, 1, 1), (4, 1, 4), (5, 5, 1), (7, 3, 2), (2, 1, 1)])
def test_any_shape_is_told_in_words_and_plain_types(shape):
    explanation = explain(any_plan("jittered", shape, 0))
    names = explanation.plan.topology.names
    assert json.loads(json.dumps(explanation.summary()))["cost_s"] == explanation.plan.cost.total_s
    assert "nan" not in explanation.text
    for name in names:
        told = explanation.why(name)
        assert told.startswith(name)
        assert "nan" not in told
        json.dumps(explanation.summary(name))
    for table in ("devices", "groups", "hops"):
        assert (
            len(explanation.to_frame(table)) == {"devices": shape[0], "groups": shape[1], "hops": shape[1] - 1}[table]
        )


def test_an_idle_device_is_told_its_cheapest_way_in():
    explanation = explain(any_plan("geometric", (7, 3, 2), 5))
    idle = explanation.plan.idle_devices[0]
    name = explanation.plan.topology.names[idle]
    places = explanation.places(idle)
    assert sorted(places["stage"]) == [0, 1, 2]
    told = explanation.why(name)
    assert told.startswith(f"{name} is idle.")
    assert f"stage {places['stage'].iloc[0]}, instead of {places['partner'].iloc[0]}" in told


def test_the_bound_is_told_as_what_it_is():
    even = plan(network("even", 6, 0), Job.from_bytes(3, 2, 1e8, 2e8), steps=1)
    assert even.gap < 1e-9
    assert "Its communication cost is proven best" in explain(even).text
    loose = any_plan("jittered", (9, 4, 2), 0)
    assert f"at most {100 * loose.gap:.1f} % could be saved" in explain(loose).text


def test_an_unknown_device_or_table_is_refused_by_name():
    explanation = explain(any_plan("even", (4, 2, 2), 0))
    with pytest.raises(UnknownName, match="no device named 'device-9'"):
        explanation.why("device-9")
    with pytest.raises(UnknownName, match="did you mean 'hops'"):
        explanation.to_frame("hop")


def test_device_names_are_no_markup():
    topology = network("even", 4, 0).from_matrices(
        np.ones((4, 4)), np.ones((4, 4)), names=["<b>", "b", "c", "d"], name="<script>"
    )
    html = explain(evaluate(topology, Job.from_bytes(2, 2, 1, 1), stages=[[0, 1], [2, 3]]))._repr_html_()
    assert "<script>" not in html
    assert "&lt;b&gt;" in html


def test_partners_that_cost_nothing_are_partners_all_the_same():
    free = Topology.from_matrices(np.zeros((4, 4)), np.ones((4, 4)), names=list("abcd"))
    told = explain(evaluate(free, Job.from_bytes(2, 2, 0.0, 0.0), stages=[[0, 1], [2, 3]]))
    assert [group.dearest.devices for group in told.groups] == [("a", "b"), ("c", "d")]
    assert "a spends 0 s on its partner b" in told.text
    assert "It spends 0 s on its partner b;" in told.why("a")
