"""Sixty networks of unlike devices, each with a job, to compare plans for the seconds of an iteration on.

Ten kinds of networks, six sizes each, 8 to 128 devices of two to four kinds of the hardware table. They were written
down before the search for such plans was tuned, and are not to be changed: ``DIGEST`` says whether they are the same.
Distances are of real cities, links between them follow the rule of ``domain.network.places``; other speeds are ours, of
the order of magnitude of what is sold. Nothing here is measured.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import dtfm_lab as lab
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Device, Topology
from dtfm_lab.domain.network.places import find_place, link_between

DIGEST = "eb2bda9f84b4736b"
"""Of all sixty networks and jobs; latencies and bandwidths are rounded, so that it is the same on any machine."""
CITIES = (
    *("Virginia", "Oregon", "London", "Frankfurt", "Tokyo", "Singapore", "Sydney", "Mumbai", "Seoul", "Paris"),
    *("Zurich", "Stockholm", "Toronto", "Madrid", "Warsaw", "Chicago", "Dallas", "Milan", "Osaka", "Lisbon"),
)
DATACENTRE = ("A100", "A100 40GB", "V100", "V100 32GB", "T4", "H100", "L4", "A10", "L40S", "RTX A6000", "P100")
HOME = ("RTX 4090", "RTX 3090", "laptop", "T4")
OF_THE_JOB = (
    *("global_batch", "microbatch", "dtype", "schedule", "synchronisation", "synchronise_every"),
    *("compression", "gradient_compression", "recompute"),
)
PLACES = 6
"""Most cities of a network."""


@dataclass(frozen=True)
class Network:
    """Regions and kinds of the devices, and links: (N, N) milliseconds and Gbit/s from row to column."""

    region: Sequence[str]
    gpu: Sequence[str]
    latency_ms: np.ndarray
    bandwidth_gbps: np.ndarray
    memory_gib: Sequence[float] | None = None
    """Where it differs from the table's."""


@dataclass(frozen=True)
class MixedCase:
    """One network and the job to plan on it."""

    name: str
    topology: Topology
    job: Job


def kinds_of(rng: np.random.Generator, among: Sequence[str], most: int = 4) -> list[str]:
    """Two of them, or up to ``most``."""
    return [str(gpu) for gpu in rng.choice(among, int(rng.integers(2, most + 1)), replace=False)]


def of_cities(rng: np.random.Generator, place: np.ndarray) -> tuple[list[str], np.ndarray, np.ndarray]:
    """The city of each of ``place``, numbers from 0 on, and links between them; within one, half a millisecond and
    10 Gbit/s."""
    most = PLACES
    chosen = [str(city) for city in rng.choice(CITIES, most, replace=False)]
    found = [find_place(city) for city in chosen]
    latency, bandwidth = np.zeros((most, most)), np.zeros((most, most))
    for i, a in enumerate(found):
        for j, b in enumerate(found):
            assert a is not None
            assert b is not None
            link = link_between(a, b)
            latency[i, j], bandwidth[i, j] = 1e3 * link.latency_s, 8e-9 * link.bandwidth_bytes_per_s
    np.fill_diagonal(latency, 0.5)
    np.fill_diagonal(bandwidth, 10.0)
    square = np.ix_(place, place)
    n = len(place)
    return [chosen[p] for p in place], latency[square] * jitter(rng, n), bandwidth[square] * jitter(rng, n)


def jitter(rng: np.random.Generator, n: int, spread: float = 0.15) -> np.ndarray:
    """(N, N) factors around 1, the same in both directions."""
    factors = np.exp(rng.normal(0, spread, (n, n)))
    return np.triu(factors, 1) + np.triu(factors, 1).T + np.eye(n)


def grouped(rng: np.random.Generator, n: int, least: int, most: int) -> np.ndarray:
    """(N,) number of the group of each device, groups of ``least`` to ``most`` devices."""
    return np.repeat(np.arange(n), rng.integers(least, most + 1, n))[:n]


def machines(rng: np.random.Generator, n: int) -> Network:
    """One room: machines of four to eight like GPUs on NVLink or PCIe, Ethernet of 10 to 100 Gbit/s between them."""
    machine = grouped(rng, n, 2, 4) if n < 16 else grouped(rng, n, 4, 8)
    kinds = kinds_of(rng, DATACENTRE)
    gpu_of = rng.choice(kinds, machine.max() + 1)
    gpu_of[: len(kinds)] = kinds[: len(gpu_of)]
    inside = np.where(np.isin(gpu_of, ("A100", "A100 40GB", "H100", "V100", "V100 32GB")), 1200.0, 128.0)
    nic = rng.choice([10.0, 25.0, 100.0], machine.max() + 1)
    same = machine[:, None] == machine
    bandwidth = np.where(same, inside[machine], np.minimum(nic[machine][:, None], nic[machine]))
    names = [f"machine-{m}" for m in machine]
    return Network(names, gpu_of[machine].tolist(), np.where(same, 0.01, 0.05), bandwidth)


def regions(rng: np.random.Generator, n: int, most_kinds: int = 4) -> Network:
    """Data centres in three to six cities, each with GPUs of one or two kinds."""
    place = np.sort(rng.integers(0, int(rng.integers(3, PLACES + 1)), n))
    kinds = kinds_of(rng, DATACENTRE, most_kinds)
    offers = rng.integers(0, len(kinds), (PLACES, 2))
    gpu = [kinds[offers[p, int(rng.integers(2))]] for p in place]
    return Network(*_with_gpus(of_cities(rng, place), gpu))


def campus(rng: np.random.Generator, n: int) -> Network:
    """Laboratories of a university on 1 to 10 Gbit/s, with laptops on wireless and one Raspberry Pi."""
    lab_of = grouped(rng, n, 3, 8)
    kinds = kinds_of(rng, ("A100", "V100", "T4", "RTX 3090", "RTX 4090", "RTX A6000"), most=2)
    gpu = rng.choice(kinds, lab_of.max() + 1)[lab_of].astype(object)
    nic = rng.choice([1.0, 2.5, 10.0], lab_of.max() + 1)[lab_of]
    laptops = rng.random(n) < 0.15
    gpu[laptops], nic[laptops] = "laptop", 0.2
    poor = int(rng.integers(n))
    gpu[poor], nic[poor] = "Raspberry Pi", 0.1
    latency = np.where(lab_of[:, None] == lab_of, 0.2, 0.6) + 3.0 * (laptops[:, None] | laptops)
    bandwidth = np.minimum(nic[:, None], nic) * jitter(rng, n, 0.1)
    return Network([f"lab-{k}" for k in lab_of], gpu.tolist(), latency, bandwidth)


def volunteers(rng: np.random.Generator, n: int) -> Network:
    """Gaming computers at home in three to five cities: fast down, slow up, every line its own."""
    place = np.sort(rng.integers(0, int(rng.integers(3, 6)), n))
    down = rng.choice([0.1, 0.25, 0.5, 1.0], n)
    up = np.where(rng.random(n) < 0.35, down, down * rng.choice([0.04, 0.1, 0.4], n))
    region, latency, bandwidth = of_cities(rng, place)
    bandwidth = np.minimum(bandwidth, np.minimum(up[:, None], down))
    kinds = kinds_of(rng, HOME)
    kinds = kinds if set(kinds) & {"RTX 4090", "RTX 3090"} else [*kinds, "RTX 3090"][-4:]
    strong = [kind for kind in kinds if kind != "laptop"]
    gpu = np.where(rng.random(n) < 0.15, rng.choice(kinds, n), rng.choice(strong, n))
    return Network(region, gpu.tolist(), latency + 20.0, bandwidth)


def stragglers(rng: np.random.Generator, n: int) -> Network:
    """Data centres, and a tenth of the devices behind 20 to 50 Mbit/s and 300 ms, or very slow, or both."""
    base = regions(rng, n, most_kinds=3)
    latency, bandwidth, gpu = base.latency_ms.copy(), base.bandwidth_gbps.copy(), np.array(base.gpu, dtype=object)
    for bad in rng.choice(n, max(1, n // 10), replace=False):
        if rng.random() < 0.7:
            latency[bad] = latency[:, bad] = 300.0
            bandwidth[bad] = bandwidth[:, bad] = rng.uniform(0.02, 0.05)
        if rng.random() < 0.5:
            gpu[bad] = "laptop"
    return Network(base.region, gpu.tolist(), latency, bandwidth)


def thin_bridge(rng: np.random.Generator, n: int) -> Network:
    """Two clusters of unequal size, 10 to 40 Gbit/s inside, a line of 0.05 to 1 Gbit/s between each pair of devices."""
    side = (np.arange(n) >= int(n * rng.uniform(0.25, 0.5))).astype(int)
    kinds = kinds_of(rng, DATACENTRE)
    odds = rng.dirichlet(np.ones(len(kinds)), 2)
    gpu = [kinds[int(rng.choice(len(kinds), p=odds[s]))] for s in side]
    same = side[:, None] == side
    bandwidth = np.where(same, rng.choice([10.0, 25.0, 40.0]), rng.uniform(0.05, 1.0)) * jitter(rng, n)
    return Network([("left", "right")[s] for s in side], gpu, np.where(same, 0.2, rng.uniform(5, 40)), bandwidth)


def islands(rng: np.random.Generator, n: int) -> Network:
    """Machines of two to five like devices at 100 Gbit/s, spread over cities."""
    machine = grouped(rng, n, 2, 5)
    place = rng.integers(0, PLACES, machine.max() + 1)[machine]
    region, latency, bandwidth = of_cities(rng, place)
    same = machine[:, None] == machine
    gpu = rng.choice(kinds_of(rng, DATACENTRE), machine.max() + 1)[machine]
    return Network(region, gpu.tolist(), np.where(same, 0.01, latency), np.where(same, 100.0, bandwidth))


def unequal_memory(rng: np.random.Generator, n: int) -> Network:
    """A cluster whose like GPUs have 8 to 80 GiB left for the job, unlike their speeds."""
    base = machines(rng, n) if rng.random() < 0.5 else regions(rng, n)
    memory_gib = rng.choice([8.0, 12.0, 16.0, 24.0, 48.0, 80.0], n, p=[0.2, 0.2, 0.2, 0.2, 0.1, 0.1])
    return Network(base.region, base.gpu, base.latency_ms, base.bandwidth_gbps, memory_gib.tolist())


def network_nics(rng: np.random.Generator, n: int) -> Network:
    """Devices anywhere in a square, a NIC of 0.5 to 25 Gbit/s each, kinds independent of it."""
    at = rng.random((n, 2))
    nic = rng.choice([0.5, 1.0, 2.5, 10.0, 25.0], n) * rng.uniform(0.8, 1.2, n)
    latency = 0.5 + 40 * np.linalg.norm(at[:, None] - at, axis=2)
    gpu = rng.choice(kinds_of(rng, DATACENTRE), n)
    corner = [("north-" if y > 0.5 else "south-") + ("east" if x > 0.5 else "west") for x, y in at]
    return Network(corner, gpu.tolist(), latency, np.minimum(nic[:, None], nic))


def marketplace(rng: np.random.Generator, n: int) -> Network:
    """Rented one by one in two to six cities: a few fast GPUs and many slow ones, 1 Gbit/s each."""
    place = rng.integers(0, int(rng.integers(2, PLACES + 1)), n)
    region, latency, bandwidth = of_cities(rng, place)
    fast = str(rng.choice(["H100", "A100"]))
    slow = [str(gpu) for gpu in rng.choice(["T4", "L4", "RTX 3090", "RTX 4090", "V100"], 3, replace=False)]
    gpu = np.where(rng.random(n) < 0.2, fast, rng.choice(slow, n))
    return Network(region, gpu.tolist(), latency, np.minimum(bandwidth, 1.0))


KINDS: tuple[Callable[[np.random.Generator, int], Network], ...] = (
    machines,
    regions,
    campus,
    volunteers,
    stragglers,
    thin_bridge,
    islands,
    unequal_memory,
    network_nics,
    marketplace,
)
SIZES = ((8, 12, 20, 32, 64, 128), (10, 16, 24, 48, 80, 96))
"""Numbers of devices, in turns."""
JOBS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("gpt3-xl", {}),
    ("gpt2-xl", {"dtype": "fp16"}),
    ("llama-2-7b", {"dtype": "fp16", "seq_len": 2048, "global_batch": 256, "recompute": True}),
    ("gpt3-xl", {"global_batch": 192, "schedule": "1f1b"}),
    ("qwen2-0.5b", {"dtype": "fp16", "seq_len": 2048, "schedule": "1f1b"}),
    ("gpt2-xl", {"dtype": "bf16", "global_batch": 256, "microbatch": 2, "synchronisation": "ring"}),
    ("gpt3-xl", {"global_batch": 512, "gradient_compression": "int8", "synchronise_every": 4}),
    ("gpt2-xl", {"dtype": "fp16", "global_batch": 384, "microbatch": None, "recompute": True}),
    ("llama-2-7b", {"dtype": "fp16", "global_batch": 128, "schedule": "1f1b", "recompute": True}),
    ("gpt3-xl", {"global_batch": 384, "schedule": "gpipe", "recompute": True}),
    ("gpt3-xl", {"global_batch": 320, "compression": "int8"}),
)
"""Presets and what differs from them, in turns. Where a model would fill more than half of a network's memory, the
next one is taken."""


def mixed_cases() -> Iterator[MixedCase]:
    """All sixty cases, always the same."""
    for row, kind in enumerate(KINDS):
        for column, n in enumerate(SIZES[row % 2]):
            rng = np.random.default_rng([row, column, n, *kind.__name__.encode()])
            drawn = kind(rng, n)
            topology = _topology(f"{kind.__name__}-{n}", drawn)
            assert 2 <= len({device.gpu for device in topology.devices}) <= 4
            yield MixedCase(topology.name, topology, _job(topology, row * len(SIZES[0]) + column))


def digest() -> str:
    """Of all cases, to be compared with ``DIGEST``."""
    lines: list[str] = []
    for name, topology, job in ((case.name, case.topology, case.job) for case in mixed_cases()):
        assert job.model is not None
        lines += [name, job.model.name, *(f"{what} {getattr(job, what)}" for what in OF_THE_JOB)]
        lines += [f"{d.name} {d.gpu} {d.memory_bytes:.0f} {d.price_per_hour:.2f}" for d in topology.devices]
        links = (1e3 * topology.latency_s, topology.bandwidth_bytes_per_s * 8e-9)
        lines += [f"{number:.4g}" for matrix in links for number in matrix.flat]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def _with_gpus(
    links: tuple[list[str], np.ndarray, np.ndarray], gpu: Sequence[str]
) -> tuple[list[str], Sequence[str], np.ndarray, np.ndarray]:
    region, latency, bandwidth = links
    return region, gpu, latency, bandwidth


def _topology(name: str, drawn: Network) -> Topology:
    """The network with links to four digits, and typical prices."""
    n = len(drawn.gpu)
    numbers: list[dict[str, float]] = [{}] * n
    if drawn.memory_gib is not None:
        numbers = [{"memory_bytes": gib * 2**30} for gib in drawn.memory_gib]
    devices = tuple(
        Device(name=f"{region}-{i}", region=region, gpu=gpu, **own)
        for i, (region, gpu, own) in enumerate(zip(drawn.region, drawn.gpu, numbers, strict=True))
    )
    latency_s, bandwidth = _rounded(drawn.latency_ms) * 1e-3, _rounded(drawn.bandwidth_gbps) * 1e9 / 8
    return Topology(devices, latency_s, bandwidth, name=name).with_typical_prices()


def _rounded(numbers: np.ndarray) -> np.ndarray:
    return np.array([float(f"{number:.4g}") for number in numbers.flat]).reshape(numbers.shape)


def _job(topology: Topology, start: int) -> Job:
    there = sum(device.memory_bytes for device in topology.devices)
    for name, changes in (JOBS[(start + i) % len(JOBS)] for i in range(len(JOBS))):
        job: Job = lab.load_job(name, **changes)
        assert job.model is not None
        if 16 * sum(layer.parameters for layer in job.model.layers) <= there / 2:
            return job
    raise AssertionError(f"no job fits {topology.name}")
