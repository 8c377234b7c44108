"""Laws of rings whose rounds are taken together, and of pipelines that stand for others that are alike."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dtfm_lab as lab
from dtfm_lab.domain.network import Links, Topology
from dtfm_lab.domain.plan import Placement, Plan
from dtfm_lab.domain.schedule import Kind
from dtfm_lab.simulation import engine, rings
from dtfm_lab.simulation.engine import PlacedTasks, TaskTimes, programs_of
from dtfm_lab.simulation.kernels.rings import ring_times, shared_ring_times
from dtfm_lab.simulation.memory import memory
from dtfm_lab.simulation.schedules import build
from dtfm_lab.simulation.sensitivity import gains
from dtfm_lab.simulation.simulate import iteration_seconds, simulate
from tests.simulation.plans import equal

FEW, MANY = 0, 10**9
"""Limits of messages with which all rings are taken whole, or none."""


def plan_of(topology: Topology, grid: np.ndarray, **fields: Any) -> Plan:
    """Two micro-batches for each of the grid's pipelines, averaged in a ring; ``grid`` is (stages, replicas)."""
    n_stages, n_replicas = grid.shape
    fields = {"global_batch": 2 * n_replicas, "microbatch": 1, "synchronisation": "ring"} | fields
    job = lab.load_job("tiny", n_stages=n_stages, n_replicas=n_replicas, **fields)
    return lab.evaluate(topology, job, rank_map=Placement(grid).rank_map(len(topology)))


def in_rows(n_stages: int, n_replicas: int) -> np.ndarray:
    return np.arange(n_stages * n_replicas).reshape(n_stages, n_replicas)


def drawn(n: int, seed: int, *, alike: bool = False, hosts: int = 0) -> Topology:
    """Latencies and messages of milliseconds, all alike or each its own; with ``hosts``, devices share their NICs."""
    rng = np.random.default_rng(seed)
    shape = (1, 1) if alike else (n, n)
    latency_ms, gbps = rng.uniform(0.1, 20, shape), rng.uniform(0.01, 2, shape)
    network = Topology.from_matrices(np.broadcast_to(latency_ms, (n, n)), np.broadcast_to(gbps, (n, n)))
    if not hosts:
        return network
    host = rng.integers(0, hosts, n)
    devices = [replace(one, host=f"host {h}") for one, h in zip(network.devices, host, strict=True)]
    return replace(network, devices=tuple(devices))


def cluster(n: int, per_host: int) -> Topology:
    """Hosts that are alike, with a fast network inside and one NIC each."""
    host = np.arange(n) // per_host
    inside = host[:, None] == host[None, :]
    network = Topology.from_matrices(np.where(inside, 0.01, 1.0), np.where(inside, 100.0, 1.0))
    devices = [replace(one, host=f"host {h}") for one, h in zip(network.devices, host, strict=True)]
    return replace(network, devices=tuple(devices))


def played(plan: Plan, seed: int, *, whole_rings: bool) -> TaskTimes:
    """With passes of different lengths; averaging and stepping take nothing, or what coding takes."""
    schedule = build(plan, plan.job.schedule_name)
    programs = programs_of(plan, schedule, whole_rings=whole_rings)
    profile = equal(plan, 0.1, 0.2, schedule.n_stages)
    if plan.job.codes_gradients:
        profile = [row._replace(seconds=0.01) if row.kind in (Kind.PACK, Kind.REDUCE) else row for row in profile]
    tasks = PlacedTasks.of(plan, programs, profile)
    factor = np.random.default_rng(seed).uniform(0.5, 2, (plan.job.n_stages, plan.job.n_replicas))
    factors = factor[tasks.graph.position, tasks.graph.replica]
    return replace(tasks, compute_s=tasks.compute_s * factors).simulate(Links.of(plan.topology))


def steps_of(times: TaskTimes) -> dict[tuple[int, str], float]:
    """When each device's steps end."""
    graph = times.tasks.graph
    named = zip(graph.device.tolist(), [graph.actions[a] for a in graph.action], times.end_s.tolist(), strict=True)
    return {(device, str(action)): end_s for device, action, end_s in named if action.kind is Kind.STEP}


def both_ways(plan: Plan, seed: int) -> None:
    one_by_one, whole = (played(plan, seed, whole_rings=which) for which in (False, True))
    assert len(whole.tasks.graph.rings) == plan.job.n_stages
    assert whole.makespan_s == pytest.approx(one_by_one.makespan_s, rel=1e-9)
    assert steps_of(whole) == pytest.approx(steps_of(one_by_one), rel=1e-9)


@given(
    n_stages=st.integers(1, 3),
    n_replicas=st.integers(3, 7),
    bucket_bytes=st.sampled_from([None, 1.0, 3e5, 1e6]),
    alike=st.booleans(),
    sharding=st.sampled_from(["none", "zero-1", "zero-2"]),
    seed=st.integers(0, 10_000),
)
def test_rings_taken_whole_end_as_their_messages_do(n_stages, n_replicas, bucket_bytes, alike, sharding, seed):
    fields = {"overlap": True, "bucket_bytes": bucket_bytes} if bucket_bytes else {}
    network = drawn(n_stages * n_replicas, seed, alike=alike)
    both_ways(plan_of(network, in_rows(n_stages, n_replicas), sharding=sharding, **fields), seed)


@given(
    n_stages=st.integers(1, 2),
    n_replicas=st.integers(3, 7),
    hosts=st.integers(1, 4),
    bucket_bytes=st.sampled_from([None, 3e5]),
    seed=st.integers(0, 10_000),
)
def test_rings_that_share_nics_take_turns_as_their_messages_do(n_stages, n_replicas, hosts, bucket_bytes, seed):
    """Pipelines stay inside their hosts, however rings go from host to host."""
    of_replica = drawn(n_replicas, seed, hosts=hosts).devices
    network = drawn(n_stages * n_replicas, seed)
    devices = [replace(one, host=of_replica[i % n_replicas].host) for i, one in enumerate(network.devices)]
    fields = {"overlap": True, "bucket_bytes": bucket_bytes} if bucket_bytes else {}
    both_ways(plan_of(replace(network, devices=tuple(devices)), in_rows(n_stages, n_replicas), **fields), seed)


@given(
    n_stages=st.integers(1, 2),
    n_replicas=st.integers(3, 6),
    fields=st.sampled_from(
        [{}, {"synchronise_every": 4}, {"synchronise_every": 4, "fragments": 2, "fragment_delay": 1}]
    ),
    sharding=st.sampled_from(["none", "zero-1"]),
    seed=st.integers(0, 10_000),
)
def test_compressed_rings_end_as_their_messages_do(n_stages, n_replicas, fields, sharding, seed):
    sharding = "none" if fields else sharding
    network = drawn(n_stages * n_replicas, seed)
    both_ways(plan_of(network, in_rows(n_stages, n_replicas), compression="int8", sharding=sharding, **fields), seed)


@given(st.integers(1, 6), st.integers(1, 4), st.integers(0, 10_000))
def test_both_kernels_of_rings_agree(n_devices, n_buckets, seed):
    rng = np.random.default_rng(seed)
    shape = n_devices, n_buckets
    ready_s, moving_s, back_s = rng.random((3, *shape))
    latency_s, nothing = np.tile(rng.random((n_devices, 1)), n_buckets), np.zeros(shape)
    n_rounds = n_devices + int(rng.integers(1, 4))
    own = np.tile(np.arange(n_devices)[:, None], n_buckets)
    listed, shared = np.zeros((2, 8, *shape))
    parts = np.stack([ready_s, moving_s, back_s, latency_s, nothing, nothing])
    ring_times(parts, ready_s.argsort(axis=1), np.zeros(n_buckets, np.int64), n_rounds, listed)
    shared_ring_times(parts, own, own * 0 - 1, own, False, n_rounds, shared)
    assert listed == pytest.approx(shared, rel=1e-12)


@given(
    n_hosts=st.integers(2, 4),
    per_host=st.sampled_from([1, 2, 4]),
    n_stages=st.sampled_from([1, 2, 4]),
    stages_together=st.booleans(),
    overlap=st.booleans(),
    synchronisation=st.sampled_from(["ring", "sharded", "sharded-at-once", "central", "hierarchical", "tree"]),
)
def test_pipelines_that_are_alike_stand_for_all(n_hosts, per_host, n_stages, stages_together, overlap, synchronisation):
    n = n_hosts * per_host * n_stages
    grid = np.arange(n).reshape(-1, n_stages).T if stages_together else in_rows(n_stages, n // n_stages)
    fields = {"overlap": True, "bucket_bytes": 3e5} if overlap else {}
    plan = plan_of(cluster(n, per_host), grid, synchronisation=synchronisation, **fields)
    assert iteration_seconds(plan) == pytest.approx(simulate(plan).iteration_s, rel=1e-9)


@given(
    n_replicas=st.integers(3, 6),
    fields=st.sampled_from(
        [
            {},
            {"overlap": True, "bucket_bytes": 3e5},
            {"compression": "int8"},
            {"sharding": "zero-1"},
            {"compression": "int8", "overlap": True, "bucket_bytes": 3e5, "sharding": "zero-1"},
            {"synchronise_every": 3, "compression": "int8"},
        ]
    ),
    shares=st.booleans(),
)
def test_memory_by_order_is_that_of_all_rounds(n_replicas, fields, shares):
    counts = {"microbatches_per_replica": (1, *[2] * (n_replicas - 2), 3)} if shares else {}
    plan = plan_of(drawn(2 * n_replicas, 1), in_rows(2, n_replicas), **fields, **counts)
    found = []
    for most in (FEW, MANY):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(engine, "MOST_RING_MESSAGES", most)
            found.append(memory(plan))
    assert (found[0].peak_bytes == found[1].peak_bytes).all()
    assert found[0].timeline(plan.device_names[1][1])[1].max() == found[0].peak_bytes[1, 1]


@pytest.mark.parametrize("fields", [{}, {"overlap": True, "bucket_bytes": 3e5}, {"synchronise_every": 4}])
def test_the_trace_of_a_large_ring_has_a_row_of_each_kind(fields, monkeypatch):
    plan = plan_of(drawn(12, 3), in_rows(2, 6), **fields)
    one_by_one = simulate(plan)
    monkeypatch.setattr(engine, "MOST_RING_MESSAGES", FEW)
    trace = simulate(plan)
    assert (one_by_one.takes_rings_whole, trace.takes_rings_whole) == (False, True)
    assert trace.iteration_s == pytest.approx(one_by_one.iteration_s, rel=1e-9)
    bubble = trace.bubble
    causes = bubble.drop(columns=["stage", "replica", "device", "iteration_s"]).sum(axis=1)
    assert causes.to_numpy() == pytest.approx(bubble["iteration_s"].to_numpy(), rel=1e-9)
    assert trace.critical_path()["end_s"].iloc[-1] in trace.iteration_ends_s
    assert memory(plan, trace=trace).peak_bytes.shape == (2, 6)
    low_s, high_s = trace.interval()
    assert low_s < trace.iteration_s < high_s


def test_twice_as_long_an_everything_is_twice_as_long_an_iteration():
    times = played(plan_of(drawn(10, 5), in_rows(2, 5), overlap=True, bucket_bytes=3e5), 5, whole_rings=True)
    assert times.changed_s(2.0, 2.0) == pytest.approx(2 * times.makespan_s, rel=1e-9)


def test_better_links_count_the_same_in_rings_taken_whole(monkeypatch):
    plan = plan_of(drawn(4, 6), in_rows(1, 4))
    one_by_one = [gain.iteration_s for gain in gains(plan, what="bandwidth")]
    monkeypatch.setattr(engine, "MOST_RING_MESSAGES", FEW)
    assert [gain.iteration_s for gain in gains(plan, what="bandwidth")] == pytest.approx(one_by_one, rel=1e-9)


def test_the_prediction_of_a_run_keeps_every_message(monkeypatch):
    plan = plan_of(drawn(4, 7), in_rows(1, 4))
    trace = simulate(plan)
    ran = replace(trace, context=replace(trace.context, source="measured", links="emulated"))
    monkeypatch.setattr(engine, "MOST_RING_MESSAGES", FEW)
    assert len(simulate(plan, like=ran)) == len(trace) > len(simulate(plan))


@pytest.mark.parametrize("fields", [{}, {"overlap": True}, {"compression": "int8", "codec_bytes_per_s": 1e6}])
@pytest.mark.parametrize("seed", range(3))
def test_a_ring_of_equal_replicas_stands_for_rings_too_large_to_play(fields, seed, monkeypatch):
    """Where links or the codec are the bottleneck."""
    plan = plan_of(drawn(40, seed), in_rows(1, 40), bucket_bytes=3e5, **fields)
    monkeypatch.setattr(engine, "MOST_RING_MESSAGES", FEW)
    exact_s = iteration_seconds(plan)
    monkeypatch.setattr(rings, "MOST_PLAYED", FEW)
    assert iteration_seconds(plan) == pytest.approx(exact_s, rel=0.05)


def test_a_thousand_replicas_are_not_refused():
    plan = plan_of(drawn(1000, 8, alike=True), in_rows(1, 1000), overlap=True, bucket_bytes=3e5)
    trace = simulate(plan)
    assert trace.iteration_s == pytest.approx(iteration_seconds(plan), rel=1e-9)
    assert memory(plan).peak_bytes.shape == (1, 1000)
