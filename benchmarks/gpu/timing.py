"""Seconds of work on a device, on the GPU between two CUDA events."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch


def seconds_of(work: Callable[[], object], device: str, repeats: int, warm_up: int = 2) -> float:
    """The median over repeats; what is compiled or allocated first is done in the warm-up."""
    for _ in range(warm_up):
        work()
    taken_s = []
    for _ in range(repeats):
        if device == "cpu":
            began_s = time.perf_counter()
            work()
            taken_s.append(time.perf_counter() - began_s)
            continue
        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        began.record()
        work()
        ended.record()
        ended.synchronize()
        taken_s.append(began.elapsed_time(ended) / 1e3)
    return float(np.median(taken_s))


def device_name(device: str) -> str:
    """As torch says it."""
    return "CPU" if device == "cpu" else torch.cuda.get_device_name()
