"""What a planner needs to know of a torch module of one's own; the process in which the lab looks at one.

FLOP are those of torch's own counter, held numbers those that autograd saves for the backward, both of a forward of
two samples.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from itertools import pairwise
from typing import Any

import torch
from torch import fx
from torch.utils.flop_counter import FlopCounterMode

from dtfm_lab.domain.errors import JobError
from dtfm_lab.runtime.worker.exported_module import ExportedModule, shape_of
from dtfm_lab.runtime.worker.own_module import build, leaves

EXAMPLES = 2
"""Samples of the batch that is exported to look at a module: of a single one, batch norms have no statistics."""


def described(source: str) -> dict[str, Any]:
    """The layers of a module as a planner needs them, per sample; each block is one.

    They are the same in every precision, so it is looked at in one that all operators know.
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
    layers, received = [], torch.empty(0)
    uses: list[dict[int, int]] = []
    parts = pairwise([0, *cuts, len(exported.depends)])
    for (begin, end), goes in zip(parts, [*crossing, 1], strict=True):  # behind the last is the loss
        stage = exported.stage(begin, end, EXAMPLES * goes)
        held = dict.fromkeys((p.untyped_storage().data_ptr() for p in stage.parameters()), 0)

        def keep(tensor: torch.Tensor, held: dict[int, int] = held) -> torch.Tensor:
            held.setdefault(tensor.untyped_storage().data_ptr(), tensor.numel())
            return tensor

        before = received.detach().requires_grad_()
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda one: one), FlopCounterMode(display=False) as flop:
            received = stage(before, batch)
        own_parameters = {id(p): p.numel() for p in stage.parameters()}
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


def _elements_of_a_sample(node: fx.Node) -> int:
    """Numbers of one sample; all of a value that has none for each."""
    shape = shape_of(node)
    return shape.numel() // EXAMPLES if shape[:1] == (EXAMPLES,) else shape.numel()


def main() -> None:
    """Describe the module that the first argument names, as one line of JSON; or say in one line why not."""
    try:
        sys.stdout.write(json.dumps(described(sys.argv[1])))
    except JobError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
