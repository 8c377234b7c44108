"""A history: what a training run did, second by second, while devices came and went."""

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
    """What a second of a history was spent on."""

    TRAINING = 0
    """Useful training: no lost device undid it."""
    CHECKPOINT = 1
    """Training pauses while a checkpoint is written."""
    REDONE = 2
    """Work that a lost device undid. It has to be done again."""
    RECONFIGURING = 3
    """A change of plan: restarting, loading, moving state, rebalancing."""
    IDLE = 4
    """Devices are ready, but too few for the policy to train."""
    STOPPED = 5
    """No device is ready."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Operation:
    """How a fleet trains until something changes: the devices in use, the seconds of a step, and the samples per
    step."""

    devices: frozenset[int]
    """Indices of the devices in use."""
    step_s: float
    samples: float
    """Sequences per step."""
    redundant_share: float = 0.0
    """Share of a step's time spent on work that is only useful if a device is lost."""
    skipping_share: float = 0.0
    """Share of the samples that are trained without some of the model's layers."""
    local_steps: int = 1
    """Local steps between two averages. If above 1, a step of the operation is a round of this many local steps. 1 if
    gradients are averaged in every step."""
    left: frozenset[int] = frozenset()
    """Devices that were in use when the operation began and have left. The others continue without them."""
    doubled: frozenset[int] = frozenset()
    """The devices that also do the work of a lost neighbour."""
    slowed: bool = False
    """True if a loss has made its step longer."""
    plan: Plan | None = None
    """The plan, or None if the step time comes from a table."""

    @property
    def samples_per_s(self) -> float:
        return self.samples / self.step_s

    def by(self, devices: frozenset[int]) -> Self:
        """Return the same operation with other devices.

        Like ``replace``, but four times as fast, which matters in a replay with a million changes.
        """
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        made.__dict__["devices"] = devices
        return made

    def losing(self, lost: frozenset[int], **changes: Any) -> Self:
        """Return the same operation without some of its devices, and with other changes."""
        return replace(self, devices=self.devices - lost, left=self.left | (lost & self.devices), **changes)


class Loss(NamedTuple):
    """The departures at one instant, and what they cost as far as it can be attributed to them."""

    time_s: float
    devices: tuple[str, ...]
    serving: int
    """Number of lost devices that were in use."""
    redone_s: float
    """Seconds of work that the loss undid."""
    samples: float
    """Number of training sequences in completed steps that the loss undid."""
    pause_s: float
    """Seconds without training that followed, until training continued or the next loss."""


@dataclass(frozen=True, eq=False, kw_only=True)
class History:
    """Segments of time, each in one state and under one operation. Together they cover 0 to the end without gaps.

    A replay under a policy produces a history, and so does a real run. Raises TraceError if segments leave a gap or
    overlap.
    """

    availability: Availability
    """Which devices were online. It has the same devices as the network."""
    policy: str
    operations: tuple[Operation, ...]
    start_s: FloatArray
    """(K,) start of each segment in seconds, ascending from 0."""
    end_s: FloatArray
    state: IntArray
    """(K,) state of each segment, a value of ``TimeUse``."""
    operation: IntArray
    """(K,) index into ``operations``; -1 for a segment without an operation."""
    steps: IntArray
    """(K,) number of useful steps that ended in the segment. A step that a lost device undid is not counted."""
    losses: tuple[Loss, ...] = ()
    price_per_hour: FloatArray = field(default_factory=lambda: np.zeros(0))
    """(devices,) US dollars per hour in which a device is online, whether in use or not."""
    foresight: tuple[FloatArray, FloatArray] | None = None
    """Times in seconds, and the maximum number of samples by then under any policy, even one that knows the future.
    None if not computed."""

    def __post_init__(self) -> None:
        if not len(self.start_s) or self.start_s[0] != 0 or self.end_s[-1] != self.availability.end_s:
            raise TraceError(f"history of {self.policy} does not reach from 0 to {self.availability.end_s:g} s")
        if (self.start_s[1:] != self.end_s[:-1]).any() or (self.end_s < self.start_s).any():
            raise TraceError(
                f"history of {self.policy} has a gap or an overlap; wanted segments that follow each other"
            )

    def __repr__(self) -> str:
        share = "" if self.share_of_bound is None else f", {format_share(self.share_of_bound)} of perfect foresight"
        return (
            f"<History {self.policy} on {self.availability.name}: {self.samples:.6g} samples in "
            f"{self.availability.end_s / 3600:.3g} h, {self.goodput:.4g} per second{share}>"
        )

    @cached_property
    def segment_samples(self) -> FloatArray:
        """(K,) sequences trained in each segment by useful steps."""
        samples: FloatArray = self.steps * self._of_operations("samples")
        return samples

    def _of_operations(self, what: str) -> FloatArray:
        """Return (K,) an attribute of each segment's operation; 0 for a segment without an operation."""
        numbers: FloatArray = np.array([*(getattr(one, what) for one in self.operations), 0.0])[self.operation]
        return numbers

    @property
    def samples(self) -> float:
        """Sequences trained by useful steps: steps that no lost device undid."""
        return float(self.segment_samples.sum())

    @property
    def goodput(self) -> float:
        """Samples divided by the length of the history in seconds."""
        return self.samples / self.availability.end_s

    @cached_property
    def seconds(self) -> dict[str, float]:
        """Seconds in each state by name, which add up to the whole length. There is also ``redundant``: the part of the
        training time that is only useful if a device is lost."""
        lasts = self.end_s - self.start_s
        by_state = np.bincount(self.state, weights=lasts, minlength=len(TimeUse))
        training = self.state == TimeUse.TRAINING
        redundant = float((lasts * self._of_operations("redundant_share"))[training].sum())
        return {state.name.lower(): float(by_state[state]) for state in TimeUse} | {"redundant": redundant}

    @property
    def skipping_samples(self) -> float:
        """The samples that were trained without some of the model's layers."""
        return float((self.segment_samples * self._of_operations("skipping_share")).sum())

    @property
    def local_steps(self) -> int:
        """Local steps between two averages. 1 if gradients are averaged in every step."""
        return max((operation.local_steps for operation in self.operations), default=1)

    @property
    def dollars(self) -> float:
        """US dollars for all devices while they are online. 0 without prices."""
        return float(self.availability.present_s() @ self.price_per_hour / 3600) if len(self.price_per_hour) else 0.0

    @property
    def dollars_per_million_samples(self) -> float:
        """US dollars per million samples. Infinite if nothing was trained."""
        return self.dollars / self.samples * 1e6 if self.samples else np.inf

    @property
    def bound_samples(self) -> float | None:
        """Upper bound on the samples of any policy on the same fleet, even with foresight. None if not computed."""
        return None if self.foresight is None else float(self.foresight[1][-1])

    @property
    def share_of_bound(self) -> float | None:
        """Samples trained by the whole model, divided by the bound. None without a bound, 1 if the bound is 0."""
        bound = self.bound_samples
        return None if bound is None else (self.samples - self.skipping_samples) / bound if bound else 1.0

    @property
    def sentence(self) -> str:
        """The result in one sentence."""
        return repr(self).strip("<>")

    def to_dict(self) -> dict[str, Any]:
        """Return plain values: policy, availability, duration, samples, rates, share of the time in each state,
        bound and dollars."""
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
        """Return the ``HistoryComparison`` of this history, as the prediction, with ``after``, as the measurement.
        ``lab.compare`` returns the same.

        It has ``.text``, ``.goodput_error`` and its two factors, and ``.to_frame()`` with one row per interval between
        two changes.
        """
        return load("dtfm_lab.extensions.elasticity.compared:HistoryComparison")(
            self, after
        )  # loaded late, because compared imports this module

    def to_frame(self) -> pd.DataFrame:
        """Return one row per segment: start_s, end_s, state, operation, devices, steps, samples."""
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
        """Return one row per instant with departures, with what they cost."""
        return pd.DataFrame(self.losses, columns=Loss._fields)
