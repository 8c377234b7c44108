"""Bounds count what a job's choices cost for certain: what is waited for, averaged across a slow cut, or gathered."""

import itertools
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import dtfm_lab as lab
from dtfm_lab.domain.errors import LabError
from dtfm_lab.planning.iteration.bounds import iteration_bound_steps
from dtfm_lab.planning.iteration.problem import IterationProblem

sys.path.insert(0, str(Path(__file__).parent))
from every_plan import FAMILIES, drawn, every_plan
from test_choices_planned import seconds_of

APART = np.array([0, 0, 0, 1, 1, 1])
APART = APART[:, None] != APART[None, :]
SIX = lab.Topology.from_matrices(
    np.where(APART, 40.0, 1.0),
    np.where(APART, 0.5, 5.0),
    gpu=["A100", "A100", "V100", "A100", "V100", "V100"],
    memory_gib=[80] * 6,
    name="six",
)


def bound_over_plan(topology, **options):
    job = lab.load_job("gpt3-xl", **{"global_batch": 64, "microbatch": 1} | options)
    plan = lab.plan(topology, job, objective="iteration", steps=3, seed=0)
    return plan.iteration_lower_bound_s / plan.iteration_s


@pytest.mark.parametrize(
    ("synchronisation", "overlap"),
    [("ring", False), ("ring", True), ("hierarchical", False), ("sharded", False), ("sharded", True)],
)
def test_averaging_across_a_slow_cut_takes_what_its_links_take(synchronisation, overlap):
    across = {"n_stages": 1, "n_replicas": 6, "synchronisation": synchronisation, "overlap": overlap}
    assert bound_over_plan(SIX, **across) > 0.85


@pytest.mark.parametrize("sharding", ["zero-1", "zero-2", "zero-3"])
@pytest.mark.parametrize("gradient_dtype", [None, "fp32"])
def test_two_replicas_on_one_link_take_what_they_exchange(sharding, gradient_dtype):
    two = lab.Topology.from_matrices(np.full((2, 2), 1.0), np.full((2, 2), 1.0), gpu=["A100"] * 2, memory_gib=[80] * 2)
    pinned = {"n_stages": 1, "n_replicas": 2, "global_batch": 8, "sharding": sharding, "gradient_dtype": gradient_dtype}
    assert bound_over_plan(two, **pinned) > 0.98


@pytest.mark.parametrize("transport", ["batched", "blocking"])
def test_what_is_sent_is_waited_for(transport):
    two = lab.Topology.from_matrices(np.full((2, 2), 5.0), np.full((2, 2), 1.0), gpu=["A100"] * 2, memory_gib=[80] * 2)
    pinned = {"n_stages": 2, "n_replicas": 1, "global_batch": 32, "transport": transport}
    assert bound_over_plan(two, **pinned) > 0.9
    assert bound_over_plan(two, **pinned | {"checkpointing": "block"}) > 0.9


def test_blocks_computed_again_are_counted():
    one = SIX.subset([0])
    pinned = {"n_stages": 1, "n_replicas": 1, "checkpointing": "block"}
    assert bound_over_plan(one, **pinned) > 0.99


@pytest.mark.parametrize("seed", range(20))
def test_no_plan_with_choices_together_is_faster_than_its_bound(seed):
    rng = np.random.default_rng(seed)
    case = drawn(seed, most_devices=4)
    synchronisation = str(rng.choice(["sharded", "sharded-at-once", "ring", "ring", "hierarchical", "central"]))
    options = {
        "transport": str(rng.choice(["overlapped", "batched", "blocking"])),
        "synchronisation": synchronisation,
        "overlap": bool(rng.random() < 0.5),
        "bucket_bytes": float(rng.choice([1e3, 1e4])),
        "gradient_dtype": rng.choice([None, "fp32"]),
    }
    if synchronisation not in ("hierarchical", "central"):
        options |= {"sharding": str(rng.choice(["none", "zero-1", "zero-2", "zero-3"])), "synchronise_every": 1}
    if rng.random() < 0.5:
        options |= {"recompute": False, "checkpointing": str(rng.choice(["block", "selective"]))}
    case = replace(case, job=replace(case.job, **options))
    family = list(FAMILIES)[seed % 3]
    best_s = np.inf
    try:
        for _, given in itertools.islice(every_plan(case, family, rng, 40), 40):
            best_s = min(best_s, seconds_of(given, FAMILIES[family][0], case.queueing))
    except LabError:  # the next plan cannot have the choices
        pass
    if best_s < np.inf:
        problem = IterationProblem.of(case.topology, case.job, case.queueing)
        *_, bound_s = iteration_bound_steps(problem, 1.01 * best_s, FAMILIES[family])
        assert bound_s <= best_s * (1 + 1e-9)
