"""Forward and backward passes of one stage, as operations on tensors, without times and messages.

A split backward pass has two halves. The first computes the gradient of the stage's inputs and saves, for each layer
with weights, the gradient of its output. The second computes the weights' gradients from these gradients and the
layers' outputs. Autograd computes only the requested gradients, so the halves share no work: together they cost a whole
backward pass, plus walking the graph twice. What the forward pass saved is kept until the second half.

Weights shared by two layers of a stage (a tied embedding in a pipeline of one stage) get their gradients in the first
half. Otherwise autograd would reach the lower layer from the upper layer's output and count it twice.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from dtfm_lab.runtime.worker.exported_module import StageOfModule
from dtfm_lab.runtime.worker.stages import TransformerBlock, next_token_loss

Batch = list[tuple[torch.Tensor, ...]]
"""(inputs, targets) of each micro-batch, each (microbatch, seq_len) tokens, or what your own module takes."""


class SavedForward(NamedTuple):
    """What a stage saves of a micro-batch from its forward to its backward pass."""

    inputs: torch.Tensor
    outputs: torch.Tensor | None
    """The outputs with their autograd graph. None if the forward pass will be recomputed."""
    layer_outputs: list[tuple[nn.Module, torch.Tensor]]
    """Layers that have weights, with their outputs, for a split backward pass."""


class WeightWork(NamedTuple):
    """What the second half of a split backward pass needs for one layer."""

    module: nn.Module
    output: torch.Tensor
    """The layer's output with its autograd graph."""
    gradient: torch.Tensor
    """The gradient of ``output``."""


class AutogradStage:
    """Runs one stage on its micro-batches. Gradients are added to ``.grad``."""

    def __init__(
        self,
        module: nn.Module,
        shape: tuple[int, ...],
        loss_divisor: float,
        *,
        is_last: bool,
        split_backward: bool,
        recompute: bool,
        checkpoints_blocks: bool = False,
    ) -> None:
        """Prepare to run a stage.

        Parameters
        ----------
        shape
            Shape of one micro-batch's activations.
        loss_divisor
            Each micro-batch's loss is divided by this.
        split_backward
            True if backward passes may have two halves.
        checkpoints_blocks
            True if each block keeps only its input and is recomputed in the backward pass.
        """
        assert not (split_backward and checkpoints_blocks), "check_job refuses it"
        self._checkpoints_blocks = checkpoints_blocks
        self._module, self._shape, self._loss_divisor = module, shape, loss_divisor
        self._is_last, self._recompute = is_last, recompute
        self._saved: dict[int, SavedForward] = {}
        self._weight_work: dict[int, list[WeightWork]] = {}
        self._layer_outputs: list[tuple[nn.Module, torch.Tensor]] = []
        self.losses: dict[int, float] = {}
        """Loss of each micro-batch, divided by ``loss_divisor``. Filled on the last stage."""
        layers = list(module.modules()) if split_backward else []
        holders = Counter(p for layer in layers for p in layer.parameters(recurse=False))
        # these get their gradients in the first half of a split backward pass
        self._shared = [p for p, count in holders.items() if count > 1]
        for layer in layers:
            if self._own_weights(layer):
                layer.register_forward_hook(self._save_layer_output)

    def forward(
        self, microbatch: int, received: torch.Tensor | None, batch: Batch, *, saves: bool = True
    ) -> torch.Tensor | None:
        """Return the activations to send to the next stage. None on the last stage, which computes the loss.

        ``saves``: True if what a backward pass needs is kept.
        """
        inputs = batch[microbatch][0] if received is None else received.view(self._shape).requires_grad_(saves)
        # without a graph, autograd keeps no activations
        with torch.set_grad_enabled(saves and not self._recompute):
            outputs = self._run(microbatch, inputs, batch)
        if saves:
            kept = None if self._recompute else outputs
            self._saved[microbatch] = SavedForward(inputs, kept, self._take_layer_outputs())
        if self._is_last:
            self.losses[microbatch] = float(outputs.detach())
            return None
        return outputs.detach()

    def discard(self) -> None:
        """Free what forward passes have saved."""
        self._saved.clear()
        self._weight_work.clear()
        self._layer_outputs = []

    def backward(self, microbatch: int, received: torch.Tensor | None, batch: Batch) -> torch.Tensor | None:
        """Return the gradient of the inputs, to send to the previous stage. None on the first stage."""
        inputs, outputs, _ = self._restore(microbatch, batch)
        torch.autograd.backward(outputs, None if received is None else received.view(self._shape))
        return inputs.grad

    def backward_input(self, microbatch: int, received: torch.Tensor | None, batch: Batch) -> torch.Tensor | None:
        """Run the first half of a backward pass: as ``backward``, but save the gradients of the layers' outputs."""
        inputs, outputs, layer_outputs = self._restore(microbatch, batch)
        wanted = [output for _, output in layer_outputs] + self._shared + ([inputs] if inputs.requires_grad else [])
        gradient = None if received is None else received.view(self._shape)
        # the second half walks the same graph again
        found = torch.autograd.grad(outputs, wanted, gradient, retain_graph=True)
        n = len(layer_outputs)
        self._weight_work[microbatch] = [
            WeightWork(layer, output, g) for (layer, output), g in zip(layer_outputs, found[:n], strict=True)
        ]
        _add_gradients(self._shared, found[n : n + len(self._shared)])
        return found[-1] if inputs.requires_grad else None

    def backward_weight(self, microbatch: int) -> None:
        """Run the second half of a backward pass: compute each layer's weight gradients from the layer's output and
        its gradient."""
        for module, output, gradient in self._weight_work.pop(microbatch):
            own = self._own_weights(module)
            _add_gradients(own, torch.autograd.grad(output, own, gradient))

    def _run(self, microbatch: int, inputs: torch.Tensor, batch: Batch) -> torch.Tensor:
        if isinstance(self._module, StageOfModule):
            outputs: torch.Tensor = self._module(inputs, batch[microbatch])
            return outputs / self._loss_divisor if self._is_last else outputs.view(self._shape)
        outputs = inputs
        for layer in self._module.children():
            if self._checkpoints_blocks and isinstance(layer, TransformerBlock) and torch.is_grad_enabled():
                # nothing is drawn at random, so the states of torch's generators need not be kept
                outputs = checkpoint(layer, outputs, use_reentrant=False, preserve_rng_state=False)
            else:
                outputs = layer(outputs)
        if self._is_last:
            outputs = next_token_loss(outputs, batch[microbatch][1]) / self._loss_divisor
        return outputs

    def _restore(self, microbatch: int, batch: Batch) -> tuple[torch.Tensor, torch.Tensor, list[Any]]:
        inputs, outputs, layer_outputs = self._saved.pop(microbatch)
        if outputs is None:
            outputs = self._run(microbatch, inputs, batch)
            return inputs, outputs, self._take_layer_outputs()
        return inputs, outputs, layer_outputs

    def _own_weights(self, layer: nn.Module) -> list[nn.Parameter]:
        """Return the layer's weights that no other layer shares."""
        return [p for p in layer.parameters(recurse=False) if not any(p is shared for shared in self._shared)]

    def _save_layer_output(self, module: nn.Module, _: Any, output: torch.Tensor) -> None:
        # without gradients there is no backward pass that could use the output
        if torch.is_grad_enabled():
            self._layer_outputs.append((module, output))

    def _take_layer_outputs(self) -> list[tuple[nn.Module, torch.Tensor]]:
        taken, self._layer_outputs = self._layer_outputs, []
        return taken


def _add_gradients(parameters: Sequence[nn.Parameter], gradients: Sequence[torch.Tensor]) -> None:
    for parameter, found in zip(parameters, gradients, strict=True):
        assert parameter.grad is not None
        parameter.grad.add_(found)
