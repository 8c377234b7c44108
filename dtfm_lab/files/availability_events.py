"""Events of a file, each with its line, as an Availability; and events that make counts."""

from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dtfm_lab.domain.availability import MOST_EVENTS, Availability, in_turns
from dtfm_lab.domain.errors import FileError

OLDEST_FIRST = "counts name nobody: names are ours, and the oldest leaves first"


class Event(NamedTuple):
    """A device that comes or leaves."""

    time_s: float
    comes: bool
    device: str
    line: int
    """Of the file."""


def counted(counts: Iterable[tuple[float, int, int]], prefix: str, where: str) -> tuple[list[Event], float]:
    """Events that make the counts, and the time of the last; ``prefix`` and a number are each newcomer's name."""
    events: list[Event] = []
    there: deque[str] = deque()
    n_named, time_s = 0, 0.0
    for time_s, wanted, line in counts:
        while len(there) > wanted:
            events.append(Event(time_s, False, there.popleft(), line))
        while len(there) < wanted:
            n_named += 1
            there.append(f"{prefix}{n_named}")
            events.append(Event(time_s, True, there[-1], line))
        if len(events) > MOST_EVENTS:
            raise FileError(f"{where}: line {line}: more than {MOST_EVENTS:,} events; wanted fewer")
    return events, time_s


def availability_of(
    events: Sequence[Event],
    until_s: float,
    path: Path,
    *,
    name: str,
    source: str,
    devices: tuple[str, ...] = (),
    end_s: float | None = None,
    left_out: int = 0,
) -> Availability:
    """The noun of a file's events; a mistake is told with its line."""
    place = {device: index for index, device in enumerate(devices)}
    for _, _, who, line in events:
        if place.setdefault(who, len(place)) >= len(devices) > 0:
            raise FileError(f"{path.name}: line {line}: {who} is none of the {len(devices)} devices named above")
    time_s = np.array([event.time_s for event in events], dtype=np.float64)
    comes = np.array([event.comes for event in events], dtype=bool)
    device = np.array([place[event.device] for event in events], dtype=np.int64)
    last = int(np.argmax(time_s)) if len(time_s) else 0
    until_s = max(until_s, float(time_s.max(initial=0.0)))
    if end_s is None and not until_s:
        raise FileError(f"{path.name}: nothing after second 0; wanted a later row, or a line '# end_seconds: 3600'")
    if end_s is not None and end_s < until_s:
        where = f": line {events[last].line}" if len(events) else ""
        raise FileError(f"{path.name}{where} is at {until_s:g} s; wanted at most end_seconds, {end_s:g}")
    _, wrong = in_turns(time_s, device, comes)
    if wrong is not None:
        at_s, came, who, line = events[wrong]
        found = "comes at {} s while it is there" if came else "leaves at {} s while it is not there"
        raise FileError(f"{path.name}: line {line}: {who} {found.format(f'{at_s:g}')}; wanted add and remove in turn")
    return Availability(
        devices=devices or tuple(place),
        time_s=time_s,
        device=device,
        comes=comes,
        end_s=until_s if end_s is None else end_s,
        name=name,
        source=source,
        left_out=left_out,
    )
