"""What jobs keep and compute again rules what the planner finds: bounds hold, seconds are the simulator's."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import dtfm_lab as lab
from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.network import Device, Topology
from dtfm_lab.planning.iteration.bounds import iteration_bound_steps
from dtfm_lab.planning.iteration.problem import IterationProblem

sys.path.insert(0, str(Path(__file__).parent))
from every_plan import FAMILIES, drawn, every_plan

CHOICES = (
    {"checkpointing": "block", "recompute": False},
    {"checkpointing": "selective", "recompute": False, "attention": "unfused"},
    {"checkpointing": "stage", "recompute": False},
    {"attention": "unfused", "gradient_dtype": "fp32"},
)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("choices", CHOICES, ids=lambda one: " ".join(map(str, one.values())))
@pytest.mark.parametrize("seed", [1, 4])
def test_no_plan_is_faster_than_its_bound(seed, choices, family):
    case = drawn(seed, most_devices=3)
    case = replace(case, job=case.job.with_fields(**choices))
    problem = IterationProblem.of(case.topology, case.job, case.queueing)
    best_s = min((seconds for seconds, _ in every_plan(case, family, np.random.default_rng(0), 60)), default=None)
    if best_s is not None:
        *_, bound_s = iteration_bound_steps(problem, 1.01 * best_s, FAMILIES[family])
        assert bound_s <= best_s


def small(memory_gib: float) -> Topology:
    link = np.ones((4, 4)) - np.eye(4)
    devices = tuple(
        Device(name=f"d{i}", gpu="A100", memory_bytes=memory_gib * 2**30, peak_flop_per_s=1e14) for i in range(4)
    )
    return Topology(devices, 1e-4 * link, 1e10 * link + np.eye(4))


@pytest.mark.parametrize("choices", [*CHOICES, {"memory_traffic": True}], ids=str)
def test_the_seconds_of_a_plan_are_those_of_its_simulation(choices):
    job = lab.load_job("tiny", model="gpt2-small", global_batch=8, dtype="fp16", **choices)
    plan = lab.plan(
        small(8), job.with_fields(n_stages=None, n_replicas=None, microbatch=1), objective="iteration", steps=2
    )
    assert plan.iteration_s == lab.simulate(plan).iteration_s
    assert plan.iteration_lower_bound_s <= plan.iteration_s
    assert lab.memory(plan).fits


def test_checkpoints_of_blocks_let_a_job_fit_that_does_not_without():
    job = lab.load_job("tiny", model="gpt2-small", global_batch=8, microbatch=8, n_stages=1, n_replicas=1, dtype="fp16")
    needs = {
        how: int(lab.memory(lab.evaluate(small(80), job.with_fields(checkpointing=how), stages=[[0]])).peak_bytes.max())
        for how in ("none", "selective", "block", "stage")
    }
    assert needs["none"] > needs["selective"] > needs["block"]
    tight = small((needs["block"] + 1) / 2**30)
    assert (
        lab.plan(tight, job.with_fields(checkpointing="block"), objective="iteration", steps=1).job.checkpoints
        == "block"
    )
    with pytest.raises(PlanError, match="with checkpointing selective it needs some"):
        lab.plan(tight, job.with_fields(checkpointing="selective"), objective="iteration", steps=1)
