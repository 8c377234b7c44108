"""The job fields that a search chose, and those that the job pinned, as values and as text."""

from collections.abc import Collection, Iterator
from typing import Any

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.job.options import LEFT_TO_PLANNERS
from dtfm_lab.domain.units import compact_counts, counted

FIRST = ("tensor_parallel", "n_stages", "n_replicas", "microbatch", "sharding", "checkpointing", "schedule")
"""Fields in the order in which engineers usually say them. Other fields follow."""
IMPLIED = ("warmups", "blocks_per_stage", "microbatches_per_replica")
"""Per-stage or per-replica counts. They are shown only if the stages or replicas differ."""


def values_of(
    job: Job, left_open: Collection[str] | None, blocks: tuple[int, ...] | None, *, chosen: bool
) -> dict[str, Any] | None:
    """Return the values of the fields that a planner may choose.

    With ``chosen``, return the fields that the planner chose from ``left_open``. Without it, return the fields that the
    job pinned. Return None if it is not known which fields were left open.
    """
    if left_open is None:
        return None
    in_effect: dict[str, Any] = {"schedule": job.schedule_name, "checkpointing": job.checkpoints}
    if job.model is not None:
        # Without a model there is nothing to cut, and no batch to share.
        in_effect |= {"blocks_per_stage": blocks, "microbatches_per_replica": job.microbatch_counts}
    fields = (*FIRST, *(what for what in LEFT_TO_PLANNERS if what not in FIRST))
    wanted = [what for what in fields if what in LEFT_TO_PLANNERS and (what in left_open) == chosen]
    if not chosen:  # warm-ups that a schedule does not have are not a choice
        wanted = [what for what in wanted if what in in_effect or getattr(job, what) is not None]
    return {what: in_effect.get(what, getattr(job, what)) for what in wanted}


def words_of(job: Job, values: dict[str, Any] | None) -> str:
    """Return text such as ``TP 8, 4 stages x 4 replicas, micro-batch 2, ZeRO-1, checkpointing none, 1f1b``.

    The text is empty without ``values``.
    """
    return ", ".join(_phrases(job, values)) if values else ""


def _phrases(job: Job, values: dict[str, Any]) -> Iterator[str]:
    fields = dict(values)
    if {"n_stages", "n_replicas"} <= fields.keys():
        fields["n_stages"] = (fields["n_stages"], fields.pop("n_replicas"))
    for what, value in fields.items():
        # The phrase for synchronisation already says so.
        if what == "overlap" and "synchronisation" in fields:
            continue
        # Equal parts need no mention.
        if what in IMPLIED and (value is None or len(set(value)) == 1):
            continue
        yield _phrase(job, what, value)


def _phrase(job: Job, what: str, value: Any) -> str:
    match what, value:
        case "n_stages", (stages, replicas):
            return f"{counted(stages, 'stage')} x {counted(replicas, 'replica')}"
        case "n_stages", int():
            return counted(value, "stage")
        case "n_replicas", int():
            return counted(value, "replica")
        case "tensor_parallel", _:
            return f"TP {value}"
        case "microbatch", _:
            return f"micro-batch {value}"
        case "sharding", _:
            return "no sharding" if value == "none" else value.replace("zero", "ZeRO")
        case "schedule", _:
            return str(value)
        case "synchronisation", _:
            return f"{value} averaging{' overlapped' * job.overlap}"
        case "overlap", _:
            return f"averaging {'' if value else 'not '}overlapped"
        case "warmups", _:
            return f"warm-up forwards {compact_counts(value)}"
        case "blocks_per_stage", _:
            return f"blocks {compact_counts(value)}"
        case "microbatches_per_replica", _:
            return f"micro-batches {compact_counts(value)}"
    return f"{what.replace('_', ' ')} {value}"
