"""Which devices are there when: the changes of a fleet over hours."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
import pandas as pd

from dtfm_lab.domain.errors import TraceError
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.units import FloatArray, IntArray


class Change(NamedTuple):
    """What changes at one instant; who leaves and comes at once counts as leaving first."""

    time_s: float
    left: tuple[int, ...]
    """Indices of devices that leave."""
    came: tuple[int, ...]
    """Indices of devices that come."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Availability:
    """Comings and goings of devices from second 0 to the end; who never comes is never there.

    Events are sorted by time when it is made; those of one instant keep their order. Raises TraceError where a
    device comes while it is there or leaves while it is not, a time is outside 0 to the end, or a name stands twice.
    """

    devices: tuple[str, ...]
    time_s: FloatArray
    """(E,) when something changes, ascending."""
    device: IntArray
    """(E,) index of the device that comes or leaves."""
    comes: np.ndarray
    """(E,) True where it comes, False where it leaves."""
    end_s: float
    """Until when it is known; what is there then may stay on."""
    name: str = "availability"
    source: str = ""
    """Where it is from: a publication and its licence, or the rates and the seed that it was drawn with."""
    left_out: int = field(default=0)
    """Events of devices for which a network had no seat (``on``)."""

    def __post_init__(self) -> None:
        time_s = np.array(self.time_s, dtype=np.float64)
        device, comes = np.array(self.device, dtype=np.int64), np.array(self.comes, dtype=bool)
        if not time_s.shape == device.shape == comes.shape or time_s.ndim != 1:
            raise TraceError(
                f"{self.name}: {len(time_s)} times, {len(device)} devices and {len(comes)} kinds of events; "
                "wanted as many of each"
            )
        if not (np.isfinite(self.end_s) and self.end_s > 0):
            raise TraceError(f"{self.name}: ends after {self.end_s} s; wanted more than 0")
        if len(set(self.devices)) < len(self.devices):
            twice = next(name for name in self.devices if self.devices.count(name) > 1)
            raise TraceError(f"{self.name}: device {twice} stands twice in the list; wanted each once")
        outside = ~((time_s >= 0) & (time_s <= self.end_s))
        if outside.any():
            raise TraceError(
                f"{self.name}: an event at {time_s[outside][0]} s; wanted 0 to the end at {self.end_s:g} s"
            )
        if len(device) and (device.min() < 0 or device.max() >= len(self.devices)):
            raise TraceError(
                f"{self.name}: an event names device {device.max()}; wanted one of {len(self.devices)} devices"
            )
        order = np.argsort(time_s, kind="stable")
        time_s, device, comes = time_s[order], device[order], comes[order]
        self._check_turns(time_s, device, comes)
        for name, values in (("time_s", time_s), ("device", device), ("comes", comes)):
            values.setflags(write=False)
            object.__setattr__(self, name, values)

    def _check_turns(self, time_s: FloatArray, device: IntArray, comes: np.ndarray) -> None:
        """Each device comes and leaves in turns, coming first."""
        by_device = np.lexsort((np.arange(len(device)), device))
        ordered, coming = device[by_device], comes[by_device]
        first = np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]
        position = np.arange(len(ordered)) - np.maximum.accumulate(np.where(first, np.arange(len(ordered)), 0))
        wrong = coming != (position % 2 == 0)
        if wrong.any():
            at = int(by_device[np.argmax(wrong)])
            name, when = self.devices[int(device[at])], f"{time_s[at]:g} s"
            if comes[at]:
                raise TraceError(f"{self.name}: {name} comes at {when} while it is there; wanted it to leave before")
            raise TraceError(f"{self.name}: {name} leaves at {when} while it is not there; wanted it to come before")

    def __repr__(self) -> str:
        present = self.counts()
        return (
            f"<Availability {self.name}: {len(self.devices)} devices, {int((~self.comes).sum())} losses in "
            f"{self.end_s / 3600:.3g} h, {present.min()} to {present.max()} present at a time>"
        )

    @classmethod
    def from_intervals(
        cls, present: Mapping[str, Iterable[Sequence[float]]], end_s: float, *, name: str = "drawn by hand"
    ) -> Self:
        """From the intervals, (come, leave) in seconds, in which each device is there; one that reaches the end does
        not leave."""
        events = []
        for index, intervals in enumerate(present.values()):
            for begin_s, leave_s in intervals:
                events.append((begin_s, index, True))
                if leave_s < end_s:
                    events.append((leave_s, index, False))
        time_s, device, comes = (np.array(values) for values in zip(*events, strict=True)) if events else ([], [], [])
        return cls(devices=tuple(present), time_s=time_s, device=device, comes=comes, end_s=end_s, name=name)

    @classmethod
    def steady(cls, topology: Topology, end_s: float) -> Self:
        """All devices of a network, from the first second to the last."""
        n = len(topology)
        names = tuple(device.name for device in topology.devices)
        return cls(
            devices=names, time_s=np.zeros(n), device=np.arange(n), comes=np.ones(n, bool), end_s=end_s, name="steady"
        )

    @cached_property
    def changes(self) -> tuple[Change, ...]:
        """One for each instant at which something changes, in order."""
        return tuple(self._grouped())

    def _grouped(self) -> Iterator[Change]:
        starts = np.flatnonzero(np.append(True, np.diff(self.time_s) > 0)[: len(self.time_s)])
        device, comes = self.device.tolist(), self.comes.tolist()
        for begin, end in zip(starts.tolist(), [*starts[1:].tolist(), len(device)], strict=True):
            last = {device[i]: comes[i] for i in range(begin, end)}
            first = {device[i]: comes[i] for i in reversed(range(begin, end))}
            # who comes and leaves in one instant was never there
            left = tuple(one for one, came_first in first.items() if not came_first)
            came = tuple(one for one, there in last.items() if there)
            yield Change(float(self.time_s[begin]), left, came)

    def counts(self) -> IntArray:
        """(changes,) devices present from each instant to the next."""
        if not len(self.time_s):
            return np.zeros(1, dtype=np.int64)
        last = np.append(np.diff(self.time_s) > 0, True)
        present: IntArray = np.cumsum(np.where(self.comes, 1, -1))[last]
        return present

    def present_at(self, time_s: float) -> tuple[str, ...]:
        """Names of the devices that are there at a time, in the order of ``devices``."""
        count = np.zeros(len(self.devices), dtype=np.int64)
        until = int(np.searchsorted(self.time_s, time_s, side="right"))
        np.add.at(count, self.device[:until], np.where(self.comes[:until], 1, -1))
        return tuple(name for name, there in zip(self.devices, count, strict=True) if there > 0)

    def present_s(self) -> FloatArray:
        """(devices,) seconds for which each device is there, to the end."""
        seconds = np.zeros(len(self.devices))
        np.add.at(seconds, self.device, np.where(self.comes, self.end_s - self.time_s, self.time_s - self.end_s))
        return seconds

    @property
    def mean_between_losses_s(self) -> float:
        """Seconds over the instants at which somebody leaves; infinite where nobody does."""
        instants = len(np.unique(self.time_s[~self.comes]))
        return self.end_s / instants if instants else np.inf

    def on(self, topology: Topology) -> Self:
        """The same with a network's devices, in its order.

        Where all names are devices of the network they stay who they are. Otherwise, as in logs of a cloud that gives
        every machine a new name, who comes takes the first free device, in the network's order; who finds none is left
        out, and its events are counted in ``left_out``.
        """
        names = tuple(device.name for device in topology.devices)
        if set(self.devices) <= set(names):
            index = np.array([names.index(name) for name in self.devices], dtype=np.int64)
            return replace(self, devices=names, device=index[self.device] if len(self.device) else self.device)
        free, seat, kept, seats = list(range(len(names)))[::-1], {}, [], []
        for event, (device, comes) in enumerate(zip(self.device.tolist(), self.comes.tolist(), strict=True)):
            if comes and free:
                seat[device] = free.pop()
            elif comes or device not in seat:
                continue
            kept.append(event)
            seats.append(seat[device])
            if not comes:
                # the lowest free device is next, so that the same few serve most of the time
                free.append(seat.pop(device))
                free.sort(reverse=True)
        return replace(
            self,
            devices=names,
            time_s=self.time_s[kept],
            device=np.array(seats, dtype=np.int64),
            comes=self.comes[kept],
            left_out=len(self.time_s) - len(kept),
        )

    def until(self, end_s: float) -> Self:
        """Its first seconds. Raises TraceError where it is not known for so long."""
        if not 0 < end_s <= self.end_s:
            raise TraceError(f"{self.name} until {end_s:g} s; wanted more than 0, at most its {self.end_s:g} s")
        kept = self.time_s < end_s
        return replace(
            self, time_s=self.time_s[kept], device=self.device[kept], comes=self.comes[kept], end_s=float(end_s)
        )

    def faster(self, factor: float) -> Self:
        """The same changes in a ``factor`` less of time: an hour in a minute is ``faster(60)``."""
        if not (np.isfinite(factor) and factor > 0):
            raise TraceError(f"{self.name} {factor} times faster; wanted a factor above 0")
        return replace(self, time_s=self.time_s / factor, end_s=self.end_s / factor)

    def to_frame(self) -> pd.DataFrame:
        """Columns time_s, event (add or remove) and device, a row for each event."""
        names = np.array(self.devices, dtype=object)
        return pd.DataFrame(
            {
                "time_s": self.time_s,
                "event": np.where(self.comes, "add", "remove"),
                "device": names[self.device] if len(self.device) else [],
            }
        )
