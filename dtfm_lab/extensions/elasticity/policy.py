"""What a policy is asked and what it answers, and the registry of policies.

A policy is asked when the fleet changes, and again whenever its last answer asked for it: at the next step's end, at
the next checkpoint, or at a time. It says how to go on, with what pause, and what becomes of the work under way. The
replay does the rest: it counts steps, writes checkpoints and books every second.

A complete example, which works with as many devices as are there and loses the step under way::

    @policies.register("naive")
    @dataclass(frozen=True)
    class Naive(Policy):
        def decide(self, now: Situation) -> Response | None:
            if not now.lost and now.operation is not None:
                return None  # who comes waits for the next loss
            return Response(now.fleet.operation(now.present), pause_s=now.costs.restarting(len(now.present)))
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum, auto
from functools import wraps
from typing import Any, Concatenate, Literal, ParamSpec, Protocol, TypeVar, get_args, get_origin, get_type_hints

from dtfm_lab.domain.errors import PlanError, TraceError
from dtfm_lab.domain.network import as_number, shortened
from dtfm_lab.domain.registry import Registry, unknown
from dtfm_lab.domain.units import IntArray
from dtfm_lab.extensions.elasticity.history import Operation

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")
QUARTER_S = 900.0
"""Seconds between two checkpoints of every policy that is not told otherwise, so that none has an advantage."""


REMEMBERED = 16
"""Fleets of the past that a policy is told of."""
REMEMBERED_LOSSES = 64
"""Instants of the past at which somebody left that a policy is told of."""


def kept(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """Decorator of a method whose results are kept by its arguments, as long as its object lives."""

    @wraps(method)
    def known(self: S, /, *args: P.args, **keywords: P.kwargs) -> T:
        results = vars(self).setdefault(f"_kept_{method.__name__}", {})
        key = (*args, *keywords.items())
        if key not in results:
            results[key] = method(self, *args, **keywords)
        found: T = results[key]
        return found

    return known


class Fleet(Protocol):
    """How fast any set of devices trains, and what changing over costs: planned by the lab, or from a table."""

    @property
    def n_devices(self) -> int:
        """Devices that may be there."""

    def operation(self, present: frozenset[int], current: Operation | None = None) -> Operation | None:
        """The best known way to train with some of these devices; None where they are too few.

        Near ``current`` where two are alike."""

    def without(self, operation: Operation, lost: frozenset[int]) -> Operation | None:
        """The same with whole pipelines left out: those that somebody of the lost serves; None where that is all."""

    def rerouted(self, operation: Operation, lost: frozenset[int]) -> Operation | None:
        """The same, the work of the lost done by those who serve the same stage; None where a stage has nobody."""

    def shared(
        self, other: frozenset[int], present: frozenset[int], current: Operation | None, above: float
    ) -> Operation | None:
        """The best known way of a larger fleet, at work with who of it is present: those who serve the same stage share
        the work of the others; or of a smaller one, all of which is present. None where a stage has nobody, or where it
        cannot be above so many samples a second."""

    def survives(self, operation: Operation, lost: frozenset[int]) -> bool:
        """Whether somebody who is left holds each stage's parameters and optimiser state."""

    def grid(self, operation: Operation) -> IntArray:
        """(stages, replicas) devices of the operation as it was begun, those that have left included."""

    def move_s(self, old: Operation | None, new: Operation) -> float:
        """Seconds to bring the state to who serves another stage than before, over the links."""

    def most_samples_per_s(self, present: frozenset[int], *, full_batch: bool) -> float:
        """No way to train with some of these devices is faster; of steps of the job's batch only, or of any."""


@dataclass(frozen=True, kw_only=True)
class ReconfigurationCosts:
    """Seconds that do not follow from the plan. The defaults are assumptions, to be replaced by measured ones.

    Raises TraceError for one that is no number, negative or without an end.
    """

    start_s: float = 45.0
    """From a device's coming until it can serve: 45 s in Bamboo's and Oobleck's simulators."""
    restart_s: float | Callable[[int], float] = 30.0
    """To start all processes again and load a checkpoint, or a function of the number of devices."""
    regroup_s: float | Callable[[int], float] = 2.0
    """To form new groups of processes that go on living: 2 s for BERT-large in Oobleck's simulator."""
    checkpoint_s: float = 0.0
    """For which training stands still while a checkpoint is written."""
    notice_s: float = 0.0
    """How long before it leaves a device says so; clouds promise 30 to 120 s."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            number = as_number(value)
            if not callable(value) and (number is None or not 0 <= number < math.inf):
                raise TraceError(f"{field.name} is {shortened(value)}; wanted seconds, 0 or more")

    def restarting(self, n_devices: int) -> float:
        """Seconds of a restart with so many devices."""
        return self.restart_s(n_devices) if callable(self.restart_s) else self.restart_s

    def regrouping(self, n_devices: int) -> float:
        """Seconds to form new groups of so many devices."""
        return self.regroup_s(n_devices) if callable(self.regroup_s) else self.regroup_s


class WorkKept(Enum):
    """What is left of the work when an answer takes effect."""

    STEP = auto()
    """All: the step under way goes on, at the pace of the new operation."""
    STEPS = auto()
    """Whole steps; the one under way is lost."""
    CHECKPOINT = auto()
    """What the newest checkpoint holds."""


class PolicyEvent(Enum):
    """Why a policy is asked, or when it wants to be asked again though nothing has changed."""

    CHANGE = auto()
    """Somebody left or is ready to serve."""
    STEP = auto()
    """A step has ended."""
    CHECKPOINT = auto()
    """A checkpoint has been written."""
    TIME = auto()
    """The time that it named has come."""


@dataclass(slots=True)  # made at every change: a frozen one takes three times as long
class Response:
    """How to go on."""

    operation: Operation | None
    """None: wait until something changes."""
    pause_s: float = 0.0
    """Seconds until it is at work."""
    keeps: WorkKept = WorkKept.STEPS
    meanwhile: bool = False
    """Whether the operation of before goes on through the pause, its steps counting: the next one is prepared beside
    it. It must be able to, as after a coming or an announced departure."""
    after_s: float | None = None
    """So many seconds are needed to prepare it beside the work, which goes on as before until the first step that ends
    later. Dropped when the policy is asked again meanwhile."""
    checkpoint_next: bool = False
    """Whether a checkpoint follows the first step."""
    every_s: float | None = None
    """Seconds of training between two checkpoints from now on; None for what it was."""
    again: PolicyEvent | float | None = None
    """When to ask again: at a step's end, at a checkpoint, or after so many seconds."""


@dataclass(slots=True, kw_only=True)
class Situation:
    """What a policy knows when it is asked: the present and the past."""

    time_s: float
    asked: PolicyEvent
    fleet: Fleet
    costs: ReconfigurationCosts
    present: frozenset[int]
    """Devices that can serve now."""
    operation: Operation | None
    """What is at work, or next to be; None while nothing is."""
    lost: frozenset[int]
    """Devices of the operation that have left."""
    left: frozenset[int]
    """Devices that have left just now, whether they served or not."""
    leaving: frozenset[int]
    """Devices that have announced their departure."""
    earlier: Collection[frozenset[int]]
    """The fleets before the latest changes, up to ``REMEMBERED``, the latest last."""
    pause_left_s: float
    """Seconds until it is at work; 0 where it is."""
    reading: bool
    """Whether those seconds are a restart, in which everybody reads a checkpoint: nothing has to be moved."""
    meanwhile: bool
    """Whether the one before it still works until then."""
    step_done: float
    """Share of the step under way that is done."""
    losses: int
    """Instants at which somebody left, so far."""
    departures: Sequence[tuple[float, frozenset[int]]]
    """When who left, at the latest of these instants, up to ``REMEMBERED_LOSSES``; the latest last."""
    setbacks: int
    """How often work went back to a checkpoint, so far."""
    device_s: float
    """Seconds that devices were there, all together, so far."""

    def move_s(self, new: Operation) -> float:
        """Seconds to bring the state to who serves other layers in a new operation; 0 while all read a checkpoint."""
        return 0.0 if self.reading else self.fleet.move_s(self.operation, new)

    @property
    def spare(self) -> frozenset[int]:
        """Devices that could serve and do not."""
        return self.present if self.operation is None else self.present - self.operation.devices

    @property
    def mean_life_s(self) -> float:
        """Seconds of a device over losses so far, one more counted, so that no first hour is taken for ever."""
        return self.device_s / (self.losses + 1)


@dataclass(frozen=True, kw_only=True)
class Policy:
    """How a run answers to changes of its fleet; the fields are its options: numbers of 0 or more, truth values, or a
    choice of words. Raises TraceError for another value."""

    every_steps: int = 0
    """A checkpoint after every so many steps, those counted that a loss makes void; 0 for none by steps."""
    every_s: float = math.inf
    """Seconds of training between two checkpoints, rounded to whole steps."""

    local_steps = 1
    """Steps that its pipelines take alone before they average (``Job.synchronise_every``): plans are made for it."""
    full_batch = True
    """Whether each of its steps trains on the job's whole batch, by the whole model."""

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for field in fields(self):
            value = getattr(self, field.name)
            if wanted := _unlike(value, hints[field.name]):
                raise TraceError(
                    f"{field.name} of policy {type(self).__name__.lower()} is {shortened(value)}; wanted {wanted}"
                )

    def decide(self, now: Situation) -> Response | None:
        """How to go on; None to go on as before, where all that serve are still there."""
        raise NotImplementedError


policies: Registry[Callable[..., Policy]] = Registry("policy", "dtfm_lab.policies")
"""Policies by name. One of another package is an entry point of the group ``dtfm_lab.policies``."""


def _unlike(value: object, hint: Any) -> str:
    """What is wanted in place of an option's value; nothing where that is as its annotation says."""
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
    """The policy itself, or the one of a name with its options.

    Raises UnknownName for another name or option, PlanError for options of a policy that has its own already.
    """
    if isinstance(given, Policy):
        if options:
            raise PlanError(f"policy is {given} and {', '.join(options)}; wanted a name with options, or the policy")
        return given
    made = policies[given]
    if is_dataclass(made):
        known = [one.name for one in fields(made)]
        for name in options:
            if name not in known:
                raise unknown(f"option of policy {given}", name, known)
    return made(**options)
