"""Replicas that split the optimiser's states (ZeRO-1, Rajbhandari et al. 2020) train what one process trains."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from run_helpers import assert_as_predicted, assert_close, small_plan, spec_of
from safetensors import safe_open
from training_alone import train_alone
from workers_as_threads import Trained, train

from dtfm_lab.domain.errors import FileError
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import BY_SHARDS
from dtfm_lab.runtime.client.launch import start
from dtfm_lab.runtime.coordinator.recovery import Recovery, find_recovery, why_unrecoverable
from dtfm_lab.runtime.protocol.checkpoint_folders import describe
from dtfm_lab.runtime.worker.checkpoint_tensors import CheckpointTensors

STEPS = 4
COUNTS = (5, 1, 2)


def plan_of(sharding: str = "zero-1", n_replicas: int = 3, **fields: object) -> Plan:
    sizes = {"global_batch": 8, "microbatches_per_replica": COUNTS if n_replicas == 3 else None}
    return small_plan(2, n_replicas, sharding=sharding, **(sizes | fields))


@cache
def alone(tied: bool) -> tuple[list[float], dict[str, np.ndarray]]:
    return train_alone(plan_of(tied=tied).job, STEPS)


def parameters_are_equal(one: Trained, other: Trained) -> bool:
    """Bit for bit."""
    wanted = other.parameters()
    return all(np.array_equal(array, wanted[name]) for name, array in one.parameters().items())


@pytest.mark.parametrize(
    ("synchronisation", "schedule", "tied"),
    [
        *((*pair, False) for pair in zip(BY_SHARDS, ("1f1b", "gpipe", "zb-h1"), strict=True)),
        ("sharded", "zb-h1", True),
        ("sharded-at-once", "1f1b", True),
    ],
)
def test_unequal_pipelines_train_what_one_process_trains(synchronisation, schedule, tied):
    plan = plan_of(synchronisation=synchronisation, schedule=schedule, tied=tied)
    losses, parameters = alone(tied)
    trained = train(plan, schedule, STEPS)
    assert trained.losses == pytest.approx(losses, abs=1e-9)
    assert trained.replicas_are_equal()
    assert_close(trained.parameters(), parameters)


@pytest.mark.parametrize("dtype", ["fp32", "fp64"])
@pytest.mark.parametrize("synchronisation", BY_SHARDS)
def test_untied_and_uncompressed_every_bit_is_that_of_replicas_that_hold_all_states(synchronisation, dtype):
    split, whole = (
        train(plan_of(which, synchronisation=synchronisation, dtype=dtype), "1f1b", STEPS)
        for which in ("zero-1", "none")
    )
    assert split.losses == whole.losses
    assert parameters_are_equal(split, whole)


@pytest.mark.parametrize("synchronisation", BY_SHARDS)
def test_compressed_gradients_round_and_parameters_do_not(synchronisation):
    trained = train(plan_of(synchronisation=synchronisation, gradient_compression="int8"), "1f1b", STEPS)
    assert trained.losses == pytest.approx(alone(False)[0], abs=0.02)
    assert trained.replicas_are_equal(), "what was sent is what the sender has"


def test_the_states_of_all_replicas_together_are_one_copy_of_them():
    split, whole = (train(plan_of(which), "1f1b", 1).maths for which in ("zero-1", "none"))
    for position in range(2):
        n_elements = whole[position, 0].state.parameters.numel()
        for moments in ("first_moments", "second_moments"):
            held = [getattr(split[position, replica].state, moments) for replica in range(3)]
            assert sum(each.numel() for each in held) == n_elements
            assert sum(each.untyped_storage().nbytes() for each in held) == n_elements * 8
            kept = torch.cat(held)
            assert torch.equal(kept, getattr(whole[position, 0].state, moments)), "in the order of the replicas"


def test_in_a_ring_the_states_of_all_replicas_together_are_one_copy_too():
    maths = train(plan_of(synchronisation="ring"), "1f1b", 1).maths
    own = [maths[0, replica].state.stepped for replica in range(3)]
    assert sum(each.stop - each.start for each in own) == maths[0, 0].state.parameters.numel()
    assert len({each.start for each in own}) == 3


def test_a_replica_alone_steps_everything():
    plan = small_plan(2, 1, sharding="zero-1", global_batch=4)
    trained = train(plan, "1f1b", 2)
    assert parameters_are_equal(trained, train(small_plan(2, 1, global_batch=4), "1f1b", 2))
    assert not any(math.state.splits_states for math in trained.maths.values())


def test_a_broken_connection_without_a_lost_worker_costs_no_state() -> None:
    spec = spec_of(plan_of(), iterations=9)
    assert find_recovery(spec, [], 5, None) == Recovery(5)
    assert find_recovery(spec, [3], 5, None) is None
    assert find_recovery(spec, [3], 5, (4, "there")) == Recovery(4, checkpoint="there")
    says = "with zero-1 no other replica holds its shard of the optimizer states; wanted a checkpoint to go back to"
    assert why_unrecoverable(spec, 3) == says


def test_a_checkpoint_holds_each_moment_once_and_is_resumed_by_another_number_of_replicas_split_or_not(
    tmp_path: Path,
) -> None:
    found, options = [], {"checkpoint_folder": tmp_path, "iterations": 2}
    for sharding, n_replicas in (("zero-1", 3), ("none", 2), ("zero-1", 3)):
        plan = plan_of(sharding, n_replicas=n_replicas, microbatches_per_replica=None)
        run = start(plan, **options, resume_from=tmp_path if found else None)
        run.wait()
        found += run.losses
        if len(found) == 2:
            (folder,) = tmp_path.glob("iteration-*")
            names = [name for path in folder.glob("*.safetensors") for name in held_in(path)]
            assert len(names) == len(set(names))
    assert found == pytest.approx(train_alone(plan.job, 6)[0], abs=1e-9)
    folder = describe(tmp_path).folder
    (folder / "stage-0-shard-1.safetensors").unlink()
    split = "1.query_key_value.weight.first_moment"  # begins in one replica's shard and ends in the next one's
    with CheckpointTensors(folder, 0) as tensors, pytest.raises(FileError, match=r"up to \d+ only; wanted all 3072"):
        tensors.get(split, torch.Size([96, 32]))


def held_in(path: Path) -> list[str]:
    with safe_open(path, framework="pt") as file:
        return list(file.keys())


def test_processes_send_for_as_long_as_was_predicted() -> None:
    plan = plan_of(synchronisation="ring", microbatches_per_replica=None, global_batch=12)
    run = start(plan, "1f1b", iterations=5)
    measured = run.wait()
    assert measured.context.losses == pytest.approx(train_alone(plan.job, 5)[0], abs=1e-9)
    assert measured.context.plan.sharding == "zero-1"
    for position in range(2):
        assert len({run.parameter_digests[position, replica] for replica in range(3)}) == 1, "replicas differ"
    assert_as_predicted(plan, measured)
