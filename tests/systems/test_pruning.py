"""Plans that cannot be the best are left out, which changes no outcome."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import TINY, Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.planning import evaluate
from dtfm_lab.simulation import simulate
from dtfm_lab.simulation.memory import memory
from dtfm_lab.simulation.simulate import iteration_seconds
from dtfm_lab.systems import Budget, outcome_of, strategies
from dtfm_lab.systems.bound import fits, least_iteration_s, least_lacking_bytes

SYSTEMS = ["megatron", "deepspeed-pipeline", "deepspeed-zero-3", "fsdp", "ddp"]


def network(seed: int, n: int = 8, *, gigabytes: float = 16.0) -> Topology:
    """Devices of unlike speed, two a host, with links of any speed, not symmetric."""
    rng = np.random.default_rng(seed)
    shape = n, n
    topology = Topology.from_matrices(
        latency_s=10.0 ** rng.uniform(-5, -1, shape) * ~np.eye(n, dtype=bool),
        bandwidth_bytes_per_s=10.0 ** rng.uniform(5, 10, shape),
        hosts=[f"host-{i // 2}" for i in range(n)],
        peak_flop_per_s=1e12,
        name="drawn",
    )
    speeds, room = 10.0 ** rng.uniform(9, 12, n // 2).repeat(2), gigabytes * 1e9
    devices = [
        replace(device, peak_flop_per_s=float(speed), memory_bytes=room)
        for device, speed in zip(topology.devices, speeds, strict=True)
    ]
    return replace(topology, devices=tuple(devices))


def work(**fields: object) -> Job:
    return Job(**{"name": "tiny", "model": TINY, "global_batch": 16, "dtype": "fp32"} | fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("seed", range(2))
def test_leaving_plans_out_changes_no_outcome(name, seed):
    for gigabytes in (0.02, 0.001) if seed else (16.0, 0.02):
        topology = network(seed, gigabytes=gigabytes)
        pruned, whole = (outcome_of(strategies[name](), topology, work(), prune=prune) for prune in (True, False))
        assert (pruned.iteration_s, pruned.reason, pruned.considered) == (
            whole.iteration_s,
            whole.reason,
            whole.considered,
        )
        if whole.found is not None:
            assert np.array_equal(pruned.plan.placement.devices, whole.plan.placement.devices)
            assert pruned.job == whole.job


@pytest.mark.parametrize("name", ["megatron", "fsdp"])
def test_the_best_plan_is_the_fastest_that_fits(name):
    topology, budget, strategy = network(1, gigabytes=0.05), Budget(), strategies[name]()
    plans = list(strategy.plans(topology, work(), budget))
    fitting = [simulate(plan).iteration_s for plan in plans if memory(plan).fits]
    assert outcome_of(strategy, topology, work(), budget).iteration_s == (min(fitting) if fitting else None)


choices = st.fixed_dictionaries(
    {
        "transport": st.sampled_from(["overlapped", "batched", "blocking"]),
        "schedule": st.sampled_from(["gpipe", "1f1b", "interleaved-1f1b", "zb-h1"]),
        "synchronisation": st.sampled_from(["ring", "tree", "sharded"]),
        "sharding": st.sampled_from(["none", "zero-1", "zero-2", "zero-3"]),
        "overlap": st.booleans(),
        "synchronise_every": st.sampled_from([1, 4]),
        "compression": st.sampled_from(["none", "int8"]),
        "recompute": st.booleans(),
        "microbatch": st.sampled_from([1, 2]),
    }
)


@settings(max_examples=100, deadline=None)
@given(
    st.integers(0, 1000),
    st.sampled_from([(1, 8), (2, 4), (4, 2), (8, 1), (2, 3)]),
    choices,
    st.sampled_from(["pairs", "cards"]),
)
def test_no_simulation_goes_below_the_bound(seed, shape, how, queueing):
    topology = network(seed)
    try:
        job = work(n_stages=shape[0], n_replicas=shape[1], global_batch=48, **how)
        plan = evaluate(topology, job, stages=np.arange(shape[0] * shape[1]).reshape(shape).tolist())
        seconds = simulate(plan, queueing=queueing).iteration_s
    except LabError:  # choices that contradict each other
        return
    assert least_iteration_s(plan, queueing=queueing) <= seconds * (1 + 1e-9)
    assert iteration_seconds(plan, queueing=queueing) == seconds


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 50), st.sampled_from([(1, 8), (2, 4), (4, 2), (8, 1)]), choices, st.floats(-3, 0))
def test_a_plan_that_lacks_memory_at_least_does_not_fit(seed, shape, how, digits):
    topology = network(seed, gigabytes=10.0**digits)
    try:
        job = work(n_stages=shape[0], n_replicas=shape[1], **how)
        plan = evaluate(topology, job, stages=np.arange(shape[0] * shape[1]).reshape(shape).tolist())
        report = memory(plan)
    except LabError:
        return
    assert least_lacking_bytes(plan) <= float(report.over_bytes.max())


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 50),
    st.sampled_from([(1, 4), (2, 4), (4, 2), (8, 1)]),
    st.sampled_from(["1f1b", "gpipe"]),
    st.sampled_from([None, 1, 2, 4]),
    st.sampled_from(["none", "block", "stage"]),
    st.sampled_from(["none", "zero-1", "zero-3"]),
)
def test_the_peak_comes_early(seed, shape, schedule, flush_every, checkpointing, sharding):
    """Devices hold no more in many micro-batches than in as many as fill the pipeline, or a round of GPipe."""
    topology, flushes = network(seed), flush_every if schedule == "gpipe" else None
    how = {"schedule": schedule, "flush_every": flushes, "checkpointing": checkpointing, "sharding": sharding}
    job = work(n_stages=shape[0], n_replicas=shape[1], global_batch=24 * shape[1], microbatch=1, **how)
    plan = evaluate(topology, job, stages=np.arange(shape[0] * shape[1]).reshape(shape).tolist())
    peak = memory(plan).peak_bytes
    for spare in (0, -1):
        held = [replace(device, memory_bytes=float(peak.max() + spare)) for device in topology.devices]
        tight = plan.changed(topology=replace(topology, devices=tuple(held)))
        assert fits(tight) == memory(tight).fits == (spare == 0)


@pytest.mark.parametrize("queueing", ["pairs", "cards"])
def test_the_plan_of_an_outcome_simulates_to_its_seconds(queueing):
    outcome = outcome_of(strategies["megatron"](), network(0), work(), Budget(queueing=queueing))
    assert simulate(outcome.plan).iteration_s == outcome.iteration_s
