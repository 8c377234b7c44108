"""Step 6: CuPy's quantise-and-pack against the copy bandwidth of the same run, and against torch's several steps.

Bytes are those that have to be read and written once: 8 a number of a float32 copy, 5 and a scale of int8, 6 of fp16.
CuPy stays where it reaches the goal and is faster than torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from unittest.mock import patch

import torch
from figures import Figure, Setting
from timing import seconds_of

from dtfm_lab.runtime.gpu import cupy_codec
from dtfm_lab.runtime.worker.codec import Codec

GOAL = 0.7
NUMBERS = 2**26


def measure(setting: Setting) -> Iterator[Figure]:
    device, n = setting.runs_on, 2**18 if setting.rehearses else NUMBERS
    numbers = torch.randn(n, generator=torch.Generator().manual_seed(0)).to(device)
    other = torch.empty_like(numbers)
    repeats = 3 if setting.rehearses else 20
    copied = 8 * n / seconds_of(lambda: other.copy_(numbers), device, repeats)
    yield Figure(name="copy, read and written", value=copied / 1e9, unit="GB/s", note=f"{n} float32 numbers")
    for how in ("int8", "fp16"):
        codec = Codec(how, torch.float32)
        coded = codec.encode(numbers)
        moved = 4 * n + coded.numel()
        works: dict[str, Callable[[], torch.Tensor]] = {
            "encode": lambda codec=codec: codec.encode(numbers),
            "decode": lambda codec=codec, coded=coded: codec.decode(coded),
        }
        for what, work in works.items():
            with patch.object(cupy_codec, "available", lambda: False):
                by_torch, wanted = moved / seconds_of(work, device, repeats), work()
            yield Figure(
                name=f"{what} {how}, torch",
                value=by_torch / 1e9,
                unit="GB/s",
                note=f"{by_torch / copied:.0%} of the copy",
            )
            if setting.rehearses or not cupy_codec.available():
                yield Figure(
                    name=f"{what} {how}, CuPy", value="not run", note="no GPU" if setting.rehearses else "no CuPy"
                )
                continue
            by_cupy, found = moved / seconds_of(work, device, repeats), work()
            equal = torch.equal(wanted, found)
            yield Figure(
                name=f"{what} {how}, CuPy",
                value=by_cupy / 1e9,
                unit="GB/s",
                goal=f"{GOAL:.0%} of the copy, faster than torch",
                met=by_cupy / copied >= GOAL and by_cupy > by_torch,
                note=f"{by_cupy / copied:.0%} of the copy, {by_cupy / by_torch:.2g} times torch",
            )
            yield Figure(
                name=f"{what} {how}, CuPy's bits are torch's", value="yes" if equal else "no", goal="yes", met=equal
            )
