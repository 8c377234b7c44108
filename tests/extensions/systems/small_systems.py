"""Two systems with one plan each, whose seconds algebra tells, and a network and a job for them."""

from dataclasses import dataclass

import numpy as np

from dtfm_lab.costs.efficiency import EFFICIENCY
from dtfm_lab.domain.job import Job, Layer, LayerKind, ModelSpec
from dtfm_lab.domain.network import Device, Topology
from dtfm_lab.extensions.systems.api import Strategy
from dtfm_lab.planning import evaluate

ELEMENTS, PARAMETERS, FLOP, PEAK = 1000, 8_000_000, 1e9, 1e12
FORWARD_S = FLOP / PEAK / EFFICIENCY
"""Of one block, for one sequence; its backward takes twice as long."""
GRADIENT_BYTES, ACTIVATION_BYTES = 2 * PARAMETERS * 2, ELEMENTS * 2
"""Of the whole model of two blocks, and of a sequence between them, in half precision."""


@dataclass(frozen=True, kw_only=True)
class Copies(Strategy):
    """Data parallelism over all devices, gradients averaged after the last pass."""

    name = "copies"
    title = "Copies"
    cite = "this test"

    def plans(self, topology, job, budget):
        n = len(topology)
        how = job.with_fields(n_stages=1, n_replicas=n, microbatch=1, synchronisation="sharded")
        yield evaluate(topology, how, rank_map=list(range(n)))


@dataclass(frozen=True, kw_only=True)
class Chain(Strategy):
    """One pipeline over all devices."""

    name = "chain"
    title = "Chain"
    cite = "this test"

    def plans(self, topology, job, budget):
        n = len(topology)
        how = job.with_fields(n_stages=n, n_replicas=1, microbatch=1, schedule="gpipe")
        yield evaluate(topology, how, rank_map=list(range(n)))


@dataclass(frozen=True, kw_only=True)
class Rarely(Copies):
    """Copies that average every hundredth time."""

    name = "rarely"
    title = "Rarely"
    mathematics = "copies average every hundredth iteration"

    def plans(self, topology, job, budget):
        return super().plans(topology, job.with_fields(synchronise_every=100), budget)


def network(n: int = 2, latency_s: float = 0.0, bandwidth_bytes_per_s: float = 1e8, **device) -> Topology:
    """Devices that are all alike, as are their links."""
    devices = tuple(Device(name=f"d{i}", peak_flop_per_s=PEAK, memory_bytes=80 * 2**30, **device) for i in range(n))
    return Topology(devices, np.full((n, n), latency_s), np.full((n, n), bandwidth_bytes_per_s), name="alike")


def blocks(n: int = 2, parameters: int = PARAMETERS) -> ModelSpec:
    """Blocks alone, all alike."""
    block = Layer(
        kind=LayerKind.BLOCK, parameters=parameters, forward_flop=FLOP, output_elements=ELEMENTS, held_elements=ELEMENTS
    )
    return ModelSpec(name="blocks", layers=(block,) * n, d_model=10, n_heads=1, seq_len=100, vocab_size=10, tied=False)


def job(batch: int = 2, **fields) -> Job:
    """The two blocks on a batch."""
    return Job(model=blocks(), global_batch=batch, **fields)
