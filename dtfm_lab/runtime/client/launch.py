"""Start a real run from a process without torch. An impossible run is refused before any process starts.

In a mystery run, one link or one device is secretly slow, and the learner finds out which from the errors of the
prediction. Only the ``Secret`` names it: the run's record and its trace do not. A prediction knows nothing of it. The
profile is taken before a device is slowed, and predictions use the plan's links, not the emulated ones.
"""

import importlib.util
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from dtfm_lab.domain.errors import JobError, LabError, MissingExtra
from dtfm_lab.domain.network import Topology, shortened
from dtfm_lab.domain.options import takes_options
from dtfm_lab.domain.plan import Plan, subplan_for
from dtfm_lab.domain.schedule import Schedule
from dtfm_lab.domain.trace import LINK_SEPARATOR, SMALL_MODEL, Subplan, part_words
from dtfm_lab.domain.units import counted
from dtfm_lab.runtime.client.gpu_inventory import check_runs_on, why_too_large_for_gpus
from dtfm_lab.runtime.client.run import Run
from dtfm_lab.runtime.client.run_checks import (
    MOST_WORKERS,
    checked_spec,
    why_not_trained,
    why_too_large,
    with_checkpoint,
    writable_folder,
)
from dtfm_lab.runtime.protocol import checkpoint_folders
from dtfm_lab.runtime.protocol.locks import check_unlocked
from dtfm_lab.runtime.protocol.run_options import RunOptions, RunSpec

DEFAULT_ITERATIONS = {"virtual": 20, "paced": 5, "real": 20}
"""Default number of iterations by clock. On the virtual and the real clock they bring the loss of the job ``small``
below the unigram entropy."""
DEFAULT_WORKERS = 8
"""Default maximum number of workers for a plan with more than MOST_WORKERS devices. Only a part of such a plan runs."""


@takes_options(RunOptions, noun="option of a run")
def start(plan: Plan, schedule: str | Schedule | None = None, **options: Any) -> Run:
    """Start one torch worker per stage and replica on this machine, and return at once.

    ``schedule`` is a name in ``schedules`` or a Schedule; None for the job's own. ``options`` are RunOptions.

    Raises
    ------
    MissingExtra
        torch is not installed.
    UnknownName, JobError, LabError
        The schedule or clock is unknown, an option is out of range, a file or folder cannot be used, this machine
        cannot compute the job, or the job has only message sizes.
    TopologyError
        ``emulated`` has another number of devices, or devices share a NIC on the paced clock.
    ScheduleError
        The schedule would deadlock, or was made for other numbers of stages or micro-batches.
    """
    return Run(prepare(plan, schedule, RunOptions(**options)))


def prepare(plan: Plan, schedule: str | Schedule | None, options: RunOptions) -> RunSpec:
    """Return the specification that the processes of a run receive. Raises what ``start`` raises."""
    clock = options.clock
    if options.queueing == "nics" and clock != "virtual":
        raise LabError(
            f"queueing is nics on the {clock} clock; wanted the virtual clock, or pairs: when a message gets its turn "
            f"at its receiver's NIC depends on messages that are still to be sent, which no worker can wait for"
        )
    plan.job.modelled()
    running, part = what_runs(plan, options.workers)
    check_runs_on(options.runs_on, running.job.n_tasklets, clock)
    spec = checked_spec(
        running,
        schedule,
        options,
        cannot=bool(why_not_trained(running.job)),
        subplan=part,
        iterations=options.iterations or DEFAULT_ITERATIONS[clock],
        checkpoint_folder=writable_folder("checkpoint_folder", options.checkpoint_folder),
    )
    # Before the text is read or torch loaded: the quickest check first.
    if reason := why_too_large(spec.trained) or why_too_large_for_gpus(spec):
        raise JobError(f"job {spec.trained.name}: {reason}")
    spec = _check_files(spec)
    # Only found, not loaded, because loading takes seconds.
    if importlib.util.find_spec("torch") is None:
        raise MissingExtra("real runs need torch, which is not installed: pip install 'dtfm_lab[train]'")
    return spec


def what_runs(plan: Plan, workers: int | Sequence[int] | None) -> tuple[Plan, Subplan | None]:
    """Return the part of the plan that this many workers can run, and a description of it (None for the whole plan).

    With ``workers`` None, a plan for more than MOST_WORKERS devices is reduced to a part for at most DEFAULT_WORKERS.
    Raises what ``subplan_for`` raises, or LabError if there would be too many workers for this machine.
    """
    if workers is None:
        # If the caller gives no number, a part of a large plan runs instead of an error.
        return (plan, None) if plan.job.n_tasklets <= MOST_WORKERS else subplan_for(plan, DEFAULT_WORKERS)
    running, part = subplan_for(plan, workers)
    if (needed := running.job.n_tasklets) > MOST_WORKERS:
        raise LabError(
            f"workers is {shortened(workers)}: {counted(running.job.n_stages, 'stage')} x "
            f"{counted(running.job.n_replicas, 'pipeline')} need {needed} on this machine; wanted at most "
            f"{MOST_WORKERS:,}"
        )
    return running, part


def what_would_run(plan: Plan) -> str:
    """Describe what ``start`` would train here: the part of the plan, such as "one pipeline of 8", and the model that
    replaces the job's.

    Empty if the whole plan would run with its own model. Raises LabError if nothing could run.
    """
    running, part = what_runs(plan, None)
    return part_words(part, SMALL_MODEL if why_not_trained(running.job) else "")


def _check_files(spec: RunSpec) -> RunSpec:
    """Check all files of the run. Return the spec with the newest checkpoint of the folder that it resumes from."""
    _ = spec.corpus  # refuses a text that is too short
    if spec.checkpoint_every and spec.checkpoint_folder is None:
        raise LabError(f"checkpoint_every is {spec.checkpoint_every} without a checkpoint_folder; wanted both")
    spec = with_checkpoint(spec)
    if spec.checkpoint_folder is not None:
        check_unlocked(spec.checkpoint_folder)
        checkpoint_folders.check_free(spec.checkpoint_folder, spec.first_iteration)
    return spec


FACTOR = 3.0
"""Factor by which a mystery run slows its secret link or device. On a busy machine, computations differ by only 10
to 20 %."""


class Secret(NamedTuple):
    """The link or device that was made slow, and by which factor."""

    of: str
    """What was made slow: ``link`` or ``device``."""
    name: str
    """The device, or the link as "a -> b"."""
    factor: float


def start_mystery(
    plan: Plan, schedule: str | Schedule | None, secret: Secret | np.random.Generator, **options: Any
) -> tuple[Run, Secret]:
    """Start a run in which the secret link or device is slow. Return the run and the secret.

    ``secret`` is the secret itself, or a generator that chooses one at random. Links are slowed only if they are
    emulated, so not on the real clock. Raises what ``start`` raises, and JobError for a link that is not emulated, or
    that carries no message in this run.
    """
    spec = prepare(plan, schedule, RunOptions(**options))
    if not isinstance(secret, Secret):
        secret = draw(spec, secret)
    if secret.of == "link" and (spec.clock == "real" or secret.name not in _links_of(spec)):
        raise JobError(
            f"this run does not emulate the link {secret.name}; wanted the whole plan, and not the real clock"
        )
    if secret.of == "link":
        network = spec.plan.topology if spec.emulated is None else spec.emulated
        return Run(replace(spec, emulated=with_slow_link(network, secret, spec.plan.topology.names))), secret
    rank = next(rank for rank, worker in enumerate(spec.workers) if spec.device_name(*worker) == secret.name)
    return Run(replace(spec, slow_worker=(rank, secret.factor))), secret


def draw(spec: RunSpec, rng: np.random.Generator) -> Secret:
    """Return a random secret: a link that carries messages, or a device that computes."""
    names, links = [spec.device_name(*worker) for worker in spec.workers], _links_of(spec)
    # The real clock emulates no links, so none can be slowed.
    of = "link" if links and spec.clock != "real" and rng.random() < 0.5 else "device"
    return Secret(of, str(rng.choice(links if of == "link" else names)), FACTOR)


def _links_of(spec: RunSpec) -> list[str]:
    """Return the links that carry messages, each as "a -> b"."""
    names = [spec.device_name(*worker) for worker in spec.workers]
    return [
        f"{names[rank]}{LINK_SEPARATOR}{names[target]}"
        for rank, worker in enumerate(spec.workers)
        for target in spec.targets(*worker)
    ]


def with_slow_link(network: Topology, secret: Secret, names: Sequence[str]) -> Topology:
    """Return the network with the secret's link slower in its direction only.

    The secret uses names of the plan's devices. ``names`` holds these in the order of the network's devices, which may
    have other names.
    """
    source, target = secret.name.split(LINK_SEPARATOR)
    i, j = names.index(source), names.index(target)
    return network.with_link(
        network.names[i],
        network.names[j],
        latency_s=float(network.latency_s[i, j]) * secret.factor,
        bandwidth_bytes_per_s=float(network.bandwidth_bytes_per_s[i, j]) / secret.factor,
        one_way=True,
    )
