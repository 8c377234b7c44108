"""Orders that the coordinator sends to its workers: one class per order, one line of JSON on the wire.

A worker carries out ``Slow`` and ``Exit`` at once. It carries out all other orders one after the other, and answers
each with an event of the same name. Every order belongs to an epoch. A worker ignores orders of an earlier epoch than
that of the newest ``Join``, ``HandOver`` or ``Become``.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, get_args


@dataclass(frozen=True, kw_only=True)
class Slow:
    """Compute ``factor`` times slower from now on, at once."""

    do: ClassVar[str] = "slow"
    factor: float


@dataclass(frozen=True, kw_only=True)
class Exit:
    """End the process, at once."""

    do: ClassVar[str] = "exit"
    status: int = 0
    why: str = ""
    """Why the run ends, where it does not end well."""


@dataclass(frozen=True, kw_only=True)
class Train:
    """Make the stages that will be trained."""

    do: ClassVar[str] = "train"
    specified_s: Sequence[tuple[int, str, float]]
    """(stage, kind, seconds) of the computations of the device, as the plan's device takes them."""
    time_scale: float
    turns: Sequence[Sequence[Sequence[int]]]


@dataclass(frozen=True, kw_only=True)
class Join:
    """Make all connections again, and bring the training state to the version with which the run goes on."""

    do: ClassVar[str] = "join"
    addresses: Sequence[Any]
    """(host, port) of every worker, by rank."""
    version: int | None
    """Iterations that are done in this state; None before training."""
    checkpoint: str | None
    """Folder that all workers read the state from; None where peers send it."""
    train: Train | None
    """For a worker that has no stages yet; None before the calibration is over."""
    takes_state_from: int | None
    """Rank that sends this worker its state."""
    gives_state_to: Sequence[int]


@dataclass(frozen=True, kw_only=True)
class HandOver:
    """Write the state for a new plan, as it was before the step that is under way."""

    do: ClassVar[str] = "hand_over"
    folder: str
    version: int
    writes: bool
    """Whether this worker writes: one replica of each stage does where all are equal."""
    each: bool
    """Whether every replica has a state of its own."""


@dataclass(frozen=True, kw_only=True)
class Become:
    """Take another place in another plan."""

    do: ClassVar[str] = "become"
    spec: str
    """The run under the new plan, as ``RunSpec.to_line`` writes it."""
    own_rank: int
    keeps: int | None
    """The version in which the stages are kept, as the plan is the same without some devices; None for another plan."""


@dataclass(frozen=True, kw_only=True)
class Calibrate:
    """Run an iteration on a copy of the stages to measure its computations."""

    do: ClassVar[str] = "calibrate"
    iteration: int
    counts: bool
    """False for a warm-up."""
    first: bool
    """Whether the copy has to be made."""
    began_monotonic_s: float


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Say what the calibration measured, and free its stages."""

    do: ClassVar[str] = "profile"


@dataclass(frozen=True, kw_only=True)
class Iterate:
    """Train one iteration."""

    do: ClassVar[str] = "iterate"
    iteration: int
    began_monotonic_s: float
    """Moment 0 of the iteration, on the coordinator's clock."""


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Say the loss on the held-out text."""

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
    """Say the digest of the trained parameters; nothing follows but ``Exit``."""

    do: ClassVar[str] = "leave"


InTurn = Train | Join | HandOver | Become | Calibrate | Profile | Iterate | Evaluate | WriteCheckpoint | Write | Leave
"""Orders that are carried out one after the other."""
Order = Slow | Exit | InTurn
KINDS: dict[str, type[Order]] = {kind.do: kind for kind in get_args(Order)}
"""Every order by its name on the wire."""


def to_line(order: Order, epoch: int | None = None) -> bytes:
    """An order, of an epoch if it has one, as it is sent: ``{"do": "slow", "factor": 2.0}``."""
    about = {"do": order.do} | ({} if epoch is None else {"epoch": epoch})
    return json.dumps(about | asdict(order)).encode()


def from_line(line: bytes) -> tuple[Order, int]:
    """The order and its epoch, 0 for one without; raises ValueError for a line that holds no order."""
    values = json.loads(line)
    kind, epoch = KINDS.get(values.pop("do", "")), values.pop("epoch", 0)
    if kind is None or values.keys() - {field.name for field in fields(kind)}:
        raise ValueError(f"{line[:80]!r} is no order of this version")
    if kind is Join and values["train"] is not None:
        values["train"] = Train(**values["train"])
    try:
        return kind(**values), epoch
    except TypeError as error:  # a value is missing
        raise ValueError(f"{line[:80]!r} is no order of this version: {error}") from None
