"""What this machine can do: told without loading torch or touching a GPU."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess

import psutil

PARTS = {
    "torch": "pip install 'dtfm_lab[train]' for real runs",
    "jupyterlab": "pip install 'dtfm_lab[lab]' for the lab",
    "ipywidgets": "pip install 'dtfm_lab[lab]' for the lab",
    "anywidget": "pip install 'dtfm_lab[lab]' for the lab",
    "plotly": "pip install 'dtfm_lab[lab]' for figures",
    "cupy": "pip install 'dtfm_lab[cuda12]' or 'dtfm_lab[cuda13]', on a machine with an NVIDIA GPU",
}
CUPY = ("cupy-cuda12x", "cupy-cuda13x", "cupy")


def doctor_report() -> dict[str, str]:
    """One line each for the machine, the lab's parts and GPUs."""
    memory = psutil.virtual_memory()
    report = {
        "dtfm_lab": importlib.metadata.version("dtfm_lab"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()),
        "memory": f"{memory.available / 2**30:.1f} of {memory.total / 2**30:.1f} GiB free",
        "workers": "forked, torch loaded once" if platform.system() == "Linux" else "spawned, each loads torch",
    }
    for part, remedy in PARTS.items():
        report[part] = _version(CUPY if part == "cupy" else (part,)) or f"not installed: {remedy}"
    report["gpu"] = _gpus()
    return report


def _version(distributions: tuple[str, ...]) -> str | None:
    for name in distributions:
        try:
            return f"{importlib.metadata.version(name)}" + (f" ({name})" if len(distributions) > 1 else "")
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def _gpus() -> str:
    if shutil.which("nvidia-smi") is None:
        return "no NVIDIA driver found; workers run on the CPU"
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    try:
        listed = subprocess.run(query, capture_output=True, text=True, timeout=10, check=True).stdout
    except (subprocess.SubprocessError, OSError) as error:
        return f"nvidia-smi failed: {error}"
    found = "; ".join(line.strip() for line in listed.splitlines())
    return f"{found} (seen, not used: this version's workers run on the CPU)"
