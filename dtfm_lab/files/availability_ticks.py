"""Availabilities of SkyPilot's spot traces: JSON with the seconds between two ticks, and how many are there at each."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dtfm_lab.domain.availability import Availability
from dtfm_lab.domain.errors import FileError
from dtfm_lab.domain.network import MOST_DEVICES, as_number, shortened
from dtfm_lab.files.availability_events import OLDEST_FIRST, Event, availability_of, counted
from dtfm_lab.files.reading import read_mapping, title_of


def read(path: Path, files: Sequence[Path]) -> Availability:
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
