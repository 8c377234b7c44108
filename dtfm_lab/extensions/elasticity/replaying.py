"""Replay hours of a changing fleet under a policy, or under several policies at several values of one quantity."""

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
"""Assumed seconds of a restart without the reading of a checkpoint."""
STORAGE_BYTES_PER_S = 1e9
"""Assumed bandwidth of checkpoint storage for each device."""
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
    """Predict a training run over hours in which devices come and go, under a policy (one of ``lab.policies``).

    The lab plans every set of online devices that occurs, in the shape that is best for it. Calls with the same
    network, job and seed share these plans. The availability is the name of one that ships with the lab, a file, or an
    ``Availability``. If its devices are not the network's, they take the network's free devices (``availability.on``).
    Instead of a network and a job, you may give measured samples per second by number of devices, and the samples per
    step: ``lab.replay({15: 192, 16: 215, ...}, 8192, "bamboo-p3")``.

    With ``over``, one quantity takes several values, under one policy or a list of them. The result is a Race:
    ``.sentence``, ``.best``, ``.leads``, ``.to_frame()``, displayed by ``lab.figures.race``. ``over="every_s"`` finds
    how often to write checkpoints. ``over="rate"`` finds how many times faster devices must come and go until another
    policy is best.

    Parameters
    ----------
    over
        A numeric argument of this function, such as ``notice_s``, or an option of the policy. Or ``rate``: at rate r,
        the same changes happen r times as fast.
    values
        Values of ``over``: a list, or a tuple (lowest, highest, number of values). Only ``every_s`` and ``rate`` have
        default values. Where the best policy changes between two values, the place is found by bisection.
    precision
        Precision of that place, as a share of its value.
    start_s
        Seconds from a device's arrival until it is ready.
    restart_s
        Seconds to restart all processes and read a checkpoint. Default: 30 s, plus the largest device's state at 1
        GB/s.
    regroup_s
        Seconds to form new groups of running processes.
    checkpoint_s
        Seconds for which training pauses to write a checkpoint. Default: the largest device's state at 1 GB/s.
    notice_s
        Seconds of notice before a device leaves.
    price_per_hour
        US dollars per hour of every device while it is online, instead of the prices of the network.
    bound
        True to compute the bound of perfect foresight too.
    progress
        Called with the seconds played so far, at every change, and again while the bound is computed. An exception
        that it raises ends the replay.
    options
        Options of the policy, such as ``every_s``.

    Returns
    -------
    A History: ``.samples``, ``.goodput``, ``.seconds`` by state, ``.share_of_bound``, ``.dollars``, ``.to_frame()``,
    ``.losses_frame()``. With ``over``, a Race.

    Raises
    ------
    UnknownName
        Unknown policy or option.
    TraceError
        Not an availability, or a value that is out of range.
    PlanError, JobError
        A policy uses devices that have left, or no plan fits the job.
    """
    if isinstance(availability, str | os.PathLike):
        availability = load_availability(availability)
    if not isinstance(availability, Availability):
        raise TraceError(f"availability is {shortened(availability)}; wanted an Availability, its name or its file")
    if over is not None:
        if not isinstance(topology, Mapping) and not isinstance(job, int | float):
            topology, job = nouns(topology, job)
        # The cost of a checkpoint determines which intervals are worth trying, so it is needed first.
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
        raise TraceError(f"policy is {shortened(policy)} without over; wanted one policy, or over as well")
    if values is not None:
        raise TraceError("values are given without over; wanted both, such as over='every_s'")
    chosen = policy_of(policy, **options)
    fleet, here, prices, state_s = _fleet(topology, job, availability, seed, chosen, name_of(policy))
    if price_per_hour is not None:
        prices = np.full(len(here.devices), _priced(price_per_hour))
    costs = ReconfigurationCosts(
        start_s=start_s,
        # Processes start again, and each reads its state from storage.
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
    """Return the name under which a policy's history is listed."""
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
    """Run a plan for real while devices come and go, on the paced clock. ``lab.run`` with an ``availability`` calls
    this.

    Workers are killed and started as devices leave and arrive. ``policy`` (oobleck by default) decides how the run
    continues. It uses the lab's plans for the devices online, on the network and for the job of ``plan``. An hour of
    the availability takes ``time_scale`` hours.

    ``start_s``, ``restart_s`` and ``regroup_s`` are as in ``replay``, which predicts these hours. A change in the run
    takes at least as many seconds. Raises LabError if the prediction contains what workers cannot do: rounds of local
    steps (diloco), a device that does the work of two stages (bamboo), or a skipped stage (skippipe). Other options are
    passed to ``start``.
    """
    if availability is None:
        raise LabError(f"policy is {shortened(policy)} without an availability; wanted both, or neither")
    if schedule is not None:
        raise LabError(f"schedule is {schedule} with an availability, whose plans bring their own; wanted none")
    plan, policy = as_plan(plan), policy or "oobleck"
    if isinstance(availability, str | os.PathLike):
        availability = load_availability(availability)
    chosen, name = policy_of(policy), name_of(policy)
    fleet, here, _, state_s = _fleet(plan.topology, opened(plan), availability, 0, chosen, name)
    restart_s = PROCESSES_START_S + state_s if restart_s is None else restart_s
    costs = ReconfigurationCosts(start_s=start_s, restart_s=restart_s, regroup_s=regroup_s)
    # Refuse before any worker starts. The replay (`play`) has planned all fleets by then.
    hours.refuse_unplayable(play(here, fleet, chosen, costs, name=name))  # also plans every fleet
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
        raise TraceError(f"table: {shortened(given)} samples per second of {n} devices; wanted a number, 0 or more")
    return number


def _fleet(
    topology: Topology | str | Mapping[int, float],
    job: Job | str | float | None,
    availability: Availability,
    seed: int,
    policy: Policy | None = None,
    name: str = "",
) -> tuple[Fleet, Availability, Any, float]:
    """Return the fleet, the availability of its devices, their prices in US dollars per hour, and the seconds to write
    the largest device's state (0 with a table). Raises JobError for a job that does not suit the network or table."""
    if isinstance(topology, Mapping):
        if isinstance(job, bool) or not isinstance(job, int | float) or as_number(job) is None:
            raise JobError(f"job is {job!r} with a table; wanted the samples per step")
        table = {_devices(n): _rate(n, rate) for n, rate in topology.items()}
        n = len(availability.devices)
        return TableFleet(n_devices=n, samples_per_s=table, batch=float(job)), availability, np.zeros(n), 0.0
    if isinstance(job, int | float):
        raise JobError(f"job is {job!r}; wanted a job, or a table of samples per second instead of the network")
    network, job = nouns(topology, job)
    # A fleet of another size needs another shape, so fields that fit only one are left open.
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
    whole = fleet.plan(frozenset(everyone)) or fleet.searched(everyone)  # raises with the reason
    held = static_memory(whole.job.with_fields(context_parallel=1, expert_parallel=1), len(whole.stages))
    state_bytes = float((held.parameters + held.optimizer).max())
    return fleet, availability.on(network), prices, state_bytes / STORAGE_BYTES_PER_S


@dataclass(frozen=True)
class _Key:
    """A network and a job as the key of a cache. Keys are equal if their contents are."""

    identity: tuple[object, ...]
    network: Topology = field(compare=False)
    job: Job = field(compare=False)


@lru_cache(maxsize=4)
def _planned(key: _Key, seed: int) -> PlannedFleet:
    return PlannedFleet(network=key.network, job=key.job, seed=seed)


EVERY_S = "every_s"
"""Name of the option of every policy for the seconds between two checkpoints."""
USUAL = {RATE: (2.0, 7), EVERY_S: (2**0.5, 11)}
"""Default values of a quantity, by its name: (ratio between neighbouring values, number of values). They are centred on
1 for the rate. For checkpoints, they are centred on Young's interval if it is known, otherwise on ``QUARTER_S``."""
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
    """Replay one or several policies at several values of the quantity ``over``, and return the Race. Raises TraceError
    for impossible values, an impossible precision, or an empty list of policies.

    ``numbers`` are the other arguments of the replays, and ``options`` are the arguments of the policies.
    """
    asked = [policy] if isinstance(policy, str | Policy) else list(policy)
    if not asked:
        raise TraceError("policy is an empty list; wanted at least one policy")
    share = as_number(precision)
    if share is None or not 0 < share <= 1:
        raise TraceError(f"precision is {shortened(precision)}; wanted a share above 0, at most 1")

    def play(value: float) -> tuple[History, ...]:
        hours = availability.faster(value) if over == RATE else availability
        changed = {} if over == RATE else {over: value}
        return tuple(replay(hours, one, **{**numbers, **options, **changed}) for one in asked)

    first = policy_of(asked[0], **options)
    # Young's formula is for one policy that goes back to a checkpoint, so only that one is marked.
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
    """Return the given or default values of the quantity, ascending. Raises TraceError for impossible ones."""
    wanted = f"wanted 1 to {MOST_VALUES} numbers, or a tuple of lowest, highest and number of values"
    if given is None:
        if over not in USUAL:
            raise TraceError(f"{over} varies, and no values are given; {wanted}")
        between_s = availability.mean_between_losses_s
        centre = 1.0 if over == RATE else QUARTER_S
        if over == EVERY_S and writes_s and between_s < np.inf:
            # Around Young's interval, where the best one is expected.
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
        # By a factor, because rates and intervals matter by their ratio.
        return [float(value) for value in np.geomspace(low, high, int(several))]
    return sorted(set(checked))
