"""Orders that the coordinator sends to its workers: one class per order, one line of JSON each.

A worker carries out ``Slow`` and ``Exit`` at once. It carries out all other orders one after the other, and answers
each with an event of the same name. Every order belongs to an epoch. A worker ignores orders from before the newest
``Join``, ``HandOver`` or ``Become``.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, get_args


@dataclass(frozen=True, kw_only=True)
class Slow:
    """Slow computations by ``factor`` from now on, at once."""

    do: ClassVar[str] = "slow"
    factor: float


@dataclass(frozen=True, kw_only=True)
class Exit:
    """End the process, at once."""

    do: ClassVar[str] = "exit"
    status: int = 0
    why: str = ""
    """Why the run ends, if it ends badly."""


@dataclass(frozen=True, kw_only=True)
class Train:
    """Make the stages that will be trained."""

    do: ClassVar[str] = "train"
    specified_s: Sequence[tuple[int, str, float]]
    """(stage, kind, seconds) of each kind of computation of the worker: the expected durations from the profile."""
    time_scale: float
    turns: Sequence[Sequence[Sequence[int]]]


@dataclass(frozen=True, kw_only=True)
class Join:
    """Make all connections again, and bring the training state to the version from which the run continues."""

    do: ClassVar[str] = "join"
    addresses: Sequence[Any]
    """(host, port) of every worker, by rank."""
    version: int | None
    """Number of iterations done in this state; None before training."""
    checkpoint: str | None
    """Folder from which all workers read the state. None if peers send it, or if workers make the initial state."""
    train: Train | None
    """The order to make stages, for a worker that has none yet. None before calibration is over."""
    takes_state_from: int | None
    """Rank that sends this worker its state. None if no peer does."""
    gives_state_to: Sequence[int]


@dataclass(frozen=True, kw_only=True)
class HandOver:
    """Write the state after ``version`` iterations, from which training continues under a new plan."""

    do: ClassVar[str] = "hand_over"
    folder: str
    version: int
    writes: bool
    """True if this worker writes. If all replicas are equal, one per stage writes."""
    each: bool
    """True if every replica has its own state."""


@dataclass(frozen=True, kw_only=True)
class Become:
    """Take the rank that a new plan has for this worker's device."""

    do: ClassVar[str] = "become"
    spec: str
    """The run under the new plan, as ``RunSpec.to_line`` writes it."""
    own_rank: int
    keeps: int | None
    """Iterations done in the state that the worker keeps, if the plan only loses devices; None for any other plan."""


@dataclass(frozen=True, kw_only=True)
class Calibrate:
    """Run an iteration on a copy of the stages to measure its computations."""

    do: ClassVar[str] = "calibrate"
    iteration: int
    counts: bool
    """True if this iteration counts; False for a warm-up."""
    first: bool
    """True if the copy must be made first."""
    began_monotonic_s: float


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Report what the calibration measured, and free its stages."""

    do: ClassVar[str] = "profile"


@dataclass(frozen=True, kw_only=True)
class Iterate:
    """Train one iteration."""

    do: ClassVar[str] = "iterate"
    iteration: int
    began_monotonic_s: float
    """Start of the iteration on the coordinator's clock."""


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Report the loss on the held-out text."""

    do: ClassVar[str] = "evaluate"
    number: int


@dataclass(frozen=True, kw_only=True)
class WriteCheckpoint:
    """Write the tensors of a checkpoint."""

    do: ClassVar[str] = "checkpoint"
    folder: str


@dataclass(frozen=True, kw_only=True)
class Write:
    """Generate text with the model of a checkpoint."""

    do: ClassVar[str] = "write"
    folder: str
    prompt: str


@dataclass(frozen=True, kw_only=True)
class Leave:
    """Report the digest of the trained parameters.

    ``Exit`` follows, unless a worker is lost before all have answered.
    """

    do: ClassVar[str] = "leave"


InTurn = Train | Join | HandOver | Become | Calibrate | Profile | Iterate | Evaluate | WriteCheckpoint | Write | Leave
"""Orders that are carried out one after the other."""
Order = Slow | Exit | InTurn
KINDS: dict[str, type[Order]] = {kind.do: kind for kind in get_args(Order)}
"""Name of an order in its line of JSON -> its class."""


def to_line(order: Order, epoch: int | None = None) -> bytes:
    """Return an order as one line of JSON, with its epoch if one is given: ``{"do": "slow", "factor": 2.0}``."""
    about = {"do": order.do} | ({} if epoch is None else {"epoch": epoch})
    return json.dumps(about | asdict(order)).encode()


def from_line(line: bytes) -> tuple[Order, int]:
    """Return the order and its epoch (0 by default). Raises ValueError for a line without an order."""
    values = json.loads(line)
    kind, epoch = KINDS.get(values.pop("do", "")), values.pop("epoch", 0)
    if kind is None or values.keys() - {field.name for field in fields(kind)}:
        raise ValueError(f"{line[:80]!r} is not an order of this version")
    if kind is Join and values["train"] is not None:
        values["train"] = Train(**values["train"])
    try:
        return kind(**values), epoch
    except TypeError as error:  # a value is missing
        raise ValueError(f"{line[:80]!r} is not an order of this version: {error}") from None
