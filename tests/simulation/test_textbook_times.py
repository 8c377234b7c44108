"""Closed forms: pipelines on free and on far links, and every way to average on a network of its own."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plans import equal, even, plan_of, uneven

from dtfm_lab.domain.job import Job, gpt
from dtfm_lab.domain.network import QUEUEING, Links, Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import SENDS, Kind
from dtfm_lab.planning.evaluate import evaluate
from dtfm_lab.simulation.engine import TaskTimes, simulate_iteration
from dtfm_lab.simulation.schedules import schedules

whole_backwards = st.sampled_from(["gpipe", "1f1b", "adaptive-1f1b"])
queueings = st.sampled_from(QUEUEING)
seconds = st.floats(0.1, 10)
seeds = st.integers(0, 10_000)


def simulated(plan: Plan, name: str, links: Links, forward_s: float = 1.0, backward_s: float = 2.0) -> TaskTimes:
    schedule = schedules[name](plan.job.n_stages, plan.job.n_microbatches)
    return simulate_iteration(plan, schedule, equal(plan, forward_s, backward_s, schedule.n_stages), links)


# pipelines


@given(st.integers(1, 8), st.integers(1, 12), seconds, seconds, whole_backwards, queueings)
def test_on_free_links_schedules_of_whole_backwards_take_the_textbook_time(
    n_stages, n_microbatches, forward_s, backward_s, name, queueing
):
    plan = plan_of(n_stages, n_microbatches)
    found = simulated(plan, name, even(n_stages, queueing=queueing), forward_s, backward_s)
    assert found.makespan_s == pytest.approx((n_microbatches + n_stages - 1) * (forward_s + backward_s))


@given(st.integers(1, 6), st.integers(1, 4), st.integers(2, 3), seconds, seconds)
def test_on_free_links_interleaving_divides_the_bubble(n_devices, n_rounds, per_device, forward_s, backward_s):
    """It is S - 1 forwards and backwards of one stage, and a device holds several (Narayanan et al. 2021)."""
    plan = plan_of(n_devices, n_devices * n_rounds, n_layers=n_devices * per_device)
    schedule = schedules["interleaved-1f1b"](n_devices, n_devices * n_rounds, stages_per_device=per_device)
    found = simulate_iteration(plan, schedule, equal(plan, forward_s, backward_s, schedule.n_stages), even(n_devices))
    busy_s = n_devices * n_rounds * per_device * (forward_s + backward_s)
    assert found.makespan_s == pytest.approx(busy_s + (n_devices - 1) * (forward_s + backward_s))


@given(st.integers(2, 8), st.integers(1, 4), seconds)
def test_on_free_links_zb_h1_is_left_with_a_third_of_the_bubble(n_stages, rounds, pass_s):
    """Forward and both halves equally long: (S - 1) (f + i - w) where micro-batches are enough (Qi et al. 2024)."""
    plan = plan_of(n_stages, n_stages * (rounds + 1))
    found = simulated(plan, "zb-h1", even(n_stages), pass_s, 2 * pass_s)
    assert found.makespan_s == pytest.approx(3 * pass_s * n_stages * (rounds + 1) + (n_stages - 1) * pass_s)


@given(st.integers(2, 6), st.integers(1, 10), st.floats(1, 20), queueings)
def test_a_link_slower_than_the_computation_is_the_clock_of_gpipe(n_stages, n_microbatches, hop_s, queueing):
    """Messages queue: the last of them leaves M hops after the first is ready, and crosses the other links."""
    plan = plan_of(n_stages, n_microbatches)
    links = even(n_stages, bandwidth_bytes_per_s=plan.job.activation_bytes / hop_s, queueing=queueing)
    one_way_s = n_stages + (n_stages - 1 + n_microbatches - 1) * hop_s
    assert simulated(plan, "gpipe", links, 1, 1).makespan_s == pytest.approx(2 * one_way_s)


# averaging alone: one stage, computations that take nothing


def averaging(synchronisation: str, n_replicas: int, **fields: object) -> Plan:
    topology = Topology.from_matrices(*np.ones((2, n_replicas, n_replicas)), **fields)
    return plan_of(1, 1, n_replicas, topology, synchronisation=synchronisation, d_model=16)


def alone_s(plan: Plan, links: Links) -> float:
    return simulated(plan, "gpipe", links, 0, 0).makespan_s


def leaving_s(plan: Plan, topology: Topology, share: float) -> np.ndarray:
    """(D, D) seconds that so much of the gradient keeps each link busy; a device sends itself nothing."""
    times = share * plan.job.gradient_bytes / topology.bandwidth_bytes_per_s
    return np.where(np.eye(len(topology), dtype=bool), 0.0, times)


def transfer_s(plan: Plan, topology: Topology, share: float) -> np.ndarray:
    """(D, D) seconds until it is there."""
    return leaving_s(plan, topology, share) + np.where(np.eye(len(topology), dtype=bool), 0.0, topology.latency_s)


def scaled_uneven(n: int, seed: int) -> Topology:
    """Of a latency that is about as long as a message of ``averaging`` takes."""
    drawn = uneven(n, seed)
    return Topology(drawn.devices, drawn.latency_s * 100, drawn.bandwidth_bytes_per_s)


@given(st.integers(2, 8), seeds, st.sampled_from(["homogeneous", "heterogeneous"]))
def test_sharded_averaging_takes_equation_2(n_replicas, seed, kind):
    """Out and back to every peer in turn: nobody's second round begins after the slowest one's first is over."""
    rng = np.random.default_rng(seed)
    latency_ms, gbps = 100 * rng.random((n_replicas,) * 2), rng.uniform(0.1, 5, (n_replicas,) * 2)
    if kind == "homogeneous":
        latency_ms[:], gbps[:] = latency_ms[0, 1], gbps[0, 1]
    topology = Topology.from_matrices((latency_ms + latency_ms.T) / 2, (gbps + gbps.T) / 2)
    model = gpt(n_layers=2, d_model=1024, n_heads=1, seq_len=1, vocab_size=1000)
    job = Job(model=model, n_stages=1, n_replicas=n_replicas, global_batch=n_replicas, microbatch=1)
    plan = evaluate(topology, job, stages=[range(n_replicas)])
    equation_2_s = 2 * transfer_s(plan, topology, 1 / n_replicas).sum(axis=1).max()
    assert alone_s(plan, Links.of(topology)) == pytest.approx(equation_2_s)
    assert plan.cost.data_parallel_s == pytest.approx(equation_2_s)


@given(st.integers(2, 8), seeds)
def test_sharded_at_once_waits_for_the_slowest_peer_in_and_the_slowest_out(n_replicas, seed):
    """An average also waits for the shard that is still leaving on the same link."""
    plan, topology = averaging("sharded-at-once", n_replicas), scaled_uneven(n_replicas, seed)
    shard_s, busy_s = (f(plan, topology, 1 / n_replicas) for f in (transfer_s, leaving_s))
    found_s = alone_s(plan, Links.of(topology))
    summed_s = shard_s.max(axis=0)
    assert found_s == pytest.approx((np.maximum(summed_s[:, None], busy_s) + shard_s).max())
    assert found_s >= (summed_s + shard_s.max(axis=1)).max() * (1 - 1e-9)
    in_turn_s = alone_s(averaging("sharded", n_replicas), Links.of(topology))
    assert found_s <= in_turn_s * (1 + 1e-9)


@given(st.integers(2, 8), seeds)
def test_a_central_server_waits_for_the_slowest_in_and_the_slowest_out(n_replicas, seed):
    plan, topology = averaging("central", n_replicas), scaled_uneven(n_replicas, seed)
    whole_s = transfer_s(plan, topology, 1.0)
    assert alone_s(plan, Links.of(topology)) == pytest.approx(whole_s[:, 0].max() + whole_s[0].max())


@given(st.integers(2, 8), st.floats(0, 100), st.floats(0.5, 50), queueings)
def test_on_equal_links_each_way_to_average_takes_its_closed_form(n, latency_s, bandwidth, queueing):
    links = even(n, latency_s, bandwidth, queueing)
    whole_s = averaging("ring", n).job.gradient_bytes / bandwidth
    shard_s = whole_s / n
    at_a_time = n - 1 if queueing == "nics" else 1  # messages that one NIC has to take
    expected_s = {
        "ring": 2 * (n - 1) * (latency_s + shard_s),
        "sharded": 2 * (n - 1) * (latency_s + shard_s),
        "sharded-at-once": 2 * (latency_s + at_a_time * shard_s),
        "central": 2 * (latency_s + at_a_time * whole_s),
    }
    for synchronisation, seconds in expected_s.items():
        assert alone_s(averaging(synchronisation, n), links) == pytest.approx(seconds), synchronisation


@given(st.integers(2, 40), st.floats(0, 100), st.floats(0.5, 50))
def test_on_equal_links_a_tree_takes_as_many_messages_as_it_has_levels_up_and_down(n, latency_s, bandwidth):
    plan = averaging("tree", n)
    whole_s = plan.job.gradient_bytes / bandwidth
    levels = math.ceil(math.log2(n))
    assert alone_s(plan, even(n, latency_s, bandwidth)) == pytest.approx(2 * levels * (latency_s + whole_s))


@given(st.integers(2, 7), seeds)
def test_a_ring_takes_as_long_as_its_longest_way_and_no_longer_than_its_slowest_link_says(n, seed):
    """A sum goes round n - 1 links, its average n - 1 more, from wherever it began."""
    plan, topology = averaging("ring", n), scaled_uneven(n, seed)
    around_s = [transfer_s(plan, topology, 1 / n)[r, (r + 1) % n] for r in range(n)]
    longest_s = max(sum(around_s[(first + k) % n] for k in range(2 * (n - 1))) for first in range(n))
    found_s = alone_s(plan, Links.of(topology))
    assert longest_s * (1 - 1e-9) <= found_s <= 2 * (n - 1) * max(around_s) * (1 + 1e-9)


@given(st.integers(1, 7), seeds, queueings)
def test_within_one_region_hierarchical_is_central_and_of_many_sharded_at_once(n, seed, queueing):
    links = Links.of(scaled_uneven(n, seed), queueing)
    one_region = averaging("hierarchical", n, regions=["Tokyo"] * n)
    assert alone_s(one_region, links) == alone_s(averaging("central", n), links)
    for regions in ([f"region {r}" for r in range(n)], [""] * n):
        many = averaging("hierarchical", n, regions=regions)
        assert alone_s(many, links) == alone_s(averaging("sharded-at-once", n), links)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=8), seeds)
def test_hierarchical_collects_shares_and_hands_out(region_of, seed):
    n = len(region_of)
    topology = scaled_uneven(n, seed)
    plan = averaging("hierarchical", n, regions=[f"region {r}" for r in region_of])
    whole_s = transfer_s(plan, topology, 1.0)
    clubs = [[r for r in range(n) if region_of[r] == name] for name in dict.fromkeys(region_of)]
    shard_s, busy_s = (f(plan, topology, 1 / len(clubs)) for f in (transfer_s, leaving_s))
    leaders = [club[0] for club in clubs]
    collected = {club[0]: max(whole_s[member, club[0]] for member in club) for club in clubs}
    summed = {a: max(collected[b] + shard_s[b, a] for b in leaders) for a in leaders}
    averaged = {a: max(max(summed[b], collected[b] + busy_s[b, a]) + shard_s[b, a] for b in leaders) for a in leaders}
    expected_s = max(averaged[club[0]] + whole_s[club[0], member] for club in clubs for member in club)
    assert alone_s(plan, Links.of(topology)) == pytest.approx(expected_s)


# tied embeddings


@given(st.integers(2, 5), st.floats(0, 5), st.floats(0.5, 50), st.integers(1, 2))
def test_a_tied_embedding_adds_one_exchange_at_the_end(n_stages, latency_s, bandwidth, n_replicas):
    """Both ways at once; before it, the first device has its last backward, or the replicas' average."""
    n = n_stages * n_replicas
    apart, tied = (plan_of(n_stages, 3, n_replicas, tied=tied, d_model=4) for tied in (False, True))
    links = even(n, latency_s, bandwidth)
    without = simulated(apart, "gpipe", links)
    within = simulated(tied, "gpipe", links)
    whole = within.tasks.graph
    kinds = np.array([action.kind for action in whole.actions])[whole.action]
    exchanged = np.isin(kinds, [kind for kind in SENDS if kind is Kind.SEND_E])
    assert exchanged.sum() == 2 * n_replicas
    assert (within.tasks.n_bytes[exchanged] == 1 * 4 * 2).all()
    if n_replicas == 1:
        assert within.makespan_s == pytest.approx(without.makespan_s + latency_s + 8 / bandwidth)
