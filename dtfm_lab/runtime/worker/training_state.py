"""All that training changes on one device, as flat vectors: parameters, gradients and AdamW's memory.

One vector each, so that averaging needs no packing, a replacement gets its state in one message, and a change can be
taken back: whoever changes the state keeps a copy of what was before, until the next iteration changes it again.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn
from torch.optim.adamw import adamw


class TrainingState:
    """``.data`` and ``.grad`` of every parameter are views into vectors."""

    def __init__(self, modules: Iterable[nn.Module], *, keeps_in_common: bool, version: int = 0) -> None:
        """``keeps_in_common``: whether replicas update themselves alone for a while; ``version``: see below."""
        self.list = list(dict.fromkeys(p for module in modules for p in module.parameters()))
        self.parameters = torch.cat([p.detach().view(-1) for p in self.list])
        self.gradients, self.first_moments, self.second_moments = (torch.zeros_like(self.parameters) for _ in range(3))
        self.in_common = self.parameters.clone() if keeps_in_common else None
        """the parameters when replicas were last equal"""
        self.version = version
        """iterations that these parameters have been trained for"""
        self._steps = torch.tensor(0.0)
        self._offset = {}
        offset = 0
        for p in self.list:
            here = self._offset[p] = slice(offset, offset + p.numel())
            p.data = self.parameters[here].view_as(p)
            p.grad = self.gradients[here].view_as(p)
            offset += p.numel()
        self._before: list[torch.Tensor] | None = None
        self._before_version, self._before_steps = version, 0

    def where(self, parameter: nn.Parameter) -> slice:
        """Its numbers in the vectors."""
        return self._offset[parameter]

    @property
    def steps(self) -> int:
        """Of the optimiser."""
        return int(self._steps)

    @steps.setter
    def steps(self, steps: int) -> None:
        self._steps.fill_(steps)

    def step(self, learning_rate: float) -> None:
        """One of AdamW, with the constants that torch gives it, on all parameters as one; gradients are zero then.

        Its function rather than the class, whose first instance loads a compiler, for a second.
        """
        self._keep()
        with torch.no_grad():
            adamw(
                [self.parameters],
                [self.gradients],
                [self.first_moments],
                [self.second_moments],
                [],
                [self._steps],
                foreach=False,
                fused=False,
                amsgrad=False,
                beta1=0.9,
                beta2=0.999,
                lr=learning_rate,
                weight_decay=0.01,
                eps=1e-8,
                maximize=False,
            )
        self.gradients.zero_()

    def _keep(self) -> None:
        """Remember what is here now: this is an iteration's first change."""
        if self._before is None:
            self._before = [torch.empty_like(vector) for vector in self._vectors]
        for copy, vector in zip(self._before, self._vectors, strict=True):
            copy.copy_(vector)
        self._before_version, self._before_steps = self.version, self.steps
        self.version = -1  # neither the old one nor yet a new one

    def go_back_to(self, version: int) -> None:
        """Undo what the last iteration changed, where it changed anything that is not in ``version``."""
        self.gradients.zero_()
        if self.version == version:
            return
        assert self._before is not None
        assert self._before_version == version, (self.version, self._before_version, version)
        for copy, vector in zip(self._before, self._vectors, strict=True):
            vector.copy_(copy)
        self.version, self.steps = version, self._before_steps

    def to_bytes(self) -> torch.Tensor:
        """(bytes,) uint8 for a replacement: everything but gradients, and the optimiser's count at the end."""
        steps = torch.tensor([self.steps], dtype=torch.float64).view(torch.uint8)
        return torch.cat([*(vector.view(torch.uint8) for vector in self._vectors), steps.to(self.parameters.device)])

    def take(self, raw: torch.Tensor, version: int) -> None:
        """What another's ``to_bytes`` gave."""
        each = self.parameters.numel() * self.parameters.element_size()
        for i, vector in enumerate(self._vectors):
            vector.copy_(raw[i * each : (i + 1) * each].clone().view(vector.dtype))
        self.steps = int(raw[-8:].cpu().clone().view(torch.float64))
        self.gradients.zero_()
        self.version = version

    @property
    def _vectors(self) -> list[torch.Tensor]:
        own = [self.parameters, self.first_moments, self.second_moments]
        return own if self.in_common is None else [*own, self.in_common]
