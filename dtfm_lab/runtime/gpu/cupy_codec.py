"""The codec's GPU kernels: numbers to bytes and back in one pass over them, where torch needs seven.

The bytes are those of ``codec``, bit for bit: tests compile this very source for a CPU. Not yet run on a GPU. Only
infinities and NaN may differ in bits: a half-precision NaN stays a NaN, and an int8 block with either of them decodes
to NaN throughout.
"""

import functools
import importlib.util
from typing import Any

import numpy as np
import torch

from dtfm_lab.domain.job import INT8_BLOCK

THREADS = 256
"""Threads of a block of the grid: eight warps."""
MOST_BLOCKS = 4096
"""Most blocks of the grid, whose threads loop with a stride of the whole grid."""
PER_THREAD = {"int8": INT8_BLOCK // 32, "fp16": 1}
"""Numbers that a thread codes at a time: a warp shares a block of int8."""

# The primitives name their instructions because CuPy compiles with -ftz=true, which flushes the denormal numbers that
# torch keeps. A test that compiles this source for a CPU defines KERNEL and its own primitives.
SOURCE = """
#ifndef KERNEL
#define KERNEL extern "C" __global__ void
__device__ float divided(float a, float b)
{ float c; asm("div.rn.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b)); return c; }
__device__ float times(float a, float b)
{ float c; asm("mul.rn.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b)); return c; }
__device__ float narrowed(double a) { float c; asm("cvt.rn.f32.f64 %0, %1;" : "=f"(c) : "d"(a)); return c; }
__device__ double widened(float a) { double c; asm("cvt.f64.f32 %0, %1;" : "=d"(c) : "f"(a)); return c; }
__device__ unsigned short to_half(float a)
{ unsigned short c; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(c) : "f"(a)); return c; }
__device__ float from_half(unsigned short a) { float c; asm("cvt.f32.f16 %0, %1;" : "=f"(c) : "h"(a)); return c; }
#endif

#ifdef DOUBLE
typedef double number;
typedef unsigned long long bits;
#define BITS_OF(x) ((bits)__double_as_longlong(x))
#define FROM_BITS(x) __longlong_as_double((long long)(x))
#define DIVIDED(a, b) ((a) / (b))
#define TIMES(a, b) ((a) * (b))
#define TO_FLOAT(x) narrowed(x)
#define FROM_FLOAT(x) widened(x)
#define NEAREST_EVEN(x) __double2int_rn(x)
#else
typedef float number;
typedef unsigned int bits;
#define BITS_OF(x) __float_as_uint(x)
#define FROM_BITS(x) __uint_as_float(x)
#define DIVIDED(a, b) divided(a, b)
#define TIMES(a, b) times(a, b)
#define TO_FLOAT(x) (x)
#define FROM_FLOAT(x) (x)
#define NEAREST_EVEN(x) __float2int_rn(x)
#endif

#define BLOCK 256
#define CODED (4 + BLOCK)
#define LANES 32
#define LARGEST_STEP 127
#define LARGEST_HALF 65504.0f

/* A warp codes a block: lane l takes the numbers l, l + 32, and so on, so that neighbours read neighbours. */
KERNEL encode_int8(const number *numbers, unsigned char *coded, long long n)
{
    const int lane = threadIdx.x % LANES, warps = blockDim.x / LANES;
    const long long stride = (long long)gridDim.x * warps;
    for (long long block = (long long)blockIdx.x * warps + threadIdx.x / LANES; block * BLOCK < n; block += stride) {
        const long long first = block * BLOCK + lane;
        unsigned char *out = coded + block * CODED;
        number mine[BLOCK / LANES];
        bits largest = 0; /* numbers without a sign are ordered as their bits are, NaN above all */
        for (int k = 0; k < BLOCK / LANES; ++k) {
            const long long at = first + k * LANES;
            mine[k] = at < n ? numbers[at] : (number)0;
            const bits size = BITS_OF(mine[k]) & ~((bits)1 << (8 * sizeof(bits) - 1));
            largest = size > largest ? size : largest;
        }
        for (int offset = LANES / 2; offset; offset /= 2) {
            const bits other = __shfl_xor_sync(0xffffffffu, largest, offset);
            largest = other > largest ? other : largest;
        }
        const float scale = TO_FLOAT(DIVIDED(FROM_BITS(largest), (number)LARGEST_STEP));
        const unsigned int scale_bits = __float_as_uint(scale);
        const int above_zero = scale_bits > 0 && scale_bits <= 0x7f800000u;
        const number step = FROM_FLOAT(above_zero ? scale : 1.0f);
        if (lane < 4)
            out[lane] = (unsigned char)(scale_bits >> (8 * lane));
        for (int k = 0; k < BLOCK / LANES; ++k)
            if (first + k * LANES < n) {
                int steps = NEAREST_EVEN(DIVIDED(mine[k], step));
                steps = steps > LARGEST_STEP ? LARGEST_STEP : steps < -LARGEST_STEP ? -LARGEST_STEP : steps;
                out[4 + lane + k * LANES] = (unsigned char)steps;
            }
    }
}

KERNEL decode_int8(const unsigned char *coded, number *numbers, long long n)
{
    const int lane = threadIdx.x % LANES, warps = blockDim.x / LANES;
    const long long stride = (long long)gridDim.x * warps;
    for (long long block = (long long)blockIdx.x * warps + threadIdx.x / LANES; block * BLOCK < n; block += stride) {
        const unsigned char *in = coded + block * CODED; /* byte by byte: a message may begin anywhere */
        const unsigned int scale_bits = in[0] | in[1] << 8 | in[2] << 16 | (unsigned int)in[3] << 24;
        const number scale = FROM_FLOAT(__uint_as_float(scale_bits));
        for (int k = lane; k < BLOCK && block * BLOCK + k < n; k += LANES)
            numbers[block * BLOCK + k] = TIMES((number)(signed char)in[4 + k], scale);
    }
}

KERNEL encode_fp16(const number *numbers, unsigned short *coded, long long n)
{
    const long long stride = (long long)gridDim.x * blockDim.x;
    for (long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x; at < n; at += stride) {
        const float x = TO_FLOAT(numbers[at]);
        coded[at] = to_half(x > LARGEST_HALF ? LARGEST_HALF : x < -LARGEST_HALF ? -LARGEST_HALF : x);
    }
}

KERNEL decode_fp16(const unsigned short *coded, number *numbers, long long n)
{
    const long long stride = (long long)gridDim.x * blockDim.x;
    for (long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x; at < n; at += stride)
        numbers[at] = FROM_FLOAT(from_half(coded[at]));
}
"""


@functools.cache
def available() -> bool:
    """Whether CuPy is installed."""
    return importlib.util.find_spec("cupy") is not None


def encode(how: str, numbers: torch.Tensor, n_bytes: int) -> torch.Tensor:
    """(n_bytes,) uint8 of (n,) numbers on a GPU, computed on torch's current stream."""
    numbers = numbers.contiguous()
    coded = torch.empty(n_bytes, dtype=torch.uint8, device=numbers.device)
    _launch(f"encode_{how}", numbers.dtype, numbers, coded, numbers.numel(), PER_THREAD[how])
    return coded


def decode(how: str, raw: torch.Tensor, n: int, dtype: torch.dtype) -> torch.Tensor:
    """(n,) numbers of (bytes,) uint8 on a GPU, computed on torch's current stream."""
    numbers = torch.empty(n, dtype=dtype, device=raw.device)
    _launch(f"decode_{how}", dtype, raw.contiguous(), numbers, n, PER_THREAD[how])
    return numbers


def grid_for(n: int, per_thread: int) -> int:
    """The number of blocks of ``THREADS`` threads for n numbers."""
    return max(1, min(MOST_BLOCKS, -(-n // (THREADS * per_thread))))


def _launch(name: str, dtype: torch.dtype, source: torch.Tensor, to: torch.Tensor, n: int, per_thread: int) -> None:
    # Addresses suffice instead of DLPack: the stream is torch's own, so no synchronisation is needed.
    import cupy

    index = source.get_device()
    stream = cupy.cuda.Stream.from_external(torch.cuda.current_stream(index))
    arguments = tuple(np.int64(value) for value in (source.data_ptr(), to.data_ptr(), n))
    with cupy.cuda.Device(index), stream:
        compiled_kernel(name, dtype)((grid_for(n, per_thread),), (THREADS,), arguments)


@functools.cache
def compiled_kernel(name: str, dtype: torch.dtype) -> Any:
    """A kernel of ``SOURCE``, compiled at its first use."""
    import cupy

    return cupy.RawKernel(SOURCE, name, options=("-DDOUBLE",) if dtype == torch.float64 else ())
