"""The hardware of a host: cores, memory, the rate that its processor reaches in matrix products, and its GPUs."""

import statistics
import time
from typing import Any

import numpy as np
import psutil

from dtfm_lab.domain.network import HARDWARE, LONGEST_NAME, Device, known_gpu
from dtfm_lab.domain.units import format_bytes
from dtfm_lab.runtime.client.gpu_inventory import NoGpu, driver_gpus
from dtfm_lab.simulation.efficiency import EFFICIENCY
from dtfm_lab.simulation.task_runner import usable_cores

WIDTH = 1024
"""Rows and columns of the matrices that are multiplied."""
SAMPLES = 5
"""Stretches of time of which each has a rate."""
MOST_GPUS = 64
ALIKE = 0.1
"""Share by which the memory that a driver reports is less than the data sheet's: error correction takes some."""


def facts_of_this_host(seconds: float = 1.0) -> dict[str, Any]:
    """``cores``, ``memory_bytes``, ``flop_per_s`` (float32: the rates of some stretches of time), ``gpus`` (name and
    bytes of each, as the driver reports them)."""
    return {
        "cores": usable_cores(),
        "memory_bytes": psutil.virtual_memory().total,
        "flop_per_s": measured_flop_per_s(seconds),
        "gpus": _gpus(),
    }


def measured_flop_per_s(seconds: float) -> list[float]:
    """The median rate of float32 matrix products with numpy on all cores, in each of some stretches of ``seconds``."""
    matrix = np.random.default_rng(0).random((WIDTH, WIDTH), dtype=np.float32)
    result = matrix @ matrix
    rates = []
    for _ in range(SAMPLES):
        took_s: list[float] = []
        deadline_s = time.monotonic() + seconds / SAMPLES
        while not took_s or time.monotonic() < deadline_s:
            began_s = time.perf_counter()
            np.matmul(matrix, matrix, out=result)
            took_s.append(time.perf_counter() - began_s)
        rates.append(float(f"{2 * WIDTH**3 / statistics.median(took_s):.4g}"))
    return rates


def devices_of(name: str, region: str, facts: dict[str, Any]) -> list[Device]:
    """The host's GPUs, each a device, with the table's numbers; its processor where it has none.

    A processor gets the peak of which it reaches the median rate measured, as predictions take a share of the peak. So
    does a GPU that is not in the table, under its own name, until its peak is filled in: see ``sentence_of``.
    """
    gpus, several = facts["gpus"], len(facts["gpus"]) > 1
    measured = {
        "peak_flop_per_s": float(f"{statistics.median(facts['flop_per_s']) / EFFICIENCY:.4g}"),
        "memory_bytes": facts["memory_bytes"],
    }
    if not gpus:
        return [Device(name=name, region=region, gpu=f"CPU, {facts['cores']} cores", **measured)]
    devices = []
    for number, (gpu, n_bytes) in enumerate(gpus):
        where: dict[str, Any] = {"name": f"{name}-{number}" if several else name, "region": region}
        where |= {"host": name} if several else {}
        own = {} if n_bytes is None else {"memory_bytes": n_bytes}
        if (known := known_gpu(gpu, n_bytes)) is None:
            devices.append(Device(gpu=f"{gpu} (peak unknown)"[:LONGEST_NAME], **where, **measured | own))
            continue
        row = HARDWARE[known]
        is_usual = n_bytes is None or abs(n_bytes / row.memory_bytes - 1) <= ALIKE
        numbers = {} if is_usual else {"peak_flop_per_s": row.peak_flop_per_s, **own}
        devices.append(Device(gpu=known, **where, **numbers))
    return devices


def sentence_of(name: str, facts: dict[str, Any]) -> str:
    """A line such as ``ada: 8 cores, 16 GiB, 210 GFLOP/s reached in fp32 (180 to 230 in 5 samples)``, with its GPUs."""
    low, high = (f"{end(facts['flop_per_s']) / 1e9:.3g}" for end in (min, max))
    reached = f"{statistics.median(facts['flop_per_s']) / 1e9:.3g} GFLOP/s reached in fp32"
    names = [gpu for gpu, _ in facts["gpus"]]
    counted = [f"{names.count(gpu)} x {gpu}" if names.count(gpu) > 1 else gpu for gpu in dict.fromkeys(names)]
    unknown = [gpu for gpu, n_bytes in dict(facts["gpus"]).items() if known_gpu(gpu, n_bytes) is None]
    parts = [f"{facts['cores']} cores", format_bytes(facts["memory_bytes"])]
    parts += [f"{reached} ({low} to {high} in {len(facts['flop_per_s'])} samples)", *counted]
    parts += [f"{gpu} is not in the table of GPUs: fill in its peak_tflops" for gpu in unknown]
    if len(names) > 1:
        parts.append("links between its GPUs not timed")
    return f"{name}: {', '.join(parts)}"


def checked_facts(answer: dict[str, Any]) -> dict[str, Any]:
    """The facts in a host's answer, validated. Raises KeyError, TypeError or ValueError."""
    gpus = [(str(gpu)[:LONGEST_NAME], None if size is None else float(size)) for gpu, size in answer["gpus"]]
    rates = [float(rate) for rate in answer["flop_per_s"]]
    numbers = {what: float(answer[what]) for what in ("cores", "memory_bytes")}
    sizes = [size for _, size in gpus if size is not None]
    if not all(0 < number < 1e30 for number in (*numbers.values(), *rates, *sizes)) or not rates:
        raise ValueError("numbers above 0 are wanted")
    if len(gpus) > MOST_GPUS or len(rates) > SAMPLES:
        raise ValueError("more GPUs or rates than a host has")
    return numbers | {"cores": int(numbers["cores"]), "flop_per_s": rates, "gpus": gpus}


def _gpus() -> list[tuple[str, float | None]]:
    try:
        return [(gpu.name, gpu.memory_bytes) for gpu in driver_gpus()]
    except NoGpu:
        return []
