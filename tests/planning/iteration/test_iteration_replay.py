"""The compiled replay is the simulator, and its memory is that of the memory report."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from every_plan import uneven

from dtfm_lab.costs.seconds import WAYS
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.job.model import gpt
from dtfm_lab.domain.network import Device, Topology
from dtfm_lab.domain.plan import Placement, Plan
from dtfm_lab.planning.cost import price_placement
from dtfm_lab.planning.iteration.problem import IterationProblem, SearchTarget
from dtfm_lab.planning.iteration.shape_searches import ShapeSearch, ShapeSearches
from dtfm_lab.simulation import memory, simulate

TIED = gpt(name="tied", n_layers=12, d_model=64, n_heads=4, seq_len=32, vocab_size=512)
UNTIED = gpt(name="untied", n_layers=9, d_model=64, n_heads=4, seq_len=32, vocab_size=64, tied=False)

UNEVEN = uneven(TIED, 0)


def network(rng: np.random.Generator, n: int, *, measured: bool) -> Topology:
    """Devices of unlike speeds in three regions, on links that differ in each direction."""
    devices = tuple(
        Device(
            name=f"device {i}",
            region=str(rng.choice(["", "north", "south"])),
            peak_flop_per_s=float(rng.choice([1e9, 3e9, 5e9])),
        )
        for i in range(n)
    )
    latency_s, bandwidth = rng.uniform(0, 0.1, (n, n)), rng.uniform(1e5, 1e7, (n, n))
    topology = Topology(devices, latency_s, bandwidth)
    if not measured:
        return topology
    sizes = np.array([1e2, 1e4, 1e5])
    message_s = topology.latency_s[:, :, None] + sizes / bandwidth[:, :, None] * rng.uniform(1, 3, (n, n, 1))
    return replace(topology, message_bytes=sizes, message_s=message_s)


def random_plan(rng: np.random.Generator, synchronisation: str, *, measured: bool) -> Plan:
    """A plan of a random shape, cut, order of passes and sharing of the batch."""
    topology = network(rng, 10, measured=measured)
    model = (TIED, UNEVEN, UNTIED)[np.searchsorted([0.4, 0.6], rng.random())]
    n_stages = int(rng.integers(1, 6))
    n_replicas = int(rng.integers(1, 10 // n_stages + 1))
    blocks = 1 + rng.multinomial(model.n_blocks - n_stages, np.ones(n_stages) / n_stages)
    shares = rng.integers(1, 9, n_replicas)
    microbatch, schedule = int(rng.integers(1, 3)), str(rng.choice(["1f1b", "gpipe", "adaptive-1f1b"]))
    warmups = tuple(np.sort(rng.integers(0, 8, n_stages))[::-1].tolist()) if schedule == "adaptive-1f1b" else None
    job = Job(
        model=model,
        n_stages=n_stages,
        n_replicas=n_replicas,
        blocks_per_stage=tuple(blocks.tolist()),
        microbatches_per_replica=tuple(shares.tolist()),
        microbatch=microbatch,
        global_batch=microbatch * int(shares.sum()),
        schedule=schedule,
        warmups=warmups,
        synchronisation=synchronisation,
        synchronise_every=int(rng.choice([1, 1, 3])),
        compression=str(rng.choice(["none", "fp16", "int8"])),
        codec_bytes_per_s=1e7,
        recompute=bool(rng.integers(2)),
        dtype="fp32",
    )
    grid = rng.permutation(10)[: n_stages * n_replicas].reshape(n_stages, n_replicas)
    return Plan(
        topology=topology,
        job=job,
        placement=Placement(grid),
        cost=price_placement(topology, job, grid),
        lower_bound_s=0.0,
        planner="random",
    )


def replayed(plan: Plan) -> tuple[float, ShapeSearch]:
    """Seconds of a plan's iteration by the kernels, and the search of its shape, whose state has its memory."""
    job, grid = plan.job, plan.placement.devices
    (shape_search,) = ShapeSearches(IterationProblem.of(plan.topology, job).parts[0], SearchTarget())
    row = np.concatenate([grid.ravel(), plan.idle_devices]).astype(np.int64)
    shares = np.array(job.microbatches_per_replica)
    blocks = np.array(job.blocks_per_stage)
    return shape_search.assessed(row, blocks, 0.0, microbatch_counts=shares, exact=True).value, shape_search


@pytest.mark.parametrize("synchronisation", WAYS)
@pytest.mark.parametrize("measured", [False, True])
def test_the_replay_takes_the_simulators_seconds(synchronisation, measured):
    rng = np.random.default_rng(WAYS.index(synchronisation) + 10 * measured)
    for _ in range(12):
        plan = random_plan(rng, synchronisation, measured=measured)
        assert replayed(plan)[0] == pytest.approx(simulate(plan).iteration_s, rel=1e-12)


def assert_lacking(plan, peak_bytes):
    """On devices with half of what they would hold, the kernels count what they lack."""
    limits = np.floor(peak_bytes * 0.5)
    devices = list(plan.topology.devices)
    for at, device in np.ndenumerate(plan.placement.devices):
        devices[device] = replace(devices[device], memory_bytes=float(limits[at]))
    _, shape_search = replayed(plan.changed(topology=replace(plan.topology, devices=tuple(devices))))
    np.testing.assert_allclose(shape_search.states[0].cell[1].T, peak_bytes / limits - 1, rtol=1e-9)


@pytest.mark.parametrize("synchronisation", WAYS)
def test_the_kernels_count_the_memory_of_the_report(synchronisation):
    rng = np.random.default_rng(WAYS.index(synchronisation))
    for _ in range(12):
        plan = random_plan(rng, synchronisation, measured=False)
        report = memory(plan)
        assert_lacking(plan, report.peak_bytes)
