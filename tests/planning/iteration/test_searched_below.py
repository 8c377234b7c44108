"""No plan that a search by random changes finds is below the bound, and the search prices plans as the engine does.

``python benchmarks searched_plans`` searches many more.
"""

import numpy as np
import pytest
from searched_below import searched

import dtfm_lab as lab


@pytest.mark.parametrize("seed", [1, 2, 5, 7, 11, 12, 14, 16, 17, 18, 20])
def test_no_searched_plan_is_below_the_bound_of_the_open_job_or_priced_otherwise_than_by_the_engine(seed):
    report = searched(seed, n_plans=60)
    if report is not None:
        assert not report.below, report
        assert not report.mispriced


def test_a_sharding_for_which_the_batch_does_not_divide_is_no_choice():
    network = lab.Topology.from_matrices(np.full((3, 3), 1.0), np.full((3, 3), 5.0), gpu=["A100"] * 3)
    job = lab.load_job("gpt2-small", global_batch=15, n_replicas=2, microbatch=None, sharding=None)
    plan = lab.plan(network, job, objective="iteration", steps=2, seed=0)
    assert plan.job.n_replicas == 2
    assert plan.job.sharding != "zero-3"
