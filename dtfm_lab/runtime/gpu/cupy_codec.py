"""The codec's GPU kernels. They turn numbers into bytes and back in one pass, for which torch needs seven.

The bytes equal the bytes of ``codec``, bit for bit. Tests compile this very source for a CPU, and it has run on an
H200. Only infinities and NaN may differ in bits. A half-precision NaN stays a NaN. An int8 block that contains an
infinity or a NaN decodes to NaN throughout.
"""

import functools
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dtfm_lab.domain.job import INT8_BLOCK

THREADS = 256
"""Threads per block of the grid: eight warps."""
MOST_BLOCKS = 1 << 16
"""Maximum number of blocks of the grid. Its threads loop with a stride of the whole grid."""
PER_THREAD = INT8_BLOCK // 32
"""Numbers that one thread encodes or decodes at a time. The 32 threads of a warp share one int8 block, or as many fp16
numbers."""

# The primitives name their instructions because CuPy compiles with -ftz=true, which flushes the denormal numbers that
# torch keeps. A test that compiles this source for a CPU defines KERNEL and its own primitives.
SOURCE = Path(__file__).with_name("codec.cu").read_text(encoding="utf-8")


@functools.cache
def available() -> bool:
    """Return True if CuPy is installed."""
    return importlib.util.find_spec("cupy") is not None


def encode(how: str, numbers: torch.Tensor, n_bytes: int) -> torch.Tensor:
    """Return (n,) numbers on a GPU as (n_bytes,) uint8, computed on torch's current stream. ``how``: fp16 or int8."""
    numbers = numbers.contiguous()
    coded = torch.empty(n_bytes, dtype=torch.uint8, device=numbers.device)
    _launch(f"encode_{how}", numbers.dtype, numbers, coded, numbers.numel())
    return coded


def decode(how: str, raw: torch.Tensor, n: int, dtype: torch.dtype) -> torch.Tensor:
    """Return (bytes,) uint8 on a GPU as (n,) numbers, computed on torch's current stream. ``how``: fp16 or int8."""
    numbers = torch.empty(n, dtype=dtype, device=raw.device)
    _launch(f"decode_{how}", dtype, raw.contiguous(), numbers, n)
    return numbers


def grid_for(n: int) -> int:
    """Return the number of blocks of ``THREADS`` threads for n numbers."""
    return max(1, min(MOST_BLOCKS, -(-n // (THREADS * PER_THREAD))))


def _launch(name: str, dtype: torch.dtype, source: torch.Tensor, to: torch.Tensor, n: int) -> None:
    # Addresses suffice instead of DLPack: the stream is torch's own, so no synchronisation is needed.
    import cupy

    index = source.get_device()
    stream = cupy.cuda.Stream.from_external(torch.cuda.current_stream(index))
    arguments = tuple(np.int64(value) for value in (source.data_ptr(), to.data_ptr(), n))
    with cupy.cuda.Device(index), stream:
        compiled_kernel(name, dtype)((grid_for(n),), (THREADS,), arguments)


@functools.cache
def compiled_kernel(name: str, dtype: torch.dtype) -> Any:
    """Return a kernel of ``SOURCE``. It is compiled at its first use."""
    import cupy

    return cupy.RawKernel(SOURCE, name, options=("-DDOUBLE",) if dtype == torch.float64 else ())
