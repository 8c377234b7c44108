"""Topologies in YAML and JSON, which hold everything, as people write it.

``topology_reading`` and ``topology_writing`` say what the keys mean. Node-link graphs of other tools end in
.json, too, so a JSON file is read by what it holds.
"""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from dtfm_lab.domain.network import Topology
from dtfm_lab.files.reading import read_mapping, title_of, write_text
from dtfm_lab.files.topology_node_link import topology_from_node_link
from dtfm_lab.files.topology_reading import topology_from_mapping
from dtfm_lab.files.topology_writing import topology_to_mapping

suffixes = (".yaml", ".yml", ".json")


def read(path: Path) -> Topology:
    """The topology of a YAML or JSON file; raises FileError, TopologyError or UnknownName."""
    data, name = read_mapping(path), title_of(path)
    if "nodes" in data and "dtfm_topology" not in data:
        return topology_from_node_link(data, where=path.name, name=name)
    return topology_from_mapping(data, where=path.name, name=name)


def write(topology: Topology, path: Path) -> Path:
    """Write everything, the commonest speeds as defaults."""
    data = topology_to_mapping(topology, short=True)
    if path.suffix.lower() == ".json":
        return write_text(path, json.dumps(data, indent=1) + "\n")
    return write_text(path, yaml.safe_dump(data, sort_keys=False, allow_unicode=True))
