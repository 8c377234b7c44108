"""What a job leaves open to a search for seconds: micro-batches, checkpointings, tensor parallelism and shardings."""

import math

from dtfm_lab.domain.errors import LabError, PlanError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.units import counted

CHECKPOINTINGS_TRIED = ({"checkpointing": "none"}, {"checkpointing": "block"}, {"recompute": True})
"""What is tried where the job names no checkpointing."""
MOST_PASSES_CHOSEN = 2 * 10**5
"""Most passes of an iteration, each counted forward and backward, in a plan whose micro-batch is left open: larger
micro-batches lose next to nothing by then, and a simulation takes seconds."""
SHARDINGS = ("none", "zero-1", "zero-3", "zero-2")
"""In the order in which they are begun: where time is short, the last may not be."""


def checkpointings_of(job: Job) -> list[Job]:
    """The job with each checkpointing that it leaves open, the fastest first where memory allows it."""
    if job.checkpointing is not None or job.recompute:
        return [job]
    return [job.with_fields(**how, warmups=job.warmups) for how in CHECKPOINTINGS_TRIED]


def divisors(n: int) -> list[int]:
    """The numbers that divide ``n``, in ascending order: the sizes that a batch can be cut into."""
    small = [d for d in range(1, math.isqrt(n) + 1) if n % d == 0]
    return sorted({*small, *(n // d for d in small)})


def open_microbatches(job: Job) -> tuple[int, ...]:
    """Sequences that a micro-batch may have: the job's, or all that divide the batch and leave every replica one, in no
    more passes than are chosen.

    Micro-batches of one plan are alike: none may be smaller because the batch does not divide.
    """
    if job.microbatch is not None:
        return (job.microbatch,)
    batch, replicas = job.global_batch, job.n_replicas or 1
    few = MOST_PASSES_CHOSEN // (job.n_stages or 1)
    whole = (m for m in divisors(batch) if m % job.expert_parallel == 0)
    found = [m for m in whole if m <= batch // replicas and batch // m <= few]
    if job.microbatches_per_replica is not None:
        found = [m for m in found if batch // m == sum(job.microbatches_per_replica)]
    return tuple(m for m in found if not (job.gathers_passes and batch // m % replicas)) or (job.expert_parallel,)


OF_CHOICES = ("tensor_parallel", "sharding", "synchronisation", "overlap")
"""Fields that an annealing takes as given, so that each choice of them is annealed by itself."""


def leaves_open(job: Job) -> bool:
    """Whether the job leaves tensor parallelism, sharding, or how replicas average to the planner."""
    return any(getattr(job, what) is None for what in OF_CHOICES)


def degrees_of(topology: Topology, job: Job) -> list[int]:
    """Return the degrees of tensor parallelism that the hosts and the model's heads allow, or the job's own.

    Raises PlanError where none is possible.
    """
    heads, data = job.modelled().n_heads, job.data_gpus
    given = job.tensor_parallel
    sizes = [n // data for n in topology.group_sizes if n % data == 0]
    degrees = [n for n in sizes if heads % n == 0] if given is None else [given]
    if not degrees:
        groups = " or ".join(map(str, topology.group_sizes))
        each = "" if data == 1 else f", {data} for each tensor-parallel one"
        wanted = f"one that divides the {counted(heads, 'head')} of job {job.name}{each}"
        raise PlanError(f"{topology.name} has groups of {groups} GPUs; wanted {wanted}")
    return degrees


WAYS_TO_AVERAGE = ("ring", "sharded", "hierarchical")
"""Ways to average that are tried where the job leaves them open. Sharded is the paper's; a ring suits hosts that share
a network card; hierarchical suits regions that are far apart."""


def choices_of(topology: Topology, job: Job) -> list[tuple[Topology, Job]]:
    """The networks and jobs of all choices, large groups first. Raises PlanError where none is possible.

    Averaging is overlapped where that is open: no plan is slower for it.
    """
    degrees, data = degrees_of(topology, job), job.data_gpus
    shardings: tuple[str, ...] = SHARDINGS if job.sharding is None else (job.sharding,)
    if job.sharding is None and (job.n_replicas == 1 or job.synchronise_every > 1 or job.fragments > 1):
        shardings = ("none",)
    networks = {n: topology.grouped(n * data) for n in degrees}
    ways = WAYS_TO_AVERAGE if job.synchronisation is None else (job.synchronisation,)
    overlap = job.overlap is None or job.overlap
    found = []
    for degree in sorted(degrees, reverse=True):  # fewer, larger devices: these searches are the quickest, too
        for sharding in shardings:
            for way in ways[:1] if sharding == "zero-3" else ways:  # zero-3 averages in its passes
                try:
                    fields = {"tensor_parallel": degree, "sharding": sharding, "synchronisation": way}
                    chosen = job.with_fields(**fields, overlap=overlap, warmups=job.warmups)
                    if job.sharding is None:
                        chosen.with_fields(microbatch=open_microbatches(chosen)[0])
                except LabError:  # such as shares that are not equal, with replicas that pass micro-batches together
                    continue
                found.append((networks[degree], chosen))
    return found
