"""What workers compute equals one process, whatever schedule, way to average, shape, tied embedding or compression.

The workers are threads with messages in memory; ``test_real_choices`` runs some as processes, and
``test_group_training`` sends their messages over process groups.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import cycle
from typing import Any

import numpy as np
import pytest
import torch
import workers_as_threads
from run_helpers import assert_close, small_plan
from training_alone import parameters_of, train_alone, train_locally
from workers_as_threads import Trained, train

import dtfm_lab as lab
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Schedule
from dtfm_lab.runtime.protocol.gradient_shards import AVERAGED
from dtfm_lab.runtime.worker.autograd_stage import Batch
from dtfm_lab.runtime.worker.execute import ProgramExecutor
from dtfm_lab.simulation.schedules import schedules

SCHEDULES, AVERAGES = sorted(schedules), sorted(AVERAGED)
RICHEST = ("zb-h1", "interleaved-1f1b")
"""Schedules that split backwards, or have several stages a device."""
STEPS, MANY_STEPS = 3, 12


@cache
def alone(tied: bool, dtype: str) -> tuple[list[float], dict[str, np.ndarray]]:
    return train_alone(small_plan(tied=tied, dtype=dtype, global_batch=12).job, STEPS)


def plan_of(n_stages: int = 2, n_replicas: int = 3, **fields: object) -> Plan:
    return small_plan(n_stages, n_replicas, **({"global_batch": 12} | fields))


def assert_equals_one_process(trained: Trained, *, tied: bool = False, dtype: str = "fp64") -> None:
    losses, parameters = alone(tied, dtype)
    assert trained.losses == pytest.approx(losses, abs=1e-9 if dtype == "fp64" else 1e-5)
    assert trained.replicas_are_equal()
    found = trained.parameters()
    if tied:
        head, embedding = found.pop("5.logits.weight", None), found["0.token.weight"]
        assert head is None or np.array_equal(head, embedding), "both copies, bit for bit"
    assert found.keys() == parameters.keys()
    if dtype == "fp64":
        assert_close(found, parameters)


@pytest.mark.parametrize(
    ("schedule", "synchronisation", "dtype"),
    [
        *((*pair, "fp64") for pair in zip(cycle(RICHEST), AVERAGES, strict=False)),
        *((*pair, "fp64") for pair in zip(SCHEDULES, AVERAGES, strict=False) if pair[0] not in RICHEST),
        ("zb-h1", "ring", "fp32"),
    ],
)
def test_every_schedule_and_way_to_average_train_what_one_process_trains(schedule, synchronisation, dtype):
    trained = train(plan_of(dtype=dtype, synchronisation=synchronisation), schedule, STEPS)
    assert_equals_one_process(trained, dtype=dtype)


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> list[list[torch.Tensor]]:
    """By worker, the parameters after each iteration of the first stage, which all replicas hold."""
    after: list[list[torch.Tensor]] = []

    class Watched(ProgramExecutor):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self._own: list[torch.Tensor] = []
            if 0 in self.math.modules:
                after.append(self._own)

        def iteration(self, iteration: int, batch: Batch, began_monotonic_s: float) -> float:
            loss = super().iteration(iteration, batch, began_monotonic_s)
            self._own.append(self.math.state.parameters.clone())
            return loss

    monkeypatch.setattr(workers_as_threads, "ProgramExecutor", Watched)
    return after


@pytest.mark.parametrize(("synchronisation", "every"), [("ring", 1), ("sharded", 2), ("hierarchical", 5)])
def test_errors_do_not_grow_and_replicas_are_equal_right_after_averaging_only(synchronisation, every, kept):
    plan = plan_of(synchronisation=synchronisation, synchronise_every=every)
    if every == 1:
        losses, parameters = train_alone(plan.job, MANY_STEPS)
    else:
        losses, models = train_locally(plan.job, MANY_STEPS)
        parameters = parameters_of(models)
    trained = train(plan, "1f1b", MANY_STEPS)
    assert trained.losses == pytest.approx(losses, abs=1e-9)
    assert_close(trained.parameters(), parameters)
    equal = [all(torch.equal(one, own[0]) for one in own) for own in zip(*kept, strict=True)]
    assert equal == [(i + 1) % every == 0 for i in range(MANY_STEPS)]


@pytest.mark.parametrize("tied", [False, True])
def test_a_pipeline_of_one_device_passes_its_stages_without_messages(tied):
    plan = plan_of(1, 2, tied=tied)
    half = range(plan.job.n_microbatches)
    order = [f"{s}{k}{m}" for m in half for s, k in ((0, "F"), (1, "F"), (1, "I"), (0, "B"), (1, "W"))]
    trained = train(plan, Schedule.from_orders("two by turns", [" ".join(order)]), STEPS)
    assert_equals_one_process(trained, tied=tied)
    assert not {span.action.kind for span in trained.spans} & {"SEND_F", "SEND_B", "SEND_E"}


@pytest.mark.parametrize("recompute", [False, True])
def test_a_tied_embedding_within_one_stage_is_counted_once_by_split_backwards(recompute):
    plan = plan_of(1, 2, tied=True, recompute=recompute)
    assert_equals_one_process(train(plan, "zb-h1", STEPS), tied=True)


@pytest.mark.parametrize(
    ("schedule", "synchronisation"),
    [*(("1f1b", name) for name in AVERAGES), ("zb-h1", "ring"), ("interleaved-1f1b", "hierarchical")],
)
def test_tied_embeddings_stay_equal_at_both_ends(schedule, synchronisation):
    plan = plan_of(tied=True, synchronisation=synchronisation)
    assert_equals_one_process(train(plan, schedule, STEPS), tied=True)


@pytest.mark.parametrize("synchronisation", ["sharded", "sharded-at-once", "central"])
def test_local_updates_keep_both_ends_of_a_tied_embedding_equal(synchronisation):
    plan = plan_of(tied=True, synchronisation=synchronisation, synchronise_every=2)
    trained = train(plan, "1f1b", 4)
    assert trained.losses == pytest.approx(train_locally(plan.job, 4)[0], abs=1e-9)
    for replica in range(3):
        found = trained.parameters(replica)
        assert np.array_equal(found["5.logits.weight"], found["0.token.weight"])


@pytest.mark.parametrize(
    ("synchronisation", "how", "every"),
    [(name, ("fp16", "int8")[i % 2], 1 + i // 2 % 2) for i, name in enumerate(AVERAGES)],
)
def test_compression_changes_the_loss_a_little_and_leaves_replicas_equal(how, synchronisation, every):
    fields = {"synchronisation": synchronisation, "synchronise_every": every}
    plain = uncompressed(every)
    whole = [{"compression": how}] if synchronisation in AVERAGES[:2] else []  # one of each way to code
    for which in (*whole, {"compression": "none", "gradient_compression": how}):
        coded = train(small_plan(2, 4, **fields, **which), "1f1b", every + 1)
        off = np.abs(np.array(coded.losses) - plain)
        assert (off[0] > 0) == ("gradient_compression" not in which), "before the first step gradients do not matter"
        assert 0 < off[-1] < 0.01
        assert coded.replicas_are_equal() == (every == 1)


@cache
def uncompressed(every: int) -> list[float]:
    return train(small_plan(2, 4, synchronise_every=every), "1f1b", every + 1).losses


@pytest.mark.parametrize(("schedule", "how"), [("zb-h1", "stage"), ("interleaved-1f1b", "block")])
def test_checkpoints_change_no_bit(schedule, how):
    kept, repeated = (train(small_plan(dtype="fp32", checkpointing=which), schedule, STEPS) for which in ("none", how))
    assert kept.losses == repeated.losses
    found = repeated.parameters()
    assert all(np.array_equal(array, found[name]) for name, array in kept.parameters().items())


def test_an_unequal_cut_trains_what_one_process_trains():
    assert_equals_one_process(train(plan_of(2, 2, tied=True, blocks_per_stage=(3, 1)), "1f1b", STEPS), tied=True)


@pytest.mark.parametrize("blocks", [(0, 4), (4, 0)])
def test_a_stage_may_hold_the_embedding_or_the_head_alone(blocks):
    assert_equals_one_process(train(plan_of(2, 2, tied=True, blocks_per_stage=blocks), "1f1b", STEPS), tied=True)


@pytest.mark.parametrize("every", [1, 3])
def test_flushes_train_what_one_process_trains(every):
    assert_equals_one_process(train(plan_of(3, 2, flush_every=every), "gpipe", STEPS))


@pytest.mark.parametrize(
    ("schedule", "synchronisation", "every"),
    [(*pair, 1 + i % 2) for i, pair in enumerate(zip(cycle(SCHEDULES), AVERAGES, strict=False))],
)
def test_workers_do_what_the_simulator_plays(schedule, synchronisation, every):
    fields = {"synchronisation": synchronisation, "synchronise_every": every, "compression": "int8"}
    plan = small_plan(2, 4, tied=every == 1, **fields)
    done = Counter((s.iteration, s.replica, s.action) for s in train(plan, schedule, every).spans)
    assert done == Counter((s.iteration, s.replica, s.action) for s in lab.simulate(plan, schedule).spans())
