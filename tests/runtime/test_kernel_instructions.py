"""The GPU's coding kernels, compiled by NVRTC for eight architectures: their instructions round as the CPU does, and
nothing in them wastes a GPU's time. Each law is broken by a wrong kernel, too."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

import pytest
from compiled_for_gpus import ARCHITECTURES, Kernel, compiled

from dtfm_lab.domain.job import INT8_BLOCK
from dtfm_lab.runtime.gpu.cupy_codec import SOURCE, THREADS

pytest.importorskip("cupy", reason="NVRTC is reached through CuPy")
DTYPES = {"fp32": (), "fp64": ("-DDOUBLE",)}
MOST_REGISTERS = 65536 // (4 * THREADS)
"""For four blocks, half of the threads that a multiprocessor holds, of its 65,536 registers."""
WARP = 32


@functools.cache
def kernels(architecture: int, dtype: str, source: str = SOURCE) -> dict[str, Kernel]:
    try:
        return compiled(source, architecture, DTYPES[dtype])
    except OSError as error:
        pytest.skip(f"no NVRTC: {error}")


def keeps_all_in_registers(kernel: Kernel, dtype: str) -> None:
    assert kernel.stack_bytes == 0
    assert kernel.count(r"(ld|st)\.local") == 0
    assert kernel.registers <= MOST_REGISTERS


def computes_in_its_own_precision(kernel: Kernel, dtype: str) -> None:
    doubles = kernel.count(r"\S*\.f64")
    assert doubles > 0 if dtype == "fp64" else doubles == 0


def multiplies_and_adds_apart(kernel: Kernel, dtype: str) -> None:
    """A fused operation rounds once where the CPU rounds twice."""
    assert kernel.count(r"(fma|mad)\.(\w+\.)*f(32|64)") == 0


def divides_only_by_a_blocks_scale(kernel: Kernel, dtype: str) -> None:
    """Once for the scale and once a number, rounded as the CPU rounds; no address is divided or is a remainder."""
    inner = [line for loop in kernel.loops for line in loop]
    divisions = [line.split()[0] for line in inner if re.match(r"(@!?%p\d+\s+)?(div|rem)\.", line)]
    number = "f64" if dtype == "fp64" else "f32"
    wanted = 1 + INT8_BLOCK // WARP if kernel.name == "encode_int8" else 0
    assert divisions == [f"div.rn.{number}"] * wanted


def rounds_to_nearest_even(kernel: Kernel, dtype: str) -> None:
    floats = r"cvt\.(\w+\.)*(s32\.f\d\d|f16\.f32|f32\.f64)"
    found = {i.split()[0].replace(".ftz", "") for i in kernel.instructions if re.match(floats, i)}
    narrowed = {"cvt.rn.f32.f64"} if dtype == "fp64" and kernel.name.startswith("encode") else set()
    wanted = {
        "encode_int8": {"cvt.rni.s32.f64" if dtype == "fp64" else "cvt.rni.s32.f32"},
        "encode_fp16": {"cvt.rn.f16.f32"},
    }.get(kernel.name, set())
    assert found == wanted | narrowed


def keeps_denormal_numbers(kernel: Kernel, dtype: str) -> None:
    """CuPy asks for flushing; comparing with 65504 and rounding to a whole number see no difference."""
    flushing = {i.split()[0] for i in kernel.instructions if ".ftz" in i.split()[0]}
    assert flushing <= {"setp.gt.ftz.f32", "setp.lt.ftz.f32", "cvt.rni.ftz.s32.f32"}


def loads_all_of_its_numbers_before_it_needs_one(kernel: Kernel, dtype: str) -> None:
    """Eight numbers of a thread are under way at once: they stand before the first shuffle, which needs them all."""
    if kernel.name == "encode_int8":
        loads = [i for i, line in enumerate(kernel.instructions) if re.match(r"ld\.\S*global", line)]
        shuffle = next(i for i, line in enumerate(kernel.instructions) if line.startswith("shfl"))
        assert max(loads) < shuffle


def moves_sixteen_bytes_at_once(kernel: Kernel, dtype: str) -> None:
    """A thread's eight numbers in as few instructions as there are, and their bytes by four numbers, where memory
    begins on such a border."""
    numbers = r"\.\S*global\S*\.v2\.\w64" if dtype == "fp64" else r"\.\S*global\S*\.v4\.\w32"
    coded = r"\.\S*global\S*\.v4\.\w16" if kernel.name.endswith("fp16") else r"\.\S*global\S*\.\w32"
    reads, writes = (numbers, coded) if kernel.name.startswith("encode") else (coded, numbers)
    n_wide, n_words = (4 if dtype == "fp64" else 2), 2
    assert kernel.count("ld" + reads) >= (n_wide if reads == numbers else n_words)
    assert kernel.count("st" + writes) >= (n_wide if writes == numbers else n_words)


LAWS: list[Callable[[Kernel, str], None]] = [
    keeps_all_in_registers,
    computes_in_its_own_precision,
    multiplies_and_adds_apart,
    divides_only_by_a_blocks_scale,
    rounds_to_nearest_even,
    keeps_denormal_numbers,
    loads_all_of_its_numbers_before_it_needs_one,
    moves_sixteen_bytes_at_once,
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_kernel_keeps_every_law_on_every_architecture(architecture, dtype):
    found = kernels(architecture, dtype)
    assert sorted(found) == ["decode_fp16", "decode_int8", "encode_fp16", "encode_int8"]
    for kernel in found.values():
        for law in LAWS:
            law(kernel, dtype)


WRONG = {
    "numbers read one by one": (
        moves_sixteen_bytes_at_once,
        "const vector v = *(const vector *)(numbers + at + j);\n            SPREAD(v, taken.x + j);",
        "for (int i = j; i < j + WIDTH; ++i)\n                taken.x[i] = ((const volatile number *)numbers)[at + i];",
    ),
    "numbers written one by one": (
        moves_sixteen_bytes_at_once,
        "*(vector *)(numbers + at + j) = GATHERED(given.x + j);",
        "numbers[at + j] = given.x[j];",
    ),
    "a table in local memory": (
        keeps_all_in_registers,
        "const int wide_in = begins_at(numbers, 16), wide_out = begins_at(coded, 4);",
        "const int wide_in = begins_at(numbers, 16), wide_out = begins_at(coded, 4);"
        " volatile number spilled[64]; spilled[threadIdx.x % 64] = numbers[0];",
    ),
    "a constant in double precision": (
        computes_in_its_own_precision,
        "TO_FLOAT(DIVIDED(FROM_BITS(largest), (number)LARGEST_STEP))",
        "(float)(FROM_BITS(largest) / 127.0)",
    ),
    "a product that is added to": (
        multiplies_and_adds_apart,
        "given.x[j] = TIMES((number)(signed char)(words[1 + k] >> (8 * j)), scale);",
        "given.x[j] = (number)(signed char)(words[1 + k] >> (8 * j)) * scale + numbers[0];",
    ),
    "division that rounds as it likes": (divides_only_by_a_blocks_scale, "div.rn.f32", "div.approx.f32"),
    "a remainder in the loop": (
        divides_only_by_a_blocks_scale,
        "unsigned char *out = coded + block * CODED;",
        "unsigned char *out = coded + block % gridDim.x * CODED;",
    ),
    "cutting off instead of rounding": (
        rounds_to_nearest_even,
        "#define NEAREST_EVEN(x) __float2int_rn(x)",
        "#define NEAREST_EVEN(x) ((int)(x))",
    ),
    "halves rounded towards zero": (rounds_to_nearest_even, "cvt.rn.f16.f32", "cvt.rz.f16.f32"),
    "a division that flushes": (keeps_denormal_numbers, "div.rn.f32", "div.rn.ftz.f32"),
    "a plain product": (keeps_denormal_numbers, "#define TIMES(a, b) times(a, b)", "#define TIMES(a, b) ((a) * (b))"),
    "numbers read twice": (
        loads_all_of_its_numbers_before_it_needs_one,
        "NEAREST_EVEN(DIVIDED(mine[k].x[j], step))",
        "NEAREST_EVEN(DIVIDED(((volatile const number *)numbers)[first + k * HALF + j], step))",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_kernel_breaks_its_law(what):
    law, right, wrong = WRONG[what]
    source = SOURCE.replace(right, wrong)
    assert source != SOURCE
    found = kernels(90, "fp32", source)
    assert any(breaks(law, kernel) for kernel in found.values())


def breaks(law: Callable[[Kernel, str], None], kernel: Kernel) -> bool:
    try:
        law(kernel, "fp32")
    except AssertionError:
        return True
    return False


def test_cupy_itself_compiles_the_kernels_for_a_gpu_that_is_not_here(monkeypatch):
    """The way on which a RawKernel is compiled, but for the question which GPU is there."""
    from cupy.cuda import compiler

    monkeypatch.setattr(compiler, "_get_arch_for_options_for_nvrtc", lambda arch: (f"-arch=sm_{arch}", "cubin"))
    code, _ = compiler.compile_using_nvrtc(SOURCE, options=("-ftz=true",), arch="90")
    assert code[:4] == b"\x7fELF"
    assert all(name in code for name in (b"encode_int8", b"decode_int8", b"encode_fp16", b"decode_fp16"))
