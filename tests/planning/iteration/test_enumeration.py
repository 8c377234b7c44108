"""Networks of up to six devices: every grid of devices has a bound of its own; the lowest is near the best plan."""

import numpy as np
import pytest
from every_plan import FAMILIES, drawn, every_plan
from pinned_jobs import pinned_job
from small_mixed import brute_force, small_job, small_network

import dtfm_lab as lab
from dtfm_lab.planning.iteration.bounds import iteration_bound_steps
from dtfm_lab.planning.iteration.bounds.classes import families_of
from dtfm_lab.planning.iteration.bounds.enumeration import enumerated
from dtfm_lab.planning.iteration.bounds.iteration_bound import enumerable
from dtfm_lab.planning.iteration.problem import IterationProblem
from dtfm_lab.planning.search import PROVEN


def two_regions(seed: int) -> lab.Topology:
    """Six devices of four kinds in two regions."""
    rng = np.random.default_rng(seed)
    region = rng.integers(0, 2, 6)
    apart, square = region[:, None] != region, (6, 6)
    gbps = np.where(apart, 10 ** rng.uniform(-1, 0.5, square), 10 ** rng.uniform(0.5, 1.5, square))
    ms = np.where(apart, rng.uniform(20, 100, square), rng.uniform(0.1, 2, square))
    gpu = rng.choice(["A100", "V100", "T4", "RTX 3090"], 6).tolist()
    return lab.Topology.from_matrices((ms + ms.T) / 2, (gbps + gbps.T) / 2, gpu=gpu, name=f"two-regions-{seed}")


@pytest.mark.parametrize("seed", range(2))
def test_of_all_shapes_cuts_and_schedules_the_bound_of_six_devices_is_nine_tenths_of_the_plan(seed):
    job = pinned_job("gpt3-xl", global_batch=64)
    plan = lab.plan(two_regions(seed), job, objective="iteration", steps=4, seed=0)
    assert 0.9 * plan.iteration_s <= plan.iteration_lower_bound_s <= plan.iteration_s


@pytest.mark.parametrize(("n", "seed"), [(4, 0), (4, 3), (5, 1)])
def test_the_bound_is_below_the_best_of_all_grids_and_cuts(n, seed):
    topology, job = small_network(n, seed), small_job()
    best = brute_force(topology, job)
    *_, bound_s = iteration_bound_steps(IterationProblem.of(topology, job), 2 * best.iteration_s)
    assert 0.7 * best.iteration_s <= bound_s <= best.iteration_s


@pytest.mark.parametrize("family", ["whole", "split"])
@pytest.mark.parametrize("seed", range(40, 44))
def test_no_plan_of_a_drawn_network_is_faster_and_the_bounds_only_rise(seed, family):
    case = drawn(seed, most_devices=4)
    problem = IterationProblem.of(case.topology, case.job, case.queueing)
    best_s = min((seconds for seconds, _ in every_plan(case, family, np.random.default_rng(seed), 60)), default=None)
    if best_s is None:
        return
    found = []
    for part in problem.parts:  # no plan checkpoints otherwise
        families = families_of(part.job, FAMILIES[family])
        assert enumerable(part, families)
        steps = list(enumerated(part, families, None, lambda: 1.01 * best_s))
        assert steps == sorted(steps)
        found.append(steps[-1])
    assert min(found) <= best_s * (1 + 1e-9)


def test_a_device_that_is_far_from_all_others_is_proven_best_alone():
    far = lab.Topology.from_matrices(np.full((3, 3), 1e4), np.full((3, 3), 1e-3), gpu=["A100", "V100", "T4"])
    plan = lab.plan(far, pinned_job("gpt2-small", global_batch=8), objective="iteration", steps=2)
    assert plan.placement.devices.tolist() == [[0]]
    assert plan.iteration_lower_bound_s > plan.iteration_s * (1 - PROVEN)


def test_schedules_with_several_stages_a_device_are_not_enumerated():
    problem = IterationProblem.of(two_regions(0), lab.load_job("gpt3-xl"))
    assert not enumerable(problem, families_of(problem.job))
    assert enumerable(problem, families_of(problem.job, ["1f1b"]))
