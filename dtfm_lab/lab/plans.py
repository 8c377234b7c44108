"""Functions that make a plan for a network and a job, and that explain, compare and evaluate plans."""

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, Unpack, overload, runtime_checkable

from dtfm_lab import files, planning
from dtfm_lab.domain.errors import JobError, PlanError
from dtfm_lab.domain.job import Job, JobChanges
from dtfm_lab.domain.network import Topology
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
"""A job that computes for less than this per iteration is a toy on a device: a message over a LAN takes as long."""
FLOP_PER_PARAMETER, STATE_BYTES = 6, 16
"""Training takes 2 FLOP forward and 4 backward per token and parameter. Its state is weights and gradients in fp16 and
three fp32 copies for Adam (Rajbhandari et al. 2020, ZeRO, section 3.1)."""
LARGER = "gpt3-xl", "qwen2.5-7b", "llama-2-13b", "llama-2-70b"
OPENING_BATCH = 64
"""Sequences per iteration of the jobs in ``LARGER``. With their own batches, a few devices need half an hour."""
OWN_BATCH, OWN_DTYPE = 64, "fp32"
"""Defaults for a job built from your own module: its batch and its dtype."""
PAPERS = "dtfm-gpt3-xl"
"""GPT-3 XL as DT-FM's public code plans it, with its default batch of 512. The paper ran 1024, 2048 and 4096."""


def load_topology(
    name_or_path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    at: Mapping[str, str] | None = None,
    peak_tflops: Mapping[str, float] | None = None,
    memory_gib: Mapping[str, float] | None = None,
) -> Topology:
    """Return a network that comes with the lab (see ``dtfm-lab network``), or one from a file of any known format.

    A list of files is read by the installed reader of machines, if there is one (entry points of
    ``dtfm_lab.machine_readers``). For such files, ``at`` gives the region of each host. ``peak_tflops`` and
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

    Or build the job from your own torch ``module``, which is inspected in a separate process. Give either
    ``"file.py:function"``, whose function returns (module, data) or (module, data, loss), or a module with an
    ``example``. Data are a batch, a mapping of the module's keywords or a tuple of its arguments, or a dataset of such
    rows. Without a ``loss``, the module returns its loss, alone or as ``.loss``. Otherwise the loss is ``loss(output,
    last part of the batch)``.

    The module's blocks are the longest row of parts in a ModuleList or Sequential, or else its parts in the order in
    which they compute. With ``timed``, the blocks are timed on one core of this machine, and the module's FLOP are
    divided among them in proportion to the seconds. Use it because torch counts only matrix products and convolutions.
    The batch is 64 samples by default.

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

    On a small network it is ``small``, cut to use every device. On a network of the paper's size it is the paper's job.
    Otherwise it is ``gpt3-xl``, with stages and replicas left to the planner.
    """
    if len(topology) <= SMALL_NETWORK:
        return fitted(load_job("small"), len(topology))
    papers = load_job(PAPERS)
    return papers if papers.n_tasklets == len(topology) else load_job("gpt3-xl")


def opening_job(topology: Topology) -> Job:
    """Return the job that the lab opens a network with.

    It is the default job. DT-FM's job gets a batch of one sequence per device. With so few, averaging costs more than
    the hops between stages, so the best plan keeps each stage in one city. With the public code's default batch of 512,
    it keeps each pipeline in one city. A few fast devices get a model that is too large for each of them, because one
    device alone would train a toy fastest.
    """
    job = default_job(topology)
    if job.name == PAPERS:
        return job.with_fields(global_batch=len(topology))
    return _larger(topology) or job if _is_toy(job, topology) else job


def _is_toy(job: Job, topology: Topology) -> bool:
    """True if the fastest device computes an iteration of the job so quickly that every message is a loss."""
    fastest = max(device.peak_flop_per_s for device in topology.devices)
    return len(topology) > 1 and FLOP_PER_PARAMETER * job.modelled().parameters * job.tokens < fastest * TOY_S


def _larger(topology: Topology) -> Job | None:
    """Return the first job of ``LARGER`` whose training state fits the devices together, and none alone."""
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
    """Return the job cut to use all devices: in its own shape if that fits, else in the most square shape of its batch.

    If no shape uses all devices, the job is cut to use as many as possible.
    """
    if job.shaped and job.n_tasklets == n_devices:
        return job
    fitting = job.with_fields(n_stages=None, n_replicas=None).fitted(n_devices)
    return job if job.shaped and (job.n_stages, job.n_replicas) == (fitting.n_stages, fitting.n_replicas) else fitting


@takes_options(SpreadOptions)
def plan(topology: Topology | str, job: Job | str | None = None, **options: Unpack[PlanKeywords]) -> Plan:
    """Return the best plan that a planner finds within ``seconds`` or ``steps``; 2 s by default.

    For a job with a model, that is the plan with the fastest iteration. The planner chooses everything that the job
    leaves open: stages and replicas, idle devices, blocks of each stage, micro-batches of each pipeline, and the order
    of passes. Ctrl-C keeps the best plan so far. With ``steps``, the same seed gives the same plan. If devices lack
    memory, or the iteration cannot be simulated, a warning in the log says so.

    With a ``spread``, the best plans of all shapes are compared, and the one with the least expected seconds is
    returned: see ``compare``.
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
    """Yield the steps of ``plan`` as the search makes them. Each has best_s, bound_s, evaluations and ``plan``."""
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

    Runs 12 searches (``searches``) in 20 s together (``seconds``, or longer if they do not fit). They search for
    the fastest iteration, for the lowest price per billion tokens, and for the fastest iteration under price
    limits. With ``steps`` for every search, the same seed gives the same frontier. ``batches=[512, 1024]`` gives
    one frontier per global batch. ``progress`` is called with the frontier after every search. Ctrl-C keeps the
    best so far. Devices without a price count as free.
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
    """Evaluate your own placement: groups in stage order, a rank map, or groups in any order.

    If its devices lack memory, or its iteration cannot be simulated, a warning in the log says so.
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
    """Return the plan that follows ``plan`` when devices leave or join, or links change, and what the change costs.

    The result has ``.plan`` and ``.moves``: which device gets which parameters and optimizer states, and from which, in
    ``.move_s`` seconds over these links. ``.stay`` is the old plan with only its holes filled. ``.pays_after_s`` says
    when the new plan overtakes it. Devices stay where they are unless a move pays off within ``horizon_s`` seconds of
    training, an hour by default. The search starts from the old plan and looks near it, for ``seconds``, by default 0.2
    s.

    Parameters
    ----------
    lost
        Names of devices that leave.
    joined
        Devices that join: a network that has them beside the old ones, or names of devices of ``changed``. Idle devices
        of the plan's network are available already.
    changed
        The network with its links, or its devices' speeds, as they are now.

    Raises
    ------
    UnknownName
        The plan's network does not have a lost device.
    PlanError
        No device is left, a network lacks a device that is not lost, or no plan fits the remaining devices.
    JobError
        The plan's job has no model, so the amount of data to move is unknown.
    """
    plan = as_plan(plan)
    network = planning.network_after(plan, lost=lost, joined=joined, changed=changed)
    return planning.replan(plan, network, seconds=seconds, seed=seed, horizon_s=horizon_s)


@runtime_checkable
class Explainable(Protocol):
    """Something that can explain its own cost."""

    def why(self, against: Any = None, *, progress: Progress | None = None) -> Any: ...


@overload
def explain(plan: Plan | str) -> Explanation: ...
@overload
def explain(plan: Explainable, against: Any = None, *, progress: Progress | None = None) -> Any: ...
def explain(plan: Plan | Explainable | str, against: Any = None, *, progress: Progress | None = None) -> Any:
    """Explain why a plan costs what it costs: what limits it, and the cost of any other place for a device.

    ``.text``, ``.why("Tokyo-3")``, ``.to_frame()``. A plan made for time or price is explained by its simulated
    iteration: the device, link or synchronisation that limits it, its memory, and ``.to_frame("iteration")``. To see
    what would change it, use ``.worth()`` for each device and ``.sensitivity()`` for each link and device.
    ``lab.compare`` compares two plans.

    Other objects with a method ``why``, such as an outcome of another system, are explained by that method.
    """
    if not isinstance(plan, Plan | str | Explanation) and isinstance(plan, Explainable):
        return plan.why(against, progress=progress)
    if against is not None:
        raise PlanError("against is for what is compared with others; wanted lab.compare for two plans")
    return planning.explain(as_plan(plan))


@takes_options(JobChanges, noun="job field", left_as_is=True)
def with_job(plan: Plan | str, **overrides: Unpack[JobKeywords]) -> Plan:
    """Return the same placement for the plan's job with other fields (``recompute=True``, ``compression="int8"``...).

    The plan is evaluated again. Raises PlanError if the number of stages or replicas changes, which needs a new plan.
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
    """Return the network and the job, loaded if given by name. Without a job, it is the network's default job."""
    network = topology if isinstance(topology, Topology) else load_topology(topology)
    if job is None:
        return network, default_job(network)
    return network, job if isinstance(job, Job) else load_job(job)
