"""Seconds of the three operators that a GPT's block is made of, as JSON, measured within some SECONDS:
``python -m dtfm_lab.runtime.gpu.operator_times SECONDS``.

They are measured as a worker computes them, on one thread of a processor or on the first GPU: forward and backward of
the matrix products of one block, of its causal attention, and of what moves memory only (two norms, the activation
function, two residual sums). A rate of large products alone, on all cores, is several times what a training reaches.
It is a process of its own because the processes of a probe load no torch.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F

SAMPLES = 5
"""Stretches of time of which each has seconds."""
HEAD = 64
"""Width of an attention's head."""
ON_A_GPU, ON_A_PROCESSOR = (2048, 1024, torch.bfloat16), (256, 128, torch.float32)
"""Width of the block, tokens at once, and their type: of a model that such a device would be given."""


def operators(width: int, tokens: int, kind: torch.dtype, device: str) -> dict[str, Callable[[], torch.Tensor]]:
    """By name, a forward of each operator, which ends in one tensor."""

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(shape, dtype=kind, device=device).requires_grad_()

    x, wide, weights = drawn(tokens, width), drawn(tokens, 4 * width), drawn(12 * width, width)
    query, key, value = (drawn(1, width // HEAD, tokens, HEAD) for _ in range(3))

    def elementwise() -> torch.Tensor:
        normed = F.layer_norm(x + F.layer_norm(x, (width,)), (width,))
        return normed.sum() + F.gelu(wide).sum() + x.sum()

    return {
        "product": lambda: F.linear(x, weights),
        "attention": lambda: F.scaled_dot_product_attention(query, key, value, is_causal=True),
        "elementwise": elementwise,
    }


def flop(width: int, tokens: int) -> float:
    """FLOP of a block's forward and backward, as a model counts them."""
    return 3.0 * (2 * tokens * 12 * width**2 + 4 * tokens**2 * width)


def seconds_of(forward: Callable[[], torch.Tensor], device: str) -> float:
    """Seconds of one forward and backward."""
    began_s = time.perf_counter()
    result = forward()
    torch.autograd.backward(result, torch.ones_like(result))
    if device != "cpu":
        torch.cuda.synchronize()
    return time.perf_counter() - began_s


def main(seconds: float) -> None:
    torch.set_num_threads(1)  # as a worker computes
    device = "cuda" if torch.cuda.is_available() else "cpu"
    width, tokens, kind = ON_A_PROCESSOR if device == "cpu" else ON_A_GPU
    taken: dict[str, list[float]] = {}
    for name, forward in operators(width, tokens, kind, device).items():
        seconds_of(forward, device)  # the first of all is slower
        for _ in range(SAMPLES):
            took_s: list[float] = []
            deadline_s = time.perf_counter() + seconds / SAMPLES / 3
            while not took_s or time.perf_counter() < deadline_s:
                took_s.append(seconds_of(forward, device))
            taken.setdefault(name, []).append(statistics.median(took_s))
    sys.stdout.write(json.dumps({"flop": flop(width, tokens), "seconds": taken}) + "\n")


if __name__ == "__main__":
    main(float(sys.argv[1]))
