"""Hours of a fleet that changes, under a policy; replays of policies at several values of one quantity."""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any, Unpack, overload

import numpy as np

from dtfm_lab.costs.memory import static_memory
from dtfm_lab.domain.errors import JobError, LabError, TraceError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.job.options import OF_ONE_SHAPE
from dtfm_lab.domain.network import MOST_DEVICES, Topology, as_number, shortened
from dtfm_lab.domain.options import takes_options
from dtfm_lab.domain.plan import Plan
from dtfm_lab.extensions.elasticity import played as hours
from dtfm_lab.extensions.elasticity.api import (
    Fleet,
    PlannedFleet,
    Policy,
    ReconfigurationCosts,
    TableFleet,
    foresight,
    policy_of,
)
from dtfm_lab.extensions.elasticity.api import replay as play
from dtfm_lab.extensions.elasticity.availability import Availability
from dtfm_lab.extensions.elasticity.availability_files import load_availability
from dtfm_lab.extensions.elasticity.history import History
from dtfm_lab.extensions.elasticity.policies.restart import Restart, young_s
from dtfm_lab.extensions.elasticity.policy import QUARTER_S
from dtfm_lab.extensions.elasticity.race import RATE, Race, race_over
from dtfm_lab.lab.arguments import as_plan
from dtfm_lab.lab.keywords import RunKeywords
from dtfm_lab.lab.plans import nouns
from dtfm_lab.planning.evaluate import opened
from dtfm_lab.runtime.protocol.run_options import RunOptions

PROCESSES_START_S = 30.0
"""Assumed of a restart, before a checkpoint is read."""
STORAGE_BYTES_PER_S = 1e9
"""Assumed of the storage of checkpoints, for each device."""
AnyFleet = Topology | str | Mapping[int, float]
AnyAvailability = Availability | str | os.PathLike[str]
AnyPolicy = str | Policy


@overload
def replay(
    topology: AnyFleet,
    job: Job | str | float | None,
    availability: AnyAvailability,
    policy: AnyPolicy = ...,
    *,
    over: None = None,
    start_s: float = ...,
    restart_s: float | None = ...,
    regroup_s: float = ...,
    checkpoint_s: float | None = ...,
    notice_s: float = ...,
    price_per_hour: float | None = ...,
    seed: int = ...,
    bound: bool = ...,
    progress: Callable[[float], object] | None = ...,
    **options: Any,
) -> History: ...
@overload
def replay(
    topology: AnyFleet,
    job: Job | str | float | None,
    availability: AnyAvailability,
    policy: AnyPolicy | Sequence[AnyPolicy] = ...,
    *,
    over: str,
    values: Sequence[float] | None = ...,
    precision: float = ...,
    start_s: float = ...,
    restart_s: float | None = ...,
    regroup_s: float = ...,
    checkpoint_s: float | None = ...,
    notice_s: float = ...,
    price_per_hour: float | None = ...,
    seed: int = ...,
    bound: bool = ...,
    progress: Callable[[float], object] | None = ...,
    **options: Any,
) -> Race: ...
def replay(
    topology: AnyFleet,
    job: Job | str | float | None,
    availability: AnyAvailability,
    policy: AnyPolicy | Sequence[AnyPolicy] = "goodput",
    *,
    over: str | None = None,
    values: Sequence[float] | None = None,
    precision: float = 0.05,
    start_s: float = 45.0,
    restart_s: float | None = None,
    regroup_s: float = 2.0,
    checkpoint_s: float | None = None,
    notice_s: float = 0.0,
    price_per_hour: float | None = None,
    seed: int = 0,
    bound: bool = True,
    progress: Callable[[float], object] | None = None,
    **options: Any,
) -> History | Race:
    """What a training run makes of hours in which devices come and go, under a policy (``lab.policies``).

    Every fleet that arises is planned for seconds by the lab, once, in a shape of its own; the same network, job and
    seed share their plans from call to call. An availability is one of those that come with the lab, a file, or an
    ``Availability``; devices of other names than the network's take its seats (``availability.on``). In place of a
    network and a job, a table of measured samples a second by the number of devices, and the samples of a step:
    ``lab.replay({15: 192, 16: 215, ...}, 8192, "bamboo-p3")``.

    With ``over`` one quantity takes several values, under one policy or a list of them, and a Race comes back:
    ``.sentence``, ``.best``, ``.leads``, ``.to_frame()``, drawn by ``lab.figures.race``. ``over="every_s"`` asks how
    often to write checkpoints, ``over="rate"`` at how many times as many changes another policy is the best.

    Parameters
    ----------
    over
        A number that is given here, such as ``notice_s`` or an option of the policy; or ``rate``: the same changes in
        so much less of time.
    values
        Of what varies, a list, or a tuple of lowest, highest and how many. Where the best policy changes between two,
        the place is found by bisecting, to ``precision``, a share of its value.
    start_s
        From a device's coming until it can serve.
    restart_s
        To start all processes again and read a checkpoint: 30 s and the largest device's state at 1 GB/s, if not given.
    regroup_s
        To form new groups of processes that go on living.
    checkpoint_s
        For which training stands still while a checkpoint is written: the largest device's state at 1 GB/s, if not
        given.
    notice_s
        How long before it leaves a device announces it.
    price_per_hour
        US dollars for an hour of every device while it is there, in place of those that the network names.
    bound
        Whether what foresight would make is computed, too.
    progress
        Called with the seconds that have been played, at every change; again while the bound is computed. What it
        raises ends the replay.
    options
        Those of the policy, such as ``every_s``.

    Returns
    -------
    A History: ``.samples``, ``.goodput``, ``.seconds`` by state, ``.share_of_bound``, ``.dollars``, ``.to_frame()``,
    ``.losses_frame()``.

    Raises
    ------
    UnknownName
        No such policy, or option of it.
    TraceError
        An availability that is none.
    PlanError, JobError
        A policy that works with who has left; a job that no device can be planned for.
    """
    if isinstance(availability, str | os.PathLike):
        availability = load_availability(availability)
    if not isinstance(availability, Availability):
        raise TraceError(f"availability is {shortened(availability)}; wanted an Availability, its name or its file")
    if over is not None:
        if not isinstance(topology, Mapping) and not isinstance(job, int | float):
            topology, job = nouns(topology, job)
        if over == EVERY_S and checkpoint_s is None:
            checkpoint_s = _fleet(topology, job, availability, seed)[-1]
        numbers = {
            "start_s": start_s,
            "restart_s": restart_s,
            "regroup_s": regroup_s,
            "checkpoint_s": checkpoint_s,
            "notice_s": notice_s,
            "price_per_hour": price_per_hour,
            "seed": seed,
            "bound": bound,
            "progress": progress,
        }
        of_fleet = partial(replay, topology, job)
        return raced(of_fleet, availability, policy, over, values, precision, numbers, options)
    if not isinstance(policy, str | Policy):
        raise TraceError(f"policy is {shortened(policy)}, and not over; wanted one policy, or what varies, too")
    if values is not None:
        raise TraceError("values are given, and not over; wanted both, such as over='every_s'")
    chosen = policy_of(policy, **options)
    fleet, here, prices, state_s = _fleet(topology, job, availability, seed, chosen, name_of(policy))
    if price_per_hour is not None:
        prices = np.full(len(here.devices), _priced(price_per_hour))
    costs = ReconfigurationCosts(
        start_s=start_s,
        restart_s=PROCESSES_START_S + state_s if restart_s is None else restart_s,
        regroup_s=regroup_s,
        checkpoint_s=state_s if checkpoint_s is None else checkpoint_s,
        notice_s=notice_s,
    )
    history = play(here, fleet, chosen, costs, name=name_of(policy), price_per_hour=prices, progress=progress)
    if not bound:
        return history
    known = foresight(here, fleet, costs, full_batch=chosen.full_batch, progress=progress)
    return replace(history, foresight=known)


def name_of(policy: str | Policy) -> str:
    """Under which name a policy's history goes."""
    return policy if isinstance(policy, str) else type(policy).__name__.lower()


@takes_options(RunOptions)
def run_hours(
    plan: Plan | str,
    schedule: Any = None,
    *,
    availability: AnyAvailability | None = None,
    policy: AnyPolicy | None = None,
    start_s: float = 45.0,
    restart_s: float | None = None,
    regroup_s: float = 2.0,
    progress: Callable[[Any], None] | None = None,
    **options: Unpack[RunKeywords],
) -> History:
    """Play the hours of an availability on the paced clock; ``lab.run`` with an ``availability``.

    Workers are killed and started as devices leave and come, and ``policy`` (oobleck, if none is given) says how the
    run goes on, each time by a plan of the lab for who is there, on the network and for the job of ``plan``. An hour
    takes ``time_scale`` hours. ``start_s``, ``restart_s`` and ``regroup_s`` are as in ``replay``, which predicts these
    hours; a change takes at least what they say. Policies by which a device does another stage beside its own or leaves
    one out, such as bamboo and skippipe, and rounds of local steps are refused with LabError. Other options are those
    of ``start``.
    """
    if availability is None:
        raise LabError(f"policy is {shortened(policy)} without an availability; wanted both, or neither")
    if schedule is not None:
        raise LabError(f"schedule is {schedule} beside an availability, whose plans have their own; wanted none")
    plan, policy = as_plan(plan), policy or "oobleck"
    if isinstance(availability, str | os.PathLike):
        availability = load_availability(availability)
    chosen, name = policy_of(policy), name_of(policy)
    fleet, here, _, state_s = _fleet(plan.topology, opened(plan), availability, 0, chosen, name)
    restart_s = PROCESSES_START_S + state_s if restart_s is None else restart_s
    costs = ReconfigurationCosts(start_s=start_s, restart_s=restart_s, regroup_s=regroup_s)
    hours.refuse_unplayable(play(here, fleet, chosen, costs, name=name))  # every fleet is planned by then
    return hours.run_hours(here, fleet, chosen, costs, name=name, progress=progress, **options)


def _priced(price: object) -> float:
    number = as_number(price)
    if number is None or not 0 <= number < np.inf:
        raise TraceError(f"price_per_hour is {shortened(price)}; wanted US dollars, 0 or more")
    return number


def _devices(given: object) -> int:
    number = as_number(given)
    if number is None or number < 1 or number != math.floor(min(number, MOST_DEVICES)):
        raise TraceError(f"table: {shortened(given)} devices; wanted a whole number, 1 to {MOST_DEVICES:,}")
    return int(number)


def _rate(n: object, given: object) -> float:
    number = as_number(given)
    if number is None or not 0 <= number < np.inf:
        raise TraceError(f"table: {shortened(given)} samples a second of {n} devices; wanted a number, 0 or more")
    return number


def _fleet(
    topology: Topology | str | Mapping[int, float],
    job: Job | str | float | None,
    availability: Availability,
    seed: int,
    policy: Policy | None = None,
    name: str = "",
) -> tuple[Fleet, Availability, Any, float]:
    """The fleet, who of it is there when, its prices by device, and the seconds that its state takes to write."""
    if isinstance(topology, Mapping):
        if isinstance(job, bool) or not isinstance(job, int | float) or as_number(job) is None:
            raise JobError(f"job is {job!r} beside a table; wanted the samples of a step")
        table = {_devices(n): _rate(n, rate) for n, rate in topology.items()}
        n = len(availability.devices)
        return TableFleet(n_devices=n, samples_per_s=table, batch=float(job)), availability, np.zeros(n), 0.0
    if isinstance(job, int | float):
        raise JobError(f"job is {job!r}; wanted a job, or a table of samples a second in place of the network")
    network, job = nouns(topology, job)
    job = job.with_fields(**dict.fromkeys(OF_ONE_SHAPE))
    if policy is not None and policy.local_steps > 1:
        try:
            job = job.with_fields(synchronise_every=policy.local_steps)
        except JobError as error:
            what = f"policy {name} sets synchronise_every to its {policy.local_steps} local_steps"
            raise JobError(f"{what}: {error}, or another policy") from None
    fleet = _planned(_Key((network.fingerprint, network.names, repr(job)), network, job), seed)
    prices = np.array([device.price_per_hour for device in network.devices])
    everyone = range(len(network))
    whole = fleet.plan(frozenset(everyone)) or fleet.searched(everyone)  # which says why there is none
    held = static_memory(whole.job.with_fields(context_parallel=1, expert_parallel=1), len(whole.stages))
    state_bytes = float((held.parameters + held.optimizer).max())
    return fleet, availability.on(network), prices, state_bytes / STORAGE_BYTES_PER_S


@dataclass(frozen=True)
class _Key:
    """A network and a job, equal where their numbers are."""

    identity: tuple[object, ...]
    network: Topology = field(compare=False)
    job: Job = field(compare=False)


@lru_cache(maxsize=4)
def _planned(key: _Key, seed: int) -> PlannedFleet:
    return PlannedFleet(network=key.network, job=key.job, seed=seed)


EVERY_S = "every_s"
"""The option of every policy that says how often it writes a checkpoint."""
USUAL = {RATE: (2.0, 7), EVERY_S: (2**0.5, 11)}
"""Where no values are given: the ratio of two, and how many."""
MOST_VALUES = 1000


def raced(
    replay: Callable[..., History],
    availability: Availability,
    policy: str | Policy | Sequence[str | Policy],
    over: str,
    values: Sequence[float] | None,
    precision: float,
    numbers: Mapping[str, Any],
    options: Mapping[str, Any],
) -> Race:
    """The race of one policy or several over a quantity; ``numbers`` and ``options`` are what else the replays take,
    the numbers that are theirs and those that are the policy's. Raises TraceError."""
    asked = [policy] if isinstance(policy, str | Policy) else list(policy)
    if not asked:
        raise TraceError("policy is an empty list; wanted one policy at least")
    share = as_number(precision)
    if share is None or not 0 < share <= 1:
        raise TraceError(f"precision is {shortened(precision)}; wanted a share above 0, at most 1")

    def play(value: float) -> tuple[History, ...]:
        hours = availability.faster(value) if over == RATE else availability
        changed = {} if over == RATE else {over: value}
        return tuple(replay(hours, one, **{**numbers, **options, **changed}) for one in asked)

    first = policy_of(asked[0], **options)
    goes_back = len(asked) == 1 and isinstance(first, Restart) and first.loses_steps and not first.every_steps
    writes_s = numbers["checkpoint_s"]
    return Race(
        over=over,
        points=race_over(play, _values(over, values, writes_s, availability), share),
        checkpoint_s=writes_s if over == EVERY_S and goes_back else None,
    )


def _values(
    over: str, given: Sequence[float] | None, writes_s: float | None, availability: Availability
) -> Sequence[float]:
    """The values of what varies, ascending. Raises TraceError for any that are none."""
    wanted = f"wanted 1 to {MOST_VALUES} numbers, or a tuple of lowest, highest and how many"
    if given is None:
        if over not in USUAL:
            raise TraceError(f"{over} varies, and no values are given; {wanted}")
        between_s = availability.mean_between_losses_s
        centre = 1.0 if over == RATE else QUARTER_S
        if over == EVERY_S and writes_s and between_s < np.inf:
            centre = young_s(writes_s, between_s)
        ratio, n = USUAL[over]
        return [float(centre * ratio ** (i - n // 2)) for i in range(n)]
    listed = isinstance(given, Sequence | np.ndarray) and not isinstance(given, str)
    numbers = [as_number(value) for value in given] if listed else []
    checked = [value for value in numbers if value is not None and 0 <= value < np.inf]
    if not 1 <= len(numbers) <= MOST_VALUES or len(checked) < len(numbers):
        raise TraceError(f"values of {over} are {shortened(given)}; {wanted}")
    if isinstance(given, tuple) and len(given) == 3:
        low, high, several = checked
        if not (0 < low < high and several in range(2, MOST_VALUES + 1)):
            raise TraceError(f"values of {over} are {shortened(given)}; {wanted}")
        return [float(value) for value in np.geomspace(low, high, int(several))]
    return sorted(set(checked))
