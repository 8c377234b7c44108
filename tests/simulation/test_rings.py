"""Laws of rings whose rounds are taken together: as the messages one by one would have it."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dtfm_lab as lab
from dtfm_lab.domain.network import Links, Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Kind
from dtfm_lab.simulation.engine import PlacedTasks, TaskTimes, programs_of
from dtfm_lab.simulation.schedules import build
from tests.simulation.plans import equal


def plan_of(topology: Topology, n_stages: int, n_replicas: int, **fields: object) -> Plan:
    """Stage after stage, replicas next to each other."""
    fields = {"global_batch": 2 * n_replicas, "microbatch": 1, "synchronisation": "ring"} | fields
    job = lab.load_job("tiny", n_stages=n_stages, n_replicas=n_replicas, **fields)
    stages = np.arange(n_stages * n_replicas).reshape(n_stages, n_replicas)
    return lab.evaluate(topology, job, stages=stages.tolist())


def drawn(n: int, seed: int, alike: bool = False) -> Topology:
    """Latencies of milliseconds and messages of as long, all alike or each its own."""
    rng = np.random.default_rng(seed)
    shape = (1, 1) if alike else (n, n)
    latency_ms, gbps = rng.uniform(0.1, 20, shape), rng.uniform(0.01, 2, shape)
    return Topology.from_matrices(np.broadcast_to(latency_ms, (n, n)), np.broadcast_to(gbps, (n, n)))


def played(plan: Plan, seed: int, *, whole_rings: bool) -> TaskTimes:
    """With passes of different lengths; averaging and stepping take nothing, or what coding takes."""
    schedule = build(plan, plan.job.schedule_name)
    programs = programs_of(plan, schedule, whole_rings=whole_rings)
    tasks = PlacedTasks.of(plan, programs, equal(plan, 0.1, 0.2, schedule.n_stages))
    factor = np.random.default_rng(seed).uniform(0.5, 2, (plan.job.n_stages, plan.job.n_replicas))
    factors = factor[tasks.graph.position, tasks.graph.replica]
    return replace(tasks, compute_s=tasks.compute_s * factors).simulate(Links.of(plan.topology))


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
    topology = drawn(n_stages * n_replicas, seed, alike)
    plan = plan_of(topology, n_stages, n_replicas, sharding=sharding, **fields)
    one_by_one, whole = (played(plan, seed, whole_rings=which) for which in (False, True))
    assert whole.makespan_s == pytest.approx(one_by_one.makespan_s, rel=1e-9)
    ends = [{} for _ in range(2)]
    for times, found in zip((one_by_one, whole), ends, strict=True):
        graph = times.tasks.graph
        for i in np.flatnonzero(graph.role == 0):
            if graph.actions[graph.action[i]].kind is Kind.STEP:
                found[int(graph.device[i]), graph.actions[graph.action[i]]] = times.end_s[i]
    assert ends[0].keys() == ends[1].keys()
    assert all(ends[1][key] == pytest.approx(end_s, rel=1e-9) for key, end_s in ends[0].items())
