"""Topologies as NumPy archives (.npz). They hold everything except measurements of GPUs, as dense arrays, never
pickled. They are the fastest to read.

An archive must hold ``latency_ms`` and ``bandwidth_gbps``, (N, N), from row to column. It may also hold:

- ``names`` and the devices' ``region``, ``host``, ``gpu``, ``peak_flop_per_s``, ``memory_bytes`` and
  ``price_per_hour``, (N,), and ``position``, (N, 2) with NaN for none
- for devices of several GPUs, ``gpus``, ``inner_latency_s`` and ``inner_bandwidth_bytes_per_s``, (N,)
- the texts ``name`` and ``description``, and the number ``link_spread``
- ``estimates``, (E, 4): 0 for links inside hosts or 1 for those between hosts, then the estimated bandwidth, its
  minimum and its maximum in bytes per second
- ``collectives``, (C, 3): hosts, fraction of the bandwidth and spread, NaN for ``link_spread``
- for a measured network, ``message_bytes``, (K,), and ``message_ms``, (N, N, K), NaN for pairs that were not
  measured

Arrays may also be in SI (``latency_s``, ``bandwidth_bytes_per_s``, ``message_s``), and a device's numbers may be
``peak_tflops`` and ``memory_gib``. Sizes are checked in the archive's directory before anything is unpacked.
"""

import io
import zipfile
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import numpy as np

from dtfm_lab.domain.errors import FileError, LabError
from dtfm_lab.domain.network import LINK_SPREAD, MOST_DEVICES, MOST_TIMES, BandwidthEstimate, CollectiveSpeed, Topology
from dtfm_lab.domain.network.conversions import SPEEDS, either
from dtfm_lab.domain.network.device import GROUP_FIELDS
from dtfm_lab.domain.network.estimate import WHERE
from dtfm_lab.domain.registry import unknown
from dtfm_lab.domain.units import to_gbps, to_ms
from dtfm_lab.files.reading import located, read_bytes, reason_of, title_of, write_bytes

COLUMNS = {"names": "names", "region": "regions", "host": "hosts", "gpu": "gpu"}
"""Text arrays with one entry per device -> the keywords of ``Topology.from_matrices``."""
NUMBERS = ("peak_flop_per_s", "peak_tflops", "memory_bytes", "memory_gib", "price_per_hour")
SINGLE = ("name", "description", "link_spread")
MEASURED = ("message_bytes", "message_ms", "message_s")
LARGEST_BYTES = {
    **dict.fromkeys(SPEEDS, 16 * MOST_DEVICES**2 + 4096),
    **dict.fromkeys((*COLUMNS, *NUMBERS, *GROUP_FIELDS, "position"), 2**25),
    **dict.fromkeys((*SINGLE, "estimates", "collectives"), 2**20),
    **dict.fromkeys(MEASURED, 8 * MOST_TIMES + 4096),
}
"""Maximum size of each array in bytes, unpacked, including its header."""
suffixes = (".npz",)


def read(path: Path) -> Topology:
    """Read the topology in an archive. Raises FileError, TopologyError or, for an unknown array, UnknownName."""
    data = read_bytes(path)
    with located(path.name):
        try:
            arrays = _unpack(data)
        except LabError:
            raise
        except Exception as error:  # zipfile and numpy raise a dozen kinds of errors for a broken archive
            raise FileError(f"broken archive: {reason_of(error)}") from None
        return _topology(arrays, title_of(path))


def _unpack(data: bytes) -> dict[str, Any]:
    # Checked before unpacking: a small archive can unpack to more than memory holds.
    for info in zipfile.ZipFile(io.BytesIO(data)).infolist():
        what = info.filename.removesuffix(".npy")
        if what not in LARGEST_BYTES:
            raise unknown("array", what[:60], LARGEST_BYTES)
        if info.file_size > (most := LARGEST_BYTES[what]):
            raise FileError(f"array {what} unpacks to {info.file_size} bytes; wanted at most {most}")
    # Pickles could run code.
    with np.load(io.BytesIO(data), allow_pickle=False) as archive:
        arrays = {what: archive[what] for what in archive.files}
    for what, array in arrays.items():
        kinds, wanted = ("U", "text") if what in (*COLUMNS, "name", "description") else ("fiu", "numbers")
        if array.dtype.kind not in kinds:
            raise FileError(f"{what} holds {array.dtype}; wanted {wanted}")
    return arrays


def _topology(arrays: dict[str, Any], title: str) -> Topology:
    single, measured, position, given = (
        {what: arrays[what] for what in arrays if what in some}
        for some in (SINGLE, MEASURED, ("position",), (*SPEEDS, *COLUMNS, *NUMBERS, *GROUP_FIELDS))
    )
    for what, array in arrays.items():
        wanted = "()" if what in SINGLE else "(N,)" if what in (*COLUMNS, *NUMBERS, *GROUP_FIELDS) else ""
        if wanted and array.ndim != (what not in SINGLE):
            raise FileError(f"{what} has shape {array.shape}; wanted {wanted}")
    topology = Topology.from_matrices(**{COLUMNS.get(what, what): array for what, array in given.items()})
    devices = topology.devices
    for positions in position.values():
        if positions.shape != (len(devices), 2):
            raise FileError(f"position has shape {positions.shape}; wanted ({len(devices)}, 2)")
        placed = zip(devices, positions, strict=True)
        devices = tuple(d if np.isnan(place).all() else replace(d, position=place) for d, place in placed)
    times = either("message_s", measured) if measured else None
    return replace(
        topology,
        devices=devices,
        name=str(single.get("name", title)),
        description=str(single.get("description", "")),
        link_spread=float(single.get("link_spread", LINK_SPREAD)),
        estimates=_estimates(arrays.get("estimates", np.zeros((0, 4)))),
        collectives=_collectives(arrays.get("collectives", np.zeros((0, 3)))),
        message_bytes=measured.get("message_bytes"),
        message_s=None if times is None else times.in_si(times.value.astype(float)),
    )


def _estimates(rows: Any) -> tuple[BandwidthEstimate, ...]:
    if rows.ndim != 2 or rows.shape[1] != 4 or not np.isin(rows[:, 0], range(len(WHERE))).all():
        raise FileError(f"estimates has shape {rows.shape}; wanted (E, 4), each 0 or 1 and three bandwidths")
    return tuple(BandwidthEstimate(WHERE[int(where)], *(float(rate) for rate in rates)) for where, *rates in rows)


def _collectives(rows: Any) -> tuple[CollectiveSpeed, ...]:
    if rows.ndim != 2 or rows.shape[1] != 3:
        raise FileError(f"collectives has shape {rows.shape}; wanted (C, 3): hosts, fraction and spread")
    return tuple(
        CollectiveSpeed(hosts, fraction, None if np.isnan(spread) else spread)
        for hosts, fraction, spread in rows.tolist()
    )


def write(topology: Topology, path: Path) -> Path:
    """Write everything into a compressed archive. Raises FileError for measured GPUs, which an archive cannot hold."""
    if any(d.measured is not None for d in topology.devices):
        raise FileError(f"{path}: cannot hold the measured blocks of GPUs; wanted .yaml or .json")
    columns: dict[str, Any] = {
        what: np.array([getattr(d, what) for d in topology.devices])
        for what in ("region", "gpu", "peak_flop_per_s", "memory_bytes", "price_per_hour")
    }
    if any(d.host for d in topology.devices):
        columns["host"] = np.array([d.host for d in topology.devices])
    if any(d.gpus > 1 for d in topology.devices):
        columns |= {what: np.array([getattr(d, what) for d in topology.devices]) for what in GROUP_FIELDS}
    if any(d.position for d in topology.devices):
        columns["position"] = np.array([d.position or (np.nan, np.nan) for d in topology.devices])
    if topology.link_spread != LINK_SPREAD:
        columns["link_spread"] = np.array(topology.link_spread)
    if topology.estimates:
        rows = [(WHERE.index(one.where), *astuple(one)[1:]) for one in topology.estimates]
        columns["estimates"] = np.array(rows, dtype=float)
    if topology.collectives:
        columns["collectives"] = np.array([astuple(one) for one in topology.collectives], dtype=float)
    if topology.message_s is not None:
        columns |= {"message_bytes": topology.message_bytes, "message_ms": to_ms(topology.message_s)}
    archive = io.BytesIO()
    np.savez_compressed(
        archive,
        latency_ms=to_ms(topology.latency_s),
        bandwidth_gbps=to_gbps(topology.bandwidth_bytes_per_s),
        names=np.array(topology.names),
        name=np.array(topology.name),
        description=np.array(topology.description),
        **columns,
    )
    return write_bytes(path, archive.getvalue())
