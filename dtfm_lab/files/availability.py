"""Availabilities by name, or from and to files: who is there when, in four formats.

| the file                             | holds                                                                   |
| ------------------------------------ | ----------------------------------------------------------------------- |
| .csv with ``seconds,event,node``     | a row for each ``add`` and ``remove``                                   |
| .csv without a header                | the same with milliseconds first, as Bamboo's and Oobleck's simulators  |
| .csv with ``seconds,count``          | how many are there from each time on                                    |
| .json, or a folder of several        | SkyPilot's: how many are there at each tick; a folder is a file a zone  |
"""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dtfm_lab.domain.availability import Availability
from dtfm_lab.domain.errors import FileError, UnknownName
from dtfm_lab.domain.network import MOST_DEVICES, as_number, shortened
from dtfm_lab.domain.registry import unknown
from dtfm_lab.files import availability_csv
from dtfm_lab.files.availability_csv import OLDEST_FIRST, Event, availability_of, counted
from dtfm_lab.files.reading import ending_of, read_mapping, shipped, title_of
from dtfm_lab.files.topologies import topology_names


def availability_names() -> list[str]:
    """Names of the availabilities that come with the lab."""
    return sorted(path.stem for path in (shipped("topologies") / "availability").glob("*.csv"))


def load_availability(name_or_path: str | os.PathLike[str]) -> Availability:
    """Which devices are there when, by name (``bamboo-p3``, ``volunteers-at-home``...) or from a file.

    A file is a .csv of events (``seconds,event,node`` with ``add`` and ``remove``) or of counts (``seconds,count``), or
    one of SkyPilot's spot traces as .json; a folder of these is one availability, of all its zones. Raises FileError,
    with the line of the file, for one that cannot be, and UnknownName, with the nearest name.
    """
    if not isinstance(name_or_path, str | os.PathLike):
        raise FileError(f"availability is {shortened(name_or_path)}; wanted a name or a path")
    name = os.fspath(name_or_path)
    if name in availability_names():
        return availability_csv.read(shipped("topologies") / "availability" / f"{name}.csv")
    path = Path(name)
    if name and os.path.isdir(name):
        return _read_ticks(path, sorted(path.glob("*.json")))
    ending = path.suffix.lower()
    if ending == ".csv":
        return availability_csv.read(path)
    if ending == ".json":
        return _read_ticks(path, [path])
    if name and os.path.exists(name):
        raise FileError(f"{path}: ends in {ending or 'nothing'}; wanted .csv, .json, or a folder of .json")
    error = unknown("availability", shortened(name) if len(name) > 60 else name, availability_names())
    raise UnknownName(f"{error} ({name} is a network)") if name in topology_names() else error


def save_availability(availability: Availability, path: str | os.PathLike[str]) -> Path:
    """Write events as .csv, from which all comes back; raises FileError for another ending or an unwieldy name."""
    ending_of(path, [".csv"])
    return availability_csv.write(availability, Path(path))


def _read_ticks(path: Path, files: Sequence[Path]) -> Availability:
    """SkyPilot's JSON, a zone a file, all from second 0; known until the first of them ends."""
    if not files:
        raise FileError(f"{path}: a folder without .json files; wanted SkyPilot's, a zone each")
    zones = [(title_of(file), *_ticks(file)) for file in files]
    end_s = min(gap_s * len(data) for _, gap_s, data in zones)
    events: list[Event] = []
    for zone, gap_s, data in zones:
        ticks = ((tick * gap_s, n, tick) for tick, n in enumerate(data) if tick * gap_s < end_s)
        # a zone of one machine is that machine, which comes and goes
        one = max(data) <= 1
        found, _ = counted(ticks, f"{zone}-", path.name)
        events += [Event(at_s, comes, zone, tick) for at_s, comes, _, tick in found] if one else found
    source = f"{path.name}, a trace in SkyPilot's format; {OLDEST_FIRST}"
    return availability_of(events, end_s, path, name=title_of(path), source=source, end_s=end_s)


def _ticks(path: Path) -> tuple[float, list[int]]:
    """The seconds between two ticks, and how many are there at each."""
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
