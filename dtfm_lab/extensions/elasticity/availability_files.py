"""Load and save availabilities, by name or as a file in one of four formats.

| the file                             | holds                                                                   |
| ------------------------------------ | ----------------------------------------------------------------------- |
| .csv with ``seconds,event,node``     | one row per ``add`` or ``remove``                                       |
| .csv without a header                | the same, in milliseconds, as Bamboo's and Oobleck's simulators write   |
| .csv with ``seconds,count``          | the number of machines online from each time on                         |
| .json, or a folder of several        | SkyPilot's: machines online at each tick, in a folder one file per zone |

Lines of CSV that begin with ``#`` come first. ``# end_seconds: 3600`` is the length in seconds, by default the time of
the last row. ``# name:`` is the name. ``# devices:`` is a JSON list of devices, needed if some never arrive or their
order is not the order of arrival. ``# left_out:`` is the number of dropped events. All other comments are the source.
Counts do not name machines, so they are called node1, node2, ..., and the oldest leaves first.
"""

import csv
import io
import json
import os
from collections import deque
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dtfm_lab.domain.errors import FileError, UnknownName
from dtfm_lab.domain.network import LONGEST_NAME, MOST_DEVICES, as_number, is_plain, shortened
from dtfm_lab.domain.registry import unknown
from dtfm_lab.domain.units import from_ms
from dtfm_lab.extensions.elasticity.availability import LONGEST_S, Availability, in_turns
from dtfm_lab.files.reading import cells_of, ending_of, read_mapping, read_text, shipped, title_of, write_text
from dtfm_lab.files.topologies import topology_names

OLDEST_FIRST = "counts name no device: names are ours, and the oldest leaves first"


def availability_names() -> list[str]:
    """Return the names of the availabilities that ship with the lab."""
    return sorted(path.stem for path in (shipped("topologies") / "availability").glob("*.csv"))


def load_availability(name_or_path: str | os.PathLike[str]) -> Availability:
    """Load an availability by name (``bamboo-p3``, ``volunteers-at-home``...) or from a file.

    A file is a .csv of events (``seconds,event,node`` with ``add`` and ``remove``), a .csv of counts
    (``seconds,count``), or a .json spot trace of SkyPilot. A folder of .json files is one availability of all its
    zones. Raises FileError, with the line of the file, for impossible content, and UnknownName, with the nearest name,
    for an unknown name.
    """
    if not isinstance(name_or_path, str | os.PathLike):
        raise FileError(f"availability is {shortened(name_or_path)}; wanted a name or a path")
    name = os.fspath(name_or_path)
    if name in availability_names():
        return _read_csv(shipped("topologies") / "availability" / f"{name}.csv")
    path = Path(name)
    if name and os.path.isdir(name):
        return _read_ticks(path, sorted(path.glob("*.json")))
    ending = path.suffix.lower()
    if ending == ".csv":
        return _read_csv(path)
    if ending == ".json":
        return _read_ticks(path, [path])
    if name and os.path.exists(name):
        raise FileError(f"{path}: ends in {ending or 'nothing'}; wanted .csv, .json, or a folder of .json")
    error = unknown("availability", shortened(name) if len(name) > 60 else name, availability_names())
    raise UnknownName(f"{error} ({name} is a network)") if name in topology_names() else error


def save_availability(availability: Availability, path: str | os.PathLike[str]) -> Path:
    """Write events as .csv without losing anything. Raises FileError for another ending, or for a name that CSV cannot
    hold."""
    ending_of(path, [".csv"])
    return _write_csv(availability, Path(path))


def _read_ticks(path: Path, files: Sequence[Path]) -> Availability:
    """Read SkyPilot's JSON, one file per zone. All zones start at second 0, and the availability ends when the shortest
    zone ends."""
    if not files:
        raise FileError(f"{path}: a folder without .json files; wanted SkyPilot's, a zone each")
    zones = [(title_of(file), *_ticks(file)) for file in files]
    # After the shortest zone ends, the others cannot say what it did.
    end_s = min(gap_s * len(data) for _, gap_s, data in zones)
    if end_s > LONGEST_S:
        raise FileError(f"{path.name}: its ticks last {end_s:.3g} s; wanted at most {LONGEST_S:.3g} (ten years)")
    events: list[Event] = []
    for zone, gap_s, data in zones:
        ticks = [(tick * gap_s, n, tick) for tick, n in enumerate(data) if tick * gap_s < end_s]
        # with at most one machine at a time, the zone is treated as one machine that comes and goes
        one = max(data) <= 1
        found, _ = _counted(ticks, f"{zone}-", path.name)
        events += [Event(at_s, comes, zone, tick) for at_s, comes, _, tick in found] if one else found
        if len(events) > MOST_COUNTED:
            raise FileError(f"{path.name}: more than {MOST_COUNTED:,} machines come or leave; wanted fewer zones")
    source = f"{path.name}, a trace in SkyPilot's format; {OLDEST_FIRST}"
    return _availability_of(events, end_s, path, name=title_of(path), source=source, end_s=end_s)


def _ticks(path: Path) -> tuple[float, list[int]]:
    """Return the seconds between two ticks, and the number of machines at each tick."""
    content = read_mapping(path)
    metadata, data = content.get("metadata"), content.get("data")
    gap_s = as_number(metadata.get("gap_seconds")) if isinstance(metadata, dict) else None
    if gap_s is None or not 0 < gap_s < np.inf:
        found = shortened(metadata.get("gap_seconds") if isinstance(metadata, dict) else metadata)
        raise FileError(f"{path.name}: metadata.gap_seconds is {found}; wanted seconds above 0")
    if not isinstance(data, list) or not data:
        raise FileError(f"{path.name}: data is {shortened(data)}; wanted a list of counts")
    for tick, n in enumerate(data):
        if type(n) is not int or not 0 <= n <= MOST_DEVICES:
            raise FileError(f"{path.name}: data[{tick}] is {shortened(n)}; wanted a whole number, 0 to {MOST_DEVICES}")
    return gap_s, data


class Event(NamedTuple):
    """A device that arrives or leaves."""

    time_s: float
    comes: bool
    device: str
    line: int
    """Line of the file, for error messages. In SkyPilot's JSON, the tick."""


MOST_COUNTED = 1_000_000
"""Maximum number of events made from a file of counts, about 150 MB of memory. A single line may cause thousands of
events."""


def _counted(counts: Sequence[tuple[float, int, int]], prefix: str, where: str) -> tuple[list[Event], float]:
    """Return events that produce the counts, and the time of the last count. Machines are named ``prefix`` and a
    number."""
    wanted_before = n_events = 0
    for _, wanted, line in counts:  # check the total before making any event
        n_events, wanted_before = n_events + abs(wanted - wanted_before), wanted
        if n_events > MOST_COUNTED:
            raise FileError(
                f"{where}: {n_events:,} machines come or leave by line {line}; wanted at most {MOST_COUNTED:,}"
            )
    events: list[Event] = []
    there: deque[str] = deque()
    n_named, time_s = 0, 0.0
    for time_s, wanted, line in counts:
        # The oldest leaves first, because the file has counts and no names.
        while len(there) > wanted:
            events.append(Event(time_s, False, there.popleft(), line))
        while len(there) < wanted:
            n_named += 1
            there.append(f"{prefix}{n_named}")
            events.append(Event(time_s, True, there[-1], line))
    return events, time_s


def _availability_of(
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
    """Build the availability of a file's events. It ends at ``end_s``, by default at ``until_s`` or at the last event,
    whichever is later. Raises FileError, with the line."""
    place = {device: index for index, device in enumerate(devices)}
    for _, _, who, line in events:
        if place.setdefault(who, len(place)) >= len(devices) > 0:
            raise FileError(f"{path.name}: line {line}: {who} is not one of the {len(devices)} devices named above")
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


KINDS = {"add": True, "remove": False}
COLUMNS = {"seconds": "seconds", "time_s": "seconds", "event": "event", "node": "node", "device": "node"}
"""Accepted names of the columns of events, including the names that ``Availability.to_frame`` uses."""


def _read_csv(path: Path) -> Availability:
    """Read events or counts, depending on the first line after the comments. Raises FileError, with the line."""
    text = read_text(path)
    read_fields: dict[str, Any] = {"name": title_of(path)}
    sources: list[str] = []
    n_comments = 0
    while text.startswith("#"):
        comment, _, text = text.partition("\n")
        n_comments += 1
        _comment(comment.lstrip("#").strip(), n_comments, path, read_fields, sources)
    table = list(cells_of(text, path, n_comments))
    if not table:
        raise FileError(f"{path.name}: holds no rows; wanted seconds,event,node or seconds,count, and rows of them")
    header = [cell.lower() for cell in table[0][1]]
    until_s = 0.0
    if _number(header[0]) is not None:
        bare = [_event(cells, "milliseconds", number, path) for number, cells in _of_width(table, 3, path)]
        # Bare rows of numbers are in milliseconds, by the format that they come from.
        events = [event._replace(time_s=from_ms(event.time_s)) for event in bare]
    elif "count" in header:
        events, until_s = _counted(_counts(table, path), "node", path.name)
        sources += [] if OLDEST_FIRST in sources else [OLDEST_FIRST]
    else:
        events = _events(table, path)
    return _availability_of(events, until_s, path, **read_fields, source="; ".join(sources))


def _write_csv(availability: Availability, path: Path) -> Path:
    """Write events as .csv without losing anything. Raises FileError for a name that CSV cannot hold."""
    for name in (*availability.devices, availability.name):
        if name != name.strip() or not is_plain(name) or not name:
            raise FileError(f"{path}: cannot hold the name {name!r}; wanted plain text without blanks around it")
    lines = [f"# name: {availability.name}"]
    lines += [f"# source: {' '.join(availability.source.split())}"] if availability.source else []
    lines += [f"# left_out: {availability.left_out}"] if availability.left_out else []
    first_to_come = dict.fromkeys(availability.devices[device] for device in availability.device.tolist())
    # A reader takes devices in the order of their arrival, so any other order has to be written.
    if tuple(first_to_come) != availability.devices:
        lines += [f"# devices: {json.dumps(availability.devices, ensure_ascii=False)}"]
    rows = io.StringIO()
    rows.write("\n".join([*lines, f"# end_seconds: {_plain(availability.end_s)}", "seconds,event,node"]) + "\n")
    words = {comes: kind for kind, comes in KINDS.items()}
    times, devices, comes = (each.tolist() for each in (availability.time_s, availability.device, availability.comes))
    csv.writer(rows, lineterminator="\n").writerows(
        (_plain(at_s), words[came], availability.devices[device])
        for at_s, device, came in zip(times, devices, comes, strict=True)
    )
    return write_text(path, rows.getvalue())


def _comment(text: str, line: int, path: Path, read_fields: dict[str, Any], sources: list[str]) -> None:
    """Read a comment line. Text without a known key is part of the source."""
    key, _, value = (part.strip() for part in text.partition(":"))
    where = f"{path.name}: line {line}: {key}"
    if key == "end_seconds":
        read_fields["end_s"] = _number(value)
        if read_fields["end_s"] is None or not 0 < read_fields["end_s"] <= LONGEST_S:
            wanted = f"a number above 0, at most {LONGEST_S:.3g} (ten years)"
            raise FileError(f"{where} is {shortened(value)}; wanted {wanted}")
    elif key == "left_out":
        if not value.isdecimal() or len(value) > 9:
            raise FileError(f"{where} is {shortened(value)}; wanted a count of events")
        read_fields["left_out"] = int(value)
    elif key == "name":
        read_fields["name"] = _name(value, where)
    elif key == "devices":
        read_fields["devices"] = _devices(value, where)
    elif text:
        sources.append(value if key in ("source", "note") else text)


def _devices(value: str, where: str) -> tuple[str, ...]:
    try:
        names = json.loads(value)
    except (ValueError, RecursionError):
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names) or len({*names}) < len(names):
        raise FileError(f"{where} is {shortened(value)}; wanted names as a JSON list, each once")
    return tuple(_name(name, where) for name in names)


@lru_cache(maxsize=MOST_DEVICES)
def _is_name(name: str) -> bool:
    return 0 < len(name) <= LONGEST_NAME and is_plain(name)


def _name(name: str, where: str) -> str:
    if not _is_name(name):
        raise FileError(f"{where} is {shortened(name)}; wanted plain text of 1 to {LONGEST_NAME} characters")
    return name


def _number(text: str) -> float | None:
    """Return the number that a text holds; None for anything else, such as "1_000", which only Python reads as a
    number."""
    try:
        return float(text) if text.isascii() and "_" not in text else None
    except ValueError:
        return None


def _time(text: str, where: str, most: float = LONGEST_S) -> float:
    number = _number(text)
    if number is None or not 0 <= number <= most:
        raise FileError(f"{where} is {shortened(text)}; wanted a number, 0 or more, at most {most:.3g} (ten years)")
    return number


def _events(table: Sequence[tuple[int, list[str]]], path: Path) -> list[Event]:
    line, header = table[0]
    named = [COLUMNS.get(cell.lower(), "") for cell in header]
    for column in ("seconds", "event", "node"):
        if column not in named:
            found = shortened(",".join(header))
            raise FileError(f"{path.name}: line {line}: no column {column!r} in {found}; wanted seconds,event,node")
    places = [named.index(column) for column in ("seconds", "event", "node")]
    rows = _of_width(table[1:], len(header), path)
    return [_event([cells[place] for place in places], "seconds", number, path) for number, cells in rows]


def _event(cells: Sequence[str], unit: str, line: int, path: Path) -> Event:
    where = f"{path.name}: line {line}"
    time, kind, name = cells
    if kind.lower() not in KINDS:
        raise FileError(f"{where}: event is {shortened(kind)}; wanted add or remove")
    most = LONGEST_S if unit == "seconds" else 1000 * LONGEST_S
    return Event(_time(time, f"{where}: {unit}", most), KINDS[kind.lower()], _name(name, f"{where}: node"), line)


def _of_width(table: Sequence[tuple[int, list[str]]], wanted: int, path: Path) -> Iterable[tuple[int, list[str]]]:
    for number, cells in table:
        if len(cells) != wanted:
            raise FileError(f"{path.name}: line {number} has {len(cells)} cells; wanted {wanted}")
        yield number, cells


def _counts(table: Sequence[tuple[int, list[str]]], path: Path) -> list[tuple[float, int, int]]:
    """Return (time in seconds, machines online from then on, line) of each row, sorted by time. If a time appears
    twice, the last row counts."""
    line, header = table[0]
    names = [COLUMNS.get(cell.lower(), cell.lower()) for cell in header]
    if sorted(names) != ["count", "seconds"]:
        raise FileError(f"{path.name}: line {line} is {shortened(','.join(header))}; wanted seconds,count")
    at, counted = names.index("seconds"), names.index("count")
    found: dict[float, tuple[int, int]] = {}
    for number, cells in _of_width(table[1:], 2, path):
        where = f"{path.name}: line {number}"
        found[_time(cells[at], f"{where}: seconds")] = (_count(cells[counted], f"{where}: count"), number)
    return [(time_s, n, number) for time_s, (n, number) in sorted(found.items())]


def _count(text: str, where: str) -> int:
    if not (text.isascii() and text.isdecimal()) or len(text) > 9 or int(text) > MOST_DEVICES:
        raise FileError(f"{where} is {shortened(text)}; wanted a whole number, 0 to {MOST_DEVICES}")
    return int(text)


def _plain(number: float) -> str:
    """Return the shortest digits that read back as the same number."""
    return repr(float(number)).removesuffix(".0")
