"""Workers that average fragments in turn, at once or beside the next iteration: as the written algorithm does it."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np
import pytest
import torch
from run_helpers import assert_as_predicted, small_plan
from torch import nn
from training_alone import LEARNING_RATE
from workers_as_threads import train

import dtfm_lab as lab
from dtfm_lab.domain.errors import JobError
from dtfm_lab.domain.job import INT8_BLOCK, Job
from dtfm_lab.files import override
from dtfm_lab.runtime.client.launch import start
from dtfm_lab.runtime.worker.batches import TextBatches
from dtfm_lab.runtime.worker.stages import build_stages, next_token_loss
from dtfm_lab.runtime.worker.training_state import learning_rate_at

STEPS = 9
RATE: float = LEARNING_RATE  # type: ignore[assignment]


def streaming_diloco(job: Job, steps: int, seed: int = 0) -> list[float]:
    """Losses of Streaming DiLoCo with a plain average as outer step, in one process: replicas are models."""
    whole = override(job, n_stages=1, fragments=1, fragment_delay=0)
    models = [build_stages(whole, 1, [0], seed)[0] for _ in range(job.n_replicas)]
    optimizers = [torch.optim.AdamW(model.parameters()) for model in models]
    counts = job.cut(job.n_stages)
    layers = [list(models[0].children())[end - n : end] for end, n in zip(accumulate(counts), counts, strict=True)]
    sizes = [sum(p.numel() for layer in stage for p in layer.parameters()) for stage in layers]
    equal = [nn.utils.parameters_to_vector(model.parameters()).detach().clone() for model in models]
    batches = TextBatches(None, whole.modelled().seq_len, whole.global_batch, seed)
    every, losses = job.synchronise_every // job.fragments, []
    for step in range(steps):
        travels = (step + 1) % every == 0
        turn = ((step + 1) // every - 1) % job.fragments
        before = [nn.utils.parameters_to_vector(model.parameters()).detach().clone() for model in models]
        found = []
        shares = [part.chunk(job.n_replicas) for part in batches.batch(step)]
        for replica, (model, optimizer) in enumerate(zip(models, optimizers, strict=True)):
            optimizer.param_groups[0]["lr"] = learning_rate_at(RATE, step)
            optimizer.zero_grad()
            loss = next_token_loss(model(shares[0][replica]), shares[1][replica])
            torch.autograd.backward(loss)
            optimizer.step()
            found.append(loss.item())
        losses.append(float(np.mean(found)))
        if not travels:
            continue
        after = [nn.utils.parameters_to_vector(model.parameters()).detach().clone() for model in models]
        sent = before if job.fragment_delay else after
        for end, size in zip(accumulate(sizes), sizes, strict=True):
            blocks = -(-size // INT8_BLOCK)
            a, b = (min(INT8_BLOCK * (blocks * t // job.fragments), size) for t in (turn, turn + 1))
            part = slice(end - size + a, end - size + b)
            change = torch.stack([own[part] - one[part] for own, one in zip(sent, equal, strict=True)]).mean(0)
            for own, one in zip(after, equal, strict=True):
                one[part] += change
                own[part] = (own[part] + one[part]) / 2 if job.fragment_delay else one[part]
        for model, vector in zip(models, after, strict=True):
            nn.utils.vector_to_parameters(vector, model.parameters())
    return losses


@pytest.mark.parametrize("delay", [0, 1])
@pytest.mark.parametrize(
    ("n_stages", "fragments", "synchronisation"), [(2, 1, "central"), (1, 2, "ring"), (2, 4, "central")]
)
def test_workers_train_what_the_written_algorithm_trains(
    n_stages: int, fragments: int, synchronisation: str, delay: int
) -> None:
    fields: dict[str, Any] = {"fragments": fragments, "fragment_delay": delay, "synchronise_every": 4}
    plan = small_plan(n_stages, 3, global_batch=12, synchronisation=synchronisation, **fields)
    assert train(plan, "1f1b", STEPS).losses == pytest.approx(streaming_diloco(plan.job, STEPS), abs=1e-9)


def test_processes_take_the_seconds_that_were_predicted() -> None:
    plan = small_plan(2, 2, fragments=2, fragment_delay=1, synchronise_every=4)
    measured = lab.run(plan, "1f1b", iterations=8)
    assert measured.context.losses == pytest.approx(streaming_diloco(plan.job, 8), abs=1e-9)
    assert_as_predicted(plan, measured)


@pytest.mark.parametrize(
    ("fields", "options"),
    [({"fragments": 2, "tied": True}, {}), ({"fragment_delay": 2}, {}), ({"fragment_delay": 1}, {"clock": "paced"})],
)
def test_what_workers_cannot_average_is_refused_in_one_line(fields: dict[str, Any], options: dict[str, Any]) -> None:
    with pytest.raises(JobError):
        start(small_plan(synchronise_every=4, **fields), **options)
