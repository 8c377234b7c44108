"""The plans of systems beside those of the planner: ours is the planner's, and no modelled system beats it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from generated_clusters import cluster

import dtfm_lab as lab
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.planning import plan

HOME = Path(__file__).parents[2] / "data" / "home"
ROUNDING = 1 + 1e-9


@cache
def small_cluster(seed: int) -> Topology:
    return cluster(seed, most_hosts=3)


@cache
def found_plan(topology: Topology, job: Job, **options: Any) -> Plan:
    """Return the plan of ``lab.plan`` without its lower bound, which takes most of the time and decides nothing."""
    return plan(topology, job, objective="iteration", seed=0, improve_bound=False, **options)


@pytest.mark.parametrize(("network", "queueing"), [("home", "pairs"), ("shared", "pairs"), ("home", "nics")])
def test_our_own_plan_among_the_systems_is_that_of_the_planner(network: str, queueing: str) -> None:
    home, job = lab.load_topology(HOME / f"{network}.yaml"), lab.load_job("llama-3-8b", global_batch=32, seq_len=2048)
    planned = found_plan(home, job, queueing=queueing, steps=2)
    (ours,) = lab.strategies(home, job, systems=["dtfm-lab"], steps=2, queueing=queueing)
    assert ours.plan.iteration_s <= planned.iteration_s * ROUNDING


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("system", ["ddp", "fsdp", "megatron"])
def test_no_modelled_system_beats_the_plan(seed: int, system: str) -> None:
    topology, job = small_cluster(seed), lab.load_job("gpt3-xl", global_batch=64)
    best = lab.strategies(topology, job, systems=[system], queueing="pairs").outcomes[0].iteration_s
    found = found_plan(topology, job, steps=1)
    assert best is None or found.iteration_s <= best * ROUNDING
