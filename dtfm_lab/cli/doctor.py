"""Facts about this machine for ``dtfm-lab doctor``, gathered without loading torch or CuPy in this process."""

import dataclasses
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
from typing import Any

import psutil

from dtfm_lab.cli.doctor_advice import LAB, advice
from dtfm_lab.domain.units import format_bytes
from dtfm_lab.runtime.client.gpu_inventory import PATIENCE_S, NoGpu, driver_gpus

CUPY = ("cupy-cuda12x", "cupy-cuda13x", "cupy")
PROBE_S = 90.0
"""Time limit of the process that loads torch and CuPy, long enough for a cold disk."""


def doctor_facts() -> dict[str, Any]:
    """Facts about the machine and advice on what to change. All keys are always there; a value may be None."""
    memory = psutil.virtual_memory()
    facts: dict[str, Any] = {
        "dtfm_lab": importlib.metadata.version("dtfm_lab"),
        "python": platform.python_version(),
        "system": platform.system(),
        "architecture": platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": memory.total,
        "free_memory_bytes": memory.available,
        "packages": {name: _version(name) for name in LAB},
        "cupy_distributions": [name for name in CUPY if _version(name)],
        "cuda_visible_devices": os.environ.get("CUDA_VISIBLE_DEVICES"),
        **driver_facts(),
        **probed_libraries(),
    }
    return facts | {"advice": advice(facts)}


def described(facts: dict[str, Any]) -> dict[str, str]:
    """The facts as text for people, by subject, with the advice last."""
    free, total = (format_bytes(facts[which]) for which in ("free_memory_bytes", "memory_bytes"))
    lines = {
        "dtfm_lab": facts["dtfm_lab"],
        "python": facts["python"],
        "system": f"{facts['system']} {facts['architecture']}",
        "cores": str(facts["cores"]),
        "memory": f"{free} of {total} free",
        "workers": "forked, torch loaded once" if facts["system"] == "Linux" else "spawned, each loads torch",
        "gpus": _describe_gpus(facts),
        "torch": _describe_library(facts["torch"]),
        "cupy": _describe_library(facts["cupy"]),
    }
    lines |= {name: version or "not installed" for name, version in facts["packages"].items()}
    return lines | {f"advice {i}": line for i, line in enumerate(facts["advice"], start=1)}


def _describe_gpus(facts: dict[str, Any]) -> str:
    if not facts["gpus"]:
        return f"none: {facts['no_gpu']}"
    each = []
    for gpu in facts["gpus"]:
        memory = "" if gpu["memory_bytes"] is None else f" {format_bytes(gpu['memory_bytes'])}"
        each.append(f"{gpu['name']}{memory}")
    counted = [f"{each.count(one)} x {one}" for one in dict.fromkeys(each)]
    cuda = f", CUDA {facts['driver_cuda']}" if facts["driver_cuda"] else ""
    return f"{', '.join(counted)}; driver {facts['gpus'][0]['driver']}{cuda}"


def _describe_library(seen: dict[str, Any] | None) -> str:
    if seen is None:
        return "not installed"
    if "error" in seen:
        return f"does not load: {seen['error']}"
    gpus = f"{seen['gpus']} GPU{'' if seen['gpus'] == 1 else 's'}"
    cuda = f"CUDA {seen['cuda']}, sees {gpus}" if seen["cuda"] else "built without CUDA"
    return f"{seen['version']}, {cuda}" + (f", NCCL {seen['nccl']}" if seen["nccl"] else "")


def driver_facts() -> dict[str, Any]:
    """``gpus`` that the driver lists, ``no_gpu`` (why there are none) and ``driver_cuda``, the newest CUDA it runs."""
    try:
        gpus = driver_gpus()
    except NoGpu as why:
        return {"gpus": [], "no_gpu": str(why), "driver_cuda": None}
    return {"gpus": [dataclasses.asdict(gpu) for gpu in gpus], "no_gpu": None, "driver_cuda": _cuda_of_driver()}


def _cuda_of_driver() -> str | None:
    """The newest CUDA that the driver runs, which nvidia-smi prints only in the head of its table."""
    try:
        head = subprocess.run(["nvidia-smi"], capture_output=True, text=True, timeout=PATIENCE_S).stdout
    except (subprocess.SubprocessError, OSError):
        return None
    found = re.search(r"CUDA [\w ]*Version\s*:\s*(\d+\.\d+)", head)
    return found[1] if found else None


def probed_libraries() -> dict[str, Any]:
    """What ``gpu_probe`` reports of ``torch`` and ``cupy``, by running it in a process of its own."""
    command = [sys.executable, "-m", "dtfm_lab.runtime.gpu.gpu_probe"]
    try:
        probe = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_S)
        return dict(json.loads(probe.stdout))
    except subprocess.TimeoutExpired:
        why = f"no answer within {PROBE_S:.0f} s"
    except ValueError:  # it printed no JSON: it died
        lines = probe.stderr.strip().splitlines()
        why = lines[-1] if lines else f"the process that loaded it ended with status {probe.returncode}"
    return {
        "torch": {"error": why} if _version("torch") else None,
        "cupy": {"error": why} if any(map(_version, CUPY)) else None,
    }


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
