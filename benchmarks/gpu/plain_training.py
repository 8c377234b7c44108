"""One process that trains a whole model in half precision, without the lab's workers: autocast over float32 weights."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from dtfm_lab.domain.job import Job
from dtfm_lab.files import override
from dtfm_lab.runtime.worker.stages import build_stages, next_token_loss

HALVES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class PlainTraining:
    """A model, its optimiser and one step of training; the loss of fp16 is scaled by ``torch.amp.GradScaler``."""

    def __init__(self, job: Job, device: str, *, compiles: bool = False, learning_rate: float = 1e-4) -> None:
        """``job``: of one stage and replica; its dtype is that of products, weights are float32."""
        self.job, self._device = job, device
        self.model: nn.Module = build_stages(override(job, dtype="fp32"), 1, [0], 0)[0].to(device)
        self._forward: Callable[[torch.Tensor], torch.Tensor] = torch.compile(self.model) if compiles else self.model
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=learning_rate, fused=device == "cuda")
        self.scaler = torch.amp.GradScaler(device, enabled=job.dtype == "fp16")

    def step(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Train on (batch, seq) tokens and targets, micro-batch by micro-batch; the mean loss, a scalar tensor."""
        parts = list(zip(tokens.split(self.job.microbatch), targets.split(self.job.microbatch), strict=True))
        total = torch.zeros((), device=self._device)
        for inputs, wanted in parts:
            half = HALVES.get(self.job.dtype)
            with torch.autocast(self._device, dtype=half, enabled=half is not None):
                loss = next_token_loss(self._forward(inputs), wanted) / len(parts)
            self.scaler.scale(loss).backward()
            total += loss.detach()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
        return total


def random_batch(job: Job, device: str, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """(batch, seq) tokens and targets."""
    model = job.modelled()
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(0, model.vocab_size, (job.global_batch, model.seq_len + 1), generator=generator).to(device)
    return drawn[:, :-1].contiguous(), drawn[:, 1:].contiguous()
