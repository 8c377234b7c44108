"""The same training in one process, without stages or messages: the losses that every run must equal."""

from __future__ import annotations

import torch

from dtfm_lab.domain.job import Job
from dtfm_lab.files import override
from dtfm_lab.runtime.protocol.run_options import RunSpec
from dtfm_lab.runtime.worker.batches import TextBatches
from dtfm_lab.runtime.worker.stages import build_stages, next_token_loss
from dtfm_lab.runtime.worker.training_state import learning_rate_at

LEARNING_RATE = RunSpec.__dataclass_fields__["learning_rate"].default
CLOSE = 1e-3
"""Relative difference of losses that float32 in another order of additions may make over a few steps."""


def losses_alone(job: Job, steps: int, device: str, seed: int = 0) -> list[float]:
    """The mean loss of each step, micro-batch by micro-batch, on one device in full float32."""
    whole = override(job, n_stages=1, n_replicas=1, synchronise_every=1)
    torch.backends.cuda.matmul.allow_tf32 = False
    model = build_stages(whole, 1, [0], seed)[0].to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    batches = TextBatches(None, whole.modelled().seq_len, whole.global_batch, seed)
    losses = []
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = learning_rate_at(LEARNING_RATE, step)
        optimizer.zero_grad()
        inputs, targets = (part.to(device).split(whole.microbatch) for part in batches.batch(step))
        total = 0.0
        for tokens, wanted in zip(inputs, targets, strict=True):
            loss = next_token_loss(model(tokens), wanted) / len(inputs)
            loss.backward()
            total += loss.item()
        optimizer.step()
        losses.append(total)
    return losses


def largest_difference(losses: list[float], others: list[float]) -> float:
    """The largest relative difference of two equally long rows of losses."""
    return max(abs(one - other) / abs(other) for one, other in zip(losses, others, strict=True))
