"""Topologies as GraphML, for and from other graph tools.

Nodes and edges have the attributes of ``topology_node_link``. GraphML has no pairs, so a node's position is kept
as ``x`` and ``y``. Documents that declare entities are refused, because a few lines of those can expand to gigabytes.
"""

import io
import warnings
from pathlib import Path
from typing import Any
from xml.parsers import expat

import networkx as nx

from dtfm_lab.domain.errors import FileError, LabError
from dtfm_lab.domain.network import MOST_DEVICES, Topology, shortened
from dtfm_lab.files.reading import located, read_bytes, reason_of, title_of, write_bytes

DEEPEST = 50
"""Most levels of nested elements; a group in a group in a graph has five."""


MOST_NODES = 2 * MOST_DEVICES
"""Nodes after which a document is not read on; one more than MOST_DEVICES is refused with their number."""
suffixes = (".graphml",)


def read(path: Path) -> Topology:
    """The topology of a GraphML document; raises FileError or TopologyError."""
    data = read_bytes(path)
    with located(path.name):
        _Outline().check(data)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of ports and untyped keys, which topologies do not use
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


def write(topology: Topology, path: Path) -> Path:
    """Write everything but times by message size; raises FileError for a character that XML cannot hold."""
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


class _Outline:
    """Checks a GraphML document in a first pass, before entities are expanded and a graph is built."""

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
            if len(self._nodes) > MOST_NODES:
                raise FileError(f"line {line}: more than {MOST_NODES} nodes; wanted at most {MOST_DEVICES}")
        if kind == "edge":
            self._ends.setdefault(attributes["source"], line)
            self._ends.setdefault(attributes["target"], line)

    def _end(self, _: str) -> None:
        self._depth -= 1


def _coordinate(value: Any) -> Any:
    """A number where the value is one, or is text that writes one, as drawing tools do; else the value itself."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return value
