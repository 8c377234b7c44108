"""Versions of torch and CuPy, and their GPUs, as JSON: ``python -m dtfm_lab.runtime.gpu.gpu_probe``.

It runs as a separate process because the kernel loads neither library. A library that crashes or waits for a broken
driver must not stop the kernel. As in a worker, torch is loaded first.
"""

import importlib
import json
import sys
import warnings
from collections.abc import Callable
from typing import Any


def torch_seen() -> dict[str, Any]:
    torch = importlib.import_module("torch")
    nccl = torch.cuda.nccl.version() if torch.version.cuda and torch.distributed.is_nccl_available() else None
    return {
        "version": torch.__version__,
        "cuda": torch.version.cuda,
        "gpus": torch.cuda.device_count() if torch.cuda.is_available() else 0,
        "nccl": None if nccl is None else ".".join(map(str, nccl)),
    }


def cupy_seen() -> dict[str, Any]:
    cupy = importlib.import_module("cupy")
    nccl = importlib.import_module("cupy.cuda.nccl")
    return {
        "version": cupy.__version__,
        "cuda": from_code(cupy.cuda.runtime.runtimeGetVersion()),
        "gpus": _or_zero(cupy.cuda.runtime.getDeviceCount),
        "nccl": nccl_from_code(nccl.get_version()) if nccl.available else None,
        "compiles": _compiles(cupy),
    }


def from_code(version: int) -> str:
    """Return ``13.2`` for CUDA's 13020."""
    return f"{version // 1000}.{version % 1000 // 10}"


def nccl_from_code(version: int) -> str:
    """Return ``2.27.7`` for NCCL's 22707."""
    return f"{version // 10000}.{version // 100 % 100}.{version % 100}"


def _or_zero(count: Callable[[], int]) -> int:
    try:
        return count()
    except Exception:
        return 0


def _compiles(cupy: Any) -> bool:
    """Return True if kernels can be compiled. NVRTC is a separate library that CuPy's wheels do not include."""
    try:
        return bool(cupy.cuda.nvrtc.getVersion())
    except Exception:
        return False


def main() -> None:
    seen: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, look in {"torch": torch_seen, "cupy": cupy_seen}.items():
            try:
                seen[name] = look()
            except ModuleNotFoundError as error:
                seen[name] = None if error.name == name else {"error": str(error)}
            except Exception as error:
                seen[name] = {"error": f"{type(error).__name__}: {error}"}
    sys.stdout.write(json.dumps(seen) + "\n")


if __name__ == "__main__":
    main()
