"""Structured plans: the family holds what a practitioner would launch, and no such plan beats the planner's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from generated_clusters import cluster

import dtfm_lab as lab
from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.planning import plan
from dtfm_lab.planning.iteration.problem import SearchTarget
from dtfm_lab.planning.iteration.structured import StructuredPlans, candidates
from dtfm_lab.planning.iteration.structured.candidates import unpriced_plan
from dtfm_lab.planning.iteration.structured.layouts import OF_CHOICES, in_order
from dtfm_lab.planning.search import SearchRequest, value_of
from dtfm_lab.simulation.memory import memory
from dtfm_lab.simulation.simulate import iteration_seconds

ROUNDING = 1 + 1e-9


def planned(topology: Topology, job: Job, **options: Any) -> Plan:
    """Return a plan for seconds without a lower bound, which would take most of the time. No law here is about it."""
    return plan(topology, job, **{"objective": "iteration", "seed": 0, "steps": 1, "improve_bound": False} | options)


def job_of(**fields: object) -> Job:
    """A job that leaves everything open."""
    return lab.load_job("gpt3-xl", global_batch=64).with_fields(**fields)


def family_of(topology: Topology, job: Job) -> StructuredPlans:
    """The family, all of it estimated."""
    found = StructuredPlans(SearchRequest(topology=topology, job=job, planner="evolutionary"), SearchTarget())
    found.estimate(lambda: False)
    return found


def plain_grids(topology: Topology, job: Job) -> list[float]:
    """Seconds of every grid in rank order on all devices, whole stages, as a guide would have it; those that fit."""
    found = []
    for degree in topology.group_sizes:
        network = topology.grouped(degree)
        for n_stages in (1, 2, 4, 8):
            n_replicas = len(network) // n_stages
            if not n_replicas or len(network) % n_stages or job.global_batch % n_replicas:
                continue
            for sharding in ("none", "zero-1", "zero-3"):
                fields = {"tensor_parallel": degree, "n_stages": n_stages, "n_replicas": n_replicas, "microbatch": 1}
                how = {"sharding": sharding, "synchronisation": "ring", "overlap": False, "checkpointing": "none"}
                try:
                    one = job.with_fields(schedule="1f1b", **fields, **how)
                    grid = in_order(one, np.arange(len(network)), "dp-pp")
                    priced = unpriced_plan(network, one, grid)
                    if memory(priced).fits:
                        found.append(iteration_seconds(priced))
                except LabError:  # more replicas than micro-batches
                    continue
    return found


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_no_plain_grid_beats_the_plan(seed):
    topology, job = cluster(seed), job_of()
    grids = plain_grids(topology, job)
    assert planned(topology, job).iteration_s <= min(grids, default=np.inf) * ROUNDING


@pytest.mark.parametrize("seed", range(4))
def test_leaving_more_open_never_makes_the_best_estimate_worse(seed):
    topology = cluster(seed)
    opened = family_of(topology, job_of()).estimates
    for fields in ({"tensor_parallel": 1}, {"sharding": "none"}, {"synchronisation": "ring"}, {"overlap": False}):
        pinned = family_of(topology, job_of(**fields)).estimates
        if pinned:
            assert min(one.value for one in opened) <= min(one.value for one in pinned) * ROUNDING


@pytest.mark.parametrize("seed", range(6))
def test_estimates_are_near_what_the_simulator_says(seed):
    found, job = family_of(cluster(seed), job_of()), job_of()
    first = next(filter(None, found.simulated()))
    of_first = [one for one in found.estimates if np.array_equal(one.layout.grid, first.best)]
    estimated_s = min(one.value for one in of_first if candidates.job_of(one, job) == first.job)
    assert 0.8 < estimated_s / first.iteration_s < 1.15


def test_every_choice_of_a_launch_is_open_by_default_and_chosen_by_the_plan():
    job = lab.load_job("llama-3-8b")
    assert {*OF_CHOICES, "n_stages", "n_replicas", "microbatch", "schedule", "checkpointing"} <= set(job.left_open)
    chosen = planned(cluster(3), job_of()).job
    assert all(getattr(chosen, what) is not None for what in (*OF_CHOICES, "microbatch", "schedule"))


def test_what_is_pinned_stays():
    fields = {
        "tensor_parallel": 2,
        "sharding": "zero-1",
        "synchronisation": "sharded",
        "overlap": True,
        "microbatch": 2,
    }
    chosen = planned(cluster(4), job_of(**fields)).job
    assert {what: getattr(chosen, what) for what in fields} == fields


@pytest.mark.parametrize("objective", ["iteration", "price"])
def test_a_plan_is_never_worse_than_its_start(objective):
    topology = lab.load_topology("campus").with_typical_prices()
    first = planned(topology, job_of(), objective=objective, steps=3)
    again = planned(topology, job_of(), objective=objective, seed=1, start=first)
    assert value_of(again) <= value_of(first) * ROUNDING


def test_a_faster_link_or_one_more_device_never_makes_the_plan_that_starts_from_the_old_one_worse():
    whole = lab.load_topology("campus")
    part = whole.subset(range(24))
    before = planned(part, job_of(), steps=2)
    after = planned(whole, job_of(), start=before)
    assert after.iteration_s <= before.iteration_s * ROUNDING
    faster = replace(part, bandwidth_bytes_per_s=part.bandwidth_bytes_per_s * 2)
    after = planned(faster, job_of(), start=before)
    assert after.iteration_s <= before.iteration_s * ROUNDING
