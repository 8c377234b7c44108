"""Measures what this machine computes: seconds of transformer blocks and of launches, and memory of a training step.

``python -m dtfm_lab.runtime.worker.block_times QUESTION`` runs as a separate process, because only workers load torch.
It prints one line of JSON per measurement. It ends early if its standard input ends, or after the question's ``ends_s``
seconds.
"""

import json
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch

from dtfm_lab.domain.job import gpt
from dtfm_lab.runtime.worker.stages import TransformerBlock

Measured = TypeVar("Measured")
DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}
WARM_UPS = 1
"""Number of first passes of a block that do not count."""
LEAST_REPEATS = 3
"""Minimum number of passes of a block that count. Their median is reported."""
MOST_REPEATS = 50
"""Maximum number of passes of a block, with those that do not count."""
LAUNCHES = 2000
"""Number of launches that are timed together."""
LAUNCHED_BLOCKS = 20
"""Number of forward and backward passes of ``SMALL`` that are timed together."""
SMALL = {"d_model": 64, "n_heads": 1, "seq_len": 16, "microbatch": 1}
"""A block that computes next to nothing, so its passes take as long as launching its kernels."""
PRODUCT = {"cuda": 8192, "cpu": 1024}
"""Side of the square matrices whose product measures the peak of a processor that the hardware table lacks."""


def main() -> None:
    """Take the measurements that the JSON on the command line asks for, and print them."""
    question = json.loads(sys.argv[1])
    threading.Thread(target=_end_with_input, daemon=True).start()
    deadline = threading.Timer(question["ends_s"], os._exit, [1])
    deadline.daemon = True
    deadline.start()
    runs_on, dtype = question["runs_on"], question["dtype"] or _usual_dtype(question["runs_on"])
    _say(what="processor", dtype=dtype, **_processor(runs_on))
    # First, because memory that was freed earlier would be reused and not counted.
    for shape in reversed(question["shapes"]):
        if (n_bytes := _if_it_fits(lambda of=shape: _step_bytes(of, runs_on))) is not None:  # type: ignore[misc]
            break
    _say(what="step", shape=shape, step_bytes=n_bytes or 0.0)
    _say(what="product", flop_per_s=_product_flop_per_s(runs_on, DTYPES[dtype]))
    for shape in question["shapes"]:
        seconds = question["seconds"] / len(question["shapes"])
        timed = _if_it_fits(lambda of=shape, s=seconds: _block_s(of, runs_on, DTYPES[dtype], s))  # type: ignore[misc]
        _say(what="block", shape=shape, seconds=timed)
    _say(what="launch", block_launch_s=_block_launch_s(runs_on, DTYPES[dtype]), launch_s=_launch_s(runs_on))


def _if_it_fits(measure: Callable[[], Measured]) -> Measured | None:
    """Return the measurement, or None if the GPU has too little memory for it."""
    try:
        return measure()
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
        return None


def _end_with_input() -> None:
    """End this process when the process that asked has ended."""
    sys.stdin.read()
    os._exit(1)


def _say(**answer: Any) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def _usual_dtype(runs_on: str) -> str:
    if runs_on == "cpu":
        return "fp32"
    return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp16"


def _processor(runs_on: str) -> dict[str, Any]:
    versions = [f"torch {torch.__version__}"]
    if runs_on == "cpu":
        return {"versions": versions[0], "gpu": "", "cores": torch.get_num_threads()}
    properties = torch.cuda.get_device_properties(0)
    versions += [f"CUDA {torch.version.cuda}"] if torch.version.cuda else [f"ROCm {torch.version.hip}"]
    known = {"gpu": properties.name, "memory_bytes": properties.total_memory, "gpus": torch.cuda.device_count()}
    return {"versions": ", ".join(versions), **known}


def _block(shape: dict[str, int], runs_on: str, dtype: torch.dtype) -> tuple[TransformerBlock, torch.Tensor]:
    """Return a block with its weights, and its input."""
    sizes: dict[str, Any] = {name: shape[name] for name in ("d_model", "n_heads", "seq_len")}
    block = TransformerBlock(gpt(name="block", n_layers=1, vocab_size=1, **sizes)).to(runs_on, dtype)
    inputs = torch.randn(shape["microbatch"], shape["seq_len"], shape["d_model"], device=runs_on).to(dtype)
    return block, inputs.requires_grad_()


def _block_s(shape: dict[str, int], runs_on: str, dtype: torch.dtype, seconds: float) -> tuple[float, float]:
    """Return the median seconds of a forward and of a backward pass, repeated for about ``seconds``. Gradients are
    accumulated, as over micro-batches."""
    block, inputs = _block(shape, runs_on, dtype)
    gradient = torch.randn_like(inputs)
    forwards: list[float] = []
    backwards: list[float] = []
    deadline_s = time.monotonic() + seconds
    # at least a few passes, even on a machine too slow for the time limit
    while len(forwards) < WARM_UPS + LEAST_REPEATS or (len(forwards) < MOST_REPEATS and time.monotonic() < deadline_s):
        outputs: list[torch.Tensor] = []
        forwards.append(_seconds(lambda kept=outputs: kept.append(block(inputs)), runs_on))  # type: ignore[misc]
        backwards.append(_seconds(lambda kept=outputs: kept[0].backward(gradient), runs_on))  # type: ignore[misc]
    return statistics.median(forwards[WARM_UPS:]), statistics.median(backwards[WARM_UPS:])


def _seconds(compute: Callable[[], object], runs_on: str) -> float:
    _wait(runs_on)
    began_s = time.perf_counter()
    compute()
    _wait(runs_on)
    return time.perf_counter() - began_s


def _wait(runs_on: str) -> None:
    if runs_on == "cuda":
        torch.cuda.synchronize()


def _product_flop_per_s(runs_on: str, dtype: torch.dtype) -> float:
    """Return the FLOP/s of the fastest of five products of square matrices."""
    side = PRODUCT[runs_on]
    a, b = (torch.randn(side, side, device=runs_on).to(dtype) for _ in range(2))
    return 2.0 * side**3 / min(_seconds(lambda: a @ b, runs_on) for _ in range(5))


def _block_launch_s(runs_on: str, dtype: torch.dtype) -> float:
    """Return the seconds of a forward and a backward pass together, of a block that has almost nothing to compute. Many
    passes are launched one after the other."""
    block, inputs = _block(SMALL, runs_on, dtype)
    gradient = torch.randn_like(inputs)

    def pass_all() -> None:
        for _ in range(LAUNCHED_BLOCKS):
            block(inputs).backward(gradient)

    # the first pass loads what the others find loaded, so it is not timed
    pass_all()
    return min(_seconds(pass_all, runs_on) for _ in range(3)) / LAUNCHED_BLOCKS


def _launch_s(runs_on: str) -> float:
    """Return seconds of one launch: the addition of one number."""
    number = torch.zeros(1, device=runs_on)

    def launch_all() -> None:
        for _ in range(LAUNCHES):
            number.add_(1.0)

    launch_all()
    return min(_seconds(launch_all, runs_on) for _ in range(3)) / LAUNCHES


def _step_bytes(shape: dict[str, int], runs_on: str) -> float:
    """Return the bytes that two training steps of a block with Adam add to the memory held before, at their peak, in
    fp32. 0 if the system does not report it."""
    before = _reset_peak(runs_on)
    block, inputs = _block(shape, runs_on, torch.float32)
    optimizer = torch.optim.Adam(block.parameters())
    # Adam makes its moments in the first step, so only the second has them beside the activations
    for _ in range(2):
        block(inputs).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
    _wait(runs_on)
    return max(_peak(runs_on) - before, 0.0)


def _reset_peak(runs_on: str) -> float:
    """Start measuring peak memory, and return the bytes that are held now."""
    if runs_on == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        return float(torch.cuda.memory_allocated())
    try:
        Path("/proc/self/clear_refs").write_text("5")  # Linux: the peak is what is held now
    except OSError:
        return 0.0
    return _peak(runs_on)


def _peak(runs_on: str) -> float:
    if runs_on == "cuda":
        return float(torch.cuda.max_memory_allocated())
    try:
        status = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((float(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM")), 0.0)


if __name__ == "__main__":
    main()
