"""Facts that a figure depends on: GPU, driver, versions, commit; nothing that names the machine or its owner."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

from dtfm_lab.domain.network import HARDWARE
from dtfm_lab.domain.network.device import Hardware
from dtfm_lab.runtime.client.gpu_inventory import NoGpu, cuda_of_torch, driver_gpus, visible

ROOT = Path(__file__).parents[2]


def machine_facts(*, gpu: bool) -> dict[str, str]:
    """Facts in words, by what they are about; neither torch nor CUDA is loaded."""
    torch = cuda_of_torch()
    facts = {
        "GPU": "none was used" if not gpu else gpus_line(),
        "torch": "not installed"
        if torch is None
        else torch[0] + (f" for CUDA {torch[1]}" if torch[1] else ", no CUDA"),
        "CuPy": _version("cupy-cuda12x", "cupy-cuda13x", "cupy"),
        "Python": platform.python_version(),
        "cores": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()),
        "system": f"{platform.system()} {platform.machine()}",
        "commit": commit(),
    }
    return facts


def gpus_line() -> str:
    """Names, memory, architecture and driver of the GPUs that CUDA may use, or why there is none."""
    try:
        gpus = visible(driver_gpus(), os.environ.get("CUDA_VISIBLE_DEVICES"))
    except NoGpu as why:
        return f"none: {why}"
    said = [
        f"{each.name} ({(each.memory_bytes or 0) / 2**30:.0f} GiB, compute capability {each.compute_capability}, "
        f"driver {each.driver})"
        for each in gpus
    ]
    return "; ".join(said) or "CUDA_VISIBLE_DEVICES hides every GPU"


def commit() -> str:
    """The commit that is checked out, and whether files were changed since."""
    try:
        asked = ["git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD"], ["git", "-C", str(ROOT), "status", "-s"]
        head, changed = (
            subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout for command in asked
        )
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return head.strip() + (", changed" if changed.strip() else "")


def table_row(name: str) -> tuple[str, Hardware] | None:
    """The row of the table of GPUs for a name as torch says it, such as ``NVIDIA A100-SXM4-80GB``; None without one."""
    words = set(name.replace("-", " ").replace("_", " ").upper().split())
    fitting = [row for row in HARDWARE if set(row.upper().split()) <= words]
    best = max(fitting, key=lambda row: len(row.split()), default=None)
    return None if best is None else (best, HARDWARE[best])


def _version(*names: str) -> str:
    for name in names:
        try:
            return f"{importlib.metadata.version(name)} ({name})"
        except importlib.metadata.PackageNotFoundError:
            continue
    return "not installed"
