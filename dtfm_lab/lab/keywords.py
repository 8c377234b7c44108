"""Keywords of the lab's functions, as editors and type checkers read them.

Written by tools/keywords.py from the options that each class names: change those, and run it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Sequence

    from dtfm_lab.domain.job import ModelSpec
    from dtfm_lab.domain.network import Topology
    from dtfm_lab.domain.plan import Plan
    from dtfm_lab.domain.trace import Trace
    from dtfm_lab.planning.draws import GivenSpread
    from dtfm_lab.runtime.protocol.run_options import AnyPath
    from dtfm_lab.simulation.simulate import Profile


class SearchKeywords(TypedDict, total=False):
    """Keywords of ``lab.search``, from `dtfm_lab.lab.arguments.SearchOptions`."""

    planner: str
    """Planner of the search; all but evolutionary look at messages alone. Default: evolutionary."""
    seed: int
    """Seed of the search: with --steps the same seed gives the same plan. Default: 0."""
    steps: int | None
    """Stop after this many generations, which is reproducible."""
    seconds: float | None
    """Stop after this long; 2 s without --steps."""
    objective: str | None
    """What to minimise; iteration by default, communication for a job of given message sizes."""
    max_price_per_hour: float | None
    """Only plans whose devices cost at most this much an hour. More than 0 $/h."""
    max_iteration_s: float | None
    """Only plans whose iteration takes at most this long. More than 0 s."""
    queueing: str
    """Which messages wait for each other, those of a pair or of a NIC. One of pairs, nics. Default: pairs."""
    efficiency: float | None
    """Share of its peak that a device reaches; by GPU and shapes of products if none. More than 0 and at most 1."""
    start: Plan | None
    """A plan to improve on, its devices found by name."""


class PlanKeywords(SearchKeywords, total=False):
    """Keywords of ``lab.plan``, from `dtfm_lab.lab.arguments.SpreadOptions`."""

    spread: GivenSpread | None
    """Minimise expected seconds when links and speeds vary by this spread, given as to lab.compare."""


class FrontierKeywords(TypedDict, total=False):
    """Keywords of ``lab.frontier``, from `dtfm_lab.lab.arguments.FrontierOptions`."""

    planner: str
    """Planner of the search; all but evolutionary look at messages alone. Default: evolutionary."""
    seed: int
    """Seed of the search: with --steps the same seed gives the same plan. Default: 0."""
    steps: int | None
    """Steps of every search: reproducible."""
    seconds: float | None
    """Time limit of all searches together; 20 s for each batch without --steps."""
    searches: int
    """Searches of each batch: the fastest, the cheapest, and under limits of price. 2 or more. Default: 12."""
    queueing: str
    """Which messages wait for each other, those of a pair or of a NIC. One of pairs, nics. Default: pairs."""
    batches: Sequence[int] | None
    """Global batches that have a frontier each; the job's own by default."""


class SimulateKeywords(TypedDict, total=False):
    """Keywords of ``lab.simulate``, from `dtfm_lab.lab.arguments.SimulationOptions`."""

    like: Trace | None
    """A measured trace: predict what it ran, from its profile."""
    queueing: str | None
    """Which messages wait for each other, those of a pair or of a NIC. One of pairs, nics."""
    profile: Profile | None
    """Seconds of computations, instead of FLOP over peak x efficiency."""
    efficiency: float | None
    """Share of its peak that a device reaches; by GPU and shapes of products if none. More than 0 and at most 1."""


class SweepKeywords(TypedDict, total=False):
    """Settings of ``lab.sweep``, each one value or several, from `dtfm_lab.planning.sweeps.SETTINGS`."""

    network: Any
    """Networks to plan on."""
    shape: Any
    """Stages x replicas, such as (8, 4) or 8x4."""
    n_stages: int | Iterable[int]
    """Pipeline stages. 1 or more."""
    n_replicas: int | Iterable[int]
    """Data-parallel replicas. 1 or more."""
    planner: str | Iterable[str]
    """Planner of the search."""
    objective: str | Iterable[str]
    """What the search minimises."""
    max_price_per_hour: float | Iterable[float]
    """Maximum dollars per hour that a plan may cost. More than 0."""
    max_iteration_s: float | Iterable[float]
    """Maximum seconds that an iteration may take. More than 0."""
    steps: int | Iterable[int]
    """Generations of each search. 1 or more."""
    seed: int | Iterable[int]
    """Seed of the search. 0 or more."""
    schedule: Any
    """Pipeline schedule, by name or a Schedule."""
    queueing: str | Iterable[str | None] | None
    """Which messages wait for each other. One of pairs, nics."""
    efficiency: float | Iterable[float]
    """Share of its peak that a device reaches. More than 0 and at most 1."""
    dtype: str | Iterable[str]
    """Precision of numbers: fp16, bf16, fp32 or fp64. Default: fp16."""
    synchronisation: str | Iterable[str | None] | None
    """How replicas average their gradients; chosen by the planner where null. Default: sharded."""
    synchronise_every: int | Iterable[int]
    """Iterations; between two, replicas step alone. 1 or more iterations. Default: 1."""
    compression: str | Iterable[str]
    """What messages are rounded to on their way, where that is smaller. One of none, fp16, int8. Default: none."""
    gradient_compression: str | Iterable[str | None] | None
    """Compression of synchronisation alone, if not that of all. One of none, fp16, int8."""
    codec_bytes_per_s: float | Iterable[float]
    """Bytes that a device rounds, or restores, in a second. More than 0 bytes/s. Default: 1e+11."""
    recompute: bool | Iterable[bool]
    """Keep a stage's input only, and repeat its forward before its backward. Default: False."""
    stages_per_device: int | Iterable[int]
    """Stages of a device where the schedule interleaves. 1 or more. Default: 2."""
    transport: str | Iterable[str]
    """Whether a device computes on while it sends (overlapped), or waits, with the two directions between two
    devices at once (batched) or in turns (blocking). One of overlapped, batched, blocking. Default: overlapped."""
    sharding: str | Iterable[str | None] | None
    """What replicas split among them: optimiser states (zero-1), gradients too (zero-2), parameters too (zero-3,
    as FSDP); chosen by the planner where null. One of none, zero-1, zero-2, zero-3. Default: none."""
    prefetch: bool | Iterable[bool]
    """Exchange sharded parameters and gradients of neighbouring layers while a layer computes. Default: True."""
    overlap: bool | Iterable[bool | None] | None
    """Synchronise gradients in buckets while the last backward still runs; chosen by the planner where null.
    Default: False."""
    bucket_bytes: float | Iterable[float]
    """Gradient of a bucket, where synchronisation overlaps. More than 0 bytes. Default: 2.62144e+07."""
    fragments: int | Iterable[int]
    """Parts of the model that replicas average in turn between iterations. 1 or more. Default: 1."""
    fragment_delay: int | Iterable[int]
    """Iterations that a fragment's average may take to arrive while training goes on. 0 or more. Default: 0."""
    checkpointing: str | Iterable[str | None] | None
    """Which activations are computed again in the backward; chosen by the planner where not given. One of none,
    selective, block, stage."""
    early_stop: bool | Iterable[bool]
    """A block that is computed again stops where its backward needs nothing more. Default: False."""
    attention: str | Iterable[str]
    """Whether attention keeps its matrix for the backward (unfused). One of fused, unfused. Default: fused."""
    operators: str | Iterable[str]
    """What operators keep for the backward: as papers count (usual), torch's with the loss in fp32 (eager), or
    with gate and loss each fused (fused). One of usual, eager, fused. Default: usual."""
    dropout: bool | Iterable[bool]
    """Whether a gpt drops out and keeps the masks; other families never do. Default: True."""
    sequence_parallel: bool | Iterable[bool]
    """GPUs of a tensor-parallel group split norms, residuals and dropout too, along the sequence. Default: False."""
    reserve_bytes: float | Iterable[float]
    """Memory of each GPU that the framework takes: CUDA's context, buffers of NCCL, workspaces. 0 or more bytes.
    Default: 0."""
    fragmentation: float | Iterable[float]
    """Share of the rest that is lost between allocations, below 1. 0 or more. Default: 0."""
    gradient_dtype: str | Iterable[str | None] | None
    """Precision of gradients where not that of numbers."""
    optimizer: str | Iterable[str]
    """Adam with moments of 4 bytes (adam) or of one (adam-8bit). One of adam, adam-8bit. Default: adam."""
    frozen_weights: str | Iterable[str]
    """What the weights beside adapters are kept in: as the job's numbers are (same), int8 or nf4. Default: same."""
    memory_traffic: bool | Iterable[bool]
    """Count the time of norms, activations and optimiser's step by the memory they move. Default: False."""
    block_launch_s: float | Iterable[float]
    """Least time of a block's forward and backward together, in which a host launches its kernels. 0 or more
    seconds. Default: 0."""
    flush_every: int | Iterable[int | None] | None
    """Micro-batches after which gpipe empties its pipeline; all where not given. 1 or more."""
    microbatch: int | Iterable[int | None] | None
    """Sequences per pipeline step; chosen by the planner where not given. 1 or more sequences."""
    global_batch: int | Iterable[int]
    """Sequences per iteration, over all replicas. 1 or more sequences."""
    bandwidth: float | Iterable[float]
    """Factor on the bandwidth of all links. More than 0."""
    latency: float | Iterable[float]
    """Factor on the latency of all links. 0 or more."""


class RunKeywords(TypedDict, total=False):
    """Keywords of ``lab.run`` and ``lab.start``, from `dtfm_lab.runtime.protocol.run_options.RunOptions`."""

    iterations: int | None
    """Iterations to train: 20 where not given, 5 on the paced clock, which waits. 1 or more."""
    clock: str
    """How seconds are counted: virtual (each worker's logical clock adds its own CPU time, without sleeping),
    paced (real time, computations padded to their device's) or real (wall time, real links). One of virtual,
    paced, real. Default: virtual."""
    seed: int
    """Seed of parameters and batches. 0 or more and at most 1.09951e+12. Default: 0."""
    learning_rate: float
    """Learning rate of AdamW. More than 0. Default: 0.002."""
    text: AnyPath | None
    """File to train on, its last tenth held out; the lab's own text where not given."""
    time_scale: float | None
    """Paced clock: wall seconds per second of the run; chosen from the profile where not given. More than 0 wall
    seconds a second."""
    queueing: str
    """Which messages wait for each other: pairs (each directed pair of devices is a link) or, on the virtual
    clock, nics (each device has one NIC). One of pairs, nics. Default: pairs."""
    emulated: AnyPath | Topology | None
    """Another network of as many devices, by name, file or Topology, whose links are emulated in place of the
    plan's; predictions do not consider it."""
    stand_in: AnyPath | ModelSpec | None
    """A model by name, config.json or ModelSpec that is trained in fp32 in place of the job's; messages, and on
    the paced clock computations, keep the job's sizes. Where not given: a small one, if the job's own cannot be
    trained here."""
    runs_on: str
    """What workers compute on: cpu or cuda. One of cpu, cuda. Default: cpu."""
    carrier: str | None
    """What contents of messages cross: sockets, or groups (torch.distributed process groups of two: gloo, or NCCL
    on GPUs on the real clock). Where not given: groups on GPUs on the real clock, sockets else. One of sockets,
    groups."""
    checkpoint_folder: AnyPath | None
    """Folder for checkpoints."""
    checkpoint_every: int
    """Iterations between checkpoints; 0: only after the last. Default: 0."""
    resume_from: AnyPath | None
    """Folder of a checkpoint, or of several, the newest of which the run continues. The model must be the
    checkpoint's; the cut and the placement are free; another text, seed, batch or rate gives a warning."""
    evaluate_every: int
    """Iterations between evaluations on held-out text; 0: only after the last. Default: 0."""
    sample_bytes: int
    """Bytes of text that the trained model writes at the end. Default: 0."""
    workers: int | Sequence[int] | None
    """How much of the plan runs: at most so many workers, or (stages, pipelines). Where not given: all of a plan
    of up to 32, and 8 of a larger one. All stages and as many pipelines as fit run, or else the first stages of
    two; devices, links, layers and micro-batches are the plan's."""


class JobKeywords(TypedDict, total=False):
    """Keywords of ``lab.load_job`` and ``lab.with_job``, from `dtfm_lab.domain.job.JobChanges`."""

    name: str
    """Name of the job. Default: job."""
    dtype: str
    """Precision of numbers: fp16, bf16, fp32 or fp64. Default: fp16."""
    schedule: str | None
    """Pipeline schedule, looked up when used; chosen by the planner where not given."""
    warmups: tuple[int, ...] | None
    """Forwards that each stage runs ahead with adaptive-1f1b; chosen for the network where not given."""
    synchronisation: str | None
    """How replicas average their gradients; chosen by the planner where null. Default: sharded."""
    synchronise_every: int
    """Iterations; between two, replicas step alone. 1 or more iterations. Default: 1."""
    compression: str
    """What messages are rounded to on their way, where that is smaller. One of none, fp16, int8. Default: none."""
    gradient_compression: str | None
    """Compression of synchronisation alone, if not that of all. One of none, fp16, int8."""
    codec_bytes_per_s: float
    """Bytes that a device rounds, or restores, in a second. More than 0 bytes/s. Default: 1e+11."""
    recompute: bool
    """Keep a stage's input only, and repeat its forward before its backward. Default: False."""
    stages_per_device: int
    """Stages of a device where the schedule interleaves. 1 or more. Default: 2."""
    blocks_per_stage: tuple[int, ...] | None
    """Blocks of each stage, first stage first; even where not given."""
    microbatches_per_replica: tuple[int, ...] | None
    """Micro-batches of each pipeline; as even as they divide where not given."""
    transport: str
    """Whether a device computes on while it sends (overlapped), or waits, with the two directions between two
    devices at once (batched) or in turns (blocking). One of overlapped, batched, blocking. Default: overlapped."""
    tensor_parallel: int | None
    """GPUs of one host that share each layer; chosen by the planner where null. 1 or more GPUs. Default: 1."""
    context_parallel: int
    """GPUs of one host that share each sequence, a part each. 1 or more GPUs. Default: 1."""
    expert_parallel: int
    """GPUs of one host that each take sequences of their own, and split a block's experts among them. 1 or more
    GPUs. Default: 1."""
    sharding: str | None
    """What replicas split among them: optimiser states (zero-1), gradients too (zero-2), parameters too (zero-3,
    as FSDP); chosen by the planner where null. One of none, zero-1, zero-2, zero-3. Default: none."""
    prefetch: bool
    """Exchange sharded parameters and gradients of neighbouring layers while a layer computes. Default: True."""
    overlap: bool | None
    """Synchronise gradients in buckets while the last backward still runs; chosen by the planner where null.
    Default: False."""
    bucket_bytes: float
    """Gradient of a bucket, where synchronisation overlaps. More than 0 bytes. Default: 2.62144e+07."""
    fragments: int
    """Parts of the model that replicas average in turn between iterations. 1 or more. Default: 1."""
    fragment_delay: int
    """Iterations that a fragment's average may take to arrive while training goes on. 0 or more. Default: 0."""
    checkpointing: str | None
    """Which activations are computed again in the backward; chosen by the planner where not given. One of none,
    selective, block, stage."""
    early_stop: bool
    """A block that is computed again stops where its backward needs nothing more. Default: False."""
    attention: str
    """Whether attention keeps its matrix for the backward (unfused). One of fused, unfused. Default: fused."""
    operators: str
    """What operators keep for the backward: as papers count (usual), torch's with the loss in fp32 (eager), or
    with gate and loss each fused (fused). One of usual, eager, fused. Default: usual."""
    dropout: bool
    """Whether a gpt drops out and keeps the masks; other families never do. Default: True."""
    sequence_parallel: bool
    """GPUs of a tensor-parallel group split norms, residuals and dropout too, along the sequence. Default: False."""
    reserve_bytes: float
    """Memory of each GPU that the framework takes: CUDA's context, buffers of NCCL, workspaces. 0 or more bytes.
    Default: 0."""
    fragmentation: float
    """Share of the rest that is lost between allocations, below 1. 0 or more. Default: 0."""
    gradient_dtype: str | None
    """Precision of gradients where not that of numbers."""
    optimizer: str
    """Adam with moments of 4 bytes (adam) or of one (adam-8bit). One of adam, adam-8bit. Default: adam."""
    frozen_weights: str
    """What the weights beside adapters are kept in: as the job's numbers are (same), int8 or nf4. Default: same."""
    memory_traffic: bool
    """Count the time of norms, activations and optimiser's step by the memory they move. Default: False."""
    block_launch_s: float
    """Least time of a block's forward and backward together, in which a host launches its kernels. 0 or more
    seconds. Default: 0."""
    flush_every: int | None
    """Micro-batches after which gpipe empties its pipeline; all where not given. 1 or more."""
    n_stages: int | None
    """Pipeline stages: the pipeline-parallel degree, the paper's D_PP; chosen by the planner where not given. 1
    or more."""
    n_replicas: int | None
    """Data-parallel replicas: the paper's D_DP; chosen by the planner where not given. 1 or more."""
    microbatch: int | None
    """Sequences per pipeline step; chosen by the planner where not given. 1 or more sequences."""
    model: ModelSpec | str | os.PathLike[str] | None
    """A preset's name, or a Hugging Face config.json or its folder."""
    seq_len: int | None
    """Tokens per sequence, where not the model's."""
    adapters: int | None
    """Rank of the adapters that are trained in place of the model's weights (LoRA). 1 or more."""
    global_batch: int | None
    """Sequences per iteration, over all replicas. 1 or more sequences."""
    gradient_bytes: float | None
    """One stage's gradient, as the communication cost counts it. 0 or more bytes."""
    activation_bytes: float | None
    """A replica's whole mini-batch over one boundary, as the communication cost counts it. 0 or more bytes."""
