"""CUDA sources compiled by NVRTC without a GPU, and what their instructions and their binaries say of them.

NVRTC is reached as the product reaches it: through ``cupy.cuda.nvrtc``, with the options that CuPy's RawKernel gives.
"""

from __future__ import annotations

import functools
import re
import struct
from dataclasses import dataclass

ARCHITECTURES = (70, 75, 80, 86, 89, 90, 100, 120)
"""Compute capabilities from Volta to Blackwell, in tens."""
CUPY_OPTIONS = ("-ftz=true", "--std=c++17")
"""What CuPy adds for a RawKernel, besides the architecture."""
REGISTER_COUNT, FRAME_SIZE = 0x2F, 0x11
"""Attributes EIATTR_REGCOUNT and EIATTR_FRAME_SIZE of a cubin's section .nv.info."""


@dataclass(frozen=True)
class Kernel:
    """One kernel for one architecture."""

    name: str
    architecture: int
    ptx: str
    """Its body, without comments."""
    registers: int
    """32-bit registers of a thread."""
    stack_bytes: int
    """Local memory of a thread; registers are spilled to it."""

    def count(self, pattern: str) -> int:
        """How many instructions match this regular expression from their first letter."""
        return sum(1 for line in self.instructions if re.match(pattern, line))

    @functools.cached_property
    def instructions(self) -> list[str]:
        """Without predicates, one a line."""
        lines = (re.sub(r"^@!?%p\d+\s+", "", line.strip()) for line in self.ptx.splitlines())
        return [" ".join(line.split()) for line in lines if line.endswith(";") and not line.startswith(".")]

    @functools.cached_property
    def loops(self) -> list[list[str]]:
        """The instructions of each loop, from a label to the last jump back to it."""
        lines = [line.strip() for line in self.ptx.splitlines()]
        at = {line.rstrip(":"): i for i, line in enumerate(lines) if re.fullmatch(r"\$L__BB\w+:", line)}
        ends: dict[int, int] = {}
        for i, line in enumerate(lines):
            jump = re.search(r"\bbra(?:\.uni)?\s+(\$L__BB\w+)", line)
            if jump and at[jump[1]] < i:
                ends[at[jump[1]]] = i
        return [lines[begin:end] for begin, end in sorted(ends.items())]


def compiled(source: str, architecture: int, options: tuple[str, ...] = ()) -> dict[str, Kernel]:
    """By name, the kernels of a source. Raises what NVRTC says against it."""
    from cupy.cuda import nvrtc

    program = nvrtc.createProgram(source, "kernels.cu", (), ())
    try:
        nvrtc.compileProgram(program, (f"--gpu-architecture=sm_{architecture}", *CUPY_OPTIONS, *options))
        ptx, cubin = nvrtc.getPTX(program), nvrtc.getCUBIN(program)
    except nvrtc.NVRTCError:
        raise AssertionError(nvrtc.getProgramLog(program)) from None
    finally:
        nvrtc.destroyProgram(program)
    text = re.sub(r"//[^\n]*", "", ptx.decode() if isinstance(ptx, bytes) else ptx)
    sizes = attributes(cubin)
    return {
        name: Kernel(name, architecture, body, *(sizes[name][which] for which in (REGISTER_COUNT, FRAME_SIZE)))
        for name, body in re.findall(r"\.entry (\w+)\([^)]*\)[^{]*\{(.*?)\n\}", text, re.DOTALL)
    }


def attributes(cubin: bytes) -> dict[str, dict[int, int]]:
    """By kernel, the attributes of ``.nv.info``, read from the ELF file: (format, attribute, bytes, symbol, value)."""
    start = struct.unpack_from("<Q", cubin, 0x28)[0]
    size, count, names_at = struct.unpack_from("<HHH", cubin, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", cubin, start + i * size) for i in range(count)]

    def text(table: tuple[int, ...], at: int) -> str:
        return cubin[table[4] + at : cubin.index(b"\0", table[4] + at)].decode()

    sections = {text(headers[names_at], header[0]): header for header in headers}
    symbols, strings = sections[".symtab"], sections[".strtab"]
    names = [text(strings, struct.unpack_from("<I", cubin, symbols[4] + 24 * i)[0]) for i in range(symbols[5] // 24)]
    info = sections[".nv.info"]
    found: dict[str, dict[int, int]] = {}
    for at in range(info[4], info[4] + info[5], 12):
        kind, attribute, n_bytes, symbol, value = struct.unpack_from("<BBHII", cubin, at)
        assert (kind, n_bytes) == (4, 8), "all of .nv.info are pairs of a symbol and a value"
        found.setdefault(names[symbol], {})[attribute] = value
    return found
