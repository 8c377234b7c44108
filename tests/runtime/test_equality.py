"""Twenty steps of every schedule and of every way to average equal twenty steps of one process.

The workers are threads with messages in memory; ``test_real_choices`` runs some as processes. ``test_computing`` looks
at what each choice computes in three steps; here errors have time to grow, and replicas are looked at after every step.
"""

from __future__ import annotations

from functools import cache
from itertools import cycle
from typing import Any

import numpy as np
import pytest
import torch
import workers_as_threads
from run_helpers import assert_close, small_plan
from training_alone import parameters_of, train_alone, train_locally
from workers_as_threads import train

from dtfm_lab.domain.job import gpt
from dtfm_lab.domain.plan import Plan
from dtfm_lab.runtime.protocol.gradient_shards import SHARD_RULES
from dtfm_lab.runtime.protocol.run_options import RunSpec
from dtfm_lab.runtime.worker.autograd_stage import Batch
from dtfm_lab.runtime.worker.device_math import DeviceMath
from dtfm_lab.runtime.worker.execute import ProgramExecutor
from dtfm_lab.simulation.schedules import schedules

STEPS = 20
LOSS_TOLERANCE = {"fp64": 1e-9, "fp32": 1e-5}
SCHEDULES, AVERAGES = sorted(schedules), sorted(SHARD_RULES)
MODEL = gpt(name="smallest", n_layers=4, d_model=16, n_heads=2, seq_len=8, vocab_size=256, tied=False)
"""as many blocks as two devices of two stages each can share"""


def plan_of(dtype: str = "fp64", **fields: object) -> Plan:
    return small_plan(2, 3, model=MODEL, dtype=dtype, global_batch=6, **fields)


@cache
def alone(dtype: str) -> tuple[list[float], dict[str, np.ndarray]]:
    return train_alone(plan_of(dtype).job, STEPS)


Kept = dict[tuple[int, int], list[torch.Tensor]]


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Kept:
    """By position and replica, the parameters after each iteration of workers as threads."""
    after: Kept = {}

    class Watched(ProgramExecutor):
        def __init__(
            self, spec: RunSpec, position: int, replica: int, math: DeviceMath, *others: Any, **options: Any
        ) -> None:
            super().__init__(spec, position, replica, math, *others, **options)
            self._state, self._own = math.state, after.setdefault((position, replica), [])

        def iteration(self, iteration: int, batch: Batch, began_monotonic_s: float) -> float:
            loss = super().iteration(iteration, batch, began_monotonic_s)
            self._own.append(self._state.parameters.clone())
            return loss

    monkeypatch.setattr(workers_as_threads, "ProgramExecutor", Watched)
    return after


def replicas_are_equal_after(kept: Kept) -> list[bool]:
    """After each iteration, whether all replicas of all stages are, bit for bit."""
    firsts = {position: own for (position, replica), own in kept.items() if replica == 0}
    (n_iterations,) = {len(own) for own in kept.values()}
    return [
        all(torch.equal(own[i], firsts[position][i]) for (position, _), own in kept.items())
        for i in range(n_iterations)
    ]


GRID = [
    *((*pair, "fp64") for pair in zip(cycle(SCHEDULES), AVERAGES, strict=False)),
    *((*pair, "fp32") for pair in zip(SCHEDULES, reversed(AVERAGES), strict=False)),
]
"""Every pair of them trains in ``test_group_training``, for fewer steps."""


@pytest.mark.parametrize(("schedule", "synchronisation", "dtype"), GRID)
def test_twenty_steps_equal_one_process_and_replicas_are_equal_after_each(schedule, synchronisation, dtype, kept):
    losses, parameters = alone(dtype)
    trained = train(plan_of(dtype, synchronisation=synchronisation), schedule, STEPS)
    assert trained.losses == pytest.approx(losses, abs=LOSS_TOLERANCE[dtype])
    assert replicas_are_equal_after(kept) == [True] * STEPS
    if dtype == "fp64":
        assert_close(trained.parameters(), parameters)


@cache
def locally(every: int) -> tuple[list[float], dict[str, np.ndarray]]:
    losses, models = train_locally(plan_of(synchronise_every=every).job, STEPS)
    return losses, parameters_of(models)


@pytest.mark.parametrize(("synchronisation", "every"), [*((name, 5) for name in AVERAGES), ("sharded", 2)])
def test_local_steps_equal_one_process_and_replicas_are_equal_right_after_averaging_only(synchronisation, every, kept):
    losses, parameters = locally(every)
    plan = plan_of(synchronisation=synchronisation, synchronise_every=every)
    trained = train(plan, "1f1b", STEPS)
    assert trained.losses == pytest.approx(losses, abs=1e-9)
    assert_close(trained.parameters(), parameters)
    assert replicas_are_equal_after(kept) == [(i + 1) % every == 0 for i in range(STEPS)]
