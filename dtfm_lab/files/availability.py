"""Availabilities by name, or from and to files: who is there when, in four formats.

| the file                             | holds                                                                   |
| ------------------------------------ | ----------------------------------------------------------------------- |
| .csv with ``seconds,event,node``     | a row for each ``add`` and ``remove``                                   |
| .csv without a header                | the same with milliseconds first, as Bamboo's and Oobleck's simulators  |
| .csv with ``seconds,count``          | how many are there from each time on                                    |
| .json, or a folder of several        | SkyPilot's: how many are there at each tick; a folder is a file a zone  |
"""

import os
from pathlib import Path

from dtfm_lab.domain.availability import Availability
from dtfm_lab.domain.errors import FileError, UnknownName
from dtfm_lab.domain.network import shortened
from dtfm_lab.domain.registry import unknown
from dtfm_lab.files import availability_csv, availability_ticks
from dtfm_lab.files.reading import ending_of
from dtfm_lab.files.topologies import shipped_folder, topology_names


def availability_names() -> list[str]:
    """Names of the availabilities that come with the lab."""
    return sorted(path.stem for path in (shipped_folder() / "availability").glob("*.csv"))


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
        return availability_csv.read(shipped_folder() / "availability" / f"{name}.csv")
    path = Path(name)
    if name and os.path.isdir(name):
        return availability_ticks.read(path, sorted(path.glob("*.json")))
    ending = path.suffix.lower()
    if ending == ".csv":
        return availability_csv.read(path)
    if ending == ".json":
        return availability_ticks.read(path, [path])
    if name and os.path.exists(name):
        raise FileError(f"{path}: ends in {ending or 'nothing'}; wanted .csv, .json, or a folder of .json")
    error = unknown("availability", shortened(name) if len(name) > 60 else name, availability_names())
    raise UnknownName(f"{error} ({name} is a network)") if name in topology_names() else error


def save_availability(availability: Availability, path: str | os.PathLike[str]) -> Path:
    """Write events as .csv, from which all comes back; raises FileError for another ending or an unwieldy name."""
    ending_of(path, [".csv"])
    return availability_csv.write(availability, Path(path))
