"""Topologies as node-link JSON, the form that networkx, d3 and other graph tools exchange.

Nodes and edges have the attributes of ``Topology.to_networkx``: a Device's fields, and ``latency_s`` and
``bandwidth_bytes_per_s``. Times by message size are left out, because other tools do not read them.
An undirected edge counts in both directions.
"""

import json
from pathlib import Path
from typing import Any

import networkx as nx
from pydantic import BaseModel, Field

from dtfm_lab.domain.errors import FileError
from dtfm_lab.domain.network import Topology, shortened
from dtfm_lab.files.reading import located, parse, read_mapping, reason_of, title_of, write_text

suffixes = (".nodelink.json",)


class NodeLinkFile(BaseModel):
    """The keys that networkx relies on."""

    nodes: list[dict[str, Any]]
    edges: list[dict[str, Any]] = Field(default_factory=list)
    links: list[dict[str, Any]] = Field(default_factory=list)
    """The edges, under the key that older tools use."""
    directed: bool = False
    multigraph: bool = False
    graph: dict[str, Any] = Field(default_factory=dict)


def read(path: Path) -> Topology:
    """The topology of a node-link file; raises FileError or TopologyError."""
    name = title_of(path).removesuffix(".nodelink")
    return topology_from_node_link(read_mapping(path), where=path.name, name=name)


def write(topology: Topology, path: Path) -> Path:
    """Write everything but times by message size, as ``networkx.node_link_data`` arranges it."""
    return write_text(path, json.dumps(nx.node_link_data(topology.to_networkx(), edges="edges"), indent=1) + "\n")


def topology_from_node_link(data: dict[str, Any], *, where: str = "graph", name: str = "graph") -> Topology:
    """The topology of a node-link mapping; ``where`` begins every error message."""
    file = parse(NodeLinkFile, data, where)
    with located(where):
        edges = "links" if "links" in data else "edges"
        _check_ids(file.nodes, getattr(file, edges), edges)
        try:
            graph = nx.node_link_graph({"multigraph": False, edges: [], **data}, edges=edges)
        except Exception as error:  # networkx raises whatever a wrong value happens to cause
            raise FileError(f"broken node-link graph: {reason_of(error)}") from None
        return Topology.from_networkx(graph, name=str(graph.graph.get("name") or name))


def _check_ids(nodes: list[dict[str, Any]], edges: list[dict[str, Any]], noun: str) -> None:
    """Refuse nodes without an id of their own and edges to unknown nodes: networkx would invent both."""
    ids = set()
    for i, node in enumerate(nodes):
        if "id" not in node or (name := str(node["id"])) in ids:
            raise FileError(f"nodes[{i}] has {'an id that stands twice' if 'id' in node else 'no id'}; wanted its own")
        ids.add(name)
    for i, edge in enumerate(edges):
        for end in ("source", "target"):
            if end not in edge or str(edge[end]) not in ids:
                found = f"is {shortened(edge[end])}" if end in edge else "is missing"
                raise FileError(f"{noun}[{i}].{end} {found}; wanted the id of a node")
