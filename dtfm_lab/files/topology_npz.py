"""Topologies as NumPy archives (.npz), which hold everything as dense arrays, never pickled, and are read quickest.

An archive must hold ``latency_ms`` and ``bandwidth_gbps``, (N, N), from row to column. It may hold ``names`` and
the devices' ``region``, ``host``, ``gpu``, ``peak_flop_per_s``, ``memory_bytes`` and ``price_per_hour``, (N,), and
``position``, (N, 2) with NaN for none; single texts ``name`` and ``description``, and the number
``link_spread``; and, of a measured network,
``message_bytes``, (K,), and ``message_ms``, (N, N, K), NaN where a pair was not measured. Arrays may also be named,
and counted, in SI (``latency_s``, ``bandwidth_bytes_per_s``, ``message_s``) and a device's numbers as ``peak_tflops``
and ``memory_gib``. Sizes are checked in the
archive's directory and in each array's header before anything of that size is allocated.
"""

import io
import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from dtfm_lab.domain.errors import FileError, LabError, TopologyError
from dtfm_lab.domain.network import LINK_SPREAD, MOST_DEVICES, MOST_TIMES, Device, Topology, check_count
from dtfm_lab.domain.network.conversions import LINKS, OTHER_UNIT, either, fields_in_si
from dtfm_lab.domain.registry import unknown
from dtfm_lab.domain.units import to_gbps, to_ms
from dtfm_lab.files.reading import located, read_bytes, reason_of, title_of, write_bytes

MATRICES = ("latency_ms", "bandwidth_gbps", "latency_s", "bandwidth_bytes_per_s")
TEXTS = ("names", "region", "gpu", "host")
NUMBERS = ("peak_flop_per_s", "peak_tflops", "memory_bytes", "memory_gib", "price_per_hour", "position")
GROUPS = ("gpus", "inner_latency_s", "inner_bandwidth_bytes_per_s")
SINGLE = ("name", "description")
SPREAD = "link_spread"
MEASURED = ("message_bytes", "message_ms", "message_s")
LARGEST_BYTES = {
    **dict.fromkeys(MATRICES, 16 * MOST_DEVICES**2 + 4096),
    **dict.fromkeys(TEXTS + NUMBERS + GROUPS, 2**25),
    **dict.fromkeys((*SINGLE, SPREAD), 2**20),
    **dict.fromkeys(MEASURED, 8 * MOST_TIMES + 4096),
}
"""Most bytes of each array, unpacked, its header included."""
suffixes = (".npz",)


def read(path: Path) -> Topology:
    """The topology of an archive; raises FileError or TopologyError."""
    arrays = _unpack(path)
    with located(path.name):
        for what in LINKS:
            if not {what, OTHER_UNIT[what][0]} & set(arrays):
                raise FileError(f"no array {OTHER_UNIT[what][0]!r} or {what!r}; found {', '.join(arrays) or 'none'}")
        latency, bandwidth = (either(what, arrays) for what in LINKS)
        n = len(latency.value) if latency.value.ndim else 0
        check_count(n)
        timed = {"message_ms", "message_s"} & set(arrays)
        if timed and "message_bytes" not in arrays:
            raise FileError(f"array {min(timed)!r} comes without 'message_bytes'; wanted both, or neither")
        if "message_bytes" in arrays and not timed:
            raise FileError("array 'message_bytes' comes without 'message_ms'; wanted both, or neither")
        times = either("message_s", arrays) if timed else None
        k = arrays["message_bytes"].size if "message_bytes" in arrays else 0
        shapes = {"position": (n, 2), "message_bytes": (k,), "message_ms": (n, n, k), "message_s": (n, n, k)}
        for what, array in arrays.items():
            wanted = () if what in (*SINGLE, SPREAD) else shapes.get(what, (n, n) if what in MATRICES else (n,))
            if array.shape != wanted:
                raise TopologyError(f"{what} has shape {array.shape}; wanted {wanted}")
        with np.errstate(over="ignore"):  # an overflow is refused as a link without end
            return Topology(
                tuple(_device(arrays, i) for i in range(n)),
                latency.in_si(latency.value.astype(float)),
                bandwidth.in_si(bandwidth.value.astype(float)),
                name=str(arrays.get("name", title_of(path))),
                description=str(arrays.get("description", "")),
                link_spread=float(arrays.get(SPREAD, LINK_SPREAD)),
                message_bytes=arrays.get("message_bytes"),
                message_s=None if times is None else times.in_si(times.value.astype(float)),
            )


def write(topology: Topology, path: Path) -> Path:
    """Write everything into a compressed archive."""
    columns: dict[str, Any] = {
        what: np.array([getattr(d, what) for d in topology.devices])
        for what in ("region", "gpu", "peak_flop_per_s", "memory_bytes", "price_per_hour")
    }
    if any(d.host for d in topology.devices):
        columns["host"] = np.array([d.host for d in topology.devices])
    if any(d.gpus > 1 for d in topology.devices):
        columns |= {what: np.array([getattr(d, what) for d in topology.devices]) for what in GROUPS}
    if any(d.position for d in topology.devices):
        columns["position"] = np.array([d.position or (np.nan, np.nan) for d in topology.devices])
    if topology.link_spread != LINK_SPREAD:
        columns[SPREAD] = np.array(topology.link_spread)
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


def _device(arrays: dict[str, Any], i: int) -> Device:
    fields: dict[str, Any] = {what: arrays[what][i] for what in TEXTS[1:] + NUMBERS + GROUPS if what in arrays}
    if "position" in fields and np.isnan(fields["position"]).all():
        del fields["position"]
    name = arrays["names"][i] if "names" in arrays else f"device-{i}"
    return Device(name=name, **fields_in_si(fields, Device.__dataclass_fields__, f"device {name}"))


def _unpack(path: Path) -> dict[str, Any]:
    data = read_bytes(path)
    with located(path.name):
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                return {what: _array(what, archive.read(info)) for what, info in _members(archive).items()}
        except LabError:
            raise
        except Exception as error:  # zipfile and numpy raise a dozen kinds of errors for a broken archive
            raise FileError(f"broken archive: {reason_of(error)}") from None


def _members(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """The archive's directory; raises LabError for an entry that is unknown, given twice or too large to unpack."""
    members: dict[str, zipfile.ZipInfo] = {}
    for info in archive.infolist():
        what = info.filename.removesuffix(".npy")
        if what not in LARGEST_BYTES:
            raise unknown("array", what[:60], LARGEST_BYTES)
        if what in members:
            raise FileError(f"array {what} is there twice; wanted it once")
        if info.file_size > (most := LARGEST_BYTES[what]):
            raise FileError(f"array {what} unpacks to {info.file_size} bytes; wanted at most {most}")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise FileError(f"array {what} is packed by method {info.compress_type}; wanted stored or deflated")
        members[what] = info
    return members


def _array(what: str, data: bytes) -> Any:
    """The array of one entry; raises FileError if its header contradicts its size or its dtype is not allowed."""
    stream = io.BytesIO(data)
    version = np.lib.format.read_magic(stream)
    if version not in ((1, 0), (2, 0)):
        raise FileError(f"{what} is an array of version {version}; wanted (1, 0) or (2, 0)")
    read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read_header(stream)
    kinds, wanted = ("fiu", "numbers") if what in (*MATRICES, *NUMBERS, *GROUPS, *MEASURED, SPREAD) else ("U", "text")
    if dtype.kind not in kinds:
        raise FileError(f"{what} holds {'pickled objects' if dtype.hasobject else dtype}; wanted {wanted}")
    n_bytes = math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or n_bytes != len(data) - stream.tell() or not dtype.itemsize:
        raise FileError(f"{what} says shape {shape} of {dtype}, which is not what follows; wanted a whole array")
    stream.seek(0)
    return np.lib.format.read_array(stream, allow_pickle=False)
