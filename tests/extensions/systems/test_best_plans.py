"""A system's plan is its best: what is left out changes no outcome, and no change within its freedoms is faster."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dtfm_lab as lab
from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import TINY, Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.extensions.systems.api import Budget, Strategy, outcome_of, strategies, variant, work_of
from dtfm_lab.extensions.systems.bound import fits, least_iteration_s, least_lacking_bytes
from dtfm_lab.extensions.systems.modelled.diloco import DiLoCoStrategy
from dtfm_lab.extensions.systems.modelled.sparse import SparseLoCo
from dtfm_lab.extensions.systems.modelled.swarm import SwarmStrategy
from dtfm_lab.planning import evaluate
from dtfm_lab.planning.iteration.structured.candidates import device_sets
from dtfm_lab.simulation import simulate
from dtfm_lab.simulation.memory import memory
from dtfm_lab.simulation.simulate import iteration_seconds

SYSTEMS = ["megatron", "fsdp", "ddp"]


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
    # Grids with tensor, pipeline and data parallelism at once need eight devices.
    n_devices, batch = (8, 16) if name == "megatron" else (6, 12)
    for gigabytes in (0.02, 0.001) if seed else (16.0, 0.02):
        topology, job = network(seed, n_devices, gigabytes=gigabytes), work(global_batch=batch)
        pruned, whole = (outcome_of(strategies[name](), topology, job, prune=prune) for prune in (True, False))
        assert (pruned.iteration_s, pruned.reason, pruned.considered) == (
            whole.iteration_s,
            whole.reason,
            whole.considered,
        )
        if whole.found is not None:
            assert np.array_equal(pruned.plan.placement.devices, whole.plan.placement.devices)
            assert pruned.job == whole.job


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


@settings(max_examples=40)
@given(
    st.integers(0, 1000),
    st.sampled_from([(1, 8), (2, 4), (4, 2), (8, 1), (2, 3)]),
    choices,
    st.sampled_from(["pairs", "nics"]),
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


@settings(max_examples=25)
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


@settings(max_examples=40)
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


FREEDOMS = [
    ("megatron", {"order": "dp-pp"}),
    ("megatron", {"order": "pp-dp"}),
    ("megatron", {"overlap": False}),
    ("megatron", {"sharding": "none"}),
    ("megatron", {"microbatches": "given"}),
    ("megatron", {"devices": "all"}),
    ("fsdp", {"reshard": True}),
    ("fsdp", {"devices": "all"}),
    ("ddp", {"devices": "all"}),
]
JOB = lab.load_job("tiny", global_batch=32)


@pytest.mark.parametrize("network", ["lecture-hall", "raspberry-pi"])
@pytest.mark.parametrize("name", SYSTEMS)
def test_no_random_change_within_its_freedoms_is_faster(network, name):
    topology, budget, strategy = lab.load_topology(network), Budget(), variant(name)
    best = outcome_of(strategy, topology, JOB, budget)
    branches, rng = list(strategy.branches(topology, work_of(JOB), budget)), np.random.default_rng(0)
    for _ in range(80):
        plans = list(branches[rng.integers(len(branches))].plans())
        plan = plans[rng.integers(len(plans))].changed(queueing=budget.queueing)
        if fits(plan):
            assert strategy.seconds(plan, budget) >= best.iteration_s * (1 - 1e-9)


SLOWER = lab.load_topology("lecture-hall").scaled(bandwidth=0.2)


@cache
def with_all_freedoms_s(name):
    return outcome_of(variant(name), SLOWER, JOB).iteration_s


@pytest.mark.parametrize(("name", "held"), FREEDOMS)
def test_a_freedom_that_is_held_saves_nothing(name, held):
    pinned = outcome_of(variant(name, **held), SLOWER, JOB).iteration_s
    assert pinned is None or with_all_freedoms_s(name) <= pinned * (1 + 1e-9)


def test_devices_that_slow_all_others_are_left_out():
    topology = lab.load_topology("campus")
    sets = [tuple(one.tolist()) for one in device_sets(topology)]
    assert sets[0] == tuple(range(len(topology)))
    assert len(set(sets)) == len(sets)
    laptops = {i for i, device in enumerate(topology.devices) if device.gpu == "laptop"}
    assert any(not laptops & set(one.tolist()) for one in device_sets(topology))
    for name in ("megatron", "fsdp"):
        plan = outcome_of(variant(name), topology, lab.load_job("gpt2-small", global_batch=64)).plan
        assert not laptops & set(plan.placement.devices.flat)


GPT = lab.load_job("gpt3-xl", global_batch=64, microbatch=1)


@pytest.mark.parametrize(
    "system",
    [DiLoCoStrategy(), SparseLoCo(), DiLoCoStrategy(kind="decoupled"), SwarmStrategy()],
    ids=lambda one: one.label,
)
@pytest.mark.parametrize("network", ["islands", "raspberry-pi"])
def test_the_plan_is_the_fastest_of_all_candidates(system, network):
    topology, budget = lab.load_topology(network), Budget()
    work = work_of(GPT)
    plans = [plan for one in system.branches(topology, work, budget) for plan in one.plans()]
    fastest_s = min(system.seconds(plan, budget) for plan in plans if not least_lacking_bytes(plan))
    assert outcome_of(system, topology, GPT, budget).iteration_s == pytest.approx(fastest_s, rel=1e-9)


@pytest.mark.parametrize("name", ["diloco", "sparseloco", "distro", "pluralis", "swarm"])
def test_a_model_that_is_too_large_is_told_by_what_memory_lacks(name):
    outcome = lab.strategies("lecture-hall", "llama-2-7b", systems=name)[name]
    assert outcome.found is None
    assert "none of its plans fits the devices" in outcome.reason


@dataclass(frozen=True, kw_only=True)
class ZeroBubble(Strategy):
    """One pipeline of a schedule of which no closed form knows how much it holds."""

    title: ClassVar[str] = "Zero bubble"
    cite: ClassVar[str] = "nobody"

    def plans(self, topology: Topology, job: Job, budget: Budget) -> Iterator[lab.Plan]:
        one = job.with_fields(n_stages=len(topology), n_replicas=1, microbatch=1, schedule="zb-h1")
        yield evaluate(topology, one, stages=[[at] for at in range(len(topology))])


def test_a_plan_that_lacks_a_byte_at_its_peak_alone_is_none_and_that_is_the_reason():
    plan = next(ZeroBubble().plans(network(0, 4), work(), Budget()))
    peak_bytes = memory(plan).peak_bytes.max()
    enough, lacking = (network(0, 4, gigabytes=n / 1e9) for n in (peak_bytes, peak_bytes - 1))
    assert outcome_of(ZeroBubble(), enough, work()).found is not None
    assert least_lacking_bytes(plan.changed(topology=lacking)) == 0
    outcome = outcome_of(ZeroBubble(), lacking, work())
    assert outcome.found is None
    assert outcome.reason.startswith("none of its plans fits the devices: ")
