"""What workers compute equals one process, whatever shape, tied embedding, compression or recomputation.

The workers are threads with messages in memory; ``test_real_choices`` runs some as processes. Schedules and ways to
average train what one process trains in ``test_group_training``, every pair, and in ``test_equality``, for longer.
"""

from __future__ import annotations

from collections import Counter
from functools import cache

import numpy as np
import pytest
from run_helpers import small_plan
from training_alone import train_alone, train_locally
from workers_as_threads import Trained, train

import dtfm_lab as lab
from dtfm_lab.domain.schedule import Schedule
from dtfm_lab.runtime.protocol.gradient_shards import SHARD_RULES

SCHEDULES = ("gpipe", "1f1b", "adaptive-1f1b", "zb-h1", "interleaved-1f1b")
AVERAGES = sorted(SHARD_RULES)
STEPS = 3


@cache
def alone(tied: bool, dtype: str) -> tuple[list[float], dict[str, np.ndarray]]:
    return train_alone(small_plan(tied=tied, dtype=dtype).job, STEPS)


def assert_equals_one_process(trained: Trained, *, tied: bool = False, dtype: str = "fp64") -> None:
    losses, parameters = alone(tied, dtype)
    assert trained.losses == pytest.approx(losses, abs=1e-9 if dtype == "fp64" else 1e-5)
    assert trained.replicas_are_equal()
    found = trained.parameters()
    if tied:
        head, embedding = found.pop("5.logits.weight", None), found["0.token.weight"]
        assert head is None or np.array_equal(head, embedding), "both copies, bit for bit"
    assert found.keys() == parameters.keys()
    for name, wanted in parameters.items():
        if dtype == "fp64":
            np.testing.assert_allclose(found[name], wanted, atol=1e-9, rtol=0, err_msg=name)


@pytest.mark.parametrize("tied", [False, True])
def test_a_pipeline_of_one_device_passes_its_stages_without_messages(tied):
    plan = small_plan(1, 2, tied=tied)
    half = range(plan.job.n_microbatches)
    order = [f"{s}{k}{m}" for m in half for s, k in ((0, "F"), (1, "F"), (1, "I"), (0, "B"), (1, "W"))]
    trained = train(plan, Schedule.from_orders("two by turns", [" ".join(order)]), STEPS)
    assert_equals_one_process(trained, tied=tied)
    assert not {span.action.kind for span in trained.spans} & {"SEND_F", "SEND_B", "SEND_E"}


@pytest.mark.parametrize("recompute", [False, True])
def test_a_tied_embedding_within_one_stage_is_counted_once_by_split_backwards(recompute):
    plan = small_plan(1, 2, tied=True, recompute=recompute)
    assert_equals_one_process(train(plan, "zb-h1", STEPS), tied=True)


@pytest.mark.parametrize(
    ("schedule", "synchronisation"),
    [*(("1f1b", name) for name in AVERAGES), ("zb-h1", "ring"), ("interleaved-1f1b", "hierarchical")],
)
def test_tied_embeddings_stay_equal_at_both_ends(schedule, synchronisation):
    plan = small_plan(2, 4, tied=True, synchronisation=synchronisation)
    assert_equals_one_process(train(plan, schedule, STEPS), tied=True)


@pytest.mark.parametrize("synchronisation", ["sharded", "sharded-at-once", "central"])
def test_local_updates_keep_both_ends_of_a_tied_embedding_equal(synchronisation):
    plan = small_plan(2, 3, tied=True, synchronisation=synchronisation, synchronise_every=2, global_batch=12)
    trained = train(plan, "1f1b", 4)
    assert trained.losses == pytest.approx(train_locally(plan.job, 4)[0], abs=1e-9)
    for replica in range(3):
        found = trained.parameters(replica)
        assert np.array_equal(found["5.logits.weight"], found["0.token.weight"])


@pytest.mark.parametrize(
    ("synchronisation", "how", "every"),
    [
        (name, how, 1 + (number + shift) % 2)
        for number, name in enumerate(AVERAGES)
        for shift, how in enumerate(("fp16", "int8"))
    ],
)
def test_compression_changes_the_loss_a_little_and_leaves_replicas_equal(how, synchronisation, every):
    fields = {"synchronisation": synchronisation, "synchronise_every": every}
    plain = uncompressed(every)
    for which in ({"compression": how}, {"compression": "none", "gradient_compression": how}):
        coded = train(small_plan(2, 4, **fields, **which), "1f1b", every + 1)
        off = np.abs(np.array(coded.losses) - plain)
        assert (off[0] > 0) == ("gradient_compression" not in which), "before the first step gradients do not matter"
        assert 0 < off[-1] < 0.01
        assert coded.replicas_are_equal() == (every == 1)


@cache
def uncompressed(every: int) -> list[float]:
    return train(small_plan(2, 4, synchronise_every=every), "1f1b", every + 1).losses


@pytest.mark.parametrize(
    ("schedule", "how"),
    [
        *((name, "stage") for name in ("1f1b", "zb-h1", "interleaved-1f1b")),
        *((name, "block") for name in ("1f1b", "interleaved-1f1b")),
    ],
)
def test_checkpoints_change_no_bit(schedule, how):
    kept, repeated = (train(small_plan(dtype="fp32", checkpointing=which), schedule, STEPS) for which in ("none", how))
    assert kept.losses == repeated.losses
    found = repeated.parameters()
    assert all(np.array_equal(array, found[name]) for name, array in kept.parameters().items())


@pytest.mark.parametrize("every", [1, 2, 3])
def test_flushes_train_what_one_process_trains(every):
    assert_equals_one_process(train(small_plan(3, 2, flush_every=every), "gpipe", STEPS))


@pytest.mark.parametrize(
    ("schedule", "synchronisation", "every"),
    [*((name, "hierarchical", 1) for name in SCHEDULES), *(("1f1b", name, 2) for name in AVERAGES)],
)
def test_workers_do_what_the_simulator_plays(schedule, synchronisation, every):
    fields = {"synchronisation": synchronisation, "synchronise_every": every, "compression": "int8"}
    plan = small_plan(2, 4, tied=every == 1, **fields)
    done = Counter((s.iteration, s.replica, s.action) for s in train(plan, schedule, every).spans)
    assert done == Counter((s.iteration, s.replica, s.action) for s in lab.simulate(plan, schedule).spans())
