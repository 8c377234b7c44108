"""Topologies as GraphML and as node-link JSON, for and from other graph tools; networkx reads and writes both.

Nodes and edges carry what ``Topology.to_networkx`` gives them: a Device's fields, and ``latency_s`` and
``bandwidth_bytes_per_s``; times by message size, which other tools do not know, are left out. An undirected edge
counts both ways. GraphML, which knows no pairs, has a node's position as ``x`` and ``y``; its documents are refused
where they declare entities, of which a few lines can unfold to gigabytes.
"""

from __future__ import annotations

import io
import json
import warnings
from pathlib import Path
from typing import Any
from xml.parsers import expat

import networkx as nx
from pydantic import BaseModel, Field

from dtfm_lab.domain.errors import FileError, LabError
from dtfm_lab.domain.network import Topology, shortened
from dtfm_lab.files.reading import located, parse, read_bytes, reason_of, title_of, write_bytes, write_text

DEEPEST = 50
"""elements within elements; a group in a group in a graph is five"""


class NodeLinkFile(BaseModel):
    """The outline that networkx takes for granted."""

    nodes: list[dict[str, Any]]
    edges: list[dict[str, Any]] = Field(default_factory=list)
    links: list[dict[str, Any]] = Field(default_factory=list)
    """what older tools call edges"""
    directed: bool = False
    multigraph: bool = False
    graph: dict[str, Any] = Field(default_factory=dict)


def read_graphml(path: Path) -> Topology:
    """A topology from GraphML; raises FileError or TopologyError."""
    data = read_bytes(path)
    with located(path.name):
        _Outline().check(data)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of ports and untyped keys, which no topology needs
                graph = nx.read_graphml(io.BytesIO(data))
        except Exception as error:  # networkx raises whatever a wrong attribute happens to cause
            raise FileError(f"broken GraphML: {reason_of(error)}") from None
        for *_, attributes in graph.edges(data=True):
            attributes |= graph.graph["edge_default"] | attributes
        for _, attributes in graph.nodes(data=True):
            attributes |= graph.graph["node_default"] | attributes
            if {"x", "y"} <= set(attributes):
                attributes["position"] = _coordinate(attributes["x"]), _coordinate(attributes["y"])
        return Topology.from_networkx(graph, name=str(graph.graph.get("name") or title_of(path)))


def write_graphml(topology: Topology, path: Path) -> Path:
    """Everything; raises FileError for a character that XML cannot hold."""
    graph = topology.to_networkx()
    for _, attributes in graph.nodes(data=True):
        if (position := attributes.pop("position")) is not None:
            attributes["x"], attributes["y"] = position
    data = "\n".join(nx.generate_graphml(graph)).encode("utf-8", errors="surrogatepass") + b"\n"
    try:
        _Outline().check(data)
    except LabError as error:
        raise FileError(f"{path}: cannot be written as GraphML: {error}") from None
    return write_bytes(path, data)


def topology_from_node_link(data: dict[str, Any], *, where: str = "graph", name: str = "graph") -> Topology:
    """A topology from what a node-link JSON file holds, as ``networkx.node_link_data`` and d3 have it."""
    file = parse(NodeLinkFile, data, where)
    with located(where):
        edges = "links" if "links" in data else "edges"
        _check_ids(file.nodes, getattr(file, edges), edges)
        try:
            graph = nx.node_link_graph({"multigraph": False, edges: [], **data}, edges=edges)
        except Exception as error:  # networkx raises whatever a wrong value happens to cause
            raise FileError(f"broken node-link graph: {reason_of(error)}") from None
        return Topology.from_networkx(graph, name=str(graph.graph.get("name") or name))


def write_node_link(topology: Topology, path: Path) -> Path:
    """Everything, as ``networkx.node_link_data`` has it."""
    return write_text(path, json.dumps(nx.node_link_data(topology.to_networkx(), edges="edges"), indent=1) + "\n")


def _check_ids(nodes: list[dict[str, Any]], edges: list[dict[str, Any]], noun: str) -> None:
    """Every node has an id of its own, and edges name no other: networkx would make up both."""
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


class _Outline:
    """What a first pass over a GraphML document sees, before anything is unfolded or built."""

    def __init__(self) -> None:
        self._depth = 0
        self._nodes: set[str] = set()
        self._ends: dict[str, int] = {}
        self._parser = expat.ParserCreate()
        self._parser.StartDoctypeDeclHandler = self._doctype
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end

    def check(self, data: bytes) -> None:
        try:
            self._parser.Parse(data, True)
        except expat.ExpatError as error:
            problem = expat.ErrorString(error.code)
            raise FileError(f"line {error.lineno}, column {error.offset + 1}: broken XML: {problem}") from None
        except (ValueError, LookupError) as error:  # an encoding that expat does not know
            raise FileError(f"broken XML: {reason_of(error)}") from None
        for end, line in self._ends.items():
            if end not in self._nodes:
                raise FileError(f"line {line}: an edge names {shortened(end)}; wanted the id of a node")

    def _doctype(self, *_: Any) -> None:
        raise FileError(f"line {self._parser.CurrentLineNumber}: declares a document type; wanted GraphML without one")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        line, kind = self._parser.CurrentLineNumber, name.rpartition(":")[2]
        if self._depth > DEEPEST:
            raise FileError(f"line {line}: is nested more than {DEEPEST} deep; wanted a few levels")
        for key in {"node": ("id",), "edge": ("source", "target")}.get(kind, ()):
            if key not in attributes:
                raise FileError(f"line {line}: {kind} has no {key}; wanted one")
        if kind == "node":
            if attributes["id"] in self._nodes:
                raise FileError(
                    f"line {line}: node {shortened(attributes['id'])} stands twice; wanted an id of its own"
                )
            self._nodes.add(attributes["id"])
        if kind == "edge":
            self._ends.setdefault(attributes["source"], line)
            self._ends.setdefault(attributes["target"], line)

    def _end(self, _: str) -> None:
        self._depth -= 1


def _coordinate(value: Any) -> Any:
    """A number, where it is one or is written as one; drawing tools write text."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return value
