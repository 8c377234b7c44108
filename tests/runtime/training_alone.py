"""The same training in one process, without stages, replicas or messages: what every run must equal."""

from __future__ import annotations

import numpy as np
import torch

from dtfm_lab.domain.job import Job
from dtfm_lab.files import override
from dtfm_lab.runtime.spec import RunSpec
from dtfm_lab.runtime.stages import build_stage, next_token_loss
from dtfm_lab.runtime.text import TextBatches


def train_alone(job: Job, steps: int, seed: int = 0) -> tuple[list[float], dict[str, np.ndarray]]:
    """Losses of each step and the parameters after the last, by their names in the whole model."""
    torch.set_num_threads(1)  # as the workers do; more of them fight over a crowded machine's cores
    whole = override(job, n_stages=1, n_replicas=1)
    module = build_stage(whole, 0, seed)
    optimizer = torch.optim.AdamW(module.parameters(), lr=RunSpec.__dataclass_fields__["learning_rate"].default)
    batches = TextBatches(None, whole.modelled().seq_len, whole.global_batch, seed)
    losses = []
    for step in range(steps):
        inputs, targets = batches.batch(step)
        optimizer.zero_grad()
        loss = next_token_loss(module(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, {name: p.detach().numpy() for name, p in module.named_parameters()}
