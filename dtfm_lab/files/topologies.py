"""Topologies by name, or from and to files of every format that the lab knows; the ending decides.

| ending                                      | holds                                            |
| ------------------------------------------- | ------------------------------------------------ |
| .yaml, .yml, .json                          | everything, as people write it                   |
| .npz                                        | everything, dense, the quickest by far           |
| .graphml, .nodelink.json                    | all but times by message size, in SI             |
| .csv                                        | links and names: one row a directed link         |
| .latency_ms.csv with .bandwidth_gbps.csv    | links and names: two matrices                    |

Milliseconds and Gbit/s come back exactly where they were milliseconds and Gbit/s once, else to the
last bit or two of a float. A .json file is read by what it holds: a topology, or a node-link graph.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import yaml

from dtfm_lab.domain.errors import FileError
from dtfm_lab.domain.network import Topology, shortened
from dtfm_lab.domain.registry import unknown
from dtfm_lab.files.reading import read_mapping, title_of, write_text
from dtfm_lab.files.topology_arrays import read_arrays, write_arrays
from dtfm_lab.files.topology_graphs import (
    read_graphml,
    topology_from_node_link,
    write_graphml,
    write_node_link,
)
from dtfm_lab.files.topology_reading import topology_from_mapping
from dtfm_lab.files.topology_tables import read_csv, write_csv
from dtfm_lab.files.topology_writing import topology_to_mapping


def topology_names() -> list[str]:
    """The networks that come with the lab."""
    return sorted(path.stem for path in _shipped().glob("*.yaml"))


def load_topology(name_or_path: str | os.PathLike[str]) -> Topology:
    """A topology by name (see ``topology_names``) or from a file of one of ``topology_endings``.

    Raises FileError (unreadable, broken, unknown key, unknown ending), TopologyError (missing or
    impossible link) or UnknownName; each says where.
    """
    name = os.fspath(name_or_path)
    if name in topology_names():
        return _read_mapping(_shipped() / f"{name}.yaml")
    path = Path(name)
    if read := READERS.get(path.suffix.lower()):
        return read(path)
    if os.path.exists(path) and name:
        raise FileError(f"{path}: {_no_format(path)}")
    raise unknown("topology", shortened(name) if len(name) > 60 else name, topology_names())


def save_topology(topology: Topology, path: str | os.PathLike[str]) -> Path:
    """Write a topology in the format that the path's ending names; raises FileError for another ending."""
    path = Path(path)
    if write := WRITERS.get(path.suffix.lower()):
        return write(topology, path)
    raise FileError(f"{path}: {_no_format(path)}")


def topology_endings() -> list[str]:
    """What the name of a topology's file may end in."""
    return sorted(READERS)


def _shipped() -> Path:
    """Inside an installed package, or beside it in a checkout."""
    package = Path(__file__).parent.parent
    return package / "topologies" if (package / "topologies").is_dir() else package.parent / "topologies"


def _no_format(path: Path) -> str:
    found = f"ends in {path.suffix!r}" if path.suffix else "has no ending"
    return f"{found}; wanted a topology file that ends in {', '.join(topology_endings())}"


def _read_mapping(path: Path) -> Topology:
    data = read_mapping(path)
    if "nodes" in data and "dtfm_topology" not in data:
        return topology_from_node_link(data, where=path.name, name=title_of(path).removesuffix(".nodelink"))
    return topology_from_mapping(data, where=path.name, name=title_of(path))


def _write_yaml(topology: Topology, path: Path) -> Path:
    data = topology_to_mapping(topology, short=True)
    return write_text(path, yaml.safe_dump(data, sort_keys=False, allow_unicode=True))


def _write_json(topology: Topology, path: Path) -> Path:
    if path.stem.endswith(".nodelink"):
        return write_node_link(topology, path)
    return write_text(path, json.dumps(topology_to_mapping(topology, short=True), indent=1) + "\n")


READERS: dict[str, Callable[[Path], Topology]] = {
    ".yaml": _read_mapping,
    ".yml": _read_mapping,
    ".json": _read_mapping,
    ".npz": read_arrays,
    ".graphml": read_graphml,
    ".csv": read_csv,
}

WRITERS: dict[str, Callable[[Topology, Path], Path]] = {
    ".yaml": _write_yaml,
    ".yml": _write_yaml,
    ".json": _write_json,
    ".npz": write_arrays,
    ".graphml": write_graphml,
    ".csv": write_csv,
}
