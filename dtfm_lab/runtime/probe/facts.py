"""The hardware of a host: cores, memory, measured matrix-multiplication rate, and GPUs."""

import os
import re
import shutil
import subprocess
import time
from typing import Any

import numpy as np
import psutil

from dtfm_lab.domain.network import HARDWARE, LONGEST_NAME, Device
from dtfm_lab.domain.units import format_bytes

WIDTH = 1024
"""Rows and columns of the matrices that are multiplied."""


def facts_of_this_host(seconds: float = 1.0) -> dict[str, Any]:
    """``cores``, ``memory_bytes``, ``peak_flop_per_s`` (float32, measured) and ``gpus``, as the driver names them."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return {
        "cores": cores,
        "memory_bytes": psutil.virtual_memory().total,
        "peak_flop_per_s": measured_flop_per_s(seconds),
        "gpus": _gpus(),
    }


def measured_flop_per_s(seconds: float) -> float:
    """The best rate of float32 matrix products with numpy on all cores, measured for ``seconds``."""
    matrix = np.random.default_rng(0).random((WIDTH, WIDTH), dtype=np.float32)
    result = matrix @ matrix
    best_s, deadline_s = np.inf, time.monotonic() + seconds
    while best_s == np.inf or time.monotonic() < deadline_s:
        began_s = time.perf_counter()
        np.matmul(matrix, matrix, out=result)
        best_s = min(best_s, time.perf_counter() - began_s)
    return float(f"{2 * WIDTH**3 / best_s:.4g}")


def device_of(name: str, region: str, facts: dict[str, Any]) -> Device:
    """The host's first GPU in the hardware table with the table's numbers; else its processor as measured."""
    known = next((key for gpu in facts["gpus"] if (key := known_gpu(gpu)) is not None), None)
    if known is not None:
        return Device(name=name, region=region, gpu=known)
    return Device(
        name=name,
        region=region,
        gpu=f"CPU, {facts['cores']} cores",
        peak_flop_per_s=facts["peak_flop_per_s"],
        memory_bytes=facts["memory_bytes"],
    )


def sentence_of(name: str, facts: dict[str, Any]) -> str:
    """A line such as ``ada: 8 cores, 16 GiB, 210 GFLOP/s measured in fp32``, with its GPUs."""
    gpus = "".join(f", {gpu}" for gpu in facts["gpus"])
    rate = f"{facts['peak_flop_per_s'] / 1e9:.3g} GFLOP/s measured in fp32"
    return f"{name}: {facts['cores']} cores, {format_bytes(facts['memory_bytes'])}, {rate}{gpus}"


def checked_facts(answer: dict[str, Any]) -> dict[str, Any]:
    """The facts in a host's answer, validated. Raises KeyError, TypeError or ValueError."""
    gpus = [str(gpu)[:LONGEST_NAME] for gpu in answer["gpus"]]
    numbers = {what: float(answer[what]) for what in ("cores", "memory_bytes", "peak_flop_per_s")}
    if not all(0 < number < 1e30 for number in numbers.values()):
        raise ValueError("numbers above 0 are wanted")
    return numbers | {"cores": int(numbers["cores"]), "gpus": gpus}


def known_gpu(driver_name: str) -> str | None:
    """The hardware table's name of a GPU such as ``NVIDIA A100-SXM4-40GB``: that with most words in common."""
    words = set(re.findall(r"[a-z0-9]+", driver_name.lower()))
    gpus = [key for key, row in HARDWARE.items() if "fp16" in row.peak]  # the others are whole computers
    fits = [key for key in gpus if set(re.findall(r"[a-z0-9]+", key.lower())) <= words]
    return max(fits, key=lambda key: (len(key.split()), len(key)), default=None)


def _gpus() -> list[str]:
    if shutil.which("nvidia-smi") is None:
        return []
    query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        listed = subprocess.run(query, capture_output=True, text=True, timeout=10, check=True).stdout
    except (subprocess.SubprocessError, OSError):
        return []
    return [line.strip() for line in listed.splitlines() if line.strip()]
