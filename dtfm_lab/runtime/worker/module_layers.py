"""What a planner needs to know about your own torch module, and the process in which the lab inspects it.

FLOP come from torch's own counter. Held numbers are those that autograd saves for the backward pass. Both are counted
on a forward pass of two samples. The counter knows only matrix products and convolutions, and a device reaches a
different share of its peak in each block. So blocks can be timed. Then the module's FLOP are divided among them in
proportion to their processor seconds.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch.utils.flop_counter import FlopCounterMode

from dtfm_lab.domain.errors import JobError
from dtfm_lab.files.reading import write_text
from dtfm_lab.runtime.worker.exported_module import ExportedModule, shape_of
from dtfm_lab.runtime.worker.own_module import build, leaves
from dtfm_lab.runtime.worker.processors import keep_freed_memory

EXAMPLES = 2
"""Samples in the batch that is exported to inspect a module. Batch norms have no statistics of a single sample."""
FEWEST = 3
"""Minimum number of times that a timed block is computed."""
LONG_S = 0.1
"""Minimum processor seconds for which a timed block is computed."""


def described(source: str, *, timed: bool = False) -> dict[str, Any]:
    """Return the layers of a module as a planner needs them, per sample. Each block is one layer.

    They are the same in every precision, so the module is inspected in fp32, which all operators support. Raises
    JobError if it cannot be divided into blocks.
    """
    dtype = torch.float32
    own = build(source, 0, dtype)
    exported = ExportedModule.of(own, EXAMPLES, dtype, source)
    cuts = exported.cuts
    crossing = [sum(map(_elements_of_a_sample, exported.crossing(cut))) for cut in cuts]
    if not all(node.meta["val"].is_floating_point() for cut in cuts for node in exported.crossing(cut)):
        raise JobError(f"module {source}: whole numbers that depend on parameters cross from block to block")
    batch = leaves(own.batch([i % own.n_samples for i in range(EXAMPLES)]), dtype)
    names: dict[int, set[str]] = defaultdict(set)
    for name, parameter in exported.graph.named_parameters(remove_duplicate=False):
        names[id(parameter)].add(name)
    layers, received, took_s = [], torch.empty(0), []
    uses: list[dict[int, int]] = []
    parts = pairwise([0, *cuts, len(exported.depends)])
    for (begin, end), goes in zip(parts, [*crossing, 1], strict=True):  # the last block is followed by the loss
        stage = exported.stage(begin, end, EXAMPLES * goes)
        # parameters are in memory anyway, so they count 0
        held = dict.fromkeys((p.untyped_storage().data_ptr() for p in stage.parameters()), 0)

        def keep(tensor: torch.Tensor, held: dict[int, int] = held) -> torch.Tensor:
            held.setdefault(tensor.untyped_storage().data_ptr(), tensor.numel())
            return tensor

        before = received.detach().requires_grad_()
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda one: one), FlopCounterMode(display=False) as flop:
            received = stage(before, batch)
        took_s.append(_seconds(stage, before.detach(), batch) if timed else 0.0)
        own_parameters = {id(p): p.numel() for p in stage.parameters()}
        # a parameter counts in the first block that uses it
        new = own_parameters.keys() - set().union(*uses)
        layers.append(
            {
                "parameters": sum(own_parameters[which] for which in new),
                "forward_flop": flop.get_total_flops() / EXAMPLES,
                "held_elements": sum(held.values()) // EXAMPLES,
                "output_elements": goes,
            }
        )
        uses.append(own_parameters)
    if timed:
        flop_per_s = sum(layer["forward_flop"] for layer in layers) / sum(took_s)
        layers = [layer | {"forward_flop": flop_per_s * s} for layer, s in zip(layers, took_s, strict=True)]
    users = Counter(which for one in uses for which in one)
    tied = {which for which, n in users.items() if n > 1}
    between = {which for which in tied if users[which] > 2 or which not in uses[0].keys() & uses[-1].keys()}
    if between or len(tied) > 1:
        shared = " and ".join(sorted(names[min(between or tied)]))
        raise JobError(
            f"module {source}: {shared} is used by several blocks; wanted parameters of one block each, or one that "
            f"the first and the last share"
        )
    return {"layers": layers, "boundary": max(crossing), "tied": sum(uses[0][which] for which in tied)}


def _seconds(stage: torch.nn.Module, received: torch.Tensor, batch: list[torch.Tensor]) -> float:
    """Return processor seconds of a forward and its backward pass. It is the minimum of several passes, because other
    programs only lengthen a pass."""
    took_s: list[float] = []
    while len(took_s) < FEWEST or sum(took_s) < LONG_S:
        stage.zero_grad()
        began_s = time.process_time()
        answer = stage(received.requires_grad_(), batch)
        torch.autograd.backward(answer, torch.ones_like(answer))
        took_s.append(time.process_time() - began_s)
    return min(took_s)


def _elements_of_a_sample(node: fx.Node) -> int:
    """Return how many numbers a value has per sample, or in all if its first axis is not the samples."""
    shape = shape_of(node)
    return shape.numel() // EXAMPLES if shape[:1] == (EXAMPLES,) else shape.numel()


def main() -> None:
    """Describe the module that the first argument names, as JSON in the file that the second names, or say why not.

    With a third argument ``timed``, its blocks are timed.
    """
    source, answer = sys.argv[1], Path(sys.argv[2])
    torch.set_num_threads(1)  # as in a worker
    keep_freed_memory()
    try:
        found = described(source, timed=sys.argv[3:] == ["timed"])
    except JobError as error:
        found = {"refused": str(error).removeprefix(f"module {source}: ")}
    write_text(answer, json.dumps(found))


if __name__ == "__main__":
    main()
