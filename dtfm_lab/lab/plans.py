"""Functions that make a plan for a network and a job, and that explain, compare and evaluate plans."""

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, Unpack, overload, runtime_checkable

from dtfm_lab import files, planning
from dtfm_lab.domain.errors import JobError, PlanError
from dtfm_lab.domain.job import Job, JobChanges
from dtfm_lab.domain.network import PAPERS_GPU, Topology
from dtfm_lab.domain.options import takes_options
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import counted
from dtfm_lab.lab.arguments import (
    FrontierOptions,
    Progress,
    SearchOptions,
    SpreadOptions,
    as_plan,
    newest_of,
)
from dtfm_lab.lab.keywords import FrontierKeywords, JobKeywords, PlanKeywords, SearchKeywords
from dtfm_lab.planning import Explanation, Frontier, PlanStep, Replan
from dtfm_lab.simulation.memory import warned

log = logging.getLogger(__name__)
SMALL_NETWORK = 16
"""Up to this number of devices, the default job of a network is one that can be run for real."""
TOY_S = 0.01
"""Seconds. A job is a toy for a device that computes a whole iteration in less: a message over a LAN takes as long."""
FLOP_PER_PARAMETER = 6
"""FLOP of training per token and parameter: 2 forward and 4 backward."""
STATE_BYTES = 16
"""Bytes of the state of training per parameter: weights and gradients in fp16, and three fp32 numbers for Adam
(Rajbhandari et al. 2020, ZeRO, section 3.1)."""
LARGER = "gpt3-xl", "qwen2.5-7b", "llama-2-13b", "llama-2-70b"
OPENING_BATCH = 64
"""Sequences per iteration of the jobs in ``LARGER``. With their own batches, an iteration takes half an hour on a few
devices."""
OWN_BATCH = 64
"""Default samples per iteration of a job built from your own module."""
OWN_DTYPE = "fp32"
"""Default dtype of a job with your own module."""
PAPERS = "dtfm-gpt3-xl"
"""The job of the DT-FM paper: GPT-3 XL, with the public code's default batch of 512. The paper ran 1024, 2048 and 4096.
"""


def load_topology(
    name_or_path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    at: Mapping[str, str] | None = None,
    peak_tflops: Mapping[str, float] | None = None,
    memory_gib: Mapping[str, float] | None = None,
) -> Topology:
    """Return a network that comes with the lab (see ``dtfm-lab network``), or one from a file of any known format.

    A list of files that other tools print about your machines is read by an extension (entry point
    ``dtfm_lab.machine_readers``). For such a list, ``at`` gives the region of each host. ``peak_tflops`` and
    ``memory_gib`` describe GPUs that the lab's table lacks. The network's ``.description`` says what was measured, what
    was estimated and what was left out.

    Raises FileError, TopologyError or UnknownName in one line.
    """
    return files.load_topology(name_or_path, at=at, peak_tflops=peak_tflops, memory_gib=memory_gib)


@takes_options(JobChanges, noun="job field", left_as_is=True)
def load_job(
    name_or_path: str | os.PathLike[str] | None = None,
    *,
    module: Any = None,
    example: Any = None,
    loss: Any = None,
    timed: bool = False,
    **overrides: Unpack[JobKeywords],
) -> Job:
    """Load a job by name (``dtfm-gpt3-xl``, ``llama-3-8b``...) or from a file. Keywords override any field, such as
    ``model=`` and ``seq_len=``.

    Or build the job from your own torch ``module``, which is inspected in a separate process. ``module`` is
    ``"file.py:function"``, whose function returns (module, data) or (module, data, loss). Or it is a torch module, with
    its data as ``example``. The data are one batch or a dataset of rows. A batch or row is a mapping of the module's
    keyword arguments, or a tuple of its positional arguments. The ``loss`` is a function of the module's output and the
    last part of the batch (all of the batch if that is a mapping). Without it, the module must return its loss, alone
    or as ``.loss``. The batch is 64 samples by default.

    The module is cut between blocks. These are the parts of its longest ModuleList or Sequential, or else its parts in
    the order in which they compute. With ``timed``, the blocks are timed on one core of this machine, and the module's
    FLOP are divided among them in proportion to these times. That helps if operators other than matrix products and
    convolutions take long, because torch counts only the FLOP of these two.

    Raises JobError in one line for a module that cannot be cut.
    """
    if module is None:
        if example is not None or loss is not None or timed:
            raise JobError(f"{'timed' if timed else 'example or loss'} without a module; wanted both, or none")
        if name_or_path is None:
            raise JobError("neither a job nor a module is given; wanted one")
        return files.load_job(name_or_path, **overrides)
    from dtfm_lab.runtime.client.own_modules import read_module  # takes a while to load

    model = read_module(module, example, loss, timed=timed)
    if name_or_path is not None:
        # Later entries win: the caller's fields over the usual dtype, and the module over any model.
        return files.load_job(name_or_path, **{"dtype": OWN_DTYPE} | overrides | {"model": model})
    job = Job(
        name=model.name,
        model=model,
        global_batch=OWN_BATCH,
        dtype=OWN_DTYPE,
        # None leaves these fields to the planner.
        n_stages=None,
        n_replicas=None,
        microbatch=None,
    )
    return files.override(job, **overrides)


def default_job(topology: Topology) -> Job:
    """Return the job to use if none is named.

    On a small network it is ``small``, cut to use every device, or as many as its batch allows. On a network like the
    paper's, 64 V100s with one per host, it is the paper's job. Otherwise it is ``gpt3-xl``, with stages and
    replicas left to the planner.
    """
    if len(topology) <= SMALL_NETWORK:
        return fitted(load_job("small"), len(topology))
    papers = load_job(PAPERS)
    gpus = {(device.gpu, device.gpus) for device in topology.devices}
    is_papers = papers.n_tasklets == len(topology) and gpus == {(PAPERS_GPU, 1)} and topology.nic_of is None
    return papers if is_papers else load_job("gpt3-xl")


def opening_job(topology: Topology) -> Job:
    """Return the job that the lab shows first for a network.

    It is the default job, with two exceptions. DT-FM's job gets a batch of one sequence per device. With so small a
    batch, averaging gradients costs more than sending activations, so the best plan keeps each stage in one city. With
    the default batch of 512, the best plan keeps each pipeline in one city. A few fast devices get a model that is too
    large for any one of them, because one device alone would train a toy fastest.
    """
    job = default_job(topology)
    if job.name == PAPERS:
        return job.with_fields(global_batch=len(topology))
    return _larger(topology) or job if _is_toy(job, topology) else job


def _is_toy(job: Job, topology: Topology) -> bool:
    """Return True if the fastest of several devices computes an iteration within ``TOY_S``, so that any message costs
    more than it saves."""
    fastest = max(device.peak_flop_per_s for device in topology.devices)
    return len(topology) > 1 and FLOP_PER_PARAMETER * job.modelled().parameters * job.tokens < fastest * TOY_S


def _larger(topology: Topology) -> Job | None:
    """Return the first job of ``LARGER`` whose training state fits into all devices together, but not into any one
    device. None if there is no such job."""
    memory = [device.memory_bytes for device in topology.devices]
    for name in LARGER:
        job = load_job(name)
        needed = STATE_BYTES * job.modelled().parameters
        if max(memory) < needed < sum(memory):
            # Open, so that the planner finds the shape of the model on these devices.
            open_fields = dict.fromkeys(("n_stages", "n_replicas", "microbatch", "schedule"))
            return job.with_fields(global_batch=OPENING_BATCH, **open_fields)
    return None


def fitted(job: Job, n_devices: int) -> Job:
    """Return the job with the numbers of stages and replicas that use all devices, or else as many as possible.

    The job's own numbers are kept if they use all devices. Otherwise the two become as equal as its batch allows.
    """
    if job.shaped and job.n_tasklets == n_devices:
        return job
    fitting = job.with_fields(n_stages=None, n_replicas=None).fitted(n_devices)
    return job if job.shaped and (job.n_stages, job.n_replicas) == (fitting.n_stages, fitting.n_replicas) else fitting


@takes_options(SpreadOptions)
def plan(topology: Topology | str, job: Job | str | None = None, **options: Unpack[PlanKeywords]) -> Plan:
    """Return the best plan that a planner finds within ``seconds`` or ``steps``; 2 s by default.

    The best plan has the fastest iteration, unless ``objective`` or the job asks for something else. For such a plan,
    the planner chooses everything that the job leaves open: stages and replicas, idle devices, blocks of each stage,
    micro-batches of each pipeline, and the order of passes. Ctrl-C keeps the best plan so far. With ``steps``, the same
    seed gives the same plan. If devices lack memory, or the iteration cannot be simulated, a warning in the log says
    so.

    With a ``spread``, the good plans that the search has found are simulated on random variations of the network (see
    ``compare``). The one with the shortest expected iteration is returned.
    """
    network, job = nouns(topology, job)
    spread = options.pop("spread", None)
    asked = _with_objective(job, options)
    if spread is not None:
        return warned(planning.plan_for_draws(network, job, spread=spread, **asked))
    return _simulated(planning.plan(network, job, **asked))


@takes_options(SearchOptions)
def search(
    topology: Topology | str, job: Job | str | None = None, **options: Unpack[SearchKeywords]
) -> Iterator[PlanStep]:
    """Yield each step of the search that ``plan`` makes.

    A step has ``plan``, the best plan so far, its objective ``best_s``, the lower bound ``bound_s``, and the number of
    ``evaluations``.
    """
    network, job = nouns(topology, job)
    return planning.search(network, job, **_with_objective(job, options))


@takes_options(FrontierOptions)
def frontier(
    topology: Topology | str,
    job: Job | str | None = None,
    *,
    progress: Progress | None = None,
    **options: Unpack[FrontierKeywords],
) -> Frontier:
    """Return the plans that no other plan beats in both time and price: ``.to_frame()``, ``.plans``, ``.at(20)`` by
    price.

    By default, 12 ``searches`` share 20 ``seconds``, but each takes at least 0.1 s. They search for the fastest
    iteration, for the lowest price per billion tokens, and for the fastest iteration under price limits. With
    ``steps`` for every search, the same seed gives the same frontier. ``batches=[512, 1024]`` gives one frontier
    per global batch. ``progress`` is called with the frontier after every search. Ctrl-C keeps the best so far.
    Devices without a price count as free.
    """
    return newest_of(planning.stream_frontier(*nouns(topology, job), **options), progress)


def evaluate(
    topology: Topology | str,
    job: Job | str | None = None,
    *,
    stages: Sequence[Sequence[int | str]] | None = None,
    rank_map: Sequence[int | None] | None = None,
    groups: Sequence[Sequence[int | str]] | None = None,
) -> Plan:
    """Return the plan of your own placement, with its communication cost and its simulated iteration time.

    Give ``stages``, a ``rank_map`` or ``groups``. ``stages`` lists the devices of each stage, in stage order. In
    ``groups`` the stages may have any order, and the best one is found. A ``rank_map`` is the rank of each device:
    pipeline x n_stages + stage, or None if idle. If devices lack memory, or the iteration cannot be simulated, a
    warning in the log says so.
    """
    return _simulated(planning.evaluate(*nouns(topology, job), stages=stages, rank_map=rank_map, groups=groups))


def replan(
    plan: Plan | str,
    *,
    lost: Iterable[str] = (),
    joined: Iterable[str] | Topology = (),
    changed: Topology | None = None,
    seconds: float | None = None,
    seed: int = 0,
    horizon_s: float | None = None,
) -> Replan:
    """Return the plan to switch to when devices leave or join, or links change, and what the switch costs.

    The result has ``.plan`` and ``.moves``: the parameters and optimizer states that move, with sender and receiver.
    The moves take ``.move_s`` seconds in all. ``.stay`` is the old plan with idle or new devices instead of the
    lost ones (None if there are too few, or if it does not fit). After ``.pays_after_s`` seconds, the new plan has done
    more iterations than ``.stay`` (None if never). Devices stay where they are unless a move pays off within
    ``horizon_s`` seconds of training, an hour by default. The search looks near the old plan for ``seconds``, by
    default for 24 steps, which take some 0.2 s.

    Parameters
    ----------
    lost
        Names of devices that leave.
    joined
        Devices that join: a network with the old and the new devices, or names of devices of ``changed``. Idle devices
        of the plan's network are available already.
    changed
        The network as it is now, with other links or other speeds of devices.

    Raises
    ------
    UnknownName
        A lost device is not in the plan's network.
    PlanError
        No device is left, a device is both lost and joined, a network lacks a device that joins or is not lost, or no
        plan fits the remaining devices.
    JobError
        The plan's job has no model, so the amount of data to move is unknown.
    """
    plan = as_plan(plan)
    network = planning.network_after(plan, lost=lost, joined=joined, changed=changed)
    return planning.replan(plan, network, seconds=seconds, seed=seed, horizon_s=horizon_s)


@runtime_checkable
class Explainable(Protocol):
    """An object of an extension that can explain its own cost."""

    def why(self, against: Any = None, *, progress: Progress | None = None) -> Any: ...


@overload
def explain(plan: Plan | str) -> Explanation: ...
@overload
def explain(plan: Explainable, against: Any = None, *, progress: Progress | None = None) -> Any: ...
def explain(plan: Plan | Explainable | str, against: Any = None, *, progress: Progress | None = None) -> Any:
    """Explain why a plan costs what it costs: what limits it, and what it would cost to put a device elsewhere.

    The result has ``.text``, ``.why("Tokyo-3")``, ``.to_frame()``. A plan made for time or price is explained by its
    simulated iteration: the device, link or synchronisation that limits it, its memory, and ``.to_frame("iteration")``.
    To see what would change it, use ``.worth()`` for each device and ``.sensitivity()`` for each link and device.
    ``lab.compare`` compares two plans.

    Objects of extensions are explained by their own method ``why``, if they have one.
    """
    if not isinstance(plan, Plan | str | Explanation) and isinstance(plan, Explainable):
        return plan.why(against, progress=progress)
    if against is not None:
        raise PlanError("against is for what is compared with others; wanted lab.compare for two plans")
    return planning.explain(as_plan(plan))


@takes_options(JobChanges, noun="job field", left_as_is=True)
def with_job(plan: Plan | str, **overrides: Unpack[JobKeywords]) -> Plan:
    """Return the plan with other values for fields of its job, such as ``recompute=True`` or ``compression="int8"``.

    The placement stays the same, and the plan is evaluated again. Raises PlanError if the number of stages or replicas
    changes, which needs a new plan.
    """
    plan = as_plan(plan)
    job = files.override(plan.job, **overrides)
    # The placement names a device for each stage and replica, so another shape has no place for some.
    if (job.n_stages, job.n_replicas) != (plan.job.n_stages, plan.job.n_replicas):
        raise PlanError(
            f"job {job.name} has {counted(job.n_stages, 'stage')} x {counted(job.n_replicas, 'replica')}, the plan "
            f"places {plan.job.n_stages} x {plan.job.n_replicas}; wanted the same, or a new plan"
        )
    return planning.simulated(planning.evaluate(plan.topology, job, rank_map=plan.rank_map))


def _simulated(plan: Plan) -> Plan:
    """Return the plan with its simulated iteration time. Logs a warning if it cannot be simulated, or lacks memory."""
    if plan.iteration_s is None:
        plan = planning.simulated(plan)
        if why := planning.why_not_simulated(plan):
            log.warning("iteration not simulated: %s", why)
    return warned(plan)


def _with_objective(job: Job, options: Mapping[str, Any]) -> dict[str, Any]:
    objective = options.get("objective")
    return {**options, "objective": planning.default_objective(job) if objective is None else objective}


def nouns(topology: Topology | str, job: Job | str | None) -> tuple[Topology, Job]:
    """Return the network and the job, loaded if given by name. Without a job, return the network's default job."""
    network = topology if isinstance(topology, Topology) else load_topology(topology)
    if job is None:
        return network, default_job(network)
    return network, job if isinstance(job, Job) else load_job(job)
