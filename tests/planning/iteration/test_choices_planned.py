"""Whatever a job chooses, a plan takes as long as it says, and no plan takes less than its bound."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from every_plan import FAMILIES, Drawn, check_bound, drawn, every_plan, frozen, given, in_pairs, with_experts
from pinned_jobs import pinned_job

import dtfm_lab as lab
from dtfm_lab.costs.memory import activation_memory, static_memory, usable_bytes
from dtfm_lab.costs.seconds import pass_times
from dtfm_lab.domain.errors import LabError, PlanError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.job.options import SystemOptions
from dtfm_lab.domain.network import Device, Topology, hardware_of
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import BY_SHARDS, Kind
from dtfm_lab.planning import plan
from dtfm_lab.planning.iteration.problem import pass_table
from dtfm_lab.simulation import memory, simulate

CHOICES: dict[str, tuple[Any, ...]] = {
    "transport": ("blocking",),
    "context_parallel": (2,),
    "expert_parallel": (2,),
    "sharding": ("zero-1", "zero-2", "zero-3"),
    "prefetch": (False,),
    "overlap": (True,),
    "fragments": (2,),
    "checkpointing": ("selective", "block", "stage"),
    "attention": ("unfused",),
    "operators": ("eager", "fused"),
    "dropout": (False,),
    "reserve_bytes": (1e9,),
    "fragmentation": (0.3,),
    "gradient_dtype": ("fp32",),
    "gradient_buffers": ("buckets", "whole"),
    "optimizer": ("adam-8bit",),
    "frozen_weights": ("same", "int8", "nf4"),
    "memory_traffic": (True,),
    "flush_every": (2,),
    "early_stop": (True,),
    "block_launch_s": (5.0,),
}
MODIFIERS = {"tensor_parallel", "sequence_parallel", "bucket_bytes", "fragment_delay"}
"""Fields that change nothing alone, or that another file tries."""
EACH = [(*each, i) for i, each in enumerate((choice, value) for choice, values in CHOICES.items() for value in values)]
"""Each value, and a seed."""
MOST_PLANS = 40


def chosen(case: Drawn, choice: str, value: object) -> Drawn:
    """The case with a choice, and what that wants beside it."""
    job = case.job
    if choice == "sharding":
        also: dict[str, Any] = {"synchronise_every": 1}
        if job.synchronisation not in BY_SHARDS:
            also["synchronisation"] = "ring"
    elif choice in ("context_parallel", "expert_parallel"):
        each = job.expert_parallel * (1 + (choice == "expert_parallel"))
        also = {"model": with_experts(job.modelled()), "global_batch": each * job.global_batch}
        also["microbatch"] = each * job.microbatch
        case = replace(case, topology=in_pairs(case.topology))
    elif choice == "flush_every":
        also = {"schedule": "gpipe"}
    elif choice == "prefetch":
        also = {"sharding": "zero-3", "synchronisation": "ring", "synchronise_every": 1}
    elif choice == "checkpointing":
        also = {"recompute": False}
    elif choice == "early_stop":
        also = {"recompute": False, "checkpointing": "block"}
    elif choice == "overlap":
        also = {"bucket_bytes": 1.0}  # else one bucket holds all, and nothing overlaps
    elif choice == "frozen_weights":
        also = {"model": frozen(job.modelled())}
    elif choice == "fragments":
        also = {"synchronise_every": 4}
    elif choice == "memory_traffic":  # refused where the bandwidth of a GPU's memory is unknown
        peak = hardware_of("T4").peak_of(case.job.dtype)  # slower devices would not feel their memory
        devices = tuple(replace(one, gpu="T4", peak_flop_per_s=peak) for one in case.topology.devices)
        case, also = replace(case, topology=replace(case.topology, devices=devices)), {}
    else:
        also = {}
    return replace(case, job=job.with_fields(**{choice: value, "synchronise_every": job.synchronise_every} | also))


def test_every_choice_is_tried() -> None:
    assert {field.name for field in fields(SystemOptions)} == CHOICES.keys() | MODIFIERS


@pytest.mark.parametrize(("choice", "value", "seed"), EACH)
def test_a_found_plan_takes_as_long_as_it_says_and_fits(choice: str, value: object, seed: int) -> None:
    case = chosen(drawn(seed % 2), choice, value)
    try:
        found = plan(case.topology, case.job, objective="iteration", seed=0, steps=3, queueing=case.queueing)
    except LabError:  # in one line, or nothing fits
        return
    assert getattr(found.job, choice) == value
    assert found.iteration_s == simulate(found).iteration_s
    assert found.iteration_lower_bound_s <= found.iteration_s * (1 + 1e-9)
    assert memory(found).fits


@pytest.mark.parametrize(("choice", "value", "seed"), EACH)
def test_a_pass_takes_as_long_in_the_search_as_in_the_simulator(choice: str, value: object, seed: int) -> None:
    case = chosen(drawn(seed), choice, value)
    job = case.job.with_fields(n_stages=1, n_replicas=1)
    searched = pass_table(job, case.topology.devices[:1], None)
    whole_s = searched.forward_s[0, -1], searched.backward_s[0, -1]
    simulated = {row.kind: row.seconds for row in pass_times(given(case, job, np.array([[0]])), 1)}
    expected = [simulated[Kind.FORWARD], simulated[Kind.BACKWARD]]
    assert whole_s + searched.ends_s[:, :, 0].sum(axis=0) == pytest.approx(expected, rel=1e-9, abs=0)


@pytest.mark.parametrize(("choice", "value", "seed"), EACH)
def test_forwards_ahead_are_chosen_again_where_memory_changes(choice: str, value: object, seed: int) -> None:
    case = drawn(seed)
    job = case.job.with_fields(n_stages=1, n_replicas=1, schedule="adaptive-1f1b", recompute=False)
    job = job.with_fields(warmups=(1,))
    after = chosen(replace(case, job=job), choice, value).job
    if after.warmups is not None:
        assert held_bytes(after, case.topology) == held_bytes(job, case.topology)


def held_bytes(job: Job, topology: Topology) -> list[list[float]]:
    """What the job's one stage holds at all times and for a micro-batch, and what the devices have for it."""
    counts = static_memory(job, 1).total, *activation_memory(job, 1), usable_bytes(job, topology.devices)
    return [one.tolist() for one in counts]


@pytest.mark.parametrize(("choice", "value", "seed"), EACH)
def test_no_plan_is_faster_than_its_bound(choice: str, value: object, seed: int) -> None:
    """On the first of a few networks that has plans with the choice."""
    for number in range(seed, seed + 4):
        case, family = chosen(drawn(number, most_devices=3), choice, value), list(FAMILIES)[number % 3]
        seconds = list(seconds_of_plans(case, family, np.random.default_rng(number), MOST_PLANS))
        if min(seconds, default=np.inf) < np.inf:
            return check_bound(case, family, seconds)


def seconds_of_plans(case: Drawn, family: str, rng: np.random.Generator, most: int) -> Iterator[float]:
    """Seconds of so many plans, under the job's schedule or the family's first."""
    try:
        for _, given in itertools.islice(every_plan(case, family, rng, most), most):
            yield seconds_of(given, case.job.schedule or FAMILIES[family][0], case.queueing)
    except LabError:  # the next plan cannot have the choice, and is refused; the bound is for those before
        return


def seconds_of(given: Plan, schedule: str, queueing: str) -> float:
    """Seconds of an iteration; infinite where the schedule cannot have these counts, or does not fit."""
    try:
        if not memory(given, schedule).fits:
            return np.inf
        return simulate(given, schedule, queueing=queueing).iteration_s
    except LabError:
        return np.inf


def small(memory_gib: float) -> Topology:
    link = np.ones((4, 4)) - np.eye(4)
    devices = tuple(
        Device(name=f"d{i}", gpu="A100", memory_bytes=memory_gib * 2**30, peak_flop_per_s=1e14) for i in range(4)
    )
    return Topology(devices, 1e-4 * link, 1e10 * link + np.eye(4))


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


def test_where_memory_makes_stages_wait_a_plan_computes_activations_again():
    """All fits without, but with so few micro-batches under way that a pipeline of 32 stages is mostly idle."""
    topology, job = lab.load_topology("islands"), pinned_job("llama-3-8b")
    options = {"objective": "iteration", "steps": 1, "improve_bound": False}
    found = {
        how: plan(topology, job.with_fields(checkpointing=how), **options).iteration_s
        for how in ("none", "block", None)
    }
    assert found["none"] > 1.3 * found["block"]
    assert found[None] < 1.05 * found["block"]


def test_a_stage_of_small_blocks_fits_a_small_device_behind_a_large_one():
    model = lab.load_job("tiny").modelled()
    wide = replace(model.layers[1], parameters=50 * model.layers[1].parameters)
    model = replace(model, layers=(model.layers[0], wide, *model.layers[2:]))
    job = lab.load_job("tiny", model=model, n_stages=2, n_replicas=1)
    needs = memory(lab.evaluate(small(80), job.with_fields(blocks_per_stage=(4, 4)), stages=[[0], [1]])).peak_bytes
    large, little = (float(stage.max()) for stage in needs)
    devices = [
        replace(one, memory_bytes=n) for one, n in zip(small(1).devices, (1.1 * large, 1.1 * little), strict=False)
    ]
    network = replace(small(1).subset([0, 1]), devices=tuple(devices))
    assert little < 0.3 * large
    assert memory(plan(network, job, objective="iteration", steps=1)).fits
