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
    """Planner that searches. All except evolutionary place devices by communication cost alone. Default:
    evolutionary."""
    seed: int
    """Seed of the search. With a number of steps, the same seed gives the same plan. Default: 0."""
    steps: int | None
    """Stop after this many generations. Unlike a time limit, this is reproducible."""
    seconds: float | None
    """Stop after this many seconds; by default 2 s, or no limit if steps are given."""
    objective: str | None
    """What to minimise: iteration time, communication cost or price. By default iteration, or communication if
    the job gives its message sizes."""
    max_price_per_hour: float | None
    """Consider only plans whose devices cost at most this much per hour. More than 0 $/h."""
    max_iteration_s: float | None
    """Consider only plans whose iteration takes at most this long. More than 0 s."""
    queueing: str
    """Which messages wait for each other: those in one direction between two devices (pairs), or all at one NIC
    (nics). One of pairs, nics. Default: pairs."""
    efficiency: float | None
    """Share of its peak FLOP/s that a device reaches. By default it follows from the GPU and the shapes of matrix
    products. More than 0 and at most 1."""
    start: Plan | None
    """A plan to improve on. Its devices are matched with the network's by name."""


class PlanKeywords(SearchKeywords, total=False):
    """Keywords of ``lab.plan``, from `dtfm_lab.lab.arguments.SpreadOptions`."""

    spread: GivenSpread | None
    """Minimise the expected iteration time over random variations of links and device speeds. The spread says how
    much they vary, as in lab.compare."""


class FrontierKeywords(TypedDict, total=False):
    """Keywords of ``lab.frontier``, from `dtfm_lab.lab.arguments.FrontierOptions`."""

    planner: str
    """Planner that searches. All except evolutionary place devices by communication cost alone. Default:
    evolutionary."""
    seed: int
    """Seed of the search. With a number of steps, the same seed gives the same plan. Default: 0."""
    steps: int | None
    """Stop every search after this many generations. Unlike a time limit, this is reproducible."""
    seconds: float | None
    """Time limit of all searches together; by default 20 s per batch, or none if steps are given."""
    searches: int
    """Searches per batch: one for the fastest plan, one for the cheapest, the others under price limits. 2 or
    more. Default: 12."""
    queueing: str
    """Which messages wait for each other: those in one direction between two devices (pairs), or all at one NIC
    (nics). One of pairs, nics. Default: pairs."""
    batches: Sequence[int] | None
    """Global batches, each with its own frontier; the job's batch by default."""


class SimulateKeywords(TypedDict, total=False):
    """Keywords of ``lab.simulate``, from `dtfm_lab.lab.arguments.SimulationOptions`."""

    like: Trace | None
    """Predict the run of this measured trace, from the durations that were profiled before it."""
    queueing: str | None
    """Which messages wait for each other: those in one direction between two devices (pairs), or all at one NIC
    (nics). One of pairs, nics."""
    profile: Profile | None
    """Seconds of each computation, instead of FLOP / (peak x efficiency)."""
    efficiency: float | None
    """Share of its peak FLOP/s that a device reaches. By default the share that the plan was made with. Without
    one, it follows from the GPU and the shapes of matrix products. More than 0 and at most 1."""


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
    """Precision of parameters and activations: fp16, bf16, fp32 or fp64. Default: fp16."""
    synchronisation: str | Iterable[str | None] | None
    """How replicas average their gradients; chosen by the planner if null. Default: sharded."""
    synchronise_every: int | Iterable[int]
    """Iterations from one synchronisation to the next. In between, each replica steps alone. 1 or more
    iterations. Default: 1."""
    compression: str | Iterable[str]
    """Precision to which messages are compressed, if that makes them smaller. One of none, fp16, int8. Default:
    none."""
    gradient_compression: str | Iterable[str | None] | None
    """Compression of synchronisation messages; the same as compression if omitted. One of none, fp16, int8."""
    codec_bytes_per_s: float | Iterable[float]
    """Uncompressed bytes that a device compresses or restores per second. More than 0 bytes/s. Default: 1e+11."""
    recompute: bool | Iterable[bool]
    """Keep only a stage's input, and repeat its forward pass before its backward pass. Default: False."""
    stages_per_device: int | Iterable[int]
    """Stages per device when the schedule interleaves. 1 or more. Default: 2."""
    cut_by: str | Iterable[str]
    """What to divide evenly among the stages if blocks_per_stage is omitted. One of blocks, layers, flop.
    Default: blocks."""
    transport: str | Iterable[str]
    """Whether a device computes while it sends (overlapped) or waits. If it waits, the two directions between two
    devices run at once (batched) or alternately (blocking). One of overlapped, batched, blocking. Default:
    overlapped."""
    sharding: str | Iterable[str | None] | None
    """What replicas split among them: optimizer states (zero-1), also gradients (zero-2), or also parameters
    (zero-3, as in FSDP); chosen by the planner if null. One of none, zero-1, zero-2, zero-3. Default: none."""
    prefetch: bool | Iterable[bool]
    """Exchange sharded parameters and gradients of neighbouring layers while a layer computes. Default: True."""
    overlap: bool | Iterable[bool | None] | None
    """Synchronise gradients in buckets while the last backward pass still runs; chosen by the planner if null.
    Default: False."""
    bucket_bytes: float | Iterable[float]
    """Size of a gradient bucket when synchronisation overlaps the backward pass. More than 0 bytes. Default:
    2.62144e+07."""
    fragments: int | Iterable[int]
    """Number of parts into which the model is split. Replicas average one part after another, between iterations.
    1 or more. Default: 1."""
    fragment_delay: int | Iterable[int]
    """Iterations that a fragment's average may take to arrive while training continues. 0 or more. Default: 0."""
    checkpointing: str | Iterable[str | None] | None
    """Which activations the backward pass recomputes; chosen by the planner if omitted. One of none, selective,
    block, stage."""
    early_stop: bool | Iterable[bool]
    """Stop recomputing a block as soon as its backward pass has all that it needs. Default: False."""
    attention: str | Iterable[str]
    """Whether attention keeps its score matrix for the backward pass (unfused) or not (fused). One of fused,
    unfused. Default: fused."""
    operators: str | Iterable[str]
    """What operators keep for the backward pass: what papers count (usual), what torch keeps with the loss in
    fp32 (eager), or less, with fused gate and loss (fused). One of usual, eager, fused. Default: usual."""
    dropout: bool | Iterable[bool]
    """Whether a gpt model applies dropout and keeps the masks. Other families never do. Default: True."""
    sequence_parallel: bool | Iterable[bool]
    """Split norms, residuals and dropout along the sequence, among the GPUs of a tensor-parallel group. Default:
    False."""
    reserve_bytes: float | Iterable[float]
    """Memory that the framework takes on each GPU: the CUDA context, NCCL buffers and workspaces. 0 or more
    bytes. Default: 0."""
    fragmentation: float | Iterable[float]
    """Share of the remaining memory that plans leave free for gaps between allocations, below 1. 0 or more.
    Default: 0."""
    gradient_dtype: str | Iterable[str | None] | None
    """Precision in which gradients are kept and sent; the job's dtype if omitted."""
    gradient_buffers: str | Iterable[str]
    """Second copy of the gradients that the framework keeps: none, the buckets in which it sends them, or whole
    gradients in the job's dtype. The first copy is accumulated in gradient_dtype. One of none, buckets, whole.
    Default: none."""
    optimizer: str | Iterable[str]
    """Adam with moments of 4 bytes (adam) or of 1 byte (adam-8bit). One of adam, adam-8bit. Default: adam."""
    frozen_weights: str | Iterable[str]
    """Precision of the frozen weights when adapters are trained: the job's dtype (same), int8 or nf4. Default:
    same."""
    memory_traffic: bool | Iterable[bool]
    """Also count the seconds of norms, activation functions and the optimizer's step, from the memory they move.
    Default: False."""
    block_launch_s: float | Iterable[float]
    """Minimum time of a block's forward and backward pass together: the time in which the host launches their
    kernels. 0 or more seconds. Default: 0."""
    flush_every: int | Iterable[int | None] | None
    """Micro-batches after which gpipe flushes its pipeline; all of them if omitted. 1 or more."""
    microbatch: int | Iterable[int | None] | None
    """Sequences per micro-batch; chosen by the planner if omitted. 1 or more sequences."""
    global_batch: int | Iterable[int]
    """Sequences per iteration, over all replicas. 1 or more sequences."""
    bandwidth: float | Iterable[float]
    """Factor on the bandwidth of all links. More than 0."""
    latency: float | Iterable[float]
    """Factor on the latency of all links. 0 or more."""


class RunKeywords(TypedDict, total=False):
    """Keywords of ``lab.run`` and ``lab.start``, from `dtfm_lab.runtime.protocol.run_options.RunOptions`."""

    iterations: int | None
    """Iterations to train: 20 by default, 5 on the paced clock, which runs in real time. 1 or more."""
    clock: str
    """How seconds are counted: virtual (each worker adds its own CPU time to a logical clock and never sleeps),
    paced (real time, in which each computation is padded to its device's duration) or real (wall time over real
    links). One of virtual, paced, real. Default: virtual."""
    seed: int
    """Seed of parameters and batches. 0 or more and at most 1.09951e+12. Default: 0."""
    learning_rate: float
    """Learning rate of AdamW. More than 0. Default: 0.002."""
    text: AnyPath | None
    """Text file to train on, without its last tenth, which is held out. By default a text that comes with the
    lab."""
    time_scale: float | None
    """Paced clock: wall seconds per second of the run; chosen from the profile if omitted. More than 0 wall
    seconds a second."""
    queueing: str
    """Which messages wait for each other: pairs (each directed pair of devices has its own link) or, on the
    virtual clock only, nics (each device has one NIC). One of pairs, nics. Default: pairs."""
    emulated: AnyPath | Topology | None
    """Emulate the links of another network instead of the plan's: a name, file or Topology with the same number
    of devices. Predictions still use the plan's network."""
    stand_in: AnyPath | ModelSpec | None
    """Train this model in fp32 instead of the job's: a name, config.json or ModelSpec. Messages keep the job's
    sizes, and so do computations on the paced clock. By default a small model, if the job's own cannot be trained
    here."""
    runs_on: str
    """Where workers compute: cpu or cuda. One of cpu, cuda. Default: cpu."""
    carrier: str | None
    """How the contents of messages travel: sockets, or groups (torch.distributed process groups of two workers:
    gloo, or NCCL for GPUs on the real clock). By default groups for GPUs on the real clock, otherwise sockets.
    One of sockets, groups."""
    checkpoint_folder: AnyPath | None
    """Folder to write checkpoints to."""
    checkpoint_every: int
    """Iterations between checkpoints; 0 writes one only after the last iteration. Default: 0."""
    resume_from: AnyPath | None
    """Continue from this checkpoint folder, or from the newest checkpoint in it. The model must match; the cut
    and the placement may differ. A different text, seed, batch or learning rate gives a warning."""
    evaluate_every: int
    """Iterations between evaluations on held-out text; 0 evaluates only after the last iteration. Default: 0."""
    sample_bytes: int
    """Bytes of text that the trained model writes at the end. Default: 0."""
    workers: int | Sequence[int] | None
    """Run only part of the plan: at most N workers, or (stages, pipelines). By default, a plan of up to 32
    workers runs whole, and a larger one with 8 workers. As many whole pipelines run as fit. If none fits, the
    first stages of two pipelines run. Nothing else about the plan changes."""


class JobKeywords(TypedDict, total=False):
    """Keywords of ``lab.load_job`` and ``lab.with_job``, from `dtfm_lab.domain.job.JobChanges`."""

    name: str
    """Name of the job. Default: job."""
    dtype: str
    """Precision of parameters and activations: fp16, bf16, fp32 or fp64. Default: fp16."""
    schedule: str | None
    """Name of the pipeline schedule; chosen by the planner if omitted."""
    warmups: tuple[int, ...] | None
    """Warm-up forward passes of each stage under adaptive-1f1b; chosen for the network if omitted."""
    synchronisation: str | None
    """How replicas average their gradients; chosen by the planner if null. Default: sharded."""
    synchronise_every: int
    """Iterations from one synchronisation to the next. In between, each replica steps alone. 1 or more
    iterations. Default: 1."""
    compression: str
    """Precision to which messages are compressed, if that makes them smaller. One of none, fp16, int8. Default:
    none."""
    gradient_compression: str | None
    """Compression of synchronisation messages; the same as compression if omitted. One of none, fp16, int8."""
    codec_bytes_per_s: float
    """Uncompressed bytes that a device compresses or restores per second. More than 0 bytes/s. Default: 1e+11."""
    recompute: bool
    """Keep only a stage's input, and repeat its forward pass before its backward pass. Default: False."""
    stages_per_device: int
    """Stages per device when the schedule interleaves. 1 or more. Default: 2."""
    blocks_per_stage: tuple[int, ...] | None
    """Blocks of each stage, first stage first; an even cut if omitted."""
    cut_by: str
    """What to divide evenly among the stages if blocks_per_stage is omitted. One of blocks, layers, flop.
    Default: blocks."""
    microbatches_per_replica: tuple[int, ...] | None
    """Micro-batches of each replica; split as evenly as possible if omitted."""
    transport: str
    """Whether a device computes while it sends (overlapped) or waits. If it waits, the two directions between two
    devices run at once (batched) or alternately (blocking). One of overlapped, batched, blocking. Default:
    overlapped."""
    tensor_parallel: int | None
    """GPUs of one host that split each layer; chosen by the planner if null. 1 or more GPUs. Default: 1."""
    context_parallel: int
    """GPUs of one host that split each sequence into equal parts. 1 or more GPUs. Default: 1."""
    expert_parallel: int
    """GPUs of one host that process different sequences and split the experts of each block. 1 or more GPUs.
    Default: 1."""
    sharding: str | None
    """What replicas split among them: optimizer states (zero-1), also gradients (zero-2), or also parameters
    (zero-3, as in FSDP); chosen by the planner if null. One of none, zero-1, zero-2, zero-3. Default: none."""
    prefetch: bool
    """Exchange sharded parameters and gradients of neighbouring layers while a layer computes. Default: True."""
    overlap: bool | None
    """Synchronise gradients in buckets while the last backward pass still runs; chosen by the planner if null.
    Default: False."""
    bucket_bytes: float
    """Size of a gradient bucket when synchronisation overlaps the backward pass. More than 0 bytes. Default:
    2.62144e+07."""
    fragments: int
    """Number of parts into which the model is split. Replicas average one part after another, between iterations.
    1 or more. Default: 1."""
    fragment_delay: int
    """Iterations that a fragment's average may take to arrive while training continues. 0 or more. Default: 0."""
    checkpointing: str | None
    """Which activations the backward pass recomputes; chosen by the planner if omitted. One of none, selective,
    block, stage."""
    early_stop: bool
    """Stop recomputing a block as soon as its backward pass has all that it needs. Default: False."""
    attention: str
    """Whether attention keeps its score matrix for the backward pass (unfused) or not (fused). One of fused,
    unfused. Default: fused."""
    operators: str
    """What operators keep for the backward pass: what papers count (usual), what torch keeps with the loss in
    fp32 (eager), or less, with fused gate and loss (fused). One of usual, eager, fused. Default: usual."""
    dropout: bool
    """Whether a gpt model applies dropout and keeps the masks. Other families never do. Default: True."""
    sequence_parallel: bool
    """Split norms, residuals and dropout along the sequence, among the GPUs of a tensor-parallel group. Default:
    False."""
    reserve_bytes: float
    """Memory that the framework takes on each GPU: the CUDA context, NCCL buffers and workspaces. 0 or more
    bytes. Default: 0."""
    fragmentation: float
    """Share of the remaining memory that plans leave free for gaps between allocations, below 1. 0 or more.
    Default: 0."""
    gradient_dtype: str | None
    """Precision in which gradients are kept and sent; the job's dtype if omitted."""
    gradient_buffers: str
    """Second copy of the gradients that the framework keeps: none, the buckets in which it sends them, or whole
    gradients in the job's dtype. The first copy is accumulated in gradient_dtype. One of none, buckets, whole.
    Default: none."""
    optimizer: str
    """Adam with moments of 4 bytes (adam) or of 1 byte (adam-8bit). One of adam, adam-8bit. Default: adam."""
    frozen_weights: str
    """Precision of the frozen weights when adapters are trained: the job's dtype (same), int8 or nf4. Default:
    same."""
    memory_traffic: bool
    """Also count the seconds of norms, activation functions and the optimizer's step, from the memory they move.
    Default: False."""
    block_launch_s: float
    """Minimum time of a block's forward and backward pass together: the time in which the host launches their
    kernels. 0 or more seconds. Default: 0."""
    flush_every: int | None
    """Micro-batches after which gpipe flushes its pipeline; all of them if omitted. 1 or more."""
    n_stages: int | None
    """Number of pipeline stages (D_PP in DT-FM's paper); chosen by the planner if omitted. 1 or more."""
    n_replicas: int | None
    """Number of data-parallel replicas (D_DP in DT-FM's paper); chosen by the planner if omitted. 1 or more."""
    microbatch: int | None
    """Sequences per micro-batch; chosen by the planner if omitted. 1 or more sequences."""
    model: ModelSpec | str | os.PathLike[str] | None
    """A preset by name, or the path of a Hugging Face config.json or of its folder."""
    seq_len: int | None
    """Tokens per sequence; the model's own if omitted."""
    adapters: int | None
    """Rank of the LoRA adapters that are trained instead of the model's weights. 1 or more."""
    global_batch: int | None
    """Sequences per iteration, over all replicas. 1 or more sequences."""
    gradient_bytes: float | None
    """Size of one stage's gradient, as the communication cost counts it. 0 or more bytes."""
    activation_bytes: float | None
    """Size of the activations that a replica sends over one stage boundary in an iteration, as the communication
    cost counts it. 0 or more bytes."""
