"""The hardware of a host: cores, memory, its GPUs, and the rate that it reaches in a block of a GPT.

The block's operators are timed where torch is installed (``operator_times``). Elsewhere the rate is of large matrix
products with numpy on all cores, of which a training reaches a part.
"""

import json
import statistics
import subprocess
import sys
import time
from typing import Any

import numpy as np
import psutil

from dtfm_lab.domain.network import HARDWARE, LONGEST_NAME, Device, known_gpu
from dtfm_lab.domain.units import format_bytes, format_s
from dtfm_lab.runtime.client.gpu_inventory import NoGpu, driver_gpus
from dtfm_lab.simulation.efficiency import EFFICIENCY
from dtfm_lab.simulation.task_runner import usable_cores

WIDTH = 1024
"""Rows and columns of the matrices that are multiplied."""
OPERATORS = ("product", "attention", "elementwise")
SAMPLES = 5
"""Stretches of time of which each has a rate."""
PATIENCE_S = 60.0
"""Seconds in which a process loads torch at the latest."""
MOST_GPUS = 64
ALIKE = 0.1
"""Share by which the memory that a driver reports is less than the data sheet's: error correction takes some."""


def facts_of_this_host(seconds: float = 1.0) -> dict[str, Any]:
    """``cores``, ``memory_bytes``, ``flop_per_s`` (the rates of some stretches of time), ``operators`` (median seconds
    of each, by name; none without torch), ``gpus`` (name and bytes of each, as the driver reports them)."""
    timed = _operator_times(seconds)
    taken = timed.get("seconds", {})
    rates = [_four_digits(timed["flop"] / sum(each)) for each in zip(*taken.values(), strict=True)]
    return {
        "cores": usable_cores(),
        "memory_bytes": psutil.virtual_memory().total,
        "flop_per_s": rates or measured_flop_per_s(seconds),
        "operators": {name: statistics.median(samples) for name, samples in taken.items()},
        "gpus": _gpus(),
    }


def _operator_times(seconds: float) -> dict[str, Any]:
    """What ``operator_times`` prints; nothing where torch is not installed or does not load."""
    command = [sys.executable, "-m", "dtfm_lab.runtime.gpu.operator_times", str(seconds)]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=seconds + PATIENCE_S)
        return dict(json.loads(ran.stdout))
    except (subprocess.TimeoutExpired, ValueError):
        return {}


def _four_digits(number: float) -> float:
    return float(f"{number:.4g}")


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
        rates.append(_four_digits(2 * WIDTH**3 / statistics.median(took_s)))
    return rates


def devices_of(name: str, region: str, facts: dict[str, Any]) -> list[Device]:
    """The host's GPUs, each a device, with the table's numbers; its processor where it has none.

    A processor gets the peak of which it reaches the median rate measured, as predictions take a share of the peak. So
    does a GPU that is not in the table, under its own name, until its peak is filled in: see ``sentence_of``.
    """
    gpus, several = facts["gpus"], len(facts["gpus"]) > 1
    measured = {
        "peak_flop_per_s": _four_digits(statistics.median(facts["flop_per_s"]) / EFFICIENCY),
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
    """A line such as ``ada: 8 cores, 16 GiB, 55 GFLOP/s reached in a block (50 to 58 in 5 samples; product 11 ms,
    attention 0.6 ms, elementwise 0.5 ms)``, with its GPUs."""
    low, high = (f"{end(facts['flop_per_s']) / 1e9:.3g}" for end in (min, max))
    reached = f"{statistics.median(facts['flop_per_s']) / 1e9:.3g} GFLOP/s reached in"
    reached += " a block" if facts["operators"] else " products of numpy"
    times = ", ".join(f"{name} {format_s(seconds)}" for name, seconds in facts["operators"].items())
    names = [gpu for gpu, _ in facts["gpus"]]
    counted = [f"{names.count(gpu)} x {gpu}" if names.count(gpu) > 1 else gpu for gpu in dict.fromkeys(names)]
    unknown = [gpu for gpu, n_bytes in dict(facts["gpus"]).items() if known_gpu(gpu, n_bytes) is None]
    parts = [f"{facts['cores']} cores", format_bytes(facts["memory_bytes"])]
    samples = f"{low} to {high} in {len(facts['flop_per_s'])} samples"
    parts += [f"{reached} ({'; '.join(filter(None, [samples, times]))})", *counted]
    parts += [f"{gpu} is not in the table of GPUs: fill in its peak_tflops" for gpu in unknown]
    if len(names) > 1:
        parts.append("links between its GPUs not timed")
    return f"{name}: {', '.join(parts)}"


def checked_facts(answer: dict[str, Any]) -> dict[str, Any]:
    """The facts in a host's answer, validated. Raises KeyError, TypeError or ValueError."""
    gpus = [(str(gpu)[:LONGEST_NAME], None if size is None else float(size)) for gpu, size in answer["gpus"]]
    rates = [float(rate) for rate in answer["flop_per_s"]]
    numbers = {what: float(answer[what]) for what in ("cores", "memory_bytes")}
    operators = {name: float(answer["operators"][name]) for name in OPERATORS if name in answer["operators"]}
    sizes = [size for _, size in gpus if size is not None]
    if not all(0 < number < 1e30 for number in (*numbers.values(), *rates, *sizes, *operators.values())) or not rates:
        raise ValueError("numbers above 0 are wanted")
    if len(gpus) > MOST_GPUS or len(rates) > SAMPLES:
        raise ValueError("more GPUs or rates than a host has")
    return numbers | {"cores": int(numbers["cores"]), "flop_per_s": rates, "operators": operators, "gpus": gpus}


def _gpus() -> list[tuple[str, float | None]]:
    try:
        return [(gpu.name, gpu.memory_bytes) for gpu in driver_gpus()]
    except NoGpu:
        return []
