"""What each GPU of a record in Sailor's format holds at its peak, from the model's published shape."""

from __future__ import annotations

import numpy as np

from dtfm_lab.domain.job import Job, ModelSpec, gpt
from dtfm_lab.domain.network import Topology
from dtfm_lab.planning import evaluate
from dtfm_lab.published.sailor_records import Record
from dtfm_lab.simulation.memory import memory

ASSUMPTIONS = ("fp32", "unfused attention", "Adam", "the model's published shape, tensor-parallel")


def model_of(name: str) -> ModelSpec | None:
    """A model of Sailor's evaluation by the name of its records; None for another."""
    # of their configurations: EleutherAI/gpt-neo-2.7B and facebook/opt-350m, with sequences of 2048 tokens
    if name == "GPT-Neo-2.7":
        return gpt(name=name, n_layers=32, d_model=2560, n_heads=20, seq_len=2048, vocab_size=50257)
    if name == "OPT-350":
        return gpt(name=name, n_layers=24, d_model=1024, n_heads=16, seq_len=2048, vocab_size=50272)
    return None


def peak_bytes(record: Record) -> float | None:
    """Bytes of the fullest GPU of the record's plan; None where its model or its blocks are not known.

    ``layers_per_stage`` counts the embedding in the first stage and the head in the last one.
    """
    blocks, model = list(record.layers_per_stage), model_of(record.model)
    if model is None or len(blocks) != record.n_stages or sum(blocks) != model.n_blocks + 2:
        return None
    blocks[0] -= 1
    blocks[-1] -= 1
    if min(blocks) < 1:
        return None
    k, n_groups = record.tensor_parallel, record.n_stages * record.n_replicas
    n = k * n_groups
    network = Topology.from_matrices(
        latency_s=np.zeros((n, n)),
        bandwidth_bytes_per_s=np.ones((n, n)),
        hosts=[f"host {i // k}" for i in range(n)],
        name=record.case,
    )
    job = Job(
        model=model,
        n_stages=record.n_stages,
        n_replicas=record.n_replicas,
        global_batch=record.global_batch,
        microbatch=record.microbatch,
        blocks_per_stage=tuple(blocks),
        dtype="fp32",
        attention="unfused",
        tensor_parallel=k,
        synchronisation="ring",
    )
    stages = np.arange(n_groups).reshape(record.n_stages, record.n_replicas).tolist()
    return float(memory(evaluate(network, job, stages=stages), "1f1b").peak_bytes.max()) / k
