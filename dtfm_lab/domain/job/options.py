"""The fields of a job that have defaults, each described once: checks, files, command line and signatures follow."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from dtfm_lab.domain.job.model import BYTES_PER_ELEMENT, ModelSpec
from dtfm_lab.domain.job.system import SystemOptions
from dtfm_lab.domain.options import Option
from dtfm_lab.domain.schedule import synchronisations

if TYPE_CHECKING:
    Count = int | Any  # None where a planner chooses; code that has checked ``shaped`` uses it as a number
else:
    Count = int | None

COMPRESSIONS = ("none", "fp16", "int8")
LEFT_TO_PLANNERS = (
    *("n_stages", "n_replicas", "microbatch", "schedule", "warmups", "blocks_per_stage", "microbatches_per_replica"),
    *("checkpointing", "tensor_parallel", "sharding"),
)
"""Fields that a planner chooses where they are None."""
BATCH = Option(help="Sequences per iteration, over all replicas.", unit="sequences", least=1, flag="batch")
GRADIENT = Option(
    help="One stage's gradient, as the communication cost counts it.",
    unit="bytes",
    least=0,
    name="gradient_bytes",
    varies=False,
)
HOP = Option(
    help="A replica's whole mini-batch over one boundary, as the communication cost counts it.",
    unit="bytes",
    least=0,
    name="activation_bytes",
    varies=False,
)


@dataclass(frozen=True, kw_only=True)
class PipelineOptions:
    """How a job is cut, scheduled, averaged and compressed: every field has a default."""

    name: Annotated[str, Option(help="Name of the job.", varies=False)] = "job"
    dtype: Annotated[str, Option(help="Precision of numbers: fp16, bf16, fp32 or fp64.", choices=BYTES_PER_ELEMENT)] = (
        "fp16"
    )
    schedule: Annotated[
        str | None,
        Option(help="Pipeline schedule, looked up when used; chosen by the planner where not given.", varies=False),
    ] = None
    """Where neither the job nor a planner names one, ``schedule_name`` is that of the paper."""
    warmups: Annotated[
        tuple[int, ...] | None,
        Option(
            help="Forwards that each stage runs ahead with adaptive-1f1b; chosen for the network where not given.",
            varies=False,
        ),
    ] = None
    synchronisation: Annotated[str, Option(help="How replicas average their gradients.", choices=synchronisations)] = (
        "sharded"
    )
    synchronise_every: Annotated[
        int, Option(help="Iterations; between two, replicas step alone.", unit="iterations", least=1)
    ] = 1
    """With 1, replicas average their gradients before each step. With more, each takes its steps alone (local
    updates). With H, in every H-th iteration, after the step, they average the changes of their parameters since
    these were last equal, and add the average to the parameters of that time, which makes them equal again, to the bit.
    Compression rounds the changes. The optimiser's state stays with each replica; the two ends of a tied embedding
    exchange its gradient in every iteration."""
    compression: Annotated[
        str, Option(help="What messages are rounded to on their way, where that is smaller.", choices=COMPRESSIONS)
    ] = "none"
    gradient_compression: Annotated[
        str | None, Option(help="Compression of synchronisation alone, if not that of all.", choices=COMPRESSIONS)
    ] = None
    codec_bytes_per_s: Annotated[
        float, Option(help="Bytes that a device rounds, or restores, in a second.", unit="bytes/s", above=0)
    ] = 100e9
    """Counted uncompressed. The default is a guess: a fused kernel reads and writes memory once, and shares its
    bandwidth with everything else."""
    recompute: Annotated[
        bool, Option(help="Keep a stage's input only, and repeat its forward before its backward.")
    ] = False
    stages_per_device: Annotated[int, Option(help="Stages of a device where the schedule interleaves.", least=1)] = 2
    blocks_per_stage: Annotated[
        tuple[int, ...] | None,
        Option(help="Blocks of each stage, first stage first; even where not given.", varies=False),
    ] = None
    """Schedules that interleave cut the model into more stages, always evenly, and are refused where this is given and
    is not the even cut."""
    microbatches_per_replica: Annotated[
        tuple[int, ...] | None,
        Option(help="Micro-batches of each pipeline; as even as they divide where not given.", varies=False),
    ] = None


@dataclass(frozen=True, kw_only=True)
class JobOptions(SystemOptions, PipelineOptions):
    """What a job, a job's file and the keywords of ``load_job`` have in common.

    A field that is added to either base is one of the file, of the command line and of the signatures, too.
    """

    n_stages: Annotated[
        Count,
        Option(
            help="Pipeline stages: the pipeline-parallel degree, the paper's D_PP; chosen by the planner where not "
            "given.",
            least=1,
            flag="stages",
            varies=False,
        ),
    ] = None
    n_replicas: Annotated[
        Count,
        Option(
            help="Data-parallel replicas: the paper's D_DP; chosen by the planner where not given.",
            least=1,
            flag="replicas",
            varies=False,
        ),
    ] = None
    microbatch: Annotated[
        Count,
        Option(help="Sequences per pipeline step; chosen by the planner where not given.", unit="sequences", least=1),
    ] = None


@dataclass(frozen=True, kw_only=True)
class JobChanges(JobOptions):
    """The keywords of ``load_job`` and ``with_job``, and the keys of a job's file: each may be left out.

    The class checks nothing: values that are given become fields of a Job, which checks them.
    """

    model: Annotated[
        ModelSpec | str | os.PathLike[str] | None,
        Option(help="A preset's name, or a Hugging Face config.json or its folder."),
    ] = None
    seq_len: Annotated[int | None, Option(help="Tokens per sequence, where not the model's.", unit="tokens")] = None
    global_batch: Annotated[int | None, BATCH] = None
    gradient_bytes: Annotated[float | None, GRADIENT] = None
    activation_bytes: Annotated[float | None, HOP] = None
