"""Pipelines with different numbers of micro-batches train what one process trains on the whole batch."""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest
import torch
from run_helpers import assert_close, kept_parameters, small_plan
from training_alone import parameters_of, train_alone, train_locally
from workers_as_threads import Trained, train

import dtfm_lab as lab
from dtfm_lab.domain.job import gpt
from dtfm_lab.domain.plan import Plan
from dtfm_lab.files import override
from dtfm_lab.runtime.client.launch import start
from dtfm_lab.runtime.protocol.gradient_shards import AVERAGED
from dtfm_lab.runtime.worker.batches import TextBatches
from dtfm_lab.runtime.worker.stages import next_token_loss

STEPS = 3
COUNTS = (5, 1, 2)
SCHEDULES = ("1f1b", "gpipe", "adaptive-1f1b", "zb-h1")
AVERAGES = sorted(AVERAGED)
MODELS = {
    tied: gpt(name="smallest", n_layers=4, d_model=16, n_heads=2, seq_len=8, vocab_size=256, tied=tied)
    for tied in (False, True)
}


def plan_of(counts: tuple[int, ...] = COUNTS, *, tied: bool = False, **fields: object) -> Plan:
    sizes = {"global_batch": 2 * sum(counts), "microbatch": 2, "microbatches_per_replica": counts}
    return small_plan(2, len(counts), model=MODELS[tied], **(sizes | fields))


@cache
def alone(tied: bool) -> tuple[list[float], dict[str, np.ndarray]]:
    return train_alone(plan_of(tied=tied).job, STEPS)


def assert_equal(trained: Trained, losses: list[float], parameters: dict[str, np.ndarray], replica: int = 0) -> None:
    assert trained.losses == pytest.approx(losses, abs=1e-9)
    assert_close(trained.parameters(replica), parameters)


@pytest.mark.parametrize(
    ("schedule", "synchronisation", "tied"),
    [
        *((*pair, False) for pair in zip(cycle(SCHEDULES), AVERAGES, strict=False)),
        *((schedule, "sharded", True) for schedule in SCHEDULES),
    ],
)
def test_unequal_pipelines_train_what_one_process_trains(schedule, synchronisation, tied):
    warmups = (3, 1) if schedule == "adaptive-1f1b" else None
    plan = plan_of(tied=tied, synchronisation=synchronisation, schedule=schedule, warmups=warmups)
    trained = train(plan, schedule, STEPS)
    assert_equal(trained, *alone(tied))
    assert trained.replicas_are_equal()
    passes = Counter(span.replica for span in trained.spans if (span.iteration, span.action.kind) == (0, "F"))
    assert passes == {replica: 2 * count for replica, count in enumerate(COUNTS)}


@pytest.mark.parametrize("synchronisation", AVERAGES)
def test_local_updates_step_on_the_mean_of_a_replica_and_average_by_its_share(synchronisation):
    plan = plan_of(synchronisation=synchronisation, synchronise_every=2)
    losses, models = train_locally(plan.job, 4)
    trained = train(plan, "1f1b", 4)
    assert_equal(trained, losses, parameters_of(models))
    assert trained.replicas_are_equal()
    losses, models = train_locally(plan.job, 3)
    trained = train(plan, "zb-h1", 3)
    for replica, model in enumerate(models):
        assert_equal(trained, losses, parameters_of([model]), replica)


def test_a_batch_that_does_not_divide_is_shared_out():
    plan = small_plan(1, 4, model=MODELS[False], global_batch=10)
    assert plan.job.microbatch_counts == (3, 3, 2, 2)
    assert_equal(train(plan, "1f1b", STEPS), *train_alone(plan.job, STEPS))


def test_processes_do_so_too_and_evaluate_on_all_that_is_held_out(tmp_path: Path) -> None:
    plan = plan_of((3, 1), tied=True)
    losses, modules = train_locally(override(plan.job, n_replicas=1), STEPS)
    run = start(plan, iterations=STEPS, checkpoint_folder=tmp_path)
    run.wait()
    assert run.losses == pytest.approx(losses, abs=1e-9)
    assert_close(kept_parameters(tmp_path), parameters_of(modules))
    inputs, targets = TextBatches(None, 8, plan.job.global_batch, 0).held_out_batch()
    with torch.no_grad():
        held_out = next_token_loss(modules[0](inputs), targets)
    assert run.held_out[-1][1] == pytest.approx(float(held_out), abs=1e-9)
    predicted = lab.simulate(plan, like=run.trace())
    assert len(lab.compare(predicted, run.trace()).rows) == len(run.trace())
    resumed = lab.run(plan_of((1, 3), tied=True), iterations=STEPS, resume_from=tmp_path).context
    alone = train_alone(plan.job, 2 * STEPS)[0]
    assert [*run.losses, *resumed.losses] == pytest.approx(alone, abs=1e-9), "on pipelines of other shares"
