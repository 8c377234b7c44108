"""The interface of a policy, and the registry of policies.

The replay asks a policy when the fleet changes. It asks again when the policy's last answer requests it: at the end of
a step, at the next checkpoint, or at a chosen time. The policy answers which operation to use next, after what pause,
and what happens to the current work. The replay does the rest: it counts steps, writes checkpoints and accounts for
every second.

A complete example, which uses all devices online and loses the current step at every loss::

    @policies.register("naive")
    @dataclass(frozen=True)
    class Naive(Policy):
        def decide(self, now: Situation) -> Response | None:
            if not now.lost and now.operation is not None:
                return None  # arrivals wait for the next loss
            return Response(now.fleet.operation(now.present), pause_s=now.costs.restarting(len(now.present)))
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum, auto
from functools import wraps
from typing import Any, Concatenate, Literal, ParamSpec, Protocol, TypeVar, get_args, get_origin, get_type_hints

from dtfm_lab.domain.errors import PlanError, TraceError
from dtfm_lab.domain.network import as_number, shortened
from dtfm_lab.domain.options import refuse_unknown
from dtfm_lab.domain.registry import Registry
from dtfm_lab.domain.units import IntArray
from dtfm_lab.extensions.elasticity.history import Operation
from dtfm_lab.extensions.elasticity.moments import NOBODY, Moment

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")
QUARTER_S = 900.0
"""Default seconds between two checkpoints. All built-in policies but ``varuna``, which counts steps, use the same
default, so that none has an advantage."""


REMEMBERED = 16
"""Number of earlier sets of online devices that a policy sees."""
REMEMBERED_LOSSES = 64
"""Number of past instants with departures that a policy sees."""


def kept(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """Decorate a method so that its results are cached by its arguments, for as long as its object lives."""

    @wraps(method)
    def known(self: S, /, *args: P.args, **keywords: P.kwargs) -> T:
        # In the object itself, so that the cache goes with it.
        results = vars(self).setdefault(f"_kept_{method.__name__}", {})
        key = (*args, *keywords.items())
        if key not in results:
            results[key] = method(self, *args, **keywords)
        found: T = results[key]
        return found

    return known


class Fleet(Protocol):
    """How fast any subset of the devices trains, and how long it takes to move state. The numbers come from the lab's
    plans or from a table."""

    @property
    def n_devices(self) -> int:
        """Number of devices of the whole fleet."""

    def operation(self, present: frozenset[int], current: Operation | None = None) -> Operation | None:
        """Return the best known operation that uses some or all of these devices. None if they are too few.

        If several are equally good, it is one in which few devices change the stage that they have in ``current``.
        """

    def without(self, operation: Operation, lost: frozenset[int]) -> Operation | None:
        """Return the operation without the pipelines of the lost devices, or None if no pipeline is left."""

    def rerouted(self, operation: Operation, lost: frozenset[int]) -> Operation | None:
        """Return the operation in which the peers of lost devices, which hold the same stage, do their work.

        None if a stage has no device left, or if its peers cannot take over the work.
        """

    def shared(
        self, other: frozenset[int], present: frozenset[int], current: Operation | None, above: float
    ) -> Operation | None:
        """Return the best known operation of another set of devices, adapted to the devices online.

        If ``other`` is larger, peers of the same stage share the work of its missing devices. If it is smaller, all its
        devices must be online, and the rest stand by. None if the other set has no operation, if peers cannot share the
        work, or if the operation cannot exceed ``above`` samples per second.
        """

    def survives(self, operation: Operation, lost: frozenset[int]) -> bool:
        """Return True if every stage still has a device that holds its parameters and optimizer state."""

    def grid(self, operation: Operation) -> IntArray:
        """Return (stages, replicas) indices of the devices with which the operation started, including those that have
        left."""

    def move_s(self, old: Operation | None, new: Operation) -> float:
        """Return the seconds to send parameters and optimizer state to devices that change their stage."""

    def most_samples_per_s(self, present: frozenset[int], *, full_batch: bool) -> float:
        """Return an upper bound on the samples per second of any way to train with some of these devices.

        With ``full_batch``, the bound only has to hold for steps that train on the job's whole batch, so it may be
        lower.
        """


@dataclass(frozen=True, kw_only=True)
class ReconfigurationCosts:
    """Durations that do not follow from the plan. The defaults are assumptions: replace them by measured values.

    Raises TraceError for a value that is negative, infinite, or neither a number nor a function.
    """

    start_s: float = 45.0
    """Seconds from a device's arrival until it is ready: 45 s in Bamboo's and Oobleck's simulators."""
    restart_s: float | Callable[[int], float] = 30.0
    """Seconds to restart all processes and load a checkpoint, or a function that computes them from the number of
    devices."""
    regroup_s: float | Callable[[int], float] = 2.0
    """Seconds to form new groups of running processes, or a function that computes them from the number of devices: 2 s
    for BERT-large in Oobleck's simulator."""
    checkpoint_s: float = 0.0
    """Seconds for which training pauses to write a checkpoint."""
    notice_s: float = 0.0
    """Seconds of notice before a device leaves. Clouds promise 30 to 120 s."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            number = as_number(value)
            if not callable(value) and (number is None or not 0 <= number < math.inf):
                raise TraceError(f"{field.name} is {shortened(value)}; wanted seconds, 0 or more")

    def restarting(self, n_devices: int) -> float:
        """Return the seconds of a restart with ``n_devices``."""
        return self.restart_s(n_devices) if callable(self.restart_s) else self.restart_s

    def regrouping(self, n_devices: int) -> float:
        """Return the seconds to form new groups of ``n_devices``."""
        return self.regroup_s(n_devices) if callable(self.regroup_s) else self.regroup_s


class WorkKept(Enum):
    """How much work remains when a policy's answer takes effect."""

    STEP = auto()
    """Everything: the current step continues at the new operation's speed."""
    STEPS = auto()
    """All whole steps. The current step is lost."""
    CHECKPOINT = auto()
    """Only what the newest checkpoint holds. Later steps are lost."""


class PolicyEvent(Enum):
    """Why a policy is asked, or when it wants to be asked again without a change."""

    CHANGE = auto()
    """A device left, became ready, or announced its departure."""
    STEP = auto()
    """A step has ended."""
    CHECKPOINT = auto()
    """A checkpoint has been written."""
    TIME = auto()
    """The requested time has come."""


@dataclass(slots=True)  # made at every change: a frozen one takes three times as long
class Response:
    """A policy's answer: what to do next."""

    operation: Operation | None
    """The operation to use next; None to wait until something changes."""
    pause_s: float = 0.0
    """Seconds of the pause until the operation starts."""
    keeps: WorkKept = WorkKept.STEPS
    meanwhile: bool = False
    """True if the previous operation continues to train during the pause, while the next one is prepared. All its
    devices must still be online, as after an arrival or an announced departure. The answer to a loss is an exception:
    as in some published simulators, lost devices then work until the pause ends."""
    after_s: float | None = None
    """Seconds to prepare the operation while the previous one continues. The switch follows as soon as a step ends
    after that. It is cancelled if the policy is asked again before. None to switch at once."""
    checkpoint_next: bool = False
    """True if a checkpoint is written after the operation's first step."""
    every_s: float | None = None
    """Seconds of training between two checkpoints from now on. None keeps the interval."""
    again: PolicyEvent | float | None = None
    """When to ask the policy again: at the end of a step, at a checkpoint, or after this many seconds. None for only at
    the next change."""


@dataclass(slots=True, kw_only=True)
class Situation:
    """What a policy knows when it is asked: the present and the past, never the future. Devices are given by index."""

    time_s: float
    asked: PolicyEvent
    fleet: Fleet
    costs: ReconfigurationCosts
    present: frozenset[int]
    """Devices that are ready now."""
    operation: Operation | None
    """The current operation, or the next one during a pause; None if there is neither."""
    lost: frozenset[int]
    """Devices of the operation that have left."""
    left: frozenset[int]
    """Devices that have just left, in use or not."""
    leaving: frozenset[int]
    """Devices that have announced their departure."""
    earlier: Collection[frozenset[int]]
    """The sets of devices that were ready before each of the latest changes, at most ``REMEMBERED`` of them, the latest
    last."""
    pause_left_s: float
    """Seconds until the operation starts; 0 if it has started."""
    reading: bool
    """True if the current pause is a restart, in which every device reads a checkpoint, so no state has to be moved."""
    meanwhile: bool
    """True if the previous operation continues to train until the pause ends."""
    step_done: float
    """Share of the current step that is done."""
    losses: int
    """Number of instants with departures so far."""
    departures: Sequence[tuple[float, frozenset[int]]]
    """Time and devices of the latest departures, at most ``REMEMBERED_LOSSES`` instants, the latest last."""
    setbacks: int
    """Number of times so far that training went back to a checkpoint."""
    device_s: float
    """Seconds that devices were ready so far, summed over devices."""

    def move_s(self, new: Operation) -> float:
        """Return the seconds to move state for a switch to ``new``. 0 while all devices read a checkpoint."""
        return 0.0 if self.reading else self.fleet.move_s(self.operation, new)

    @property
    def spare(self) -> frozenset[int]:
        """Devices that are ready and not in use."""
        return self.present if self.operation is None else self.present - self.operation.devices

    @property
    def mean_life_s(self) -> float:
        """Mean seconds that a device lasts, as far as is known: device-seconds so far per loss. One extra loss is
        counted, so that the result is finite before the first."""
        return self.device_s / (self.losses + 1)


class FleetSoFar:
    """What a policy may know of its fleet: the devices that are ready, and what has happened so far.

    Both replays and real runs keep it up to date.
    """

    def __init__(self, fleet: Fleet, costs: ReconfigurationCosts) -> None:
        self.fleet, self.costs = fleet, costs
        self.present = self.leaving = NOBODY
        self.earlier: deque[frozenset[int]] = deque(maxlen=REMEMBERED)
        self.losses = self.setbacks = 0
        self.departures: deque[tuple[float, frozenset[int]]] = deque(maxlen=REMEMBERED_LOSSES)
        self.device_s = 0.0

    def change(self, moment: Moment) -> None:
        """Let devices leave, become ready, or announce their departure."""
        left = moment.left
        self.earlier.append(self.present)
        # Most moments are of one kind, and copying a set of devices takes time.
        if left:
            # Several devices that leave at one instant are one loss.
            self.losses += 1
            self.departures.append((moment.time_s, left))
            self.present = self.present - left
        if moment.ready:
            self.present = self.present | moment.ready
        if left or moment.leaving or self.leaving:
            self.leaving = (self.leaving - left) | moment.leaving

    def situation(self, **now: Any) -> Situation:
        """Return the situation in which a policy is asked. ``now`` has the fields of ``Situation`` about the current
        work."""
        return Situation(
            fleet=self.fleet,
            costs=self.costs,
            present=self.present,
            leaving=self.leaving,
            earlier=self.earlier,
            losses=self.losses,
            departures=self.departures,
            setbacks=self.setbacks,
            device_s=self.device_s,
            **now,
        )


@dataclass(frozen=True, kw_only=True)
class Policy:
    """How a run responds to changes of its fleet.

    The fields of a policy are its options: numbers of 0 or more, booleans, or one of several words. Raises TraceError
    for other values.
    """

    every_steps: int = 0
    """Steps between two checkpoints. Steps that a loss undoes count, too. 0 if checkpoints do not depend on steps."""
    every_s: float = math.inf
    """Seconds of training between two checkpoints, rounded to whole steps. Infinite if checkpoints do not depend on
    time."""

    local_steps = 1
    """Local steps between two averages (``Job.synchronise_every``). Plans are made for this number."""
    full_batch = True
    """True if, under this policy, every step trains the whole model on the job's whole batch."""

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for field in fields(self):
            value = getattr(self, field.name)
            if wanted := _unlike(value, hints[field.name]):
                raise TraceError(
                    f"{field.name} of policy {type(self).__name__.lower()} is {shortened(value)}; wanted {wanted}"
                )

    def decide(self, now: Situation) -> Response | None:
        """Return what to do next, or None to continue if all devices in use are still online."""
        raise NotImplementedError


policies: Registry[Callable[..., Policy]] = Registry("policy", "dtfm_lab.policies")
"""Policies by name. Another package adds one with an entry point of the group ``dtfm_lab.policies``."""


def _unlike(value: object, hint: Any) -> str:
    """Return "" if a value fits its option's annotation. Otherwise return which values it accepts, for an error
    message."""
    number = as_number(value)
    if get_origin(hint) is Literal:
        return "" if value in get_args(hint) else " or ".join(get_args(hint))
    if hint is bool:
        return "" if isinstance(value, bool) else "true or false"
    if hint is int:
        return "" if number is not None and number >= 0 and number == int(number) else "a whole number, 0 or more"
    if hint is float:
        return "" if number is not None and number >= 0 else "a number, 0 or more"
    return ""


def policy_of(given: str | Policy, **options: Any) -> Policy:
    """Return the given policy, or the named one with these options.

    Raises UnknownName for an unknown name or option, TraceError for a value that an option does not accept, and
    PlanError if options are given together with a policy object.
    """
    # An object's options are set already, and others would silently be ignored.
    if isinstance(given, Policy):
        if options:
            raise PlanError(f"policy is {given} and {', '.join(options)}; wanted a name with options, or only a policy")
        return given
    made = policies[given]
    if is_dataclass(made):
        refuse_unknown(options, [one.name for one in fields(made)], f"option of policy {given}")
    return made(**options)
