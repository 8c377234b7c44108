"""Networks of hosts with several GPUs each, and models of blocks whose seconds were measured, as they are published."""

from collections.abc import Sequence

import numpy as np

from dtfm_lab.domain.job import Layer, LayerKind, ModelSpec
from dtfm_lab.domain.network import Topology

PER_HOST = 8
INSIDE_S, BETWEEN_S = 5e-6, 10e-6
"""Latencies inside a host and between two: guesses, of no weight where messages are large or hidden."""


def hosts_of(
    n: int, gpu: str, *, inside_bytes_per_s: float, between_bytes_per_s: float, per_host: int = PER_HOST
) -> Topology:
    """So many GPUs in hosts of eight, or as given: the links inside a host are those between two GPUs, all others are
    the cards of a whole host."""
    host = np.arange(n) // per_host
    same = host[:, None] == host[None, :]
    return Topology.from_matrices(
        latency_s=np.where(same, INSIDE_S, BETWEEN_S),
        bandwidth_bytes_per_s=np.where(same, inside_bytes_per_s, between_bytes_per_s),
        hosts=[f"host-{i}" for i in host],
        gpu=gpu,
        name=f"{n} {gpu}",
    )


def measured_model(name: str, parameters: Sequence[int], output_elements: int = 1) -> ModelSpec:
    """Blocks alone, of so many parameters each, that hand on so many numbers of a sequence.

    Their seconds are given beside it: none follow from its FLOP.
    """
    blocks = tuple(
        Layer(kind=LayerKind.BLOCK, parameters=count, forward_flop=0.0, output_elements=output_elements)
        for count in parameters
    )
    return ModelSpec(
        name=name,
        layers=blocks,
        d_model=output_elements,
        n_heads=1,
        seq_len=1,
        vocab_size=1,
        tied=False,
        family="measured",
    )
