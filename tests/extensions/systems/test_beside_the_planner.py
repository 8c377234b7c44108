"""The plans of systems beside those of the planner: ours is the planner's, and no modelled system beats it."""

from __future__ import annotations

from pathlib import Path

import pytest
from generated_clusters import cluster

import dtfm_lab as lab

HOME = Path(__file__).parents[2] / "data" / "home"
ROUNDING = 1 + 1e-9


@pytest.mark.parametrize(("network", "queueing"), [("home", "pairs"), ("shared", "pairs"), ("home", "nics")])
def test_our_own_plan_among_the_systems_is_that_of_the_planner(network: str, queueing: str) -> None:
    home, job = lab.load_topology(HOME / f"{network}.yaml"), lab.load_job("llama-3-8b", global_batch=32, seq_len=2048)
    planned = lab.plan(home, job, queueing=queueing, steps=4, seed=0)
    (ours,) = lab.strategies(home, job, systems=["dtfm-lab"], steps=4, queueing=queueing)
    assert ours.plan.iteration_s <= planned.iteration_s * ROUNDING


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("system", ["ddp", "fsdp", "megatron"])
def test_no_modelled_system_beats_the_plan(seed: int, system: str) -> None:
    topology, job = cluster(seed, most_hosts=3), lab.load_job("gpt3-xl", global_batch=64)
    best = lab.strategies(topology, job, systems=[system], queueing="pairs").outcomes[0].iteration_s
    found = lab.plan(topology, job, objective="iteration", seed=0, steps=1)
    assert best is None or found.iteration_s <= best * ROUNDING
