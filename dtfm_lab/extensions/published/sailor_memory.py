"""What each GPU of a record in Sailor's format holds at its peak, from the model's published shape.

What Sailor published is the most that ``nvidia-smi`` says of any GPU (its ``deepspeed/pipe_engine.py``,
``get_total_used_mem``; ``ae_scripts/clariden_scripts/process_results.py``, ``get_mem``): beside what torch reserves it
has CUDA's context and the buffers of NCCL. ``framework_bytes`` counts both by the code that ran, with sizes that others
measured; none is from Sailor's numbers. Files other than the engine were read in a copy, saha18uiuc/sailor.
"""

from __future__ import annotations

import numpy as np

from dtfm_lab.domain.errors import FileError, LabError
from dtfm_lab.domain.job import Job, ModelSpec, gpt
from dtfm_lab.domain.network import Topology, shortened
from dtfm_lab.domain.units import FloatArray
from dtfm_lab.extensions.published.row import assumptions
from dtfm_lab.extensions.published.sailor_records import BYTES, INSIDE_A_HOST, Record
from dtfm_lab.extensions.published.units import ALLOCATED
from dtfm_lab.planning import evaluate
from dtfm_lab.simulation.memory import memory

ASSUMPTIONS = assumptions()["sailor"]["memory"]
FRAMEWORK_BYTES = 5.0e9
"""What Sailor's own predictions hold on every GPU beside states and activations: between its rows of four stages and of
two they grow by 24 bytes a parameter from there."""
CONTEXT_BYTES = 484 * 2**20
"""A process with CUDA's context and NCCL, without a peer: 484 MiB of an RTX 3090 (NVIDIA/nccl, pull request 2366)."""
PAIR_BYTES, GROUP_BYTES = 544e6, 688e6
"""Buffers of a communicator of two GPUs, and of more, on A100s with NVLink (NVIDIA/nccl, issue 964)."""


def model_of(name: str) -> ModelSpec | None:
    """A model of Sailor's evaluation by the name of its records; None for another."""
    # of their configurations: EleutherAI/gpt-neo-2.7B and facebook/opt-350m, with sequences of 2048 tokens
    if name == "GPT-Neo-2.7":
        return gpt(name=name, n_layers=32, d_model=2560, n_heads=20, seq_len=2048, vocab_size=50257)
    if name == "OPT-350":
        return gpt(name=name, n_layers=24, d_model=1024, n_heads=16, seq_len=2048, vocab_size=50272)
    return None


def unknown_because(record: Record) -> str:
    """Why the memory of a record is not predicted; empty where it is."""
    model = model_of(record.model)
    if model is None:
        return f"no memory predicted: model {shortened(record.model)} is not known"
    blocks = _blocks(record)
    if len(blocks) != record.n_stages or sum(blocks) != model.n_blocks or min(blocks) < 1:
        return f"no memory predicted: layers_per_stage are not those of {record.n_stages} stages of {record.model}"
    sizes = {group.tensor_parallel for group in record.devices}
    if sizes != {record.tensor_parallel}:
        said = ", ".join(map(str, sorted(sizes)))
        return f"no memory predicted: devices of tensor_parallel {said} in a record of {record.tensor_parallel}"
    return ""


def _blocks(record: Record) -> tuple[int, ...]:
    """Blocks of each stage; ``layers_per_stage`` counts the embedding in the first and the head in the last one."""
    blocks = list(record.layers_per_stage)
    for end in (0, -1) if blocks else ():
        blocks[end] -= 1
    return tuple(blocks)


def communicators(tensor_parallel: int, n_stages: int, n_replicas: int, stage: int) -> tuple[int, ...]:
    """GPUs in each of the communicators that a GPU of this stage opens, those of one GPU left out.

    Of DeepSpeed with Megatron's layers, as Sailor runs it: all GPUs (the barrier of ``_exec_reduce_tied_grads``); the
    tensor-parallel group twice, once for Megatron's layers and once for ``reconstruct_tensor``; the GPUs of a replica,
    of a stage's replicas and of a pipeline (``deepspeed/topology.py``, ``PipelineParallelGrid``); and one with each
    neighbour of the pipeline, as ``deepspeed/p2p.py`` sends by torch's ``send``, which has a communicator for each
    pair.
    """
    k, neighbours = tensor_parallel, (stage > 0) + (stage < n_stages - 1)
    sizes = (k * n_stages * n_replicas, k, k, k * n_stages, n_replicas, n_stages, *[2] * neighbours)
    return tuple(size for size in sizes if size > 1)


def framework_bytes(record: Record, stage: int) -> float:
    """Bytes of each GPU of a stage that torch's allocator does not know: CUDA's context and NCCL's buffers.

    Where no NVLink is known of its GPUs, they cannot reach each other and buffers are in the host's memory, as NCCL's
    documentation says of its shared-memory transport.
    """
    linked = all(group.gpu in INSIDE_A_HOST for group in record.devices if group.stage == stage)
    opened = communicators(record.tensor_parallel, record.n_stages, record.n_replicas, stage)
    return CONTEXT_BYTES + (buffers_bytes(opened) if linked else 0.0)


def buffers_bytes(opened: tuple[int, ...]) -> float:
    """NCCL's buffers of communicators of so many GPUs each."""
    return sum(PAIR_BYTES if size == 2 else GROUP_BYTES for size in opened)


def reserved_bytes(record: Record) -> FloatArray | None:
    """(stages,) bytes that torch reserves on a GPU of each stage of the record's plan, at the peak.

    None where they are not predicted, by ``unknown_because``. Raises FileError that names the record where its plan
    cannot be.
    """
    model = model_of(record.model)
    if model is None or unknown_because(record):
        return None
    try:
        return _reserved_bytes(record, model)
    except LabError as error:
        raise FileError(f"{record.case}: {error}") from None


def _reserved_bytes(record: Record, model: ModelSpec) -> FloatArray:
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
        blocks_per_stage=_blocks(record),
        dtype="fp32",
        attention="unfused",
        tensor_parallel=k,
        dropout=False,
        synchronisation="ring",
    )
    stages = np.arange(n_groups).reshape(record.n_stages, record.n_replicas).tolist()
    buffer_bytes = BYTES * max(record.stage_parameters) if record.n_replicas > 1 else 0
    of_groups = memory(evaluate(network, job, stages=stages), "1f1b").peak_bytes.max(axis=1)
    reserved: FloatArray = (of_groups / k + buffer_bytes) / ALLOCATED
    return reserved
