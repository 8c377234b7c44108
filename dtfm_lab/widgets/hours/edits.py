"""Comings and goings changed by hand: the stays of a network's devices, and the availability that they are."""

from __future__ import annotations

from collections.abc import Sequence

from dtfm_lab.domain.availability import Availability
from dtfm_lab.figures.timeline.availability import stays_of as timeline_stays

Stay = tuple[int, float, float]
"""A device, and the seconds in which it comes and leaves; one that reaches the end does not leave."""
NAME = "edited"


def stays_of(here: Availability) -> list[Stay]:
    """Every stay, by device and time."""
    device, begin_s, end_s, _ = timeline_stays(here)
    every = zip(device.tolist(), begin_s.tolist(), end_s.tolist(), strict=True)
    return [stay for stay in every if stay[1] < stay[2]]


def edited(here: Availability, stays: Sequence[Sequence[float]]) -> Availability:
    """The availability of these stays; two that touch are one. Raises TraceError where two overlap, or one is none."""
    present: dict[str, list[tuple[float, float]]] = {name: [] for name in here.devices}
    for device, begin_s, end_s in sorted((int(stay[0]), float(stay[1]), float(stay[2])) for stay in stays):
        intervals = present[here.devices[device]]
        if intervals and intervals[-1][1] == begin_s:
            begin_s = intervals.pop()[0]
        intervals.append((begin_s, end_s))
    return Availability.from_intervals(present, here.end_s, name=NAME)


def toggled(stays: Sequence[Stay], device: int, time_s: float, end_s: float) -> list[Stay]:
    """Where the device is there at a time, it leaves then, to its next coming; where it is not, it comes, and stays to
    its next coming or the end."""
    own = [stay for stay in stays if stay[0] == device]
    others = [stay for stay in stays if stay[0] != device]
    if now := next((stay for stay in own if stay[1] <= time_s < stay[2]), None):
        kept = [(device, now[1], time_s)] if now[1] < time_s else []
        return others + [stay for stay in own if stay is not now] + kept
    until_s = min((stay[1] for stay in own if stay[1] > time_s), default=end_s)
    return [*others, *own, (device, time_s, until_s)]


def removed(stays: Sequence[Stay], index: int, end_s: float, *, leaves: bool) -> list[Stay]:
    """Without the departure, or the coming, of a stay: the device is there to its next coming, or from its last
    departure."""
    device, begin_s, until_s = stays[index]
    others = [stay for at, stay in enumerate(stays) if at != index]
    own = [stay for stay in others if stay[0] == device]
    if leaves:
        return [*others, (device, begin_s, min((stay[1] for stay in own if stay[1] >= until_s), default=end_s))]
    return [*others, (device, max((stay[2] for stay in own if stay[2] <= begin_s), default=0.0), until_s)]
