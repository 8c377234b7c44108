"""The same training in one process, without stages or messages: what every run must equal."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import nn

from dtfm_lab.domain.job import Job
from dtfm_lab.files import override
from dtfm_lab.runtime.protocol.run_options import RunSpec
from dtfm_lab.runtime.worker.batches import TextBatches
from dtfm_lab.runtime.worker.stages import build_stages, next_token_loss
from dtfm_lab.runtime.worker.training_state import learning_rate_at

LEARNING_RATE = RunSpec.__dataclass_fields__["learning_rate"].default


def train_alone(job: Job, steps: int, seed: int = 0) -> tuple[list[float], dict[str, np.ndarray]]:
    """Losses of each step and the parameters after the last, by their names in the whole model."""
    losses, modules = train_locally(override(job, n_replicas=1, synchronise_every=1), steps, seed)
    return losses, parameters_of(modules)


def train_locally(job: Job, steps: int, seed: int = 0) -> tuple[list[float], list[nn.Module]]:
    """Every replica a model of its own that takes its steps alone; all models are averaged after each H-th.

    Losses and averages count each replica by its share of the batch.
    """
    torch.set_num_threads(1)  # as the workers do; more of them fight over a crowded machine's cores
    whole = override(job, n_stages=1)
    models = [build_stages(whole, 1, [0], seed)[0] for _ in range(job.n_replicas)]
    optimizers = [torch.optim.AdamW(model.parameters()) for model in models]
    batches = TextBatches(None, whole.modelled().seq_len, whole.global_batch, seed)
    sizes = [count * job.microbatch for count in job.microbatch_counts]
    losses = []
    for step in range(steps):
        inputs, targets = (part.split(sizes) for part in batches.batch(step))
        found = []
        for replica, (model, optimizer) in enumerate(zip(models, optimizers, strict=True)):
            optimizer.param_groups[0]["lr"] = learning_rate_at(LEARNING_RATE, step)
            optimizer.zero_grad()
            loss = next_token_loss(model(inputs[replica]), targets[replica])
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        losses.append(float(np.average(found, weights=sizes)))
        if (step + 1) % job.synchronise_every == 0:
            _average(models, sizes)
    return losses, models


def parameters_of(modules: Iterable[nn.Module]) -> dict[str, np.ndarray]:
    """Of the first, by their names in the whole model."""
    return {name: p.detach().numpy() for name, p in next(iter(modules)).named_parameters()}


def _average(models: list[nn.Module], sizes: list[int]) -> None:
    with torch.no_grad():
        for copies in zip(*(model.parameters() for model in models), strict=True):
            mean = sum(size * copy for size, copy in zip(sizes, copies, strict=True)) / sum(sizes)
            for parameter in copies:
                parameter.copy_(mean)
