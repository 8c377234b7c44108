"""The proxy model (``stand_in``) that workers train if they cannot train the job's own model.

The sizes of messages, and on the paced clock the durations of computations, remain those of the job's model.
"""

import psutil

from dtfm_lab.domain.errors import JobError
from dtfm_lab.domain.job import Job, ModelSpec, gpt

RUN_DTYPES = ("fp32", "fp64")
BYTE_VALUES = 256
BYTES_PER_WORKER = 80e6
"""Resident memory of a worker without its stage; that of torch itself is shared by all."""
NAME = "stand-in"


def stand_in_for(job: Job) -> ModelSpec:
    """Return a GPT of as many blocks that any machine can train: 50,000 parameters per block, on bytes."""
    model = job.modelled()
    return gpt(
        name=NAME,
        n_layers=model.n_blocks,
        d_model=64,
        n_heads=4,
        seq_len=32,
        vocab_size=BYTE_VALUES,
        tied=model.tied,
    )


def as_tied(model: ModelSpec, job: Job) -> ModelSpec:
    """Return the model with its embedding tied where the job's is. Raises JobError where workers cannot build it."""
    if reason := why_not_built(model):
        raise JobError(f"stand_in {reason}")
    return _as_built(model, tied=job.modelled().tied)


def why_not_trained(job: Job) -> str:
    """Return why workers on this machine cannot train the job's own model, in one clause; empty where they can."""
    model = job.modelled()
    if reason := why_not_built(model):
        return reason
    if job.dtype not in RUN_DTYPES:
        return f"dtype is {job.dtype}; workers on a CPU run {' or '.join(RUN_DTYPES)}"
    return why_too_large(job)


def why_not_built(model: ModelSpec) -> str:
    """Return why workers cannot build this model; empty where they can."""
    if model.family != "gpt":
        return f"model {model.name} is of the {model.family} family; workers build gpt only"
    if model.vocab_size < BYTE_VALUES:
        return f"model {model.name}: vocab_size is {model.vocab_size}; wanted {BYTE_VALUES} or more, for bytes"
    if model.n_heads * model.head_dim != model.d_model or model.layers != _as_built(model, tied=model.tied).layers:
        return (
            f"model {model.name} has other layers than the GPT that workers build; wanted biases everywhere, an MLP "
            f"of 4 x d_model and as many learned positions as seq_len, {model.seq_len}"
        )
    return ""


def why_too_large(job: Job) -> str:
    """Return why this machine has too little free memory for the workers of this job; empty where it has enough."""
    each = 8 if job.dtype == "fp64" else 4
    # Parameters, gradients, two optimiser states, temporaries of its step, messages; with local updates also what the
    # replicas last had in common, and the changes since. Measured with 25 million parameters: 7.4 and 8.6.
    copies = 8 if job.synchronise_every == 1 else 10
    needed = job.n_tasklets * BYTES_PER_WORKER + copies * each * job.modelled().parameters * job.n_replicas
    if needed <= (available := psutil.virtual_memory().available):
        return ""
    return (
        f"{job.n_tasklets} workers need some {needed / 2**30:.1f} GiB on this machine, {available / 2**30:.1f} are "
        f"free; wanted a smaller model or fewer workers"
    )


def _as_built(model: ModelSpec, *, tied: bool) -> ModelSpec:
    """Return the model that workers build from these sizes (``worker.stages``)."""
    return gpt(
        name=model.name,
        n_layers=model.n_blocks,
        d_model=model.d_model,
        n_heads=model.n_heads,
        seq_len=model.seq_len,
        vocab_size=model.vocab_size,
        tied=tied,
    )
