"""Check a run before anything starts: paths, folders, networks and the job. Each error is one line.

If workers cannot train the job's own model, they train a small substitute model (``stand_in``). Messages keep the sizes
of the job's model. On the paced clock, computations also keep its durations.
"""

import os
import tempfile
import warnings
from collections import Counter
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import psutil

from dtfm_lab.costs.seconds import analytic
from dtfm_lab.domain.errors import JobError, LabError, TopologyError
from dtfm_lab.domain.job import Job, ModelSpec, gpt
from dtfm_lab.domain.job.options import TRANSPORTS
from dtfm_lab.domain.network import Links, Topology, shortened
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Schedule
from dtfm_lab.domain.trace import SMALL_MODEL
from dtfm_lab.domain.units import counted
from dtfm_lab.files import load_model, load_topology
from dtfm_lab.runtime.protocol import checkpoint_folders
from dtfm_lab.runtime.protocol.gradient_shards import AVERAGED
from dtfm_lab.runtime.protocol.run_options import RUN_DTYPES, RunSettings, RunSpec
from dtfm_lab.simulation import build
from dtfm_lab.simulation.engine import simulate_iteration
from dtfm_lab.simulation.simulate import shared_nics

BYTE_VALUES = 256
BYTES_PER_WORKER = 80e6
"""Resident memory of a worker without its stage. Workers share the memory of torch itself."""
MOST_WORKERS = 32
"""Maximum number of workers in a run on one machine."""


def stand_in_for(job: Job) -> ModelSpec:
    """Return a GPT that any machine can train. It has as many blocks as the job's model, with some 50,000 parameters
    each. Its tokens are bytes."""
    model = job.modelled()
    sizes = {"d_model": 64, "n_heads": 4, "seq_len": 32, "vocab_size": BYTE_VALUES}
    return gpt(name=SMALL_MODEL, n_layers=model.n_blocks, tied=model.tied, **sizes)


def why_not_trained(job: Job) -> str:
    """Return in one clause why workers on this machine cannot train the job's own model; empty if they can."""
    model = job.modelled()
    if reason := why_not_built(model):
        return reason
    if job.dtype not in RUN_DTYPES:
        return f"dtype is {job.dtype}; workers on a CPU run {' or '.join(RUN_DTYPES)}"
    return why_too_large(job)


def why_not_built(model: ModelSpec) -> str:
    """Return why workers cannot build this model; empty if they can."""
    if model.source:
        return ""
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
    """Return why this machine has too little free memory for the job's workers; empty if it has enough."""
    each = 8 if job.dtype == "fp64" else 4
    # Copies of the parameters: parameters, gradients, two optimiser states, temporaries of the optimiser's step, and
    # messages. With local updates also the parameters at the last synchronisation, and the changes since. Measured with
    # 25 million parameters: 7.4 copies, and 8.6 with local updates.
    copies = 8 if job.synchronise_every == 1 else 10
    needed = job.n_tasklets * BYTES_PER_WORKER + copies * each * job.modelled().parameters * job.n_replicas
    # Other programs may take this free memory before the workers do, but nothing better is known.
    if needed <= (available := psutil.virtual_memory().available):
        return ""
    return (
        f"{counted(job.n_tasklets, 'worker')} need{'s' * (job.n_tasklets == 1)} some {needed / 2**30:.1f} GiB on this "
        f"machine, {available / 2**30:.1f} are free; wanted a smaller model or fewer workers"
    )


def _as_built(model: ModelSpec, *, tied: bool) -> ModelSpec:
    """Return the GPT that workers build from the sizes of this model (see ``worker.stages``)."""
    sizes = {size: getattr(model, size) for size in ("d_model", "n_heads", "seq_len", "vocab_size")}
    return gpt(name=model.name, n_layers=model.n_blocks, tied=tied, **sizes)


PLAYED = {
    "transport": TRANSPORTS,
    "tensor_parallel": (1,),
    "context_parallel": (1,),
    "expert_parallel": (1,),
    "sharding": ("none", "zero-1"),
    "fragment_delay": (0, 1),
    "overlap": (False,),
    "checkpointing": ("none", "block", "stage"),
    "attention": ("fused",),
    "gradient_dtype": (None,),
    "optimizer": ("adam",),
    "frozen_weights": ("same",),
}
"""Field of a job -> its values that workers can carry out.

A run accepts any value of the other fields. Many of these change nothing in a run, because they only affect predicted
seconds, or are sizes that belong to another field.
"""
UNLIKE_SUMS = ("ring", "hierarchical")
"""Kinds of synchronisation in which the order of a sum depends on the position in the vector, or on the region."""


def absolute_path(what: str, given: object) -> str | None:
    """Return the path as an absolute one, because a run's processes may have another working directory. Raises
    LabError if it is not a usable path."""
    if given is None:
        return None
    if not isinstance(given, str | os.PathLike):
        raise LabError(f"{what} is {shortened(given)}; wanted a path")
    try:
        found = os.fspath(Path(given).resolve())
        Path(found).exists()
        return os.fsencode(found).decode()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "no name that a file can have"
        raise LabError(f"{what} is {shortened(os.fspath(given))}: {reason}; wanted a path") from None


def writable_folder(what: str, given: object) -> str | None:
    """Return the absolute path of a writable folder, created if missing. None stays None. Raises LabError."""
    if (found := absolute_path(what, given)) is None:
        return None
    if given == "":
        raise LabError(f"{what} is empty; wanted a path")
    if Path(found).exists() and not Path(found).is_dir():
        raise LabError(f"{what} {found}: is a file; wanted a folder, or a name that is free")
    try:
        Path(found).mkdir(parents=True, exist_ok=True)
        # Only a write shows it: permissions do not say that a disk is full or read-only.
        with tempfile.TemporaryFile(dir=found):
            return found
    except OSError as error:
        raise LabError(f"{what} {found}: cannot be written to: {error.strerror or error}") from None


def emulated_network(emulated: object, topology: Topology, clock: str) -> Topology | None:
    """Return the network whose links are emulated instead of the plan's, if any.

    Raises LabError, TopologyError, or what ``load_topology`` raises.
    """
    if emulated is None:
        return None
    found = load_topology(emulated) if isinstance(emulated, str | os.PathLike) else emulated
    if not isinstance(found, Topology):
        raise LabError(f"emulated is {shortened(emulated)}; wanted a network by name, a file, or a Topology")
    if clock == "real":
        raise LabError(f"emulated is {found.name} on the real clock, which emulates no links; wanted another clock")
    if len(found) != len(topology):
        raise TopologyError(
            f"emulated network {found.name} has {counted(len(found), 'device')}; wanted {len(topology)}, as many as "
            f"the plan's network {topology.name}"
        )
    return found


def chosen_stand_in(plan: Plan, wanted: object, *, cannot: bool) -> ModelSpec | None:
    """Return the model that is trained instead of the job's; None if the job's own model is trained.

    It is the requested one (``wanted``), or a small one if the job's own model cannot be trained (``cannot``). Raises
    LabError, or what ``load_model`` raises.
    """
    if (isinstance(wanted, str) and wanted == SMALL_MODEL) or (wanted is None and cannot):
        return stand_in_for(plan.job)
    if wanted is None:
        return None
    model = load_model(wanted) if isinstance(wanted, str | os.PathLike) else wanted
    if not isinstance(model, ModelSpec):
        raise LabError(f"stand_in is {shortened(wanted)}; wanted a model by name, a config.json, or a ModelSpec")
    if reason := why_not_built(model):
        raise JobError(f"stand_in {reason}")
    return model if model.source else _as_built(model, tied=plan.job.modelled().tied)


def with_checkpoint(spec: RunSpec) -> RunSpec:
    """Return the spec with the newest intact checkpoint of the folder that it resumes from. The spec is unchanged if it
    does not resume.

    Warns if the run that wrote it had other settings, such as another text or seed. Raises LabError if this run cannot
    continue from it, and FileError if no checkpoint in the folder is intact.
    """
    if spec.resume_from is None:
        return spec
    begin, damaged = checkpoint_folders.newest_whole(spec.resume_from)
    for note in checkpoint_folders.resumable(begin, spec):
        warnings.warn(note, stacklevel=6)  # at the caller of start
    return replace(spec, resume_from=os.fspath(begin.folder), first_iteration=begin.iteration, notes=tuple(damaged))


def checked_spec(
    plan: Plan, schedule: str | Schedule | None, settings: RunSettings, *, cannot: bool, **changes: Any
) -> RunSpec:
    """Return the spec of a run: a plan, a schedule (the job's own if None), and the settings with names and paths
    resolved.

    Raises LabError for a path, network or substitute model that cannot be used. Raises JobError if workers cannot
    compute the job, TopologyError if devices share a NIC on the paced clock, and ScheduleError if the schedule would
    deadlock the workers.

    Parameters
    ----------
    cannot
        True if the job's own model cannot be trained.
    changes
        Fields of RunSpec that differ from the settings.
    """
    clock, queueing = settings.clock, settings.queueing
    resolved = {field.name: getattr(settings, field.name) for field in fields(RunSettings)} | {
        "text": absolute_path("text", settings.text),
        "emulated": emulated_network(settings.emulated, plan.topology, clock),
        "stand_in": chosen_stand_in(plan, settings.stand_in, cannot=cannot),
        "resume_from": absolute_path("resume_from", settings.resume_from),
    }
    links = Links.free(len(plan.topology)) if clock == "real" else Links.of(plan.topology, queueing)
    built = build(plan, plan.job.schedule_name if schedule is None else schedule, links=links)
    spec = RunSpec(plan=plan, schedule=built.name, orders=built.orders, **(resolved | changes))
    check_job(spec)
    if spec.clock == "paced" and (shared := shared_nics(plan, spec.links)):
        nic, count = Counter(nic for row in shared for nic in row).most_common(1)[0]
        raise TopologyError(
            f"{counted(count, 'device')} of the plan share the NIC of {nic}'s host on the paced clock, whose links "
            "are emulated by separate workers; wanted the virtual or the real clock, or devices without host"
        )
    simulate_iteration(plan, built, analytic(plan, spec.programs(synchronise=True)), spec.links)
    return spec


SAME = ("model", "dtype")
"""Fields of a job that a run keeps when it switches to another plan."""


def following(spec: RunSpec, plan: Plan, schedule: str | Schedule | None) -> RunSpec:
    """Return the spec with which a run continues under another plan.

    Raises LabError if it cannot, and what ``checked_spec`` raises.
    """
    if not isinstance(plan, Plan):
        raise LabError(f"the plan to follow is {shortened(plan)}; wanted a Plan")
    if spec.uses_groups:
        raise LabError("carrier is groups, whose processes cannot change places; wanted sockets")
    if spec.emulated is not None:
        raise LabError(f"emulated is {spec.emulated.name}, which fits the devices of one plan only; wanted none")
    for field in SAME:
        was, now = getattr(spec.plan.job, field), getattr(plan.job, field)
        if was != now:
            raise LabError(
                f"{field} of the plan to follow is {getattr(now, 'name', now)}; wanted {getattr(was, 'name', was)}, "
                f"as in the run"
            )
    if plan.job.n_tasklets > MOST_WORKERS:
        raise LabError(
            f"the plan to follow needs {counted(plan.job.n_tasklets, 'worker')}; wanted at most {MOST_WORKERS:,}"
        )
    kept = ("iterations", "checkpoint_folder", "resume_from", "text", "first_iteration", "secret", "stand_in")
    return checked_spec(plan, schedule, spec, cannot=False, **{name: getattr(spec, name) for name in kept})


def check_job(spec: RunSpec) -> None:
    """Raise JobError if workers cannot compute the job."""
    job = spec.plan.job
    for choice, carried_out in PLAYED.items():
        found = job.checkpoints if choice == "checkpointing" else getattr(job, choice)
        as_ever = choice == "gradient_dtype" and found == job.dtype
        if found not in carried_out and not as_ever:
            wanted = " or ".join(str(value) for value in carried_out)
            raise JobError(
                f"job {job.name}: {choice} is {found}, which can be simulated but not run; real runs want {wanted}"
            )
    for why, is_so in _what_cannot_run(spec).items():
        if is_so:
            raise JobError(f"job {job.name}: {why}")
    spec.trained.cut(spec.built.n_stages)


def _what_cannot_run(spec: RunSpec) -> dict[str, bool]:
    """Return the error text of each combination that workers cannot carry out -> True if this run requests it."""
    job, planned, built = spec.trained, spec.plan.job, spec.built
    blocks = job.checkpoints == "block"
    own_module = bool(job.modelled().source)
    own = "it trains your own module, and"
    in_turn = planned.fragments > 1 or planned.fragment_delay > 0
    fragments = f"fragments is {planned.fragments}, fragment_delay {planned.fragment_delay} and"
    uncut = (
        "which can be simulated but not run; wanted fragments 1 and fragment_delay 0, or an untied model on CPUs and "
        "another clock than the paced one"
    )
    unlike = job.ties_stages and (job.synchronisation in UNLIKE_SUMS or job.codes_gradients)
    how = f"{job.gradients_as} messages" if job.codes_gradients else f"{job.synchronisation} synchronisation"
    apart = "would round the two copies of a tied embedding differently; wanted"
    equal = "an untied model, or sharded synchronisation uncompressed"
    return {
        "it trains adapters, which can be simulated but not run; wanted a job without adapters": bool(
            planned.model is not None and planned.model.frozen_elements
        ),
        f"{own} checkpointing is {job.checkpoints}; wanted none or stage": own_module and blocks,
        f"{own} schedule {built.name} splits backwards; wanted another one": own_module and built.splits_backwards,
        f"{own} sample_bytes is {spec.sample_bytes}; wanted 0": own_module and spec.sample_bytes > 0,
        f"{own} runs_on is {spec.runs_on}; wanted cpu": own_module and spec.runs_on != "cpu",
        f"checkpointing is block with schedule {built.name}, which splits backwards; real runs want stage or none, or "
        "another schedule": blocks and built.splits_backwards,
        f"{fragments} the two copies of its tied embedding lie in different fragments, {uncut}": in_turn
        and planned.ties_stages,
        f"{fragments} its clock is paced, {uncut}": planned.fragment_delay > 0 and spec.clock == "paced",
        f"{fragments} it runs on GPUs, whose messages arrive in the order of the program, {uncut}": in_turn
        and spec.runs_on == "cuda",
        f"synchronisation is {job.synchronisation}, which can be simulated; real runs know {', '.join(AVERAGED)}": (
            job.synchronisation not in AVERAGED
        ),
        f"{how} with sharding {job.sharding} {apart} sharding none, {equal}": unlike
        and job.sharding != "none"
        and job.n_replicas > 1,
        f"{how} every {counted(job.synchronise_every, 'iteration')} {apart} every iteration, {equal}": unlike
        and job.synchronise_every > 1,
    }
