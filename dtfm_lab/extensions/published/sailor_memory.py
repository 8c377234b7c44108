"""What each GPU of a record in Sailor's format holds at its peak, from the model's published shape.

Sailor published the maximum that ``nvidia-smi`` reports over all GPUs (its ``deepspeed/pipe_engine.py``,
``get_total_used_mem``; ``ae_scripts/clariden_scripts/process_results.py``, ``get_mem``). That includes CUDA's context
and NCCL's buffers in addition to what torch reserves. ``framework_bytes`` counts both from the code that ran, with
sizes that others measured. None of them comes from Sailor's numbers. Files other than the engine were read in a copy,
saha18uiuc/sailor.
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
"""Bytes on every GPU in addition to states and activations, according to Sailor's own predictions.

These predictions add at least this number of bytes. From rows with four stages to rows with two, the number grows by 24
bytes per parameter.
"""
CONTEXT_BYTES = 484 * 2**20
"""Bytes of a process with CUDA's context and NCCL, but without a connection to another GPU: 484 MiB on an RTX 3090
(NVIDIA/nccl, pull request 2366)."""
PAIR_BYTES = 544e6
"""Bytes of the buffers of a communicator of two GPUs, on A100s with NVLink (NVIDIA/nccl, issue 964)."""
GROUP_BYTES = 688e6
"""Bytes of the buffers of a communicator of more than two GPUs, from the same issue."""


def model_of(name: str) -> ModelSpec | None:
    """Return a model of Sailor's evaluation by its name in the records; None if the name is unknown."""
    # from their configurations: EleutherAI/gpt-neo-2.7B and facebook/opt-350m, with sequences of 2048 tokens
    if name == "GPT-Neo-2.7":
        return gpt(name=name, n_layers=32, d_model=2560, n_heads=20, seq_len=2048, vocab_size=50257)
    if name == "OPT-350":
        return gpt(name=name, n_layers=24, d_model=1024, n_heads=16, seq_len=2048, vocab_size=50272)
    return None


def unknown_because(record: Record) -> str:
    """Say why the memory of a record cannot be predicted; empty if it can."""
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
    """Return the number of blocks of each stage. ``layers_per_stage`` also counts the embedding in the first stage and
    the head in the last."""
    blocks = list(record.layers_per_stage)
    # A record without any layers is refused later, with a reason.
    for end in (0, -1) if blocks else ():
        blocks[end] -= 1
    return tuple(blocks)


def communicators(tensor_parallel: int, n_stages: int, n_replicas: int, stage: int) -> tuple[int, ...]:
    """Return the sizes of the communicators that a GPU of this stage opens. Communicators of one GPU are left out.

    This follows DeepSpeed with Megatron's layers, as Sailor runs it:

    - all GPUs (the barrier of ``_exec_reduce_tied_grads``);
    - the tensor-parallel group twice, for Megatron's layers and for ``reconstruct_tensor``;
    - the GPUs of a replica, of a stage's replicas and of a pipeline (``deepspeed/topology.py``,
      ``PipelineParallelGrid``);
    - one with each neighbour in the pipeline: ``deepspeed/p2p.py`` uses torch's ``send``, which opens one per pair.
    """
    k, neighbours = tensor_parallel, (stage > 0) + (stage < n_stages - 1)
    sizes = (k * n_stages * n_replicas, k, k, k * n_stages, n_replicas, n_stages, *[2] * neighbours)
    return tuple(size for size in sizes if size > 1)


def framework_bytes(record: Record, stage: int) -> float:
    """Return the bytes per GPU of a stage that torch's allocator does not know: CUDA's context and NCCL's buffers.

    If no NVLink is known for the GPUs of the stage, they cannot reach each other's memory. The buffers are then in the
    host's memory, according to NCCL's documentation of its shared-memory transport.
    """
    linked = all(group.gpu in INSIDE_A_HOST for group in record.devices if group.stage == stage)
    opened = communicators(record.tensor_parallel, record.n_stages, record.n_replicas, stage)
    return CONTEXT_BYTES + (buffers_bytes(opened) if linked else 0.0)


def buffers_bytes(opened: tuple[int, ...]) -> float:
    """Return the bytes of NCCL's buffers for communicators with these numbers of GPUs."""
    return sum(PAIR_BYTES if size == 2 else GROUP_BYTES for size in opened)


def reserved_bytes(record: Record) -> FloatArray | None:
    """Return (stages,) bytes that torch reserves at the peak on a GPU of each stage of the record's plan.

    None if ``unknown_because`` says why. Raises FileError that names a record whose plan is impossible.
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
        # Any links will do, because only memory is asked for.
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
