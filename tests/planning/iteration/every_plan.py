"""Small networks and jobs drawn from a seed, and every plan of them, simulated: what no lower bound may exceed."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dtfm_lab.costs.seconds import analytic, compute_seconds
from dtfm_lab.domain.job import Job, LayerKind, ModelSpec, gpt
from dtfm_lab.domain.network import Device, Links, Topology
from dtfm_lab.domain.plan import CostBreakdown, Placement, Plan
from dtfm_lab.domain.schedule import Programs, Schedule
from dtfm_lab.planning.iteration.bounds import iteration_bound_steps
from dtfm_lab.planning.iteration.problem import CHECKPOINTINGS_TRIED, IterationProblem
from dtfm_lab.simulation.engine import PlacedTasks, programs_of
from dtfm_lab.simulation.memory import least_peak_bytes
from dtfm_lab.simulation.schedules import schedules

SYNCHRONISATIONS = ("sharded", "sharded", "sharded-at-once", "central", "ring", "hierarchical")
FAMILIES = {"whole": ("1f1b", "gpipe", "adaptive-1f1b"), "split": ("zb-h1",), "interleaved": ("interleaved-1f1b",)}


@dataclass(frozen=True)
class Drawn:
    """A network and a job without a shape."""

    topology: Topology
    job: Job
    queueing: str


def check_bound(case: Drawn, family: str, seconds: Iterable[float], **options: Any) -> None:
    """Assert that the bound of a case, asked for a little above the fastest of these plans, is not above it."""
    best_s = min(seconds, default=np.inf)
    if best_s < np.inf:
        problem = IterationProblem.of(case.topology, case.job, case.queueing)
        *_, bound_s = iteration_bound_steps(problem, 1.01 * best_s, FAMILIES[family], **options)
        assert bound_s <= best_s * (1 + 1e-9)


def drawn(seed: int, most_devices: int = 4) -> Drawn:
    """One of endlessly many: unlike devices and links, groups with slow links between them, little memory."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, most_devices + 1))
    model = _model(rng)
    if seed % 5 == 4:
        model = uneven(model, seed)
    block_flop = model.layers[1].forward_flop
    speeds = rng.choice([1.0, 1.0, 0.5, 0.25, 0.05], n) if rng.random() < 0.7 else np.ones(n)
    whole_bytes = model.parameters * 16.0 + sum(layer.held_elements for layer in model.layers) * 2.0
    room = rng.choice([0.3, 0.5, 0.8, 1.3, 10.0], n)
    group = rng.integers(0, int(rng.integers(1, 4)), n)
    devices = tuple(
        Device(
            name=f"d{i}",
            region=f"r{group[i]}",
            gpu="drawn",
            peak_flop_per_s=float(speeds[i] * block_flop / 0.4),
            memory_bytes=float(room[i] * whole_bytes),
            price_per_hour=float(rng.choice([0.2, 0.5, 1.0, 2.0])),
        )
        for i in range(n)
    )
    apart = group[:, None] != group[None, :]
    hop_bytes = 2.0 * model.boundary_elements
    near, far = 10.0 ** rng.uniform(-2, 0.7, 2)
    noise = rng.uniform(0.5, 2.0, (n, n)) if rng.random() < 0.5 else np.ones((n, n))
    bandwidth = hop_bytes / (np.where(apart, far, near) * noise)
    latency = np.where(apart, *10.0 ** rng.uniform(-2, 0.3, 2)) * noise.T
    message_bytes = message_s = None
    if rng.random() < 0.2:
        message_bytes = hop_bytes * np.array([0.1, 1.0, 4.0])
        message_s = latency[:, :, None] + message_bytes * rng.uniform(0.7, 1.5) / bandwidth[:, :, None]
        message_s = np.maximum.accumulate(message_s * rng.uniform(0.9, 1.2, message_s.shape), axis=2)
    topology = Topology(
        devices, latency, bandwidth, name=f"drawn-{seed}", message_bytes=message_bytes, message_s=message_s
    )
    microbatch = int(rng.choice([1, 1, 2]))
    job = Job(
        name=f"drawn-{seed}",
        model=model,
        global_batch=microbatch * int(rng.integers(2, 8)),
        microbatch=microbatch,
        synchronisation=str(rng.choice(SYNCHRONISATIONS)),
        synchronise_every=int(rng.choice([1, 1, 1, 3])),
        compression=str(rng.choice(["none", "none", "int8"])),
        codec_bytes_per_s=float(hop_bytes / rng.choice([1e-3, 0.1])),
        recompute=bool(rng.random() < 0.2),
    )
    return Drawn(topology, job, str(rng.choice(["pairs", "pairs", "nics"])))


def _model(rng: np.random.Generator) -> ModelSpec:
    n_blocks = int(rng.integers(1, 5))
    d, vocabulary = 16, int(rng.choice([16, 200, 2000]))
    tied = bool(rng.random() < 0.5)
    model = gpt(n_layers=n_blocks, d_model=d, n_heads=2, seq_len=32, vocab_size=vocabulary, tied=tied)
    if rng.random() < 0.5:
        return model
    layers = tuple(
        replace(
            layer,
            forward_flop=layer.forward_flop * rng.uniform(0.5, 2),
            parameters=int(layer.parameters * rng.uniform(0.5, 2)),
            held_elements=int(layer.held_elements * rng.uniform(0.5, 2)),
        )
        if layer.kind is LayerKind.BLOCK
        else layer
        for layer in model.layers
    )
    return replace(model, layers=layers)


def uneven(model: ModelSpec, seed: int) -> ModelSpec:
    """As a torch module of one's own, whose blocks pass on fewer numbers than the widest."""
    rng = np.random.default_rng(seed)
    layers = tuple(
        replace(one, output_elements=1 + int(rng.choice([0.02, 0.3, 0.9]) * one.output_elements))
        if one.kind is LayerKind.BLOCK
        else one
        for one in model.layers
    )
    return replace(model, layers=layers, source="own.py:module")


def frozen(model: ModelSpec, share: float = 0.1) -> ModelSpec:
    """A model, whatever its layers are, with a part of its blocks' parameters trained beside frozen weights."""
    layers = tuple(
        replace(one, parameters=int(share * one.parameters * (one.kind is LayerKind.BLOCK)), frozen_elements=10_000)
        for one in model.layers
    )
    return replace(model, layers=layers, tied=False)


def with_experts(model: ModelSpec) -> ModelSpec:
    """A model, whatever its layers are, in whose blocks, but for the first, half of the parameters are experts'."""
    layers = tuple(
        replace(
            one,
            output_elements=model.boundary_elements,
            expert_elements=one.parameters // 2 * (at > 1),
            kv_elements=model.boundary_elements,
        )
        if one.kind is LayerKind.BLOCK
        else one
        for at, one in enumerate(model.layers)
    )
    return replace(model, layers=layers, source="", n_experts=4, experts_per_token=2)


def in_pairs(topology: Topology) -> Topology:
    """The network with a pair of GPUs in place of each."""
    slowest = float(topology.bandwidth_bytes_per_s.min())
    devices = tuple(
        replace(one, gpus=2, inner_latency_s=1e-3, inner_bandwidth_bytes_per_s=slowest) for one in topology.devices
    )
    return replace(topology, devices=devices)


def every_plan(
    case: Drawn, family: str = "whole", rng: np.random.Generator | None = None, most: int = 10**9
) -> Iterator[tuple[float, Plan]]:
    """Seconds of an iteration and the plan, for plans that fit: all, or ``most`` in an order drawn by ``rng``.

    All subsets of devices, shapes, placements, cuts, shares of the batch, warm-ups and checkpointings.
    """
    settings = list(_settings(case, family))
    if rng is not None:
        rng.shuffle(settings)
    links = Links.of(case.topology, case.queueing)
    limits = np.array([device.memory_bytes for device in case.topology.devices])
    seen = 0
    for job, schedule in settings:
        shape = job.n_stages, job.n_replicas
        tasks, least = None, None
        for devices in itertools.permutations(range(len(case.topology)), shape[0] * shape[1]):
            plan = given(case, job, np.array(devices).reshape(shape))
            if tasks is None or job.synchronisation == "hierarchical":
                tasks = [
                    (programs, PlacedTasks.of(plan, programs, analytic(plan, programs)))
                    for programs in (
                        programs_of(plan, schedule, synchronise=one)
                        for one in ([True] if job.synchronise_every == 1 else [False, True])
                    )
                ]
            if least is None:
                least = least_peak_bytes(job, tasks[-1][0])
            if (least > limits[plan.placement.devices]).any():
                continue
            seen += 1
            if seen > most:
                return
            ends_s = [placed_s(plan, programs, one, links) for programs, one in tasks]
            yield ((job.synchronise_every - 1) * ends_s[0] + ends_s[-1]) / job.synchronise_every, plan


def placed_s(plan: Plan, programs: Programs, tasks: PlacedTasks, links: Links) -> float:
    """Seconds of the tasks of any plan of this job when they are placed as in this one."""
    graph = tasks.graph
    here = plan.placement.devices[graph.position, graph.replica]
    there = np.where(graph.partner >= 0, here[graph.partner], here)
    seconds = np.append(compute_seconds(graph.computations, analytic(plan, programs)), 0.0)
    return replace(tasks, here=here, there=there, compute_s=seconds[graph.computation]).simulate(links).makespan_s


def given(case: Drawn, job: Job, grid: np.ndarray) -> Plan:
    n, placement = len(grid), Placement(grid)
    free = CostBreakdown(group_s=np.zeros(n), hop_s=np.zeros(n - 1), weights_s=np.zeros((n, n)))
    return Plan(topology=case.topology, job=job, placement=placement, cost=free, lower_bound_s=0.0, planner="given")


def _settings(case: Drawn, family: str) -> Iterator[tuple[Job, Schedule]]:
    job, n = case.job, len(case.topology)
    n_blocks, total = job.model.n_blocks, job.global_batch // job.microbatch
    for n_stages in range(1, min(n, n_blocks) + 1):
        for n_replicas in range(1, min(n // n_stages, total) + 1):
            for blocks in _summing(n_blocks, n_stages):
                for shares in _summing(total, n_replicas):
                    if list(shares) != sorted(shares):
                        continue  # placements of all orders follow
                    for how in CHECKPOINTINGS_TRIED if job.checkpointing is None and not job.recompute else ({},):
                        shaped = replace(
                            job,
                            n_stages=n_stages,
                            n_replicas=n_replicas,
                            blocks_per_stage=blocks,
                            microbatches_per_replica=shares,
                            **how,
                        )
                        yield from ((shaped, schedule) for schedule in _schedules(shaped, family))


def _schedules(job: Job, family: str) -> Iterator[Schedule]:
    n_stages, most = job.n_stages, job.n_microbatches
    if family == "whole":
        depths = range(min(most, 5))
        for warmups in itertools.product(depths, repeat=n_stages):
            if list(warmups) == sorted(warmups, reverse=True):
                yield schedules["adaptive-1f1b"](n_stages, most, warmups=warmups)
        yield schedules["gpipe"](n_stages, most)
    elif family == "split":
        yield schedules["zb-h1"](n_stages, most)
    else:
        even = job.modelled().cut(job.n_stages) == job.modelled().cut(job.n_stages, job.blocks_per_stage)
        if even and len(set(job.microbatch_counts)) == 1 and job.n_stages * 2 <= job.modelled().n_blocks:
            try:
                yield schedules["interleaved-1f1b"](n_stages, most, stages_per_device=2)
            except Exception:  # rounds that differ
                return


def _summing(total: int, n_parts: int) -> Iterator[tuple[int, ...]]:
    """All ways to write a number as an ordered sum of parts from 1 on."""
    for ends in itertools.combinations(range(1, total), n_parts - 1):
        marks = (0, *ends, total)
        yield tuple(b - a for a, b in itertools.pairwise(marks))
