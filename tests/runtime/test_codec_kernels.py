"""The GPU's coding kernels, compiled for this CPU from the same source, give torch's bits."""

from __future__ import annotations

import ctypes
import math
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dtfm_lab.runtime.gpu import cupy_codec
from dtfm_lab.runtime.gpu.cupy_codec import PER_THREAD, SOURCE, THREADS, grid_for
from dtfm_lab.runtime.worker.codec import Codec

DTYPES = {"fp32": torch.float32, "fp64": torch.float64}
COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
GUARD = 0xA5
how = st.sampled_from(["fp16", "int8"])
dtype = st.sampled_from(sorted(DTYPES))
counts = st.one_of(st.integers(0, 700), st.sampled_from([255, 256, 257, 512, 4097]))


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[torch.dtype, ctypes.CDLL]:
    if COMPILER is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("kernels")
    shim = Path(__file__).with_name("cuda_on_a_cpu.h")
    (folder / "kernels.c").write_text(f'#include "{shim}"\n{SOURCE}')
    made = {}
    for name, of in DTYPES.items():
        # -ffp-contract: a GPU's separate division, multiplication and rounding must stay separate here
        options = ["-O1", "-ffp-contract=off", "-mf16c", "-shared", "-fPIC", "-w", *["-DDOUBLE"] * (name == "fp64")]
        command = [COMPILER, *options, "kernels.c", "-o", f"{name}.so", "-lm"]
        compiled = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        if "f16c" in compiled.stderr or "immintrin" in compiled.stderr:
            pytest.skip("this CPU does not round to half precision itself")
        assert compiled.returncode == 0, compiled.stderr
        made[of] = ctypes.CDLL(str(folder / f"{name}.so"))
    return made


class OnThisCpu:
    """``cupy_codec``'s launches, by the library; what is written must end where the message ends."""

    def __init__(self, libraries: dict[torch.dtype, ctypes.CDLL], grid: int | None = None, threads: int = 64) -> None:
        self._libraries, self._grid, self._threads = libraries, grid, threads

    def encode(self, how: str, numbers: torch.Tensor) -> torch.Tensor:
        n_bytes = Codec(how, numbers.dtype).n_bytes(numbers.numel())
        guarded = torch.full((n_bytes + 64,), GUARD, dtype=torch.uint8)
        self._launch(f"encode_{how}", numbers.dtype, numbers, guarded, numbers.numel())
        assert (guarded[n_bytes:] == GUARD).all()
        return guarded[:n_bytes]

    def decode(self, how: str, raw: torch.Tensor, n: int, of: torch.dtype) -> torch.Tensor:
        guarded = torch.full((n + 8,), 7.0, dtype=of)
        self._launch(f"decode_{how}", of, raw, guarded, n)
        assert (guarded[n:] == 7.0).all()
        return guarded[:n]

    def _launch(self, name: str, of: torch.dtype, source: torch.Tensor, to: torch.Tensor, n: int) -> None:
        grid = self._grid or -(-n // (self._threads * PER_THREAD)) or 1
        launch(self._libraries[of], name, grid, self._threads, source.data_ptr(), to.data_ptr(), n)


def launch(library: ctypes.CDLL, name: str, grid: int, threads: int, source: int, to: int, n: int) -> None:
    kernel = ctypes.cast(getattr(library, name), ctypes.c_void_p)
    library.launch(kernel, grid, threads, ctypes.c_void_p(source), ctypes.c_void_p(to), ctypes.c_longlong(n))


def numbers(n: int, seed: int, of: torch.dtype) -> torch.Tensor:
    """Of all sizes that the dtype has, a zero, a denormal and a halfway case here and there."""
    generator = torch.Generator().manual_seed(seed)
    finest, largest = (-44, 38) if of == torch.float32 else (-320, 300)
    centre = int(torch.randint(finest, largest, (1,), generator=generator))
    spread = torch.randint(-3, 4, (n,), generator=generator).clamp(finest - centre, largest - centre)
    drawn = torch.randn(n, generator=generator, dtype=torch.float64) * 10.0 ** (centre + spread).double()
    special = torch.tensor([0.0, -0.0, 1e-45, -3e-39, 2.5, -0.5, 6e-8, 1.0 + 2**-11, 65519.99, 1e-320])
    where = torch.randint(0, 4 * len(special), (n,), generator=generator)
    return torch.where(where < len(special), special[where % len(special)], drawn).to(of)


@given(how=how, of=dtype, n=counts, seed=st.integers(0, 10**6), grid=st.sampled_from([None, 1, 3]))
@settings(max_examples=25)
def test_a_kernel_writes_and_reads_the_bits_that_torch_does(libraries, how, of, n, seed, grid):
    sent, codec, cpu = numbers(n, seed, DTYPES[of]), Codec(how, DTYPES[of]), OnThisCpu(libraries, grid)
    raw = codec.encode(sent)
    assert torch.equal(cpu.encode(how, sent), raw)
    came = cpu.decode(how, raw, n, DTYPES[of])
    assert torch.equal(as_bytes(came), as_bytes(codec.decode(raw)))


@given(of=dtype, n=st.integers(1, 600), seed=st.integers(0, 10**6))
@settings(max_examples=25)
def test_any_bytes_are_read_as_torch_reads_them(libraries, of, n, seed):
    for how in ("fp16", "int8"):
        codec = Codec(how, DTYPES[of])
        raw = torch.randint(0, 256, (codec.n_bytes(n),), generator=torch.Generator().manual_seed(seed)).to(torch.uint8)
        assert_alike(OnThisCpu(libraries).decode(how, raw, n, DTYPES[of]), codec.decode(raw))


@pytest.mark.parametrize("of", DTYPES.values(), ids=DTYPES)
def test_half_precision_rounds_every_halfway_case_to_even(libraries, of):
    every = torch.arange(0x7C00, dtype=torch.int16).view(torch.float16).to(of)
    between = (every[:-1] + every[1:]) / 2
    around = [torch.nextafter(between, torch.full_like(between, to)) for to in (-math.inf, math.inf)]
    sent = torch.cat([every, between, *around])
    sent = torch.cat([sent, -sent])
    assert torch.equal(OnThisCpu(libraries, threads=256).encode("fp16", sent), Codec("fp16", of).encode(sent))


@pytest.mark.parametrize("how", ["fp16", "int8"])
@pytest.mark.parametrize("of", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("odd", [math.inf, -math.inf, math.nan])
def test_infinities_and_nan_come_back_as_torch_brings_them(libraries, how, of, odd):
    sent = torch.linspace(-1, 1, 600, dtype=of)
    sent[300] = odd
    codec, cpu = Codec(how, of), OnThisCpu(libraries)
    raw = cpu.encode(how, sent)
    assert_alike(codec.decode(raw), codec.decode(codec.encode(sent)))
    assert_alike(cpu.decode(how, raw, 600, of), codec.decode(raw))
    if how == "int8":
        assert codec.decode(raw).isnan().tolist() == [256 <= i < 512 for i in range(600)]


@pytest.fixture
def real_cupy(libraries: dict[torch.dtype, ctypes.CDLL], monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """CuPy itself, whose kernels are made as on a GPU and launched on this CPU; what was launched."""
    cupy = pytest.importorskip("cupy")
    launched: list[Any] = []

    class Launched(cupy.RawKernel):  # type: ignore[misc,name-defined]
        def __call__(self, grid: tuple[int, ...], block: tuple[int, ...], arguments: tuple[Any, ...]) -> None:
            assert self.backend == "nvrtc"
            assert self.code == SOURCE
            assert [(argument.dtype.char, argument.nbytes) for argument in arguments] == [("l", 8)] * 3
            launched.append((self.name, self.options, grid, block))
            library = libraries[torch.float64 if "-DDOUBLE" in self.options else torch.float32]
            launch(library, self.name, *grid, *block, *map(int, arguments))

    def from_external(stream: str) -> Any:
        assert stream == "torch's own"
        return nullcontext()

    monkeypatch.setattr(cupy, "RawKernel", Launched)
    monkeypatch.setattr(cupy.cuda, "Device", lambda index: nullcontext())  # both ask the driver, which is not here
    monkeypatch.setattr(cupy.cuda, "Stream", SimpleNamespace(from_external=from_external))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda index: "torch's own")
    cupy_codec.compiled_kernel.cache_clear()
    yield launched
    cupy_codec.compiled_kernel.cache_clear()


@pytest.mark.parametrize("how", ["fp16", "int8"])
@pytest.mark.parametrize("of", DTYPES.values(), ids=DTYPES)
def test_cupys_own_kernels_are_given_what_gives_torchs_bits(real_cupy, how, of):
    codec, tiny = Codec(how, of), torch.finfo(of).tiny
    everything = numbers(70_001, 1, of)
    cases = [everything[:n] for n in (0, 1, 3, 255, 256, 257, 1023, 4097, 70_001)]
    cases += [everything[5:2052], everything[:4096:3], torch.linspace(-tiny, tiny, 999, dtype=of)]
    for i, sent in enumerate(cases):
        raw = cupy_codec.encode(how, sent, codec.n_bytes(sent.numel()))
        assert torch.equal(raw, codec.encode(sent)), i
        for shifted in (raw, torch.cat([raw.new_zeros(3), raw])[3:] if how == "int8" else raw):
            came = cupy_codec.decode(how, shifted, sent.numel(), of)
            assert torch.equal(as_bytes(came), as_bytes(codec.decode(raw))), i
    names = {(name, options, block) for name, options, _, block in real_cupy}
    options = ("-DDOUBLE",) if of == torch.float64 else ()
    assert names == {(f"{which}_{how}", options, (THREADS,)) for which in ("encode", "decode")}


@given(n=st.integers(0, 10**12))
@settings(max_examples=25)
def test_a_grid_covers_what_it_can_and_is_never_empty(n):
    grid = grid_for(n)
    assert 1 <= grid <= cupy_codec.MOST_BLOCKS
    assert grid == cupy_codec.MOST_BLOCKS or grid * THREADS * PER_THREAD >= n
    assert (grid - 1) * THREADS * PER_THREAD < max(n, 1)


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(torch.uint8)


def assert_alike(found: torch.Tensor, wanted: torch.Tensor) -> None:
    """The same numbers, and NaN in the same places."""
    nan = wanted.isnan()
    assert torch.equal(found.isnan(), nan)
    assert torch.equal(found[~nan], wanted[~nan])
