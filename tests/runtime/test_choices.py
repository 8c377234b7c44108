"""Real runs carry out a choice of the job as the model says, or refuse it in one line before anything starts."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from run_helpers import assert_as_predicted, even_plan, small_plan
from test_recovery import after_iteration, assert_as_undisturbed, run_with
from training_alone import train_alone

import dtfm_lab as lab
from dtfm_lab.domain.errors import JobError, LabError
from dtfm_lab.domain.job.options import MEMORY_ONLY, SystemOptions
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.runtime.client.launch import prepare, start
from dtfm_lab.runtime.client.run_checks import PLAYED
from dtfm_lab.runtime.protocol.run_options import RunOptions

UNPLAYED: dict[str, list[Any]] = {
    "transport": [],
    "tensor_parallel": [2],
    "context_parallel": [2],
    "expert_parallel": [2],
    "sharding": ["zero-2", "zero-3"],
    "fragment_delay": [2],
    "overlap": [True],
    "checkpointing": ["selective"],
    "attention": ["unfused"],
    "gradient_dtype": ["fp64"],
    "optimizer": ["adam-8bit"],
    "frozen_weights": ["nf4"],
}
"""Values that workers do not carry out."""
WITHOUT_EFFECT = {"bucket_bytes", "fragments", "memory_traffic", "flush_every", "sequence_parallel", *MEMORY_ONLY}
WITHOUT_EFFECT |= {"early_stop", "prefetch", "block_launch_s"}
"""Fields that say how seconds are counted, or count only with another choice, or that workers carry out in full."""


def test_every_choice_of_a_job_is_carried_out_refused_or_without_effect_on_a_run() -> None:
    assert {field.name for field in fields(SystemOptions)} == UNPLAYED.keys() | WITHOUT_EFFECT
    assert UNPLAYED.keys() == PLAYED.keys()


@pytest.mark.parametrize(("choice", "value"), [(name, value) for name, values in UNPLAYED.items() for value in values])
def test_a_choice_that_workers_cannot_carry_out_is_refused_in_one_line(choice: str, value: Any) -> None:
    with pytest.raises(LabError, match=choice):
        start(even_plan(**{choice: value, "synchronise_every": 2 if choice == "fragment_delay" else 1}))


def test_the_refusal_names_the_choice_the_value_and_what_is_wanted() -> None:
    says = r"^job tiny: attention is unfused, which can be simulated but not run; real runs want fused$"
    with pytest.raises(JobError, match=says):
        start(even_plan(attention="unfused"))


def test_gradients_in_the_precision_of_all_numbers_are_no_choice() -> None:
    plan = even_plan(gradient_dtype="fp32")
    assert plan.job.dtype == "fp32"
    assert prepare(plan, None, RunOptions()).plan is plan


def test_blocks_computed_again_beside_split_backwards_are_refused() -> None:
    says = (
        "checkpointing is block with schedule zb-h1, which splits backwards; real runs want stage or none, or another"
    )
    with pytest.raises(JobError, match=says):
        start(even_plan(checkpointing="block"), schedule="zb-h1")


CARRIED_OUT: dict[str, dict[str, Any]] = {
    "split states, and sends that block": {"sharding": "zero-1", "transport": "blocking", "tied": True},
    "all of them": {
        "sharding": "zero-1",
        "synchronisation": "sharded-at-once",
        "transport": "blocking",
        "checkpointing": "block",
        "microbatches_per_replica": (5, 4, 3),
    },
}


def chosen(fields: dict[str, Any]) -> Plan:
    """On links so slow that seconds of a crowded machine's CPU, which vary, are few beside those of messages."""
    plan = small_plan(2, 3, **({"global_batch": 12} | fields))
    slow = Topology.from_matrices(np.full((6, 6), 30.0), np.full((6, 6), 0.05), name="slow", gpu="laptop")
    return lab.evaluate(slow, plan.job, stages=plan.placement.devices.tolist())


@pytest.mark.slow
@pytest.mark.parametrize("choice", CARRIED_OUT)
def test_a_run_trains_what_one_process_trains_in_the_seconds_that_were_predicted(choice: str) -> None:
    plan = chosen(CARRIED_OUT[choice])
    measured = start(plan, "1f1b", iterations=6).wait()
    assert measured.context.losses == pytest.approx(train_alone(plan.job, 6)[0], abs=1e-9)
    assert_as_predicted(plan, measured)


@pytest.mark.slow
def test_a_kill_changes_no_bit_where_states_are_split_and_sends_block(tmp_path: Path) -> None:
    plan = chosen(CARRIED_OUT["all of them"])
    kill = after_iteration(4, lambda run: run.kill("device-1"))
    run = run_with(plan, kill, checkpoint_folder=tmp_path, checkpoint_every=3)
    assert_as_undisturbed(run)
    (fault,) = run.faults  # it took its shard with it, and all went back
    assert fault.iteration % 3 == 0 < fault.iteration
    assert fault.state_from == f"checkpoint of iteration {fault.iteration}"
