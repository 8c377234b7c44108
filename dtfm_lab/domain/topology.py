"""Devices and the network between them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, field, replace
from functools import cached_property
from typing import Any

import networkx as nx
import numpy as np
import numpy.typing as npt
import pandas as pd

from dtfm_lab.domain.errors import TopologyError
from dtfm_lab.domain.hardware import HARDWARE
from dtfm_lab.domain.registry import unknown
from dtfm_lab.domain.units import FloatArray, from_gbps, from_ms, to_gbps, to_ms

PAPERS_GPU = "V100"


@dataclass(frozen=True, kw_only=True)
class Device:
    """One accelerator that can hold one pipeline stage."""

    name: str
    region: str = ""
    gpu: str = PAPERS_GPU
    peak_flop_per_s: float = HARDWARE[PAPERS_GPU].peak_flop_per_s
    memory_bytes: float = HARDWARE[PAPERS_GPU].memory_bytes
    price_per_hour: float = 0.0
    """in whatever currency the user counts; 0 where unknown"""
    position: tuple[float, float] | None = None
    """where it stands on the canvas; no meaning for any cost"""

    def __post_init__(self) -> None:
        if not self.name:
            raise TopologyError("a device has an empty name; every device needs one of its own")
        for what in ("peak_flop_per_s", "memory_bytes"):
            if not (getattr(self, what) > 0 and np.isfinite(getattr(self, what))):
                raise TopologyError(f"device {self.name}: {what} is {getattr(self, what)}; wanted a number above 0")
        if not self.price_per_hour >= 0:
            raise TopologyError(f"device {self.name}: price_per_hour is {self.price_per_hour}; wanted 0 or more")
        # plain types, so that equal devices write and hash alike whatever array they came from
        for what in ("name", "region", "gpu"):
            object.__setattr__(self, what, str(getattr(self, what)))
        for what in ("peak_flop_per_s", "memory_bytes", "price_per_hour"):
            object.__setattr__(self, what, float(getattr(self, what)))
        if self.position is not None:
            x, y = self.position
            object.__setattr__(self, "position", (float(x), float(y)))


@dataclass(frozen=True, eq=False)
class Topology:
    """The paper's communication graph: N devices and two N x N link matrices.

    Entry ``[i, j]`` describes the link from device i to device j; links need not be symmetric.
    The diagonal is a device talking to itself: latency 0, bandwidth infinite.

    Raises
    ------
    TopologyError
        Two devices of one name, a matrix of another shape, a link without bandwidth or with a
        negative or missing latency.
    """

    devices: tuple[Device, ...]
    latency_s: FloatArray
    """(N, N) seconds, one way. The paper's A."""
    bandwidth_bytes_per_s: FloatArray
    """(N, N) bytes per second. The paper's B."""
    name: str = field(default="unnamed", kw_only=True)
    description: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        names = [device.name for device in self.devices]
        if not names:
            raise TopologyError(f"topology {self.name} has no devices; wanted at least one")
        for name in names:
            if names.count(name) > 1:
                raise TopologyError(f"{names.count(name)} devices are named {name!r}; names must be unique")
        self._own("latency_s", diagonal=0.0)
        self._own("bandwidth_bytes_per_s", diagonal=np.inf)
        finite = np.isfinite(self.latency_s) & (self.latency_s >= 0)
        self._check("latency_s", finite, "latency", "0 or more seconds")
        finite = np.isfinite(self.bandwidth_bytes_per_s) | np.eye(len(names), dtype=bool)
        finite &= self.bandwidth_bytes_per_s > 0
        self._check("bandwidth_bytes_per_s", finite, "bandwidth", "more than 0 bytes/s")

    def _own(self, what: str, diagonal: float) -> None:
        """Keep a read-only float copy, its diagonal set, its shape checked."""
        matrix = np.array(getattr(self, what), dtype=float)
        n = len(self.devices)
        if matrix.shape != (n, n):
            raise TopologyError(f"{what} has shape {matrix.shape}, but there are {n} devices: wanted ({n}, {n})")
        np.fill_diagonal(matrix, diagonal)
        matrix.setflags(write=False)
        object.__setattr__(self, what, matrix)

    def _check(self, what: str, good: npt.NDArray[np.bool_], noun: str, wanted: str) -> None:
        if (bad := np.argwhere(~good)).size:
            i, j = bad[0]
            more = f" ({len(bad)} such links)" if len(bad) > 1 else ""
            raise TopologyError(
                f"link {self.devices[i].name} -> {self.devices[j].name}: {noun} is {getattr(self, what)[i, j]}; "
                f"every pair of devices needs {wanted}, even a slow link{more}"
            )

    @classmethod
    def from_matrices(
        cls,
        latency_ms: npt.ArrayLike,
        bandwidth_gbps: npt.ArrayLike,
        *,
        names: Sequence[str] | None = None,
        regions: Sequence[str] | None = None,
        name: str = "matrices",
        **device: Any,
    ) -> Topology:
        """From (N, N) milliseconds and Gbit/s; ``device`` sets further fields of every Device."""
        latency, bandwidth = _matrix("latency_ms", latency_ms), _matrix("bandwidth_gbps", bandwidth_gbps)
        n = len(latency) if latency.ndim else 0
        names = [f"device-{i}" for i in range(n)] if names is None else list(names)
        regions = [""] * n if regions is None else list(regions)
        for what, given in (("names", names), ("regions", regions)):
            if len(given) != n:
                raise TopologyError(f"{len(given)} {what} for {n} devices; wanted one each")
        if stray := set(device) - set(Device.__dataclass_fields__):
            raise unknown("device field", min(stray), set(Device.__dataclass_fields__) - {"name", "region"})
        devices = tuple(Device(name=d, region=r, **device) for d, r in zip(names, regions, strict=True))
        return cls(devices, from_ms(latency), from_gbps(bandwidth), name=name)

    def __len__(self) -> int:
        return len(self.devices)

    def __repr__(self) -> str:
        return f"<Topology {self.name}: {len(self)} devices in {len(self.regions)} regions>"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(device.name for device in self.devices)

    @property
    def regions(self) -> tuple[str, ...]:
        """Region names in the order of their first device."""
        return tuple(dict.fromkeys(device.region for device in self.devices))

    def index(self, name: str) -> int:
        """Position of the device of this name; raises UnknownName with the nearest one."""
        try:
            return self._index[name]
        except KeyError:
            raise unknown("device", name, self.names) from None

    def at(self, device: int | str) -> int:
        """Position of a device given by name or index; raises UnknownName or TopologyError."""
        if isinstance(device, str):
            return self.index(device)
        if isinstance(device, bool) or not isinstance(device, int | np.integer):
            raise TopologyError(f"device {device!r} is not an index or a name")
        if not 0 <= device < len(self):
            raise TopologyError(f"device {device} is out of range; {self.name} has devices 0 to {len(self) - 1}")
        return int(device)

    @cached_property
    def _index(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.names)}

    def transfer_s(self, message_bytes: float) -> FloatArray:
        """(N, N) seconds to move one message over every idle link: latency + size / bandwidth."""
        return self.latency_s + message_bytes / self.bandwidth_bytes_per_s

    def round_trip_s(self, message_bytes: float) -> FloatArray:
        """(N, N), symmetric: one message there and one of the same size back, each over its own direction."""
        one_way = self.transfer_s(message_bytes)
        return one_way + one_way.T

    def subset(self, devices: Iterable[int | str]) -> Topology:
        """Only these devices (indices or names), in this order."""
        keep = [self.at(device) for device in devices]
        grid = np.ix_(keep, keep)
        return replace(
            self,
            devices=tuple(self.devices[i] for i in keep),
            latency_s=self.latency_s[grid],
            bandwidth_bytes_per_s=self.bandwidth_bytes_per_s[grid],
        )

    def with_link(
        self,
        source: int | str,
        target: int | str,
        *,
        latency_s: float | None = None,
        bandwidth_bytes_per_s: float | None = None,
        one_way: bool = False,
    ) -> Topology:
        """A copy with one pair changed: both directions unless ``one_way``."""
        i, j = self.at(source), self.at(target)
        if i == j:
            raise TopologyError(f"link {self.names[i]} -> {self.names[j]}: a device has no link to itself")
        latency, bandwidth = self.latency_s.copy(), self.bandwidth_bytes_per_s.copy()
        for a, b in [(i, j)] if one_way else [(i, j), (j, i)]:
            if latency_s is not None:
                latency[a, b] = latency_s
            if bandwidth_bytes_per_s is not None:
                bandwidth[a, b] = bandwidth_bytes_per_s
        return replace(self, latency_s=latency, bandwidth_bytes_per_s=bandwidth)

    @cached_property
    def fingerprint(self) -> str:
        """12 hex digits that change with any device or link; a position on the canvas does not count."""
        digest = hashlib.sha256()
        for device in self.devices:
            digest.update(repr(astuple(replace(device, position=None))).encode())
        digest.update(self.latency_s.tobytes())
        digest.update(self.bandwidth_bytes_per_s.tobytes())
        return digest.hexdigest()[:12]

    def to_frame(self) -> pd.DataFrame:
        """One row a directed link: source, target, latency_ms, bandwidth_gbps."""
        i, j = np.nonzero(~np.eye(len(self), dtype=bool))
        names = np.array(self.names, dtype=object)
        return pd.DataFrame(
            {
                "source": names[i],
                "target": names[j],
                "latency_ms": to_ms(self.latency_s[i, j]),
                "bandwidth_gbps": to_gbps(self.bandwidth_bytes_per_s[i, j]),
            }
        )

    @classmethod
    def from_frame(cls, links: pd.DataFrame, name: str = "frame", **device: Any) -> Topology:
        """From one row a directed link, with the columns of ``to_frame``; every pair must be there.

        Devices stand in the order in which they first appear; ``device`` sets further fields of each.
        """
        if missing := {"source", "target", "latency_ms", "bandwidth_gbps"} - set(links.columns):
            raise TopologyError(f"frame has no column {min(missing)!r}; found {', '.join(map(str, links.columns))}")
        names = list(dict.fromkeys([*links["source"], *links["target"]]))
        at = {device_name: i for i, device_name in enumerate(names)}
        latency_ms, gbps = (np.full((len(names), len(names)), np.nan) for _ in "ab")
        rows, columns = links["source"].map(at).to_numpy(), links["target"].map(at).to_numpy()
        latency_ms[rows, columns] = links["latency_ms"]
        gbps[rows, columns] = links["bandwidth_gbps"]
        return cls.from_matrices(latency_ms, gbps, names=names, name=name, **device)

    def to_networkx(self) -> nx.DiGraph[str]:
        """Nodes carry the Device's fields, edges latency_s and bandwidth_bytes_per_s."""
        graph: nx.DiGraph[str] = nx.DiGraph(name=self.name)
        for d in self.devices:
            graph.add_node(d.name, **{k: getattr(d, k) for k in Device.__dataclass_fields__ if k != "name"})
        for i, source in enumerate(self.names):
            for j, target in enumerate(self.names):
                if i != j:
                    graph.add_edge(
                        source,
                        target,
                        latency_s=float(self.latency_s[i, j]),
                        bandwidth_bytes_per_s=float(self.bandwidth_bytes_per_s[i, j]),
                    )
        return graph

    @classmethod
    def from_networkx(cls, graph: nx.Graph[Any], name: str | None = None) -> Topology:
        """From a graph as ``to_networkx`` makes it; an undirected edge counts both ways."""
        known = set(Device.__dataclass_fields__) - {"name"}
        devices = tuple(
            Device(name=str(node), **{k: v for k, v in data.items() if k in known})
            for node, data in graph.nodes(data=True)
        )
        at = {node: i for i, node in enumerate(graph.nodes)}
        n = len(devices)
        latency, bandwidth = np.zeros((n, n)), np.zeros((n, n))
        for a, b, data in graph.edges(data=True):
            for source, target in [(a, b)] if graph.is_directed() else [(a, b), (b, a)]:
                missing = {"latency_s", "bandwidth_bytes_per_s"} - set(data)
                if missing:
                    raise TopologyError(f"edge {a} -> {b} has no {min(missing)}; wanted a number")
                latency[at[source], at[target]] = data["latency_s"]
                bandwidth[at[source], at[target]] = data["bandwidth_bytes_per_s"]
        return cls(devices, latency, bandwidth, name=name or str(graph.graph.get("name") or "graph"))


def _matrix(what: str, given: npt.ArrayLike) -> FloatArray:
    try:
        return np.asarray(given, dtype=float)
    except (TypeError, ValueError):
        raise TopologyError(f"{what} is no matrix of numbers; wanted one row a device, all of one length") from None
