"""The tests of NCCL and of RCCL (``all_reduce_perf`` and its like) on one host or several.

Formats: nccl-tests from 2019 on, whose tables have had columns ``error`` or ``#wrong``, with and without ``redop`` and
``root``. Meaning of the columns: nccl-tests, doc/PERFORMANCE.md.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations
from pathlib import Path
from typing import NamedTuple

from dtfm_lab.domain.errors import FileError
from dtfm_lab.domain.network import known_gpu
from dtfm_lab.domain.units import GB, format_gbps, to_gbps
from dtfm_lab.extensions.machines.links import fabric_bytes_per_s, nvlink_bytes_per_s
from dtfm_lab.extensions.machines.seen import Measurement, ReportedGpu, ReportedHost, SourceReport
from dtfm_lab.extensions.machines.text import plain_lines, unprefixed

TOOL = "NCCL's tests"
TEST = re.compile(
    r"\b(all_?reduce|all_?gather|reduce_?scatter|all_?to_?allv?|send_?recv|broadcast|reduce|gather|scatter|hypercube|bisection)_(?:bias_)?perf\b"
)
"""The name of a test's program, which newer ones print and command lines hold."""
NEAR = 0.03
"""Share by which a ratio of two printed bandwidths may differ from a formula: they have two decimals."""


class _Rank(NamedTuple):
    rank: int
    host: str
    device: int
    gpu: str


class _NcclRow(NamedTuple):
    """One row's message and its faster half: out of place, or in place."""

    n_bytes: int
    bytes_per_s: float
    """The algorithm's bandwidth: the message over the time."""
    bus_bytes_per_s: float
    has_root: bool
    reduces: bool
    is_never_in_place: bool
    """Whether results in place are not checked: the exchange of all with all, and of each with the next."""


def is_nccl(text: str) -> bool:
    return "busbw" in text and "Rank" in text and any(_rank_of(line) for line in unprefixed(text).splitlines())


def read_nccl(text: str, path: Path) -> SourceReport:
    """The GPUs of the ranks and, of the largest message, the bandwidth of the slowest link that the test used.

    The bus bandwidth is the rate at which a ring has every rank send. Of a test inside one host it is that between two
    of its GPUs; of one over several hosts that from each host to the next, and what is inside is at least as fast.
    A rate that no link of the kind has, as switches that add (NVLink SHARP) reach, counts as the link's.
    """
    lines = unprefixed(text).splitlines()
    ranks = [rank for line in lines if (rank := _rank_of(line))]
    hosts = _hosts(ranks, path)
    rows = list(_rows(lines))
    if not rows:
        raise FileError(f"{path.name}: has no row of a message; wanted the whole output of a test of NCCL")
    row = max(rows, key=lambda each: (each.n_bytes, each.bus_bytes_per_s))
    if row.bus_bytes_per_s <= 0:
        raise FileError(
            f"{path.name}: the bus bandwidth of {row.n_bytes:,} bytes is 0, as of one rank alone; wanted a test over "
            "two GPUs or more"
        )
    kinds, n = [ReportedGpu(rank.gpu) for rank in ranks], len(ranks)
    test = _test_of("\n".join(plain_lines(text)), row, n, path)
    if len(hosts) == 1:
        ((name, gpus),) = hosts.items()
        most = min(nvlink_bytes_per_s(gpu) or math.inf for gpu in kinds)  # no switch makes PCIe faster than it is
        rate, notes = _capped(row.bus_bytes_per_s, most, f"inside {name}", "NVLink")
        seen = [ReportedHost(name=name, gpus=gpus, inside_bytes_per_s=rate)]
        return SourceReport(hosts=tuple(seen), are_near=True, notes=notes)
    fewest = min(len(gpus) for gpus in hosts.values())
    needed = _needed_bytes_per_s(test, row, n, len(hosts), fewest)
    if test in ("alltoall", "gather", "scatter"):
        rate, notes = (
            needed,
            (f"{path.name}: {format_gbps(to_gbps(needed))} is what a test of {test} sends from a host",),
        )
    else:
        # less than the most that such a host is sold with never counts as too much, nor what the test cannot do without
        most = max(min(_most_between(gpu) for gpu in kinds), needed)
        rate, notes = _capped(row.bus_bytes_per_s, most, f"between {len(hosts)} hosts", "NICs")
    inside = None if test in ("alltoall", "gather", "scatter") else rate
    seen = [ReportedHost(name=name, gpus=gpus, least_inside_bytes_per_s=inside) for name, gpus in hosts.items()]
    tests = [Measurement(a, b, rate, None, TOOL) for a, b in permutations(hosts, 2)]
    return SourceReport(hosts=tuple(seen), measurements=tuple(tests), are_near=True, notes=notes)


def _rank_of(line: str) -> _Rank | None:
    """``#  Rank  0 Group  0 Pid 417 on gpu01 device  0 [0x0f] NVIDIA A100-SXM4-40GB``, with or without its group."""
    head, bracket, gpu = line.partition(" [")
    words = head.split()
    if words[:1] == ["#"]:
        words = words[1:]
    if not bracket or words[:1] not in (["Rank"], ["#Rank"]) or not {"Pid", "on", "device"} <= {*words}:
        return None
    try:
        rank, device = words[1], words[words.index("device") + 1]
        host = words[words.index("on", words.index("Pid")) + 1]
    except (ValueError, IndexError):
        return None
    name = gpu.partition("]")[2].strip()
    if not all(re.fullmatch(r"[0-9]{1,9}", number) for number in (rank, device)) or not name:
        return None
    return _Rank(int(rank), host, int(device), name)


def _hosts(ranks: Sequence[_Rank], path: Path) -> Mapping[str, tuple[ReportedGpu, ...]]:
    """By host its GPUs, in the driver's order. Raises FileError for ranks that do not take part in one test."""
    if len(ranks) > 1 and {rank.rank for rank in ranks} == {0}:
        raise FileError(
            f"{path.name}: all {len(ranks)} processes are rank 0, so the test was built without MPI, and each measured "
            "itself; wanted nccl-tests built with MPI=1"
        )
    number, count = Counter(rank.rank for rank in ranks).most_common(1)[0]
    if count > 1:
        raise FileError(f"{path.name}: rank {number} is there {count} times; wanted the output of one test")
    hosts: dict[str, dict[int, ReportedGpu]] = {}
    for rank in ranks:
        gpus = hosts.setdefault(rank.host, {})
        if rank.device in gpus:
            raise FileError(f"{path.name}: two ranks use device {rank.device} of {rank.host}; wanted a GPU for each")
        gpus[rank.device] = ReportedGpu(rank.gpu)
    return {host: tuple(gpus[number] for number in sorted(gpus)) for host, gpus in hosts.items()}


def _rows(lines: Sequence[str]) -> Iterator[_NcclRow]:
    """The rows below each header that names their columns; a row that is cut off is none."""
    columns: list[str] = []
    for line in lines:
        words = line.split()
        if {"size", "time", "algbw", "busbw"} <= {*words}:
            columns = words[words.index("size") :]
        elif columns and words and words[0].isascii() and words[0].isdigit() and len(words) > columns.index("time") + 2:
            yield from _row(columns, words)


def _row(columns: Sequence[str], words: Sequence[str]) -> Iterator[_NcclRow]:
    """The row of a message. Its first columns stand as in the header: a name of ``none`` is written, a blank is not."""
    n_halves = columns.count("busbw")
    own = columns[: columns.index("time")]
    if not {"size", "time", "algbw"} <= {*columns} or n_halves > 2:
        return
    width = columns.index("busbw", columns.index("busbw") + 1) - columns.index("busbw") if n_halves > 1 else 4
    if "redop" in own and re.fullmatch(r"-?[0-9.]+", words[own.index("redop")]):
        own = [each for each in own if each != "redop"]  # old versions leave it blank
    before = len(own)
    first = dict(zip(own, words, strict=False))
    halves = [words[before + i * width : before + (i + 1) * width] for i in range(n_halves)]
    halves = [half for half in halves if len(half) == width]
    at = {name: columns.index(name) - columns.index("time") for name in ("algbw", "busbw")}
    if not 0 < min(at.values()) <= max(at.values()) < width or len(first) < len(own):
        return
    found = []
    for half in halves:
        numbers = [_number(half[at[name]]) for name in ("algbw", "busbw")]
        found += [numbers] if None not in numbers else []
    if not found or len(first["size"]) > 18:
        return
    algorithm, bus = max(found, key=lambda pair: pair[1] or 0.0)
    yield _NcclRow(
        n_bytes=int(first["size"]),
        bytes_per_s=(algorithm or 0.0) * GB,
        bus_bytes_per_s=(bus or 0.0) * GB,
        has_root=first.get("root", "-1").isdigit(),
        reduces=first.get("redop", "none") != "none",
        is_never_in_place=len(halves) > 1 and halves[-1][-1] == "N/A",
    )


def _number(text: str) -> float | None:
    return float(text) if re.fullmatch(r"[0-9]{1,12}(?:\.[0-9]{0,9})?(?:e[+-]?[0-9]{1,2})?", text) else None


def _test_of(text: str, row: _NcclRow, n: int, path: Path) -> str:
    """Which test it is: by its program's name where the text has one, else as its columns and bandwidths tell.

    Raises FileError for a test that tells no bandwidth of a link.
    """
    named = {found[1].replace("_", "") for found in TEST.finditer(text)}
    if len(named) == 1:
        (test,) = named
    elif len(named) > 1:
        raise FileError(f"{path.name}: holds tests of {' and '.join(sorted(named))}; wanted a file for each")
    else:
        ratio = row.bus_bytes_per_s / row.bytes_per_s if row.bytes_per_s else math.nan
        is_part = n > 2 and math.isclose(ratio, (n - 1) / n, rel_tol=min(NEAR, 0.4 / n))
        test = "alltoall" if is_part and row.is_never_in_place else "scatter" if is_part and row.has_root else "ring"
    if test in ("hypercube", "bisection", "alltoallv"):
        raise FileError(f"{path.name}: is a test of {test}, which is not read; wanted all_reduce_perf or sendrecv_perf")
    return test


def _needed_bytes_per_s(test: str, row: _NcclRow, n: int, n_hosts: int, n_here: int) -> float:
    """Least bytes a second that a host of ``n_here`` of the ``n`` ranks must send to others in such a test."""
    away = (n - n_here) / n
    if test == "alltoall":
        return row.bytes_per_s * n_here * away
    if test in ("gather", "scatter"):
        return row.bytes_per_s * away
    if test in ("allreduce", "ring") and row.reduces:
        return row.bytes_per_s * 2 * (n_hosts - 1) / n_hosts
    return row.bytes_per_s * (n_hosts - 1) / n_hosts


def _most_between(gpu: ReportedGpu) -> float:
    """Bytes a second that no ring of such GPUs has between hosts: of kinds with switches that add, the NICs'."""
    adds = (known_gpu(*gpu) or "").startswith(("H", "B", "G"))
    return (fabric_bytes_per_s(gpu, 8) if adds else nvlink_bytes_per_s(gpu)) or math.inf


def _capped(rate: float, most: float, where: str, what: str) -> tuple[float, tuple[str, ...]]:
    """A rate, at most that of the links, and a note where it was more."""
    if rate <= most:
        return rate, ()
    measured, line = (format_gbps(to_gbps(each)) for each in (rate, most))
    return most, (
        f"{where} {TOOL} say {measured}, more than {what} carry, as where a switch adds (SHARP) or a tree is used, "
        f"{line} counts",
    )
