"""What a forward and a backward of one stage do to tensors; no time and no messages in here.

A split backward first passes the gradient down to the stage's inputs and keeps, for each layer that has weights
of its own, the gradient of its output; the half that nobody waits for makes the weights' gradients of those. Autograd
leaves out what was not asked for, so that the first half multiplies by no activation for a weight's sake, and the
second repeats nothing of the first: together they cost a whole backward, plus walking the graph twice. What the
forward kept is held until the second half is done, and the gradients in between with it. Weights that two layers of a
stage share, a tied embedding in a pipeline of one stage, are done in the first half: from the upper layer's output
the lower one is within reach of autograd, which would count it twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from dtfm_lab.runtime.worker.stages import next_token_loss

Batch = list[tuple[torch.Tensor, torch.Tensor]]


class Held(NamedTuple):
    """What a stage keeps of a micro-batch from its forward to its backward."""

    inputs: torch.Tensor
    outputs: torch.Tensor | None
    """with the graph that made them; None where the forward will be repeated"""
    weighted: list[tuple[nn.Module, torch.Tensor]]
    """layers with weights of their own and their outputs, for a backward that splits"""


class Owed(NamedTuple):
    """Of the weights' gradients: a layer, its output with the graph, and the gradient there."""

    module: nn.Module
    output: torch.Tensor
    gradient: torch.Tensor


class StagePasses:
    """Forwards and backwards of one stage on its micro-batches; gradients are added to ``.grad``."""

    def __init__(
        self,
        module: nn.Module,
        shape: tuple[int, ...],
        n_microbatches: int,
        *,
        is_last: bool,
        splits: bool,
        recompute: bool,
    ) -> None:
        """``shape``: of one micro-batch's activations; ``splits``: whether backwards may come in two halves."""
        self._module, self._shape, self._n_microbatches = module, shape, n_microbatches
        self._is_last, self._recompute = is_last, recompute
        self._held: dict[int, Held] = {}
        self._owed: dict[int, list[Owed]] = {}
        self._weighted: list[tuple[nn.Module, torch.Tensor]] = []
        self.losses: dict[int, float] = {}
        """by micro-batch, its share of the mean; of the last stage"""
        layers = list(module.modules()) if splits else []
        holders = Counter(p for layer in layers for p in layer.parameters(recurse=False))
        self._shared = [p for p, count in holders.items() if count > 1]
        for layer in layers:
            if self._own(layer):
                layer.register_forward_hook(self._note_output)

    def forward(self, microbatch: int, received: torch.Tensor | None, batch: Batch) -> torch.Tensor | None:
        """Activations to send on; None on the last stage, which notes the loss."""
        inputs = batch[microbatch][0] if received is None else received.view(self._shape).requires_grad_()
        if self._recompute:
            with torch.no_grad():
                outputs = self._run(microbatch, inputs, batch)
            self._held[microbatch] = Held(inputs, None, [])
        else:
            outputs = self._run(microbatch, inputs, batch)
            self._held[microbatch] = Held(inputs, outputs, self._taken())
        if self._is_last:
            self.losses[microbatch] = float(outputs.detach())
            return None
        return outputs.detach()

    def evaluate(self, microbatch: int, received: torch.Tensor | None, batch: Batch) -> torch.Tensor | None:
        """As ``forward``, and nothing is kept for a backward."""
        with torch.no_grad():
            outputs = self._run(
                microbatch, batch[microbatch][0] if received is None else received.view(self._shape), batch
            )
        if self._is_last:
            self.losses[microbatch] = float(outputs)
            return None
        return outputs

    def abandon(self) -> None:
        """Forget what forwards kept."""
        self._held.clear()
        self._owed.clear()
        self._weighted = []

    def backward(self, microbatch: int, received: torch.Tensor | None, batch: Batch) -> torch.Tensor | None:
        """Gradient of the inputs to send back; None on the first stage."""
        inputs, outputs, _ = self._recalled(microbatch, batch)
        torch.autograd.backward(outputs, None if received is None else received.view(self._shape))
        return inputs.grad

    def backward_input(self, microbatch: int, received: torch.Tensor | None, batch: Batch) -> torch.Tensor | None:
        """The first half: the same gradient, and those of the layers' outputs."""
        inputs, outputs, weighted = self._recalled(microbatch, batch)
        wanted = [output for _, output in weighted] + self._shared + ([inputs] if inputs.requires_grad else [])
        gradient = None if received is None else received.view(self._shape)
        found = torch.autograd.grad(outputs, wanted, gradient, retain_graph=True)
        self._owed[microbatch] = [
            Owed(module, output, g) for (module, output), g in zip(weighted, found[: len(weighted)], strict=True)
        ]
        _add_gradients(self._shared, found[len(weighted) : len(weighted) + len(self._shared)])
        return found[-1] if inputs.requires_grad else None

    def backward_weight(self, microbatch: int) -> None:
        """The second half: gradients of the weights, each from its layer's output alone."""
        for module, output, gradient in self._owed.pop(microbatch):
            own = self._own(module)
            _add_gradients(own, torch.autograd.grad(output, own, gradient))

    def _run(self, microbatch: int, inputs: torch.Tensor, batch: Batch) -> torch.Tensor:
        outputs: torch.Tensor = self._module(inputs)
        if self._is_last:
            outputs = next_token_loss(outputs, batch[microbatch][1]) / self._n_microbatches
        return outputs

    def _recalled(self, microbatch: int, batch: Batch) -> tuple[torch.Tensor, torch.Tensor, list[Any]]:
        inputs, outputs, weighted = self._held.pop(microbatch)
        if outputs is None:
            return inputs, self._run(microbatch, inputs, batch), self._taken()
        return inputs, outputs, weighted

    def _own(self, layer: nn.Module) -> list[nn.Parameter]:
        """Weights of this layer alone."""
        return [p for p in layer.parameters(recurse=False) if not any(p is shared for shared in self._shared)]

    def _note_output(self, module: nn.Module, _: Any, output: torch.Tensor) -> None:
        if torch.is_grad_enabled():
            self._weighted.append((module, output))

    def _taken(self) -> list[tuple[nn.Module, torch.Tensor]]:
        taken, self._weighted = self._weighted, []
        return taken


def _add_gradients(parameters: Sequence[nn.Parameter], gradients: Sequence[torch.Tensor]) -> None:
    for parameter, found in zip(parameters, gradients, strict=True):
        assert parameter.grad is not None
        parameter.grad.add_(found)
