"""The machine's GPUs, as its driver lists them, and whether a run can use them and fits in their memory.

Neither torch nor CUDA is loaded.
"""

import importlib.util
import os
import runpy
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dtfm_lab.domain.errors import JobError, LabError
from dtfm_lab.domain.units import GiB, counted
from dtfm_lab.runtime.protocol.run_options import RunSpec
from dtfm_lab.simulation.memory import least_peak_bytes

PATIENCE_S = 20.0
"""Maximum wait for the driver's answer. Without persistence mode, the driver first initialises every GPU."""
QUERY = "name,uuid,memory.total,driver_version,memory.free"
CAPABILITY = "compute_cap"
"""Name of the field with a GPU's compute capability. Drivers before release 470 refuse a query that contains it."""
CONTEXT_BYTES = 512 * 2**20
"""Memory for a process's CUDA context, its kernels and cuBLAS's workspaces. An allowance, not yet measured on a GPU."""


class NoGpu(LabError):
    """No GPU was found; the message says why."""


@dataclass(frozen=True)
class AttachedGpu:
    name: str
    uuid: str
    memory_bytes: int | None
    driver: str
    compute_capability: str
    """Version of the architecture: 7.0 is Volta, 9.0 is Hopper. Empty if the driver does not know it."""
    free_bytes: int | None = None
    """Free memory. None if the driver does not report it, as for memory shared with the host."""


def driver_gpus() -> list[AttachedGpu]:
    """Return all GPUs that the driver lists. Raises NoGpu."""
    if shutil.which("nvidia-smi") is None:
        raise NoGpu("nvidia-smi, which comes with NVIDIA's driver, is not there")
    answer = _asked(f"{QUERY},{CAPABILITY}")
    # Older drivers do not know the capability and refuse the whole query.
    if answer.returncode and CAPABILITY in answer.stdout + answer.stderr:
        answer = _asked(QUERY)
    gpus = parse_query(answer.stdout) if answer.returncode == 0 else []
    if not gpus:
        output = " ".join((answer.stdout + answer.stderr).split()) or "nothing"
        raise NoGpu(f"nvidia-smi found none and said: {output}")
    return gpus


def _asked(fields: str) -> subprocess.CompletedProcess[str]:
    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        raise NoGpu(f"nvidia-smi did not answer within {PATIENCE_S:.0f} s") from None
    except OSError as error:
        raise NoGpu(f"nvidia-smi cannot be started: {error.strerror}") from None


def parse_query(answer: str) -> list[AttachedGpu]:
    """Parse the driver's answer: one GPU per line, with the fields of ``QUERY`` and perhaps ``CAPABILITY``. A field
    without a value is in brackets."""
    rows = [[field.strip() for field in line.split(",")] for line in answer.splitlines()]
    return [
        AttachedGpu(name, uuid, _bytes(memory), driver, "".join(capability), _bytes(free))
        for name, uuid, memory, driver, free, *capability in (row for row in rows if len(row) in (5, 6))
    ]


def _bytes(mebibytes: str) -> int | None:
    return int(mebibytes) * GiB // 1024 if mebibytes.isdigit() else None


def visible(gpus: Sequence[AttachedGpu], variable: str | None) -> list[AttachedGpu]:
    """Return the GPUs that a value of ``CUDA_VISIBLE_DEVICES`` leaves visible, in its order. None leaves all of them.

    As in CUDA, the first unknown entry and all entries after it are ignored.
    """
    if variable is None:
        return list(gpus)
    left = []
    for entry in (part.strip() for part in variable.split(",")):
        if entry.isdecimal() and int(entry) < len(gpus):
            left.append(gpus[int(entry)])
        elif known := [gpu for gpu in gpus if entry.startswith("GPU-") and gpu.uuid.startswith(entry)]:
            left.append(known[0])
        else:
            break
    return left


def cuda_of_torch() -> tuple[str, str | None] | None:
    """Return (torch's version, the CUDA version that it is built for or None), read from its files.

    None if torch is not installed.
    """
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        return None
    found = runpy.run_path(str(Path(spec.submodule_search_locations[0]) / "version.py"))
    return found["__version__"], found.get("cuda")


def check_runs_on(runs_on: str, n_workers: int, clock: str) -> None:
    """Raise LabError or JobError if this many workers cannot compute on ``runs_on`` under this clock."""
    if runs_on == "cpu":
        return
    torch = cuda_of_torch()
    if torch is not None and torch[1] is None:
        raise LabError(
            f"runs_on is cuda, but torch {torch[0]} is built without CUDA; wanted a CUDA build "
            "(`dtfm-lab doctor` says which), or runs_on='cpu'"
        )
    try:
        gpus = visible(driver_gpus(), os.environ.get("CUDA_VISIBLE_DEVICES"))
    except NoGpu as why:
        raise LabError(f"runs_on is cuda, but this machine shows no GPU: {why}; wanted runs_on='cpu'") from None
    if not gpus:
        hidden = os.environ["CUDA_VISIBLE_DEVICES"]
        raise LabError(f"runs_on is cuda, but CUDA_VISIBLE_DEVICES={hidden!r} hides every GPU; wanted one at least")
    if clock == "real" and n_workers > len(gpus):
        raise JobError(
            f"clock real on cuda needs a GPU for each of {counted(n_workers, 'worker')}, {len(gpus)} "
            f"{'is' if len(gpus) == 1 else 'are'} here; wanted clock='virtual' or 'paced', where workers take turns "
            "on a GPU, or runs_on='cpu'"
        )


def why_too_large_for_gpus(spec: RunSpec, gpus: Sequence[AttachedGpu] | None = None) -> str:
    """Return in one clause why this machine's GPUs have too little free memory for a run; empty if they have enough.

    Workers are assigned to GPUs in rotation. Each needs its CUDA context and the least peak that the memory model
    predicts for this schedule.

    Parameters
    ----------
    gpus
        GPUs that the run can see. By default the driver is asked, which may raise NoGpu.
    """
    if spec.runs_on != "cuda":
        return ""
    seen = visible(driver_gpus(), os.environ.get("CUDA_VISIBLE_DEVICES")) if gpus is None else gpus
    peaks = least_peak_bytes(spec.trained, spec.programs(synchronise=True))
    for number, gpu in enumerate(seen):
        # Workers take GPUs in rotation, as they will when they start.
        sharing = range(number, len(spec.workers), len(seen))
        needed = sum(CONTEXT_BYTES + int(peaks[spec.workers[rank]]) for rank in sharing)
        free = gpu.memory_bytes if gpu.free_bytes is None else gpu.free_bytes
        if free is not None and needed > free:
            workers = f"{len(sharing)} workers need" if len(sharing) > 1 else "a worker needs"
            return (
                f"{workers} some {needed / GiB:.1f} GiB on GPU {number}, {gpu.name}, where {free / GiB:.1f} are "
                "free; wanted a smaller model, stand_in='stand-in', fewer workers, or runs_on='cpu'"
            )
    return ""
