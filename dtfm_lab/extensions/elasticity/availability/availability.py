"""Which devices are online when: the changes of a fleet over hours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from heapq import heappop, heappush
from typing import Any, NamedTuple, Self
from warnings import warn

import numpy as np
import pandas as pd

from dtfm_lab.domain.errors import TraceError
from dtfm_lab.domain.network import Topology, as_number, shortened
from dtfm_lab.domain.units import BoolArray, FloatArray, IntArray, counted
from dtfm_lab.extensions.elasticity.availability.rates import LONGEST_S, Rates


class Change(NamedTuple):
    """The devices that leave and arrive at one instant. A device that leaves and returns is in both tuples. One that
    arrives and leaves is in neither."""

    time_s: float
    left: tuple[int, ...]
    """Indices of devices that leave."""
    came: tuple[int, ...]
    """Indices of devices that arrive."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Availability:
    """Arrivals and departures of devices from second 0 to the end. A device without events is never online.

    Events are sorted by time. At one instant, devices that were online leave before others arrive. Raises TraceError if
    a device arrives while it is online or leaves while it is not. It is also raised for a time outside 0 to the end, an
    end that is not above 0 and at most ``LONGEST_S``, an unknown device, or a name that appears twice.
    """

    devices: tuple[str, ...]
    time_s: FloatArray
    """(E,) times of the events in seconds, ascending."""
    device: IntArray
    """(E,) index into ``devices`` of the device that arrives or leaves."""
    comes: BoolArray
    """(E,) True if the device arrives, False if it leaves."""
    end_s: float
    """Length in seconds. A device that is still online at the end does not count as a departure."""
    name: str = "availability"
    source: str = ""
    """Origin: a publication and its licence, or the rates and the seed of the samples."""
    left_out: int = field(default=0)
    """Number of events that ``on`` dropped because the network had no free device."""

    def __post_init__(self) -> None:
        time_s = np.array(self.time_s, dtype=np.float64)
        device, comes = np.array(self.device, dtype=np.int64), np.array(self.comes, dtype=bool)
        devices, end_s = tuple(self.devices), as_number(self.end_s)
        if end_s is None or not 0 < end_s <= LONGEST_S:
            wanted = f"more than 0, at most {LONGEST_S:.3g} (ten years)"
            raise TraceError(f"{self.name}: ends after {shortened(self.end_s)} s; wanted {wanted}")
        order = checked_order(self.name, devices, end_s, time_s, device, comes)
        # Read-only, because histories and caches share these arrays.
        for field_, values in (("time_s", time_s[order]), ("device", device[order]), ("comes", comes[order])):
            values.setflags(write=False)
            object.__setattr__(self, field_, values)
        object.__setattr__(self, "devices", devices)
        object.__setattr__(self, "end_s", end_s)

    def __repr__(self) -> str:
        present = self.counts()
        return (
            f"<Availability {self.name}: {counted(len(self.devices), 'device')}, {int((~self.comes).sum())} losses in "
            f"{self.end_s / 3600:.3g} h, {present.min()} to {present.max()} present at a time>"
        )

    @classmethod
    def from_intervals(
        cls, present: Mapping[str, Iterable[Sequence[float]]], end_s: float, *, name: str = "drawn by hand"
    ) -> Self:
        """Build from the intervals (arrival, departure), in seconds, in which each device is online.

        A device whose interval reaches the end does not leave. Raises TraceError for an interval that does not end
        after it begins.
        """
        events: list[tuple[float, int, bool]] = []
        until_s = as_number(end_s)
        if not isinstance(present, Mapping):
            raise TraceError(f"{name}: present is {shortened(present)}; wanted intervals by device name")
        for index, (device, intervals) in enumerate(present.items()):
            for interval in intervals if isinstance(intervals, Iterable) else [intervals]:
                ends = [as_number(end) for end in interval] if isinstance(interval, Iterable) else []
                if len(ends) != 2 or ends[0] is None or ends[1] is None or not ends[0] < ends[1]:
                    wanted = "seconds of its arrival and of a later departure"
                    raise TraceError(f"{name}: {device} has the interval {shortened(interval)}; wanted {wanted}")
                events.append((ends[0], index, True))
                # A device that stays to the end does not leave: nothing after it counts.
                if until_s is None or ends[1] < until_s:
                    events.append((ends[1], index, False))
        time_s, index_of, comes = np.array(events, dtype=float).reshape(-1, 3).T
        return cls(devices=tuple(present), time_s=time_s, device=index_of, comes=comes, end_s=end_s, name=name)

    @classmethod
    def drawn(cls, *given: Any, **options: Any) -> Self:
        """Former name of ``sampled``, to be removed in the next release."""
        said = "Availability.drawn is Availability.sampled now; the old name leaves with the next release"
        warn(said, FutureWarning, stacklevel=2)
        return cls.sampled(*given, **options)

    @classmethod
    def sampled(
        cls,
        devices: Topology | Sequence[str],
        end_s: float,
        *,
        mean_life_s: float,
        mean_absence_s: float,
        shape: float = 1.0,
        daily: float = 0.0,
        weekends: bool = False,
        region_loss_s: float | None = None,
        seed: int = 0,
        name: str = "sampled",
    ) -> Self:
        """Sample arrivals and departures for the devices of a network, or for a list of names. The same seed gives the
        same events.

        A device stays online for a Weibull lifetime with mean ``mean_life_s`` and this ``shape``: 1 is exponential,
        below 1 most departures come early. It is then away for an exponentially distributed time with mean
        ``mean_absence_s``. If that is infinite, it never returns.

        At second 0 some devices are online and have been for a while, as if sampling had begun long before. If devices
        never return, all are online and new.

        ``daily``, from 0 to 1, is the strength of a daily rhythm. At noon most devices leave and fewest arrive, at
        midnight (second 0) the opposite. With ``weekends``, days 6 and 7 of a week are like midnight. ``region_loss_s``
        is the mean time between outages of a whole region. Raises TraceError for a value that is out of range.
        """
        rates = Rates(
            mean_life_s=mean_life_s,
            mean_absence_s=mean_absence_s,
            shape=shape,
            daily=daily,
            weekends=weekends,
            region_loss_s=region_loss_s,
        )
        if isinstance(devices, str):
            raise TraceError(f"{name}: devices are {shortened(devices)}; wanted a Topology, or a list of names")
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
            raise TraceError(f"{name}: seed is {shortened(seed)}; wanted a whole number, 0 or more")
        if isinstance(devices, Topology):
            names, regions = devices.names, [device.region for device in devices.devices]
        else:
            names, regions = tuple(devices), [""] * len(devices)
        time_s, device, comes = rates.events(regions, end_s, np.random.default_rng(seed))
        source = f"sampled by the lab: {rates}; seed {seed}"
        return cls(devices=names, time_s=time_s, device=device, comes=comes, end_s=end_s, name=name, source=source)

    @classmethod
    def steady(cls, topology: Topology, end_s: float) -> Self:
        """Return an availability in which all devices of a network are online from the first second to the last."""
        names = _names_of(topology)
        n = len(names)
        return cls(
            devices=names, time_s=np.zeros(n), device=np.arange(n), comes=np.ones(n, bool), end_s=end_s, name="steady"
        )

    @cached_property
    def changes(self) -> tuple[Change, ...]:
        """One ``Change`` for each instant with events, in order of time."""
        if not len(self.time_s):
            return ()
        begins = np.flatnonzero(np.append(True, np.diff(self.time_s) > 0))
        turns = begins + np.add.reduceat(~self.comes, begins, dtype=np.int64)
        ends = np.append(begins[1:], len(self.time_s))
        device, comes = tuple(self.device.tolist()), self.comes.tolist()
        order = np.lexsort((self.device, self.time_s))
        # A device that comes and goes at one instant is in two events there.
        again = (np.diff(self.device[order]) == 0) & (np.diff(self.time_s[order]) == 0)
        twice = set(self.time_s[order[1:][again]].tolist())
        found = []
        instants = zip(self.time_s[begins].tolist(), begins.tolist(), turns.tolist(), ends.tolist(), strict=True)
        for at_s, begin, turn, end in instants:
            left, came = device[begin:turn], device[turn:end]
            if at_s in twice:
                # Only its state before and after the instant matters.
                first = {device[i]: comes[i] for i in reversed(range(begin, end))}
                last = {device[i]: comes[i] for i in range(begin, end)}
                left = tuple(sorted(who for who, came_first in first.items() if not came_first))
                came = tuple(sorted(who for who, came_last in last.items() if came_last))
            found.append(Change(at_s, left, came))
        return tuple(found)

    def counts(self) -> IntArray:
        """Return (changes,) the number of devices online from each change to the next. A single 0 if nothing ever
        changes."""
        if not len(self.time_s):
            return np.zeros(1, dtype=np.int64)
        last = np.append(np.diff(self.time_s) > 0, True)
        present: IntArray = np.cumsum(np.where(self.comes, 1, -1))[last]
        return present

    def present_at(self, time_s: float) -> tuple[str, ...]:
        """Return the names of the devices online at a time, in the order of ``devices``."""
        count = np.zeros(len(self.devices), dtype=np.int64)
        until = int(np.searchsorted(self.time_s, time_s, side="right"))
        np.add.at(count, self.device[:until], np.where(self.comes[:until], 1, -1))
        return tuple(name for name, there in zip(self.devices, count, strict=True) if there > 0)

    def present_s(self) -> FloatArray:
        """Return (devices,) the seconds for which each device is online."""
        seconds = np.zeros(len(self.devices))
        np.add.at(seconds, self.device, np.where(self.comes, self.end_s - self.time_s, self.time_s - self.end_s))
        return seconds

    @property
    def mean_between_losses_s(self) -> float:
        """Length in seconds divided by the number of instants with departures; infinite if no device leaves."""
        instants = len(np.unique(self.time_s[~self.comes]))
        return self.end_s / instants if instants else np.inf

    def on(self, topology: Topology) -> Self:
        """Return the same changes for the devices of a network, in the network's order.

        If every name is a device of the network, the names are kept. Otherwise, as in logs of clouds that rename
        machines, each arrival takes the first free device in the network's order. If none is free, the arrival is
        dropped, and ``left_out`` counts its events.
        """
        names = _names_of(topology)
        place = {name: index for index, name in enumerate(names)}
        # Recorded devices of this network keep their places.
        if set(self.devices) <= set(names):
            index = np.array([place[name] for name in self.devices], dtype=np.int64)
            return replace(self, devices=names, device=index[self.device] if len(self.device) else self.device)
        # take the lowest free device, so that the same few are in use most of the time
        free = list(range(len(names)))
        seat: dict[int, int] = {}
        kept, seats = [], []
        for event, (device, comes) in enumerate(zip(self.device.tolist(), self.comes.tolist(), strict=True)):
            if comes and free:
                seat[device] = heappop(free)
            elif comes or device not in seat:
                continue
            kept.append(event)
            seats.append(seat[device])
            if not comes:
                heappush(free, seat.pop(device))
        return replace(
            self,
            devices=names,
            time_s=self.time_s[kept],
            device=np.array(seats, dtype=np.int64),
            comes=self.comes[kept],
            left_out=self.left_out + len(self.time_s) - len(kept),
        )

    def until(self, end_s: float) -> Self:
        """Return the first ``end_s`` seconds, including changes at the very end. Raises TraceError if the availability
        is shorter, or if ``end_s`` is not above 0."""
        until_s = as_number(end_s)
        if until_s is None or not 0 < until_s <= self.end_s:
            found = shortened(end_s)
            raise TraceError(f"{self.name} until {found} s; wanted more than 0, at most its {self.end_s:g} s")
        kept = self.time_s <= until_s
        return replace(self, time_s=self.time_s[kept], device=self.device[kept], comes=self.comes[kept], end_s=until_s)

    def faster(self, factor: float) -> Self:
        """Return the same changes ``factor`` times faster. ``faster(60)`` turns an hour into a minute."""
        times = as_number(factor)
        if times is None or not 0 < times < np.inf:
            raise TraceError(f"{self.name} {shortened(factor)} times faster; wanted a factor above 0")
        return replace(self, time_s=self.time_s / times, end_s=self.end_s / times)

    def to_frame(self) -> pd.DataFrame:
        """Return one row per event: time_s, event ("add" or "remove"), device."""
        names = np.array(self.devices, dtype=object)
        return pd.DataFrame(
            {
                "time_s": self.time_s,
                "event": np.where(self.comes, "add", "remove"),
                "device": names[self.device] if len(self.device) else [],
            }
        )


def _names_of(topology: object) -> tuple[str, ...]:
    """Return the names of a network's devices. Raises TraceError for anything but a Topology, such as a network's
    name."""
    if not isinstance(topology, Topology):
        raise TraceError(f"network is {shortened(topology)}; wanted a Topology, such as lab.load_topology loads")
    return topology.names


def in_turns(time_s: FloatArray, device: IntArray, comes: BoolArray) -> tuple[IntArray, int | None]:
    """Return the indices that sort the events, and the index of the first impossible event in the arrays as given; None
    if all are possible.

    An event is impossible if a device arrives while it is online or leaves while it is not. At one instant, devices
    that were online leave first, then others arrive. If a device does both at one instant, its state before decides
    which comes first. The result does not depend on the order in which the events are given.
    """
    if not len(device):
        return np.arange(0), None
    by_device = np.lexsort((comes, time_s, device))
    of, at_s, coming = device[by_device], time_s[by_device], comes[by_device]
    is_new = np.append(True, of[1:] != of[:-1])
    # groups of events of one device at one instant; its departures come first
    begins = np.flatnonzero(is_new | np.append(True, at_s[1:] != at_s[:-1]))
    sizes = np.diff(np.append(begins, len(of)))
    n_leave = np.add.reduceat(~coming, begins, dtype=np.int64)
    net = sizes - 2 * n_leave
    total, firsts = np.cumsum(net), np.flatnonzero(is_new[begins])
    there = total - np.repeat((total - net)[firsts], np.diff(np.append(firsts, len(begins))))
    was_there = np.repeat(there - net == 1, sizes)
    # Departures and arrivals of one device at one instant alternate, beginning with what is possible.
    nth = np.arange(len(of)) - np.repeat(begins, sizes) - np.where(coming, np.repeat(n_leave, sizes), 0)
    turn = 2 * nth + (coming == was_there)
    order = by_device[np.lexsort((coming, turn, at_s))]
    wrong = np.flatnonzero((there < 0) | (there > 1))
    if not len(wrong):
        return order, None
    # The earliest, because later ones may only follow from it.
    first = wrong[np.argmin(at_s[begins[wrong]])]
    return order, int(by_device[begins[first] + (sizes[first] - 1 if there[first] > 1 else 0)])


def checked_order(
    name: str, devices: tuple[str, ...], end_s: float, time_s: FloatArray, device: IntArray, comes: BoolArray
) -> IntArray:
    """Return the indices that sort the events. Raises TraceError, with the availability's name, for impossible events,
    times or devices."""
    if not time_s.shape == device.shape == comes.shape or time_s.ndim != 1:
        raise TraceError(
            f"{name}: {counted(time_s.size, 'time')}, {counted(device.size, 'device')} and "
            f"{counted(comes.size, 'kind')} of events; wanted as many of each"
        )
    if (stray := next((each for each in devices if not isinstance(each, str)), None)) is not None:
        raise TraceError(f"{name}: a device is named {shortened(stray)}; wanted text")
    if len(set(devices)) < len(devices):
        twice = next(each for at, each in enumerate(devices) if each in devices[:at])
        raise TraceError(f"{name}: device {twice} stands twice in the list; wanted each once")
    outside = ~((time_s >= 0) & (time_s <= end_s))
    if outside.any():
        raise TraceError(f"{name}: an event at {time_s[outside][0]:g} s; wanted 0 to the end at {end_s:g} s")
    unknown = (device < 0) | (device >= len(devices))
    if unknown.any():
        raise TraceError(
            f"{name}: an event names device {device[unknown][0]}; wanted 0 to {len(devices) - 1}, "
            "an index of the devices"
        )
    order, wrong = in_turns(time_s, device, comes)
    if wrong is not None:
        who, when = devices[int(device[wrong])], f"{time_s[wrong]:g} s"
        if comes[wrong]:
            raise TraceError(f"{name}: {who} comes at {when} while it is there; wanted it to leave before")
        raise TraceError(f"{name}: {who} leaves at {when} while it is not there; wanted it to come before")
    return order
