"""What a job refuses, in words that name the field, the value found and the value wanted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from dtfm_lab.domain.errors import JobError
from dtfm_lab.domain.job.model import LayerKind, ModelSpec
from dtfm_lab.domain.job.options import BLOCKWISE, JobOptions
from dtfm_lab.domain.network import shortened
from dtfm_lab.domain.options import whole
from dtfm_lab.domain.schedule import BY_SHARDS
from dtfm_lab.domain.units import counted

PAPERS_SCHEDULE = "gpipe"
"""What DT-FM runs."""
PASSED_ON = ("zero-2", "zero-3")
"""Shardings with which replicas exchange gradients, and perhaps parameters, in the passes of every micro-batch."""


def contradictions_of(job: JobOptions, model: ModelSpec | None) -> Iterator[str]:
    """What contradicts what among a job's fields, in words."""
    if job.sharding not in (None, "none"):
        if job.synchronisation not in (None, *BY_SHARDS):
            yield (
                f"synchronisation is {job.synchronisation} with sharding {job.sharding}, in which every replica "
                f"averages a shard of its own; wanted {' or '.join(BY_SHARDS)}"
            )
        if job.synchronise_every > 1:
            yield (
                f"synchronise_every is {job.synchronise_every} with sharding {job.sharding}, in which no replica can "
                f"step alone; wanted 1, or sharding none"
            )
    if job.frozen_weights != "same" and not (model is not None and model.frozen_elements):
        yield f"frozen_weights is {job.frozen_weights} and no weight is frozen; wanted adapters, or same"
    if job.fragmentation >= 1:
        yield f"fragmentation is {job.fragmentation:g}; wanted a share of the memory below 1"
    fragments, delay = job.fragments, job.fragment_delay
    pieces = fragments * max(delay, 1)
    if (fragments, delay) != (1, 0) and (job.synchronise_every == 1 or job.synchronise_every % pieces):
        yield (
            f"synchronise_every is {job.synchronise_every} with fragments {fragments} and fragment_delay {delay}; "
            f"wanted local updates, with a multiple of {pieces} above 1, or fragments 1 and fragment_delay 0"
        )
    if job.recompute and job.checkpointing in BLOCKWISE:
        yield (
            f"checkpointing is {job.checkpointing} and recompute true; wanted one of them, as recompute is "
            f"checkpointing stage"
        )
    heads = 0 if model is None else model.n_heads
    if job.tensor_parallel is not None and heads % job.tensor_parallel:
        yield (
            f"tensor_parallel is {job.tensor_parallel}; wanted a divisor of the {counted(heads, 'head')} of model "
            f"{model.name if model else ''}"
        )
    yield from _unshared(job, model)
    if job.flush_every is not None and job.schedule not in (None, PAPERS_SCHEDULE):
        yield (
            f"flush_every is {job.flush_every} with schedule {shortened(job.schedule)}; wanted "
            f"{PAPERS_SCHEDULE}, which flushes, or no flush_every"
        )


def _unshared(job: JobOptions, model: ModelSpec | None) -> Iterator[str]:
    """What context and expert parallelism cannot divide, or stand beside."""
    context, experts = job.context_parallel, job.expert_parallel
    if context * experts == 1:
        return
    if model is None or model.source:
        found = "no model" if model is None else "a module of one's own"
        yield f"context_parallel is {context} and expert_parallel {experts} with {found}; wanted 1 and 1"
        return
    if job.sharding in PASSED_ON:
        yield (
            f"sharding is {job.sharding} with context_parallel {context} and expert_parallel {experts}; wanted none or "
            f"zero-1"
        )
    for what, degree, of, thing in (
        ("context_parallel", context, model.seq_len, "tokens of a sequence"),
        ("expert_parallel", experts, model.n_experts, "experts of a block"),
    ):
        if degree > 1 and (of % degree or not of):
            yield f"{what} is {degree}; wanted a divisor of the {of} {thing}"
    if (job.microbatch or 0) % experts:
        yield (
            f"expert_parallel is {experts} with micro-batches of {job.microbatch}; wanted a multiple of {experts}, as "
            f"each GPU takes sequences of its own"
        )


def missing_numbers(model: ModelSpec, job: JobOptions) -> Iterator[str]:
    """Choices that need numbers which the model's layers do not give, in words."""
    wanted = {
        "attention_elements": ("attention unfused", job.attention == "unfused"),
        "selective_elements": ("checkpointing selective", job.checkpointing == "selective"),
        "moved_elements": ("memory_traffic", job.memory_traffic),
        "kv_elements": ("context_parallel", job.context_parallel > 1),
    }
    for what, (choice, is_chosen) in wanted.items():
        if is_chosen and not any(getattr(layer, what) for layer in model.layers if layer.kind is LayerKind.BLOCK):
            yield (
                f"{choice} needs {what}, which the layers of model {model.name} do not give; wanted a model of a "
                f"family, or layers with {what}"
            )


def check_batch(job: JobOptions, global_batch: int) -> None:
    """Raises JobError where the batch is no whole number of micro-batches, or has fewer than replicas."""
    n_microbatches, over = divmod(global_batch, job.microbatch)
    replicas = 1 if job.n_replicas is None else job.n_replicas
    if over:
        wanted = " or ".join(str(n) for n in (global_batch - over, global_batch - over + job.microbatch) if n)
        raise JobError(
            f"job {job.name}: global batch of {counted(global_batch, 'sequence')} is not a whole number of "
            f"micro-batches: those of {counted(job.microbatch, 'sequence')} leave {over} over; wanted a multiple of "
            f"{job.microbatch}, such as {wanted}"
        )
    if n_microbatches < replicas:
        raise JobError(
            f"job {job.name}: global batch of {counted(global_batch, 'sequence')} has "
            f"{counted(n_microbatches, 'micro-batch')} of {job.microbatch}, too few for "
            f"{counted(replicas, 'replica')}; wanted {replicas * job.microbatch} or more"
        )
    counts = job.microbatches_per_replica
    if job.sharding in PASSED_ON and (n_microbatches % replicas or (counts is not None and len(set(counts)) > 1)):
        raise JobError(
            f"job {job.name}: sharding {job.sharding} with {counted(n_microbatches, 'micro-batch')} over {replicas} "
            "replicas, which pass them together; wanted as many for each"
        )
    if counts is not None and (len(counts), sum(counts)) != (replicas, n_microbatches):
        raise JobError(
            f"job {job.name}: microbatches_per_replica is {shortened(list(counts))}, {sum(counts)} in all; wanted a "
            f"count for each of {counted(replicas, 'replica')}, {n_microbatches} in all"
        )


def checked_counts(job: JobOptions, model: ModelSpec | None, what: str, given: object) -> tuple[int, ...]:
    """The counts of a field with one for each stage or replica; raises JobError where they are none of this job."""
    per, n, least = (
        ("replica", job.n_replicas, 1)
        if what == "microbatches_per_replica"
        else ("stage", job.n_stages, int(what == "blocks_per_stage"))
    )
    if not isinstance(given, Iterable) or isinstance(given, str | bytes | Mapping):
        raise JobError(f"job {job.name}: {what} is {shortened(given)}; wanted a count for each {per}")
    counts = tuple(whole(f"job {job.name}", what, count, least=least) for count in given)
    if n is None:
        raise JobError(f"job {job.name}: {what} is given without n_{per}s; wanted both, or neither")
    if len(counts) != n:
        raise JobError(
            f"job {job.name}: {what} is {shortened(list(counts))}, for {len(counts)} {per}s; wanted a count for "
            f"each of {n}"
        )
    if what == "blocks_per_stage" and model is not None:
        model.cut(n, counts)
    return counts
