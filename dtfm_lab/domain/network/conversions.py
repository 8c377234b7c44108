"""Convert frames, graphs and labelled matrices to devices and (N, N) arrays; errors name the link."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pandas as pd

from dtfm_lab.domain.errors import TopologyError
from dtfm_lab.domain.network.device import Device, as_number, check_count, check_text, hardware_fields, shortened
from dtfm_lab.domain.units import FloatArray

DEVICE_ATTRIBUTES = frozenset(Device.__dataclass_fields__) - {"name"}


def matrix_of(what: str, given: Any) -> FloatArray:
    """Anything rectangular and numeric as an array of floats."""
    try:
        if not np.iscomplexobj(given):
            return np.asarray(given, dtype=float)
    except (TypeError, ValueError, OverflowError):
        pass
    raise TopologyError(f"{what} is no matrix of numbers; wanted one row a device, all of one length")


def labels_of_matrices(latency_ms: Any, bandwidth_gbps: Any) -> list[str] | None:
    """Device names of labelled matrices: their index, unless that is a mere range."""
    names: list[str] | None = None
    for what, given in (("latency_ms", latency_ms), ("bandwidth_gbps", bandwidth_gbps)):
        if isinstance(given, pd.DataFrame) and not isinstance(given.index, pd.RangeIndex):
            names = list(given.index) if names is None else names
            if list(given.index) != names or list(given.columns) != names:
                raise TopologyError(f"{what} is labelled otherwise; wanted the same names in the same order throughout")
    return names


def links_of_frame(links: pd.DataFrame) -> tuple[list[str], FloatArray, FloatArray]:
    """Names in the order of their first row, latency_ms and bandwidth_gbps, NaN for pairs without a row."""
    if not isinstance(links, pd.DataFrame):
        raise TopologyError(f"links are {shortened(links)}; wanted a DataFrame")
    for column in ("source", "target", "latency_ms", "bandwidth_gbps"):
        if (count := list(links.columns).count(column)) != 1:
            found = shortened(", ".join(map(str, links.columns)))
            raise TopologyError(f"{count or 'no'} column {column!r} among {found}; wanted one")
    ends = pd.concat([links["source"], links["target"]], ignore_index=True)
    if ends.isna().any():
        raise TopologyError(f"row {int(ends.isna().argmax()) % len(links)} names no device; wanted source and target")
    codes, uniques = pd.factorize(ends.map(str))
    names, n = [str(name) for name in uniques], len(uniques)
    check_count(n)
    for name in names:
        check_text("device", name)
    rows, columns = codes[: len(links)], codes[len(links) :]
    twice = pd.Series(rows * n + columns).duplicated().to_numpy() & (rows != columns)
    if twice.any():
        i, j = rows[twice.argmax()], columns[twice.argmax()]
        raise TopologyError(f"link {names[i]} -> {names[j]} stands twice; wanted one row a directed link")
    latency_ms, gbps = np.full((n, n), np.nan), np.full((n, n), np.nan)
    latency_ms[rows, columns] = _column(links, "latency_ms")
    gbps[rows, columns] = _column(links, "bandwidth_gbps")
    return names, latency_ms, gbps


def links_of_graph(graph: nx.Graph[Any]) -> tuple[tuple[Device, ...], FloatArray, FloatArray]:
    """Devices, latency_s and bandwidth_bytes_per_s of a graph that has exactly one edge each way for every pair."""
    if not isinstance(graph, nx.Graph):
        raise TopologyError(f"graph is {shortened(graph)}; wanted a networkx graph")
    n = len(graph)
    check_count(n)
    devices = tuple(
        Device(name=node, **hardware_fields(data.get("gpu")) | {k: data[k] for k in DEVICE_ATTRIBUTES & set(data)})
        for node, data in graph.nodes(data=True)
    )
    at = {node: i for i, node in enumerate(graph.nodes)}
    latency_s, bandwidth, there = np.zeros((n, n)), np.zeros((n, n)), np.eye(n, dtype=bool)
    for a, b, data in graph.edges(data=True):
        for i, j in [(at[a], at[b])] if graph.is_directed() else [(at[a], at[b]), (at[b], at[a])]:
            if i == j:
                continue
            edge = f"edge {devices[i].name} -> {devices[j].name}"
            if there[i, j]:
                raise TopologyError(f"{edge} stands twice; wanted one edge each way")
            there[i, j] = True
            latency_s[i, j] = _attribute(edge, data, "latency_s")
            bandwidth[i, j] = _attribute(edge, data, "bandwidth_bytes_per_s")
    if (missing := np.argwhere(~there)).size:
        i, j = missing[0]
        raise TopologyError(
            f"no edge {devices[i].name} -> {devices[j].name} ({len(missing)} such links); "
            f"every pair of devices needs one each way, even a slow one"
        )
    return devices, latency_s, bandwidth


def _column(links: pd.DataFrame, what: str) -> FloatArray:
    try:
        return matrix_of(what, links[what].to_numpy())
    except TopologyError:
        for source, target, value in zip(links["source"], links["target"], links[what], strict=True):
            try:
                float(value)  # text that reads as a number is one, as in the matrix above
            except (TypeError, ValueError, OverflowError):
                found = f"link {source} -> {target}: {what} is {shortened(value)}"
                raise TopologyError(f"{found}; wanted a number") from None
        raise


def _attribute(edge: str, data: dict[str, Any], what: str) -> float:
    if what not in data:
        raise TopologyError(f"{edge} has no {what}; wanted a number")
    if (number := as_number(data[what])) is None:
        raise TopologyError(f"{edge}: {what} is {shortened(data[what])}; wanted a number")
    return number
