"""What ``dtfm-lab doctor`` says: facts about this machine, and advice that follows from them.

Facts are gathered without loading torch or CuPy in this process. Advice is computed by pure functions of the facts, so
that tests can pass invented facts. Sources:

- NVIDIA's "CUDA Compatibility": which driver runs which CUDA
- CUDA 13's release notes: it no longer supports Maxwell, Pascal and Volta GPUs
- torch's RELEASE.md: torch 2.13 is built for CUDA 12.6, 13.0 and 13.2
"""

import dataclasses
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
from collections import Counter
from typing import Any

import psutil

from dtfm_lab.domain.units import format_bytes
from dtfm_lab.runtime.client.gpu_inventory import PATIENCE_S, NoGpu, driver_gpus
from dtfm_lab.simulation.task_runner import usable_cores

CUPY = ("cupy-cuda12x", "cupy-cuda13x", "cupy")
PROBE_S = 90.0
"""Time limit in seconds of the process that loads torch and CuPy. It is long enough for a cold disk."""
LAB = ("jupyterlab", "ipywidgets", "anywidget", "plotly")
OLDEST_DRIVER = {13: 580, 12: 525}
"""Oldest driver that runs a CUDA version, by CUDA's major version."""
OLDEST_OF_CUDA_13 = (7, 5)
"""Oldest compute capability that CUDA 13 supports."""
TORCH = {13: "cu130", 12: "cu126"}
"""End of the address of torch's package index, by CUDA's major version. It names the build."""
USUAL_WORKERS = 8
"""Number of workers that train a plan for the example network, the lecture hall. With fewer cores, the advice is that
workers share them."""
COMFORTABLE_BYTES = 2 * 2**30
"""Free memory that is enough for the lab and eight workers on `tiny`. With less, the advice is to use fewer stages or
replicas."""

Facts = dict[str, Any]


def doctor_facts() -> dict[str, Any]:
    """Return facts about the machine, and advice on what to change. All keys are always present; a value may be
    None."""
    memory = psutil.virtual_memory()
    facts: dict[str, Any] = {
        "dtfm_lab": importlib.metadata.version("dtfm_lab"),
        "python": platform.python_version(),
        "system": platform.system(),
        "architecture": platform.machine(),
        "cores": usable_cores(),
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
    """Return the facts as text for people, by subject. The advice comes last."""
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
    sizes = ["" if gpu["memory_bytes"] is None else f" {format_bytes(gpu['memory_bytes'])}" for gpu in facts["gpus"]]
    counted = Counter(f"{gpu['name']}{size}" for gpu, size in zip(facts["gpus"], sizes, strict=True))
    cuda = f", CUDA {facts['driver_cuda']}" if facts["driver_cuda"] else ""
    kinds = ", ".join(f"{n} x {kind}" for kind, n in counted.items())
    return f"{kinds}; driver {facts['gpus'][0]['driver']}{cuda}"


def _describe_library(seen: dict[str, Any] | None) -> str:
    if seen is None:
        return "not installed"
    if "error" in seen:
        return f"does not load: {seen['error']}"
    gpus = f"{seen['gpus']} GPU{'' if seen['gpus'] == 1 else 's'}"
    cuda = f"CUDA {seen['cuda']}, sees {gpus}" if seen["cuda"] else "built without CUDA"
    return f"{seen['version']}, {cuda}" + (f", NCCL {seen['nccl']}" if seen["nccl"] else "")


def driver_facts() -> dict[str, Any]:
    """Return ``gpus`` that the driver lists, ``no_gpu`` (why it lists none) and ``driver_cuda``, the newest CUDA it
    runs."""
    try:
        gpus = driver_gpus()
    except NoGpu as why:
        return {"gpus": [], "no_gpu": str(why), "driver_cuda": None}
    return {"gpus": [dataclasses.asdict(gpu) for gpu in gpus], "no_gpu": None, "driver_cuda": _cuda_of_driver()}


def _cuda_of_driver() -> str | None:
    """Return the newest CUDA that the driver runs. nvidia-smi prints it only in the head of its table."""
    try:
        head = subprocess.run(["nvidia-smi"], capture_output=True, text=True, timeout=PATIENCE_S).stdout
    except (subprocess.SubprocessError, OSError):
        return None
    found = re.search(r"CUDA [\w ]*Version\s*:\s*(\d+\.\d+)", head)
    return found[1] if found else None


def probed_libraries() -> dict[str, Any]:
    """Return what ``gpu_probe`` reports about ``torch`` and ``cupy``. It runs in a separate process. If that process
    crashes or takes longer than ``PROBE_S``, each installed library has only an ``error``."""
    # A broken driver or library can end the process that loads it, and this one still has to report it.
    command = [sys.executable, "-m", "dtfm_lab.runtime.gpu.gpu_probe"]
    try:
        probe = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_S)
        return dict(json.loads(probe.stdout))
    except subprocess.TimeoutExpired:
        why = f"no answer within {PROBE_S:.0f} s"
    except ValueError:  # it printed no JSON, so it crashed
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


def advice(facts: Facts) -> list[str]:
    """Return lines of advice, the most important first. A line ends with the command to run, if there is one."""
    parts = (_torch_advice, _cupy_advice, _lab_advice, _machine_advice, _gpu_advice)
    return [line for part in parts for line in part(facts)]


def fitting_cuda(facts: Facts) -> int | None:
    """Return the newer of CUDA 13 and 12 that the driver and all GPUs run, as its major version. None if they run
    neither."""
    if facts["driver_cuda"]:
        # A newer driver also runs the builds for older versions.
        newest = min(_major(facts["driver_cuda"]), max(TORCH))
    else:
        driver = _major(facts["gpus"][0]["driver"])
        # nvidia-smi reported no CUDA version, but NVIDIA lists the oldest driver that runs each.
        newest = next((cuda for cuda, oldest in sorted(OLDEST_DRIVER.items(), reverse=True) if driver >= oldest), 0)
    if _too_old_for_13(facts):
        newest = min(newest, 12)
    return newest if newest in TORCH else None


def _torch_advice(facts: Facts) -> list[str]:
    torch, gpus = facts["torch"], facts["gpus"]
    fits = fitting_cuda(facts) if gpus else None
    if torch is None:
        line = f"pip install torch {_index_option(fits)}" if fits else "pip install 'dtfm_lab[train]'"
        return [f"torch is not installed, and real runs need it: {line}"]
    if "error" in torch:
        return [f"torch does not load ({torch['error']}): {_reinstall(fits)}"]
    # Without a GPU any build of torch will do.
    if not gpus:
        return []
    if fits is None:
        return [
            f"driver {gpus[0]['driver']} is too old for CUDA 12: update it to {OLDEST_DRIVER[12]} or newer, "
            f"{OLDEST_DRIVER[13]} for CUDA 13; until then runs are on the CPU"
        ]
    if torch["cuda"] is None:
        return [f"torch {torch['version']} is built without CUDA, so runs are on the CPU: {_reinstall(fits)}"]
    if _major(torch["cuda"]) > fits:
        return [f"torch {torch['version']} is built for CUDA {torch['cuda']}, {_why_not_13(facts)}: {_reinstall(fits)}"]
    if not torch["gpus"]:
        return [_hidden_gpu_advice(facts)]
    return []


def _cupy_advice(facts: Facts) -> list[str]:
    torch, cupy, several = facts["torch"], facts["cupy"], facts["cupy_distributions"]
    if not facts["gpus"] or not torch or not torch.get("cuda"):
        return []  # CuPy is useless without a GPU, and its build must fit torch's
    # if torch's build must change, CuPy has to fit the new one
    fits = min(_major(torch["cuda"]), fitting_cuda(facts) or 0)
    if fits not in TORCH:
        return []
    # The extra installs the build of CuPy that fits. pip would leave another build beside it, so uninstall that first.
    wanted = f"pip install 'dtfm_lab[cuda{fits}]'"
    anew = f"pip uninstall -y {' '.join(several)} && {wanted}"
    if len(several) > 1:
        return [f"CuPy is installed {len(several)} times, as {', '.join(several)}, in one place: {anew}"]
    if cupy is None:
        return [f"CuPy is not installed; it compresses messages in one pass: {wanted}"]
    if "error" in cupy:
        return [f"CuPy does not load ({cupy['error']}): {anew}"]
    if _major(cupy["cuda"]) != fits:
        return [f"CuPy is built for CUDA {cupy['cuda']}, but it shares memory with torch for CUDA {fits}: {anew}"]
    if not cupy["compiles"]:
        return [f"CuPy finds no NVRTC to compile kernels with: pip install 'cupy-cuda{fits}x[ctk]'"]
    return []


def _lab_advice(facts: Facts) -> list[str]:
    missing = [name for name in LAB if not facts["packages"].get(name)]
    return [f"the lab lacks {', '.join(missing)}: pip install 'dtfm_lab[lab]'"] if missing else []


def _machine_advice(facts: Facts) -> list[str]:
    found = []
    if facts["cores"] < USUAL_WORKERS:
        found.append(
            f"{facts['cores']} core{'s' if facts['cores'] > 1 else ''}: more workers than that share them. "
            "clock='virtual' counts only each worker's own CPU time; clock='real' also counts waiting"
        )
    if facts["free_memory_bytes"] < COMFORTABLE_BYTES:
        found.append(
            f"{facts['free_memory_bytes'] / 2**30:.1f} GiB of memory are free, and {USUAL_WORKERS} workers need about "
            f"{COMFORTABLE_BYTES / 2**30:.0f} GiB: use fewer stages or replicas"
        )
    if facts["system"] == "Windows":
        found.append("workers do not run on Windows itself: use WSL")
    return found


def _gpu_advice(facts: Facts) -> list[str]:
    """Return lines on how runs can use the GPUs. Empty if the driver or torch finds none."""
    torch = facts["torch"]
    if not facts["gpus"] or not torch or not torch.get("gpus"):
        return []
    n = torch["gpus"]
    return [
        f"runs_on='cuda' puts workers on {'the GPU' if n == 1 else f'{n} GPUs'}. Workers that share a GPU take turns, "
        f"with clock='virtual' or 'paced'; clock='real' allows {'one worker' if n == 1 else f'{n} workers'}"
    ]


def _hidden_gpu_advice(facts: Facts) -> str:
    hidden = facts["cuda_visible_devices"]
    if hidden is not None:
        return f"torch sees no GPU, because CUDA_VISIBLE_DEVICES is {hidden!r}: unset CUDA_VISIBLE_DEVICES"
    return (
        "torch sees no GPU, although it fits the driver: start a container with its GPUs (docker run --gpus all); "
        "after a driver update, restart the machine"
    )


def _why_not_13(facts: Facts) -> str:
    if old := _too_old_for_13(facts):
        return f"which no longer supports {old}"
    return f"for which driver {facts['gpus'][0]['driver']} is too old ({OLDEST_DRIVER[13]} or newer would do)"


def _too_old_for_13(facts: Facts) -> str | None:
    for gpu in facts["gpus"]:
        major, _, minor = gpu["compute_capability"].partition(".")
        if major.isdigit() and minor.isdigit() and (int(major), int(minor)) < OLDEST_OF_CUDA_13:
            return str(gpu["name"])
    return None


def _reinstall(cuda: int | None) -> str:
    return "pip install --force-reinstall torch" + (f" {_index_option(cuda)}" if cuda else "")


def _index_option(cuda: int) -> str:
    return f"--index-url https://download.pytorch.org/whl/{TORCH[cuda]}"


def _major(version: str) -> int:
    """Return the major number: 13 for ``13.2``, 580 for ``580.65.06``. 0 if the text is not a version."""
    head = version.partition(".")[0]
    return int(head) if head.isdigit() else 0
