"""Everything that training changes on one device, as flat vectors: parameters, gradients and AdamW's moments.

With one vector for all parameters, all-reduce needs no packing, and a replacement gets its state in one message. The
optimizer's step first copies the state (not the gradients), so an iteration can be undone until the next step.
"""

from collections.abc import Iterable

import torch
from torch import nn
from torch.optim.adamw import adamw

from dtfm_lab.runtime.protocol.gradient_shards import WHOLE, Shard

WARM_UP = 5
"""Steps over which the learning rate rises linearly. At first Adam estimates the size of gradients from few samples."""


def learning_rate_at(learning_rate: float, iteration: int) -> float:
    """Return the learning rate of the step that ends this iteration, counted from 0 over all resumed runs."""
    return learning_rate * min(1.0, (iteration + 1) / WARM_UP)


class TrainingState:
    """The state of one device's modules. ``.data`` and ``.grad`` of every parameter are views into its vectors."""

    def __init__(
        self, modules: Iterable[nn.Module], *, local_updates: bool, version: int = 0, shard: Shard = WHOLE
    ) -> None:
        """``local_updates`` is True if replicas step alone between synchronisations. ``shard`` is the part that this
        replica steps, if replicas split the optimizer states."""
        self.list = list(dict.fromkeys(p for module in modules for p in module.parameters()))
        self.parameters = torch.cat([p.detach().view(-1) for p in self.list])
        self.gradients = torch.zeros_like(self.parameters)
        self.splits_states = shard != WHOLE
        """True if replicas split the optimizer states, so that none has them all."""
        self.stepped = shard.bounds(self.parameters.numel())
        """The elements of the vectors that this replica steps. The moments cover only these elements."""
        self.first_moments, self.second_moments = (torch.zeros_like(self.parameters[self.stepped]) for _ in range(2))
        self.synchronised = self.parameters.clone() if local_updates else None
        """Parameters at the last synchronisation, when all replicas were equal. None without local updates."""
        self.version = version
        """Number of iterations for which these parameters have been trained. -1 while an iteration changes them."""
        self._steps = torch.tensor(0.0)
        self._slices = {}
        offset = 0
        for p in self.list:
            here = self._slices[p] = slice(offset, offset + p.numel())
            p.data = self.parameters[here].view_as(p)
            p.grad = self.gradients[here].view_as(p)
            offset += p.numel()
        self._previous: list[torch.Tensor] | None = None
        self._previous_version, self._previous_steps = version, 0

    def slice_of(self, parameter: nn.Parameter) -> slice:
        """Return the slice of ``parameters`` and ``gradients`` that holds this parameter."""
        return self._slices[parameter]

    @property
    def steps(self) -> int:
        """Number of steps that the optimizer has taken."""
        return int(self._steps)

    @steps.setter
    def steps(self, steps: int) -> None:
        self._steps.fill_(steps)

    def step(self, learning_rate: float) -> None:
        """Take one step of AdamW, with torch's default constants, on all parameters that this replica steps. Zero all
        gradients.

        torch's function ``adamw`` is used instead of its class, whose first instance loads a compiler and so takes a
        second. On a CPU the function is fused: one pass without temporary vectors. Temporary vectors would be fresh
        memory at one step and used memory at the next. A step of the run could then take up to a third longer than the
        same step in calibration.
        """
        self._save_previous()
        with torch.no_grad():
            adamw(
                [self.parameters[self.stepped]],
                [self.gradients[self.stepped]],
                [self.first_moments],
                [self.second_moments],
                [],
                [self._steps],
                foreach=False,
                fused=self.parameters.device.type == "cpu",
                amsgrad=False,
                beta1=0.9,
                beta2=0.999,
                lr=learning_rate,
                weight_decay=0.01,
                eps=1e-8,
                maximize=False,
            )
        self.gradients.zero_()

    def roll_back_to(self, version: int) -> None:
        """Undo the changes of the last iteration if they are not part of ``version``."""
        self.gradients.zero_()
        if self.version == version:
            return
        assert self._previous is not None
        assert self._previous_version == version, (self.version, self._previous_version, version)
        for copy, vector in zip(self._previous, self._vectors, strict=True):
            vector.copy_(copy)
        self.version, self.steps = version, self._previous_steps

    def to_bytes(self) -> torch.Tensor:
        """Return everything except the gradients as (bytes,) uint8, for a replacement. The last 8 bytes hold the
        number of steps."""
        # a float64 holds any number of steps exactly, in eight bytes
        steps = torch.tensor([self.steps], dtype=torch.float64).view(torch.uint8)
        return torch.cat([*(vector.view(torch.uint8) for vector in self._vectors), steps.to(self.parameters.device)])

    def load_bytes(self, raw: torch.Tensor, version: int) -> None:
        """Take over the state in the bytes that ``to_bytes`` of another replica returned."""
        start = 0
        for vector in self._vectors:
            stop = start + vector.numel() * vector.element_size()
            # a copy, because a view of a wider type needs aligned memory
            vector.copy_(raw[start:stop].clone().view(vector.dtype))
            start = stop
        self.steps = int(raw[-8:].cpu().clone().view(torch.float64))
        self.gradients.zero_()
        self.version = version

    def _save_previous(self) -> None:
        if self._previous is None:
            self._previous = [torch.empty_like(vector) for vector in self._vectors]
        for copy, vector in zip(self._previous, self._vectors, strict=True):
            copy.copy_(vector)
        self._previous_version, self._previous_steps = self.version, self.steps
        self.version = -1

    @property
    def _vectors(self) -> list[torch.Tensor]:
        vectors = [self.parameters, self.first_moments, self.second_moments]
        return vectors if self.synchronised is None else [*vectors, self.synchronised]
