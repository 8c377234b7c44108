"""From a network and a job to a plan, and functions that explain, compare and price plans."""

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
"""Devices up to which a network without a job gets one that can be run for real."""
OWN_BATCH, OWN_DTYPE = 64, "fp32"
"""Of a job of one's own module, where nothing is said."""
PAPERS = "dtfm-gpt3-xl"
"""GPT-3 XL as DT-FM's public code plans it, with its default batch of 512. The paper ran 1024, 2048 and 4096."""


def load_topology(
    name_or_path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    at: Mapping[str, str] | None = None,
    peak_tflops: Mapping[str, float] | None = None,
    memory_gib: Mapping[str, float] | None = None,
) -> Topology:
    """A network that comes with the lab (``dtfm-lab network``) or from a file of any known format.

    A list of files is read by the reader of machines that is installed, if there is one (entry points of
    ``dtfm_lab.machine_readers``). ``at`` says in which regions hosts are, ``peak_tflops`` and ``memory_gib`` what GPUs
    compute and hold that are not in the lab's table. The ``.description`` of the network says what was measured, what
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
    """By name (``dtfm-gpt3-xl``, ``llama-3-8b``...) or from a file; any field, ``model=`` and ``seq_len=`` too.

    Or of a torch ``module`` of one's own, which is looked at in a process of its own: ``"file.py:function"``, which
    makes (module, data) or (module, data, loss), or a module with an ``example``. Data are a batch, a mapping of the
    module's keywords or a tuple of its arguments, or a dataset of such rows. Without a loss the module returns it,
    alone or as ``.loss``; ``loss(output, last part of the batch)`` else. Its blocks are the longest row of parts in a
    ModuleList or Sequential, or else its parts in the order in which they compute. With ``timed`` they are timed on a
    core of this machine, and share the module's FLOP as they share the seconds: torch counts products and convolutions
    only. The batch is 64 samples, if none is given.

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
        return files.load_job(name_or_path, **{"dtype": OWN_DTYPE} | overrides | {"model": model})
    job = Job(
        name=model.name,
        model=model,
        global_batch=OWN_BATCH,
        dtype=OWN_DTYPE,
        n_stages=None,
        n_replicas=None,
        microbatch=None,
    )
    return files.override(job, **overrides)


def default_job(topology: Topology) -> Job:
    """The job if none is named: ``small``, cut to use every device of a small network; the paper's on a network of its
    size; else ``gpt3-xl``, whose stages and replicas the planner chooses."""
    if len(topology) <= SMALL_NETWORK:
        return fitted(load_job("small"), len(topology))
    papers = load_job(PAPERS)
    return papers if papers.n_tasklets == len(topology) else load_job("gpt3-xl")


def opening_job(topology: Topology) -> Job:
    """Return the job that the lab opens a network with: the default job, and of DT-FM's one sequence for each device.

    With so few, averaging costs more than the hops between stages, so the best plan keeps each stage in one city. With
    the public code's default of 512 it keeps each pipeline in one city.
    """
    job = default_job(topology)
    return job.with_fields(global_batch=len(topology)) if job.name == PAPERS else job


def fitted(job: Job, n_devices: int) -> Job:
    """The job cut to use all devices: in its own shape if that does, else in the most square that its batch allows.

    If no shape uses all devices, the one that uses most.
    """
    if job.shaped and job.n_tasklets == n_devices:
        return job
    fitting = job.with_fields(n_stages=None, n_replicas=None).fitted(n_devices)
    return job if job.shaped and (job.n_stages, job.n_replicas) == (fitting.n_stages, fitting.n_replicas) else fitting


@takes_options(SpreadOptions)
def plan(topology: Topology | str, job: Job | str | None = None, **options: Unpack[PlanKeywords]) -> Plan:
    """The best plan that a planner finds in so many ``seconds`` (or ``steps``; 2 s without either).

    For a job with a model it is the plan of the fastest iteration, over all that the job leaves open: stages and
    replicas, devices that stay idle, blocks of each stage, micro-batches of each pipeline, the order of passes. Ctrl-C
    keeps the best so far. With ``steps`` the same seed gives the same plan. Where its devices lack memory, or its
    iteration cannot be simulated, a warning in the log says so.

    With a ``spread``, it is the plan of least expected seconds of the best plan of each shape: see ``compare``.
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
    """The steps of ``plan`` as they come: each has best_s, bound_s, evaluations and ``plan``."""
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
    """The plans that no other is both as fast and as cheap as: ``.to_frame()``, ``.plans``, ``.at(20)`` by price.

    Found by 12 searches (``searches``) in 20 s together (``seconds``; longer where so many do not fit into it): for the
    fastest iteration, for the fewest dollars a billion tokens, and for the fastest under limits of price. With
    ``steps`` of every search the same seed gives the same frontier. ``batches=[512, 1024]`` has one for each global
    batch. ``progress`` is called with the frontier after every search; Ctrl-C keeps the best so far. Devices without a
    price count as free.
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
    """A placement of one's own, priced: groups in stage order, a rank map, or groups in any order.

    Where its devices lack memory, or its iteration cannot be simulated, a warning in the log says so.
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
    """The plan that follows ``plan`` when devices go or come, or links change, and what the change takes.

    ``.plan``; ``.moves``, who gets which parameters and optimiser states, from whom, in ``.move_s`` seconds over these
    links; ``.stay``, the old plan with only its holes filled; ``.pays_after_s``, when the new plan is ahead of that.
    Devices stay where they are for what does not pay within ``horizon_s`` seconds of training, an hour by default. The
    search begins with the old plan and looks near it: two tenths of a second, or as many ``seconds`` as are given.

    Parameters
    ----------
    lost
        Names of devices that go.
    joined
        Devices that come: a network that has them beside the old ones, or names of devices of ``changed``. Idle devices
        of the plan's network are there already.
    changed
        The network with its links, or its devices' speeds, as they are now.

    Raises
    ------
    UnknownName
        A lost device that the plan's network does not have.
    PlanError
        Nobody is left, a network lacks a device that is not lost, or no plan fits what is left.
    JobError
        The plan's job has no model, so that nobody knows how much would move.
    """
    plan = as_plan(plan)
    network = planning.network_after(plan, lost=lost, joined=joined, changed=changed)
    return planning.replan(plan, network, seconds=seconds, seed=seed, horizon_s=horizon_s)


@runtime_checkable
class Explainable(Protocol):
    """What says itself why it costs what it costs."""

    def why(self, against: Any = None, *, progress: Progress | None = None) -> Any: ...


@overload
def explain(plan: Plan | str) -> Explanation: ...
@overload
def explain(plan: Explainable, against: Any = None, *, progress: Progress | None = None) -> Any: ...
def explain(plan: Plan | Explainable | str, against: Any = None, *, progress: Progress | None = None) -> Any:
    """Why a plan costs what it costs: what binds, and the price of any other place of a device.

    ``.text``, ``.why("Tokyo-3")``, ``.to_frame()``. A plan for seconds or dollars is explained by its simulated
    iteration: the device, link or synchronisation that binds it, its memory, and ``.to_frame("iteration")``. What would
    change it: ``.worth()`` of each device, ``.sensitivity()`` to each link and device. ``lab.compare`` lays two plans
    side by side.

    What explains itself, such as an outcome of another system, has a method ``why``, which is called.
    """
    if not isinstance(plan, Plan | str | Explanation) and isinstance(plan, Explainable):
        return plan.why(against, progress=progress)
    if against is not None:
        raise PlanError("against is for what is compared with others; wanted lab.compare for two plans")
    return planning.explain(as_plan(plan))


@takes_options(JobChanges, noun="job field", left_as_is=True)
def with_job(plan: Plan | str, **overrides: Unpack[JobKeywords]) -> Plan:
    """The same placement for the plan's job with other fields (``recompute=True``, ``compression="int8"``...),
    priced anew. Raises PlanError where that changes the numbers of stages or replicas, which ask for another plan."""
    plan = as_plan(plan)
    job = files.override(plan.job, **overrides)
    if (job.n_stages, job.n_replicas) != (plan.job.n_stages, plan.job.n_replicas):
        raise PlanError(
            f"job {job.name} has {counted(job.n_stages, 'stage')} x {counted(job.n_replicas, 'replica')}, the plan "
            f"places {plan.job.n_stages} x {plan.job.n_replicas}; wanted the same, or a new plan"
        )
    return planning.simulated(planning.evaluate(plan.topology, job, rank_map=plan.rank_map))


def _simulated(plan: Plan) -> Plan:
    """The plan with the seconds of its iteration, after a warning of why there are none, or of memory that it lacks."""
    if plan.iteration_s is None:
        plan = planning.simulated(plan)
        if why := planning.why_not_simulated(plan):
            log.warning("iteration not simulated: %s", why)
    return warned(plan)


def _with_objective(job: Job, options: Mapping[str, Any]) -> dict[str, Any]:
    objective = options.get("objective")
    return {**options, "objective": planning.default_objective(job) if objective is None else objective}


def nouns(topology: Topology | str, job: Job | str | None) -> tuple[Topology, Job]:
    """The network and the job, loaded where they are named; the network's default job where there is none."""
    network = topology if isinstance(topology, Topology) else load_topology(topology)
    if job is None:
        return network, default_job(network)
    return network, job if isinstance(job, Job) else load_job(job)
