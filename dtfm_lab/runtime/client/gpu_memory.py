"""Whether the workers of a run fit in the memory of the GPUs that they share."""

import os
from collections.abc import Sequence

from dtfm_lab.domain.units import GiB
from dtfm_lab.runtime.client.gpu_inventory import Gpu, driver_gpus, visible
from dtfm_lab.runtime.protocol.run_spec import RunSpec
from dtfm_lab.simulation.memory import least_peak_bytes

CONTEXT_BYTES = 512 * 2**20
"""A process's CUDA context, the kernels it loads and cuBLAS's workspaces. An allowance, not yet measured on a GPU."""


def why_too_large_for_gpus(spec: RunSpec, gpus: Sequence[Gpu] | None = None) -> str:
    """Return why this machine's GPUs have too little free memory for a run, in one clause; empty where they have it.

    Workers take the GPUs in turn. A stage needs what the memory model says for this schedule, with all the messages
    that it can have received.

    Parameters
    ----------
    gpus
        Those that the run can see; asked of the driver where not given, which raises NoGpu.
    """
    if spec.runs_on != "cuda":
        return ""
    seen = visible(driver_gpus(), os.environ.get("CUDA_VISIBLE_DEVICES")) if gpus is None else gpus
    peaks = least_peak_bytes(spec.trained, spec.programs(synchronise=True))
    for number, gpu in enumerate(seen):
        sharing = range(number, len(spec.workers), len(seen))
        needed = sum(CONTEXT_BYTES + int(peaks[spec.workers[rank]]) for rank in sharing)
        free = gpu.memory_bytes if gpu.free_bytes is None else gpu.free_bytes
        if free is not None and needed > free:
            workers = f"{len(sharing)} workers need" if len(sharing) > 1 else "a worker needs"
            return (
                f"{workers} some {needed / GiB:.1f} GiB on GPU {number}, {gpu.name}, of which {free / GiB:.1f} are "
                "free; wanted a smaller model, stand_in='stand-in', fewer workers, or runs_on='cpu'"
            )
    return ""
