"""Read tests of NCCL and RCCL (``all_reduce_perf`` and others) on one or several hosts.

Formats: nccl-tests from 2019 on, with columns ``error`` or ``#wrong``, with and without ``redop`` and ``root``. Meaning
of the columns: nccl-tests, doc/PERFORMANCE.md.
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
"""Matches the name of a test's program. Newer versions print it, and command lines contain it."""
NEAR = 0.03
"""Relative tolerance within which the ratio of two printed bandwidths identifies a test: they have only two
decimals."""


class _Rank(NamedTuple):
    rank: int
    host: str
    device: int
    gpu: str


class _NcclRow(NamedTuple):
    """One row of a test: a message size, and the results of the faster of two runs, out of place or in place."""

    n_bytes: int
    bytes_per_s: float
    """Algorithm bandwidth in bytes per second: message size divided by time."""
    bus_bytes_per_s: float
    has_root: bool
    reduces: bool
    is_never_in_place: bool
    """True if in-place results are not checked, as in all-to-all and send-receive."""


def is_nccl(text: str) -> bool:
    return "busbw" in text and "Rank" in text and any(_rank_of(line) for line in unprefixed(text).splitlines())


def read_nccl(text: str, path: Path) -> SourceReport:
    """Read the GPUs of the ranks, and the bandwidth of the slowest link from the largest message of the test.

    The bus bandwidth is the rate at which every rank of a ring sends. In a test inside one host, it is the bandwidth
    between two of its GPUs. In a test over several hosts, it is the bandwidth from each host to the next, and links
    inside a host are at least as fast. Switches that sum in the network (NVLink SHARP) can make it higher than any
    link's rate. It is then reduced to the link's own rate. For all-to-all, gather and scatter over several hosts, the
    rate is the minimum that a host must send to others, and says nothing about links inside a host. Raises FileError if
    no message was measured, or if its bus bandwidth is 0.
    """
    lines = unprefixed(text).splitlines()
    ranks = [rank for line in lines if (rank := _rank_of(line))]
    hosts = _hosts(ranks, path)
    rows = list(_rows(lines))
    if not rows:
        raise FileError(f"{path.name}: has no row of a message; wanted the whole output of a test of NCCL")
    # Large messages show bandwidth, small ones only latency.
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
        # without NVLink there is no limit, because switches cannot add on PCIe
        most = min(nvlink_bytes_per_s(gpu) or math.inf for gpu in kinds)
        rate, notes = _capped(row.bus_bytes_per_s, most, f"inside {name}", "NVLink")
        seen = [ReportedHost(name=name, gpus=gpus, inside_bytes_per_s=rate)]
        return SourceReport(hosts=tuple(seen), are_near=True, notes=notes)
    fewest = min(len(gpus) for gpus in hosts.values())
    needed = _needed_bytes_per_s(test, row, n, len(hosts), fewest)
    # The bus bandwidth of these tests is not that of any one link, so use the minimum that a host must send.
    if test in ("alltoall", "gather", "scatter"):
        rate, notes = (
            needed,
            (f"{path.name}: {format_gbps(to_gbps(needed))} is what a test of {test} sends from a host",),
        )
    else:
        # never limit below the fastest NICs sold with such a host, nor below what the test needs
        most = max(min(_most_between(gpu) for gpu in kinds), needed)
        rate, notes = _capped(row.bus_bytes_per_s, most, f"between {len(hosts)} hosts", "NICs")
    inside = None if test in ("alltoall", "gather", "scatter") else rate
    seen = [ReportedHost(name=name, gpus=gpus, least_inside_bytes_per_s=inside) for name, gpus in hosts.items()]
    # One test shows the slowest link only, so all pairs get its rate.
    tests = [Measurement(a, b, rate, None, TOOL) for a, b in permutations(hosts, 2)]
    return SourceReport(hosts=tuple(seen), measurements=tuple(tests), are_near=True, notes=notes)


def _rank_of(line: str) -> _Rank | None:
    """Parse a line such as ``# Rank 0 Group 0 Pid 417 on gpu01 device 0 [0x0f] NVIDIA A100-SXM4-40GB``, with or without
    its group. Return None for any other line."""
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
    """Return the GPUs of each host, in the driver's order. Raises FileError if the ranks do not belong to one test."""
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
        # Ranks may be in any order, but GPUs are in the driver's.
        gpus = hosts.setdefault(rank.host, {})
        if rank.device in gpus:
            raise FileError(f"{path.name}: two ranks use device {rank.device} of {rank.host}; wanted a GPU for each")
        gpus[rank.device] = ReportedGpu(rank.gpu)
    return {host: tuple(gpus[number] for number in sorted(gpus)) for host, gpus in hosts.items()}


def _rows(lines: Sequence[str]) -> Iterator[_NcclRow]:
    """Yield the rows below each header that names their columns, except rows that are cut off."""
    columns: list[str] = []
    for line in lines:
        words = line.split()
        if {"size", "time", "algbw", "busbw"} <= {*words}:
            columns = words[words.index("size") :]
        elif columns and words and words[0].isascii() and words[0].isdigit() and len(words) > columns.index("time") + 2:
            yield from _row(columns, words)


def _row(columns: Sequence[str], words: Sequence[str]) -> Iterator[_NcclRow]:
    """Yield the row of one message, or nothing if it cannot be read.

    Its first columns have the header's names. But old versions print nothing in the column ``redop`` for tests that do
    not reduce.
    """
    n_halves = columns.count("busbw")
    own = columns[: columns.index("time")]
    if not {"size", "time", "algbw"} <= {*columns} or n_halves > 2:
        return
    width = columns.index("busbw", columns.index("busbw") + 1) - columns.index("busbw") if n_halves > 1 else 4
    if "redop" in own and re.fullmatch(r"-?[0-9.]+", words[own.index("redop")]):
        own = [each for each in own if each != "redop"]  # old versions print nothing in this column
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
    """Return the name of the test, by its program's name.

    Without it, the columns and bandwidths tell ``alltoall`` and ``scatter`` from ``ring``, which stands for all others.
    Raises FileError for a test from which no link's bandwidth follows.
    """
    named = {found[1].replace("_", "") for found in TEST.finditer(text)}
    if len(named) == 1:
        (test,) = named
    elif len(named) > 1:
        raise FileError(f"{path.name}: holds tests of {' and '.join(sorted(named))}; wanted a file for each")
    else:
        # Without the program's name: the ratio of the two bandwidths differs by test, as NCCL documents it.
        ratio = row.bus_bytes_per_s / row.bytes_per_s if row.bytes_per_s else math.nan
        is_part = n > 2 and math.isclose(ratio, (n - 1) / n, rel_tol=min(NEAR, 0.4 / n))
        test = "alltoall" if is_part and row.is_never_in_place else "scatter" if is_part and row.has_root else "ring"
    if test in ("hypercube", "bisection", "alltoallv"):
        raise FileError(f"{path.name}: is a test of {test}, which is not read; wanted all_reduce_perf or sendrecv_perf")
    return test


def _needed_bytes_per_s(test: str, row: _NcclRow, n: int, n_hosts: int, n_here: int) -> float:
    """Return the minimum bytes per second that a host with ``n_here`` of ``n`` ranks sends to others in this test."""
    away = (n - n_here) / n
    if test == "alltoall":
        return row.bytes_per_s * n_here * away
    if test in ("gather", "scatter"):
        return row.bytes_per_s * away
    if test in ("allreduce", "ring") and row.reduces:
        return row.bytes_per_s * 2 * (n_hosts - 1) / n_hosts
    return row.bytes_per_s * (n_hosts - 1) / n_hosts


def _most_between(gpu: ReportedGpu) -> float:
    """Return an upper bound on the bytes per second of a ring between hosts.

    It is the NICs' bandwidth for GPUs whose switches can sum (SHARP), NVLink's for others, and infinite if this is
    unknown.
    """
    adds = (known_gpu(*gpu) or "").startswith(("H", "B", "G"))
    return (fabric_bytes_per_s(gpu, 8) if adds else nvlink_bytes_per_s(gpu)) or math.inf


def _capped(rate: float, most: float, where: str, what: str) -> tuple[float, tuple[str, ...]]:
    """Return a rate, reduced to ``most`` if it is higher, and a note if it was reduced."""
    if rate <= most:
        return rate, ()
    measured, line = (format_gbps(to_gbps(each)) for each in (rate, most))
    return most, (
        f"{where} {TOOL} report {measured}, more than {what} carry, as with switches that add (SHARP) or trees, "
        f"so {line} counts",
    )
