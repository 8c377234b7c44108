"""Convert frames, graphs and labelled matrices to devices and (N, N) arrays in SI units. Errors name the link.

A number may be given in SI or in the unit that people usually write. The name of the field says which one.

A network may also hold measured times of messages of several sizes. Between two measured sizes the time is
interpolated. Smaller messages take as long as the smallest one. Larger ones continue the line through the last two
sizes. A pair that was not measured has NaN, and its times follow from latency and bandwidth.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dtfm_lab.domain.errors import TopologyError
from dtfm_lab.domain.network.device import (
    GROUP_FIELDS,
    Device,
    as_number,
    check_count,
    check_text,
    matrix_of,
    shortened,
)
from dtfm_lab.domain.registry import unknown
from dtfm_lab.domain.units import TERA, FloatArray, GiB, counted, from_gbps, from_ms, is_of_pandas, to_gbps, to_ms

if TYPE_CHECKING:
    import networkx as nx
    import pandas as pd

OTHER_UNIT: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "latency_s": ("latency_ms", from_ms),
    "bandwidth_bytes_per_s": ("bandwidth_gbps", from_gbps),
    "message_s": ("message_ms", from_ms),
    "peak_flop_per_s": ("peak_tflops", lambda tflops: tflops * TERA),
    "memory_bytes": ("memory_gib", lambda gib: gib * GiB),
}
"""SI name -> the name in the usual unit, and the function that converts that unit to SI."""
LINKS = ("latency_s", "bandwidth_bytes_per_s")
SPEEDS = (*(OTHER_UNIT[what][0] for what in LINKS), *LINKS)
"""Names of link speeds: in the usual units, then in SI."""
MISSPELT = 0.85
"""An attribute whose letters match a known name to at least this ratio is taken for a misspelling of it."""
FIELD_OF_LIST = {"names": "name", "regions": "region", "hosts": "host"}
"""Arguments of ``from_matrices`` that hold one entry per device, and the device field that each one sets."""
DEVICE_ATTRIBUTES = dict.fromkeys(field for field in Device.__dataclass_fields__ if field != "name")


class GivenValue(NamedTuple):
    """A number, or an array of numbers, as the user gave it."""

    name: str
    """Its name, which includes the unit."""
    value: Any
    in_si: Callable[[Any], Any]
    """Converts the checked value to the SI unit."""


def either(what: str, given: Mapping[str, Any], thing: str = "", wanted: str = "") -> GivenValue:
    """Return the value that ``given`` holds under the SI name ``what`` or under the name in the other unit.

    None counts as not given. Raises TopologyError, with ``thing`` at the beginning of its text, if both or neither are
    given.
    """
    other, convert = OTHER_UNIT[what]
    found = [name for name in (what, other) if given.get(name) is not None]
    begin = f"{thing}: " if thing else ""
    if len(found) == 2:
        raise TopologyError(f"{begin}both {other} and {what} are given; wanted one of them")
    if not found:
        among = ", ".join(str(name) for name, value in given.items() if value is not None)
        there = f" among {shortened(among)}" if among else ""
        raise TopologyError(f"{begin}no {what} and no {other}{there}; wanted {wanted or 'one of them'}")
    return GivenValue(found[0], given[found[0]], _same if found[0] == what else convert)


def fields_in_si(fields: Mapping[str, Any], known: Mapping[str, Any], thing: str = "") -> dict[str, Any]:
    """Return those device fields that are in ``known``, converted to SI.

    A value that is not a number is passed on unchanged, for ``Device`` to refuse.
    """
    kept = {name: value for name, value in fields.items() if name in known}
    for what, (other, convert) in OTHER_UNIT.items():
        if what in known and other in fields:
            value = either(what, fields, thing, f"a number for {other}").value
            column = [_converted(each, convert) for each in value] if is_column(value) else None
            kept[what] = _converted(value, convert) if column is None else column
    return kept


def is_column(value: object) -> bool:
    """Return True if the value is a list, array or Series, which has one entry per device."""
    return isinstance(value, list | tuple | np.ndarray) or is_of_pandas("Series", value)


def changes_in_si(given: Mapping[str, Any], thing: str) -> dict[str, Any]:
    """Return ``latency_s`` and ``bandwidth_bytes_per_s`` of a link given in either unit; None for what is missing."""
    changes: dict[str, Any] = dict.fromkeys(LINKS)
    for what in LINKS:
        if given.get(what) is not None or given.get(OTHER_UNIT[what][0]) is not None:
            found = either(what, given, thing)
            changes[what] = found.in_si(found.value)
    return changes


def _converted(value: Any, convert: Callable[[Any], Any]) -> Any:
    return value if (number := as_number(value)) is None else convert(number)


def _same(value: Any) -> Any:
    return value


def labels_of_matrices(matrices: Iterable[GivenValue]) -> list[str] | None:
    """Return the device names of labelled matrices: the index of the DataFrames among them. None if there is no
    DataFrame with names. Raises TopologyError if labels differ."""
    names: list[str] | None = None
    for what, given, _ in matrices:
        if is_of_pandas("DataFrame", given) and not is_of_pandas("RangeIndex", given.index):
            names = list(given.index) if names is None else names
            if list(given.index) != names or list(given.columns) != names:
                raise TopologyError(f"{what} is labelled otherwise; wanted the same names in the same order throughout")
    return names


def devices_of_columns(n: int, columns: dict[str, Any], fields: dict[str, Any]) -> tuple[Device, ...]:
    """Return ``n`` devices. ``columns`` hold one entry per device; ``fields`` hold one value for all, or one per
    device."""
    if stray := set(fields) - {*Device.__dataclass_fields__, "peak_tflops", "memory_gib"}:
        raise unknown("device field", min(stray), set(Device.__dataclass_fields__) - {"name", "region"})
    fields = fields_in_si(fields, Device.__dataclass_fields__)
    # A list gives one value to each device, anything else one value to all.
    columns = columns | {what: value for what, value in fields.items() if what != "position" and is_column(value)}
    for what, column in columns.items():
        if isinstance(column, str) or not isinstance(column, Iterable):
            raise TopologyError(
                f"{what} are {shortened(column)}; wanted a list, one for each of {counted(n, 'device')}"
            )
    own = {what: list(column) for what, column in columns.items()}
    for what, values in own.items():
        if len(values) != n:
            raise TopologyError(f"{what}: {len(values)} for {counted(n, 'device')}; wanted one each")
    own = {FIELD_OF_LIST.get(what, what): values for what, values in own.items()}
    return tuple(Device(**fields | {what: values[i] for what, values in own.items()}) for i in range(n))


def links_of_frame(links: pd.DataFrame) -> tuple[list[str], FloatArray, FloatArray]:
    """Return device names in the order of their first row, latency_s and bandwidth_bytes_per_s (NaN on the diagonals).

    Raises TopologyError unless every pair of devices has one row in each direction, and every column occurs once.
    """
    import pandas as pd  # takes a while to load

    if not isinstance(links, pd.DataFrame):
        raise TopologyError(f"links are {shortened(links)}; wanted a DataFrame")
    columns = list(links.columns)
    among = shortened(", ".join(map(str, columns)))
    for column in ("source", "target"):
        if (count := columns.count(column)) != 1:
            raise TopologyError(f"{count or 'no'} column {column!r} among {among}; wanted one")
    speeds = []
    for what in LINKS:
        other, _ = OTHER_UNIT[what]
        found = [column for column in columns if column in (what, other)]
        if len(found) != 1:
            there = f"columns {found[0]!r} and {found[1]!r}" if found else f"no column {other!r} or {what!r}"
            raise TopologyError(f"{there} among {among}; wanted one")
        speeds.append(either(what, {found[0]: links[found[0]]}))
    ends = pd.concat([links["source"], links["target"]], ignore_index=True)
    if ends.isna().any():
        raise TopologyError(f"row {int(ends.isna().argmax()) % len(links)} names no device; wanted source and target")
    codes, uniques = pd.factorize(ends.map(str))
    names, n = [str(name) for name in uniques], len(uniques)
    check_count(n)
    for name in names:
        check_text("device", name)
    rows, targets = codes[: len(links)], codes[len(links) :]
    twice = pd.Series(rows * n + targets).duplicated().to_numpy() & (rows != targets)
    if twice.any():
        i, j = rows[twice.argmax()], targets[twice.argmax()]
        raise TopologyError(f"link {names[i]} -> {names[j]} stands twice; wanted one row a directed link")
    given = np.eye(n, dtype=bool)
    given[rows, targets] = True
    if (missing := np.argwhere(~given)).size:
        i, j = missing[0]
        raise TopologyError(
            f"no row {names[i]} -> {names[j]} ({len(missing)} such links); every pair of devices needs one each way, "
            f"even a slow one"
        )
    latency_s, bandwidth = np.full((n, n), np.nan), np.full((n, n), np.nan)
    for matrix, speed in ((latency_s, speeds[0]), (bandwidth, speeds[1])):
        with np.errstate(over="ignore"):  # an overflow is refused as an infinite bandwidth
            matrix[rows, targets] = speed.in_si(_column(links, speed.name))
    return names, latency_s, bandwidth


def frame_of_links(names: Sequence[str], latency_s: FloatArray, bandwidth_bytes_per_s: FloatArray) -> pd.DataFrame:
    """Return one row per directed link, in the usual units, as ``links_of_frame`` reads it."""
    import pandas as pd  # takes a while to load

    i, j = np.nonzero(~np.eye(len(names), dtype=bool))
    ends = np.array(names, dtype=object)
    speeds = {"latency_ms": to_ms(latency_s[i, j]), "bandwidth_gbps": to_gbps(bandwidth_bytes_per_s[i, j])}
    return pd.DataFrame({"source": ends[i], "target": ends[j], **speeds})


def links_of_graph(graph: nx.Graph[Any]) -> tuple[tuple[Device, ...], FloatArray, FloatArray]:
    """Return devices, latency_s and bandwidth_bytes_per_s of a graph with exactly one edge each way for every pair."""
    import networkx as nx  # takes a while to load

    if not isinstance(graph, nx.Graph):
        raise TopologyError(f"graph is {shortened(graph)}; wanted a networkx graph")
    n = len(graph)
    check_count(n)
    devices = tuple(
        Device(name=node, **fields_in_si(data, DEVICE_ATTRIBUTES, f"node {shortened(node)}"))
        for node, data in graph.nodes(data=True)
    )
    for node, data in graph.nodes(data=True):
        _refuse_misspelt(f"node {shortened(node)}", data)
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


def graph_of_links(
    devices: Sequence[Device], links: Mapping[str, FloatArray], attributes: Mapping[str, Any]
) -> nx.DiGraph[str]:
    """Return the graph whose nodes carry the devices' fields and whose edges carry the entries of these (N, N)
    matrices."""
    import networkx as nx  # takes a while to load

    graph: nx.DiGraph[str] = nx.DiGraph(**attributes)
    for d in devices:
        left_out = () if d.gpus > 1 else GROUP_FIELDS
        graph.add_node(d.name, **{field: getattr(d, field) for field in DEVICE_ATTRIBUTES if field not in left_out})
    for i, source in enumerate(devices):
        for j, target in enumerate(devices):
            if i != j:
                graph.add_edge(source.name, target.name, **{what: float(each[i, j]) for what, each in links.items()})
    return graph


def _refuse_misspelt(node: str, data: dict[str, Any]) -> None:
    """Raise TopologyError if an attribute looks like a misspelt device field. Other unknown attributes are ignored."""
    known = {*DEVICE_ATTRIBUTES, "peak_tflops", "memory_gib", "name"}
    for attribute in data:
        near = difflib.get_close_matches(str(attribute).casefold(), known, n=1, cutoff=MISSPELT)
        if attribute not in known and near:
            raise TopologyError(f"{node} has {shortened(attribute)}; did you mean {near[0]!r}?")


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
    name, value, in_si = either(what, data, edge)
    if (number := as_number(value)) is None:
        raise TopologyError(f"{edge}: {name} is {shortened(value)}; wanted a number")
    return float(in_si(number))
