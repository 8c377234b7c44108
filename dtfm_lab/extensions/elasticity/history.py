"""A history: what a training run did through the hours while devices came and went, second by second."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd

from dtfm_lab.domain.errors import TraceError
from dtfm_lab.domain.extension import load
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import FloatArray, IntArray, format_share
from dtfm_lab.extensions.elasticity.availability import Availability


class TimeUse(IntEnum):
    """What a second of a history went to."""

    TRAINING = 0
    """Work that counts."""
    CHECKPOINT = 1
    """Training stands still while a checkpoint is written."""
    REDONE = 2
    """Work that a loss made void: it has to be done again."""
    RECONFIGURING = 3
    """Between two ways of working: restarting, loading, moving state, rebalancing."""
    IDLE = 4
    """Devices are there, but the policy cannot train with them."""
    STOPPED = 5
    """Nobody is there who could serve."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Operation:
    """How a fleet trains as long as nothing changes."""

    devices: frozenset[int]
    """Indices of those that serve."""
    step_s: float
    samples: float
    """Sequences that a step trains on."""
    redundant_share: float = 0.0
    """Share of a step's seconds that goes to work which only a loss would make useful."""
    skipping_share: float = 0.0
    """Share of the samples that are trained without some of the model's layers."""
    local_steps: int = 1
    """Steps that pipelines take alone before they average, all of which are one step here; 1 where they average
    gradients in each."""
    left: frozenset[int] = frozenset()
    """Devices that served when it was begun, and have left; the others go on without them."""
    doubled: frozenset[int] = frozenset()
    """Of the devices, those that do a lost neighbour's work beside their own."""
    slowed: bool = False
    """Whether a loss has made its step longer."""
    plan: Plan | None = None
    """The plan that is worked by; None where the seconds are from a table."""

    @property
    def samples_per_s(self) -> float:
        return self.samples / self.step_s

    def by(self, devices: frozenset[int]) -> Self:
        """The same with other devices: as ``replace``, in a quarter of its time, for hours of a million changes."""
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        made.__dict__["devices"] = devices
        return made

    def losing(self, lost: frozenset[int], **changes: Any) -> Self:
        """The same without some of its devices, and with other changes."""
        return replace(self, devices=self.devices - lost, left=self.left | (lost & self.devices), **changes)


class Loss(NamedTuple):
    """What one instant of departures cost, as far as it can be told at once."""

    time_s: float
    devices: tuple[str, ...]
    serving: int
    """How many of them served."""
    redone_s: float
    """Seconds of work that it made void."""
    samples: float
    """Sequences of whole steps that it made void."""
    pause_s: float
    """Seconds in which nothing is trained that followed, until training went on or something else changed."""


@dataclass(frozen=True, eq=False, kw_only=True)
class History:
    """Segments of time, each in one state and under one operation; together they cover 0 to the end without gaps.

    Rows are made by a replay under a policy, or by a real run. Raises TraceError where they leave a gap or overlap.
    """

    availability: Availability
    """Who was there; its devices are those of the network."""
    policy: str
    operations: tuple[Operation, ...]
    start_s: FloatArray
    """(K,) ascending, the first 0."""
    end_s: FloatArray
    state: IntArray
    """(K,) values of ``TimeUse``."""
    operation: IntArray
    """(K,) index into ``operations``; -1 where none is at work."""
    steps: IntArray
    """(K,) steps that ended in the segment and count."""
    losses: tuple[Loss, ...] = ()
    price_per_hour: FloatArray = field(default_factory=lambda: np.zeros(0))
    """(devices,) US dollars for an hour in which a device is there, whether it serves or not."""
    foresight: tuple[FloatArray, FloatArray] | None = None
    """Times and the most samples that any policy has by then, though it knew the future; None where not computed."""

    def __post_init__(self) -> None:
        if not len(self.start_s) or self.start_s[0] != 0 or self.end_s[-1] != self.availability.end_s:
            raise TraceError(f"history of {self.policy} does not reach from 0 to {self.availability.end_s:g} s")
        if (self.start_s[1:] != self.end_s[:-1]).any() or (self.end_s < self.start_s).any():
            raise TraceError(
                f"history of {self.policy} has a gap or an overlap; wanted segments that follow each other"
            )

    def __repr__(self) -> str:
        share = (
            "" if self.share_of_bound is None else f", {format_share(self.share_of_bound)} of what foresight would make"
        )
        return (
            f"<History {self.policy} on {self.availability.name}: {self.samples:.6g} samples in "
            f"{self.availability.end_s / 3600:.3g} h, {self.goodput:.4g} a second{share}>"
        )

    @cached_property
    def segment_samples(self) -> FloatArray:
        """(K,) sequences trained in each segment, of steps that count."""
        samples: FloatArray = self.steps * self._of_operations("samples")
        return samples

    def _of_operations(self, what: str) -> FloatArray:
        """(K,) a number of the operation of each segment; 0 where none is at work."""
        numbers: FloatArray = np.array([*(getattr(one, what) for one in self.operations), 0.0])[self.operation]
        return numbers

    @property
    def samples(self) -> float:
        """Sequences trained on, of steps that count."""
        return float(self.segment_samples.sum())

    @property
    def goodput(self) -> float:
        """Samples a second, over the whole time."""
        return self.samples / self.availability.end_s

    @property
    def begun_s(self) -> float:
        """When the first step begins, whether it counts in the end or not; the end where none does."""
        worked = np.flatnonzero((self.state == TimeUse.TRAINING) | (self.state == TimeUse.REDONE))
        return float(self.start_s[worked[0]]) if len(worked) else self.availability.end_s

    @property
    def throughput(self) -> float:
        """Samples a second from the beginning of the first step to the end of the last one that counts; 0 without."""
        counted = np.flatnonzero(self.steps > 0)
        return self.samples / (float(self.end_s[counted[-1]]) - self.begun_s) if len(counted) else 0.0

    @cached_property
    def seconds(self) -> dict[str, float]:
        """Seconds of each state, which add up to the end, and of them ``redundant``, which is part of training."""
        lasts = self.end_s - self.start_s
        by_state = np.bincount(self.state, weights=lasts, minlength=len(TimeUse))
        training = self.state == TimeUse.TRAINING
        redundant = float((lasts * self._of_operations("redundant_share"))[training].sum())
        return {state.name.lower(): float(by_state[state]) for state in TimeUse} | {"redundant": redundant}

    @property
    def skipping_samples(self) -> float:
        """Of the samples, those that were trained without some of the model's layers."""
        return float((self.segment_samples * self._of_operations("skipping_share")).sum())

    @property
    def local_steps(self) -> int:
        """Steps that pipelines take alone before they average; 1 where gradients are averaged in each."""
        return max((operation.local_steps for operation in self.operations), default=1)

    @property
    def dollars(self) -> float:
        """US dollars for all devices while they are there; without a price they are free."""
        return float(self.availability.present_s() @ self.price_per_hour / 3600) if len(self.price_per_hour) else 0.0

    @property
    def dollars_per_million_samples(self) -> float:
        """Infinite where nothing was trained."""
        return self.dollars / self.samples * 1e6 if self.samples else np.inf

    @property
    def bound_samples(self) -> float | None:
        """No policy makes more of the same fleet, though it knew the future; None where it was not computed."""
        return None if self.foresight is None else float(self.foresight[1][-1])

    @property
    def share_of_bound(self) -> float | None:
        """Samples trained by the whole model, over the bound; None without one, 1 where nothing can be made."""
        bound = self.bound_samples
        return None if bound is None else (self.samples - self.skipping_samples) / bound if bound else 1.0

    @property
    def sentence(self) -> str:
        """What came of it, in a line."""
        return repr(self).strip("<>")

    def to_dict(self) -> dict[str, Any]:
        """Plain values: policy, availability, hours, samples, rates, shares of the time by state, bound and dollars."""
        end_s = self.availability.end_s
        return {
            "policy": self.policy,
            "availability": self.availability.name,
            "seconds": end_s,
            "samples": self.samples,
            "skipping_samples": self.skipping_samples,
            "local_steps": self.local_steps,
            "samples_per_s": self.goodput,
            "bound_samples": self.bound_samples,
            "share_of_bound": self.share_of_bound,
            **{state: seconds / end_s for state, seconds in self.seconds.items()},
            "losses": len(self.losses),
            "dollars": self.dollars,
            "left_out": self.availability.left_out,
        }

    def compared_with(self, after: History) -> Any:
        """Return the ``HistoryComparison`` with another history of the same hours, as ``lab.compare`` does.

        ``.text``, ``.goodput_error`` and what it is made of, and a row for each stretch between two changes,
        ``.to_frame()``.
        """
        return load("dtfm_lab.extensions.elasticity.compared:HistoryComparison")(
            self, after
        )  # which is made of histories

    def to_frame(self) -> pd.DataFrame:
        """A row for each segment: start_s, end_s, state, operation, devices, steps, samples."""
        serving = np.array([*(len(operation.devices) for operation in self.operations), 0])
        return pd.DataFrame(
            {
                "start_s": self.start_s,
                "end_s": self.end_s,
                "state": [TimeUse(value).name.lower() for value in self.state],
                "operation": self.operation,
                "devices": serving[self.operation],
                "steps": self.steps,
                "samples": self.segment_samples,
            }
        )

    def losses_frame(self) -> pd.DataFrame:
        """A row for each instant at which somebody left: what it cost."""
        return pd.DataFrame(self.losses, columns=Loss._fields)
