"""Laws of the search for seconds and dollars, on networks small enough to know the answer."""

from __future__ import annotations

from itertools import islice, pairwise

import numpy as np
import pytest

from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.job import JOBS, Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.planning.iteration import Candidate, IterationProblem, search_iteration
from dtfm_lab.planning.iteration.kernels.pricing import share_out
from dtfm_lab.planning.iteration.search import (
    FIRST_GROWTH,
    FIRST_LENGTH,
    GROWTH,
    LONGEST,
    MOST_GROWTHS,
    NEAR_GROWTH,
    annealing_length,
)
from dtfm_lab.planning.iteration.structured.candidates import unpriced_plan
from dtfm_lab.planning.search import plan

GPT2 = JOBS["gpt2-small"].with_fields(n_stages=None, n_replicas=None, global_batch=64, microbatch=1, dtype="fp16")


def network(gpus: list[str], latency_ms: float = 1.0, gbps: float = 10.0) -> Topology:
    n = len(gpus)
    links, names = np.ones((n, n)), [f"{gpu} {i}" for i, gpu in enumerate(gpus)]
    return Topology.from_matrices(latency_ms * links, gbps * links, names=names, gpu=gpus).with_typical_prices()


def found(topology: Topology, job: Job, steps: int) -> Candidate:
    """The last candidate of so many steps."""
    stream = search_iteration(IterationProblem.of(topology, job), np.random.default_rng(0))
    complete = (candidate for candidate in stream if candidate.complete)
    return list(islice(complete, steps))[-1]


def test_values_never_rise():
    problem = IterationProblem.of(network(["A100", "V100", "T4"]), GPT2)
    values = [candidate.best_s for candidate in islice(search_iteration(problem, np.random.default_rng(0)), 30)]
    assert all(later <= earlier for earlier, later in pairwise(values[1:]))


def test_unequal_shares_beat_the_fastest_device_alone():
    topology = network(["A100", "V100", "RTX 4090", "T4", "T4"], latency_ms=0.01, gbps=200.0)
    alone = found(topology, GPT2.with_fields(n_stages=1, n_replicas=1), steps=3)
    assert found(topology, GPT2, steps=8).best_s < 0.8 * alone.best_s


def test_activations_are_computed_again_where_nothing_fits_without():
    job = GPT2.with_fields(schedule="gpipe", global_batch=256)
    small = network(["T4", "T4"])
    assert found(small, job, steps=3).job.checkpoints != "none"
    assert found(small, GPT2, steps=3).job.checkpoints == "none"


def test_a_model_that_fits_nowhere_is_refused_in_one_line():
    problem = IterationProblem.of(
        network(["T4", "T4"]), JOBS["llama-2-70b"].with_fields(n_stages=None, n_replicas=None)
    )
    with pytest.raises(PlanError, match=r"fits no plan .* all devices have"):
        search_iteration(problem, np.random.default_rng(0))


def test_a_search_is_never_worse_than_its_start():
    topology = network(["A100", "V100", "RTX 4090", "T4", "T4"])
    problem = IterationProblem.of(topology, GPT2)
    best = found(topology, GPT2, steps=8)
    stream = search_iteration(problem, np.random.default_rng(1), start=unpriced_plan(topology, best.job, best.best))
    first = next(candidate for candidate in stream if candidate.complete)
    assert first.best_s <= best.best_s * (1 + 1e-9)


def test_a_planner_for_communication_places_a_batch_that_replicas_do_not_share_evenly():
    job = GPT2.with_fields(n_stages=1, n_replicas=3, global_batch=64)
    placed = plan(network(["A100", "V100", "T4"]), job, objective="iteration", planner="random", steps=1)
    assert sorted(placed.job.microbatch_counts) == [21, 21, 22]


@pytest.mark.parametrize("planner", ["evolutionary", "random"])
def test_every_planner_refuses_a_shape_that_no_network_of_so_few_devices_has(planner):
    job = GPT2.with_fields(n_stages=4, n_replicas=2)
    with pytest.raises(PlanError, match="4 stages x 2 replicas fit no plan on 3 devices"):
        plan(network(["A100", "V100", "T4"]), job, objective="iteration", planner=planner, steps=1)


@pytest.mark.parametrize("slower", [1.0, 1e3, 1e10, 1e20])
@pytest.mark.parametrize("begins_s", [0.0, 1e30])
def test_a_batch_is_shared_out_whole_however_much_slower_one_pipeline_is(slower, begins_s):
    shares = np.empty(3)
    share_out(np.full(3, begins_s), np.array([slower, 1.0, 1.0]) * 1e-3, 30, shares)
    assert shares.sum() == 30
    assert shares.min() >= 1
    if begins_s == 0:
        assert abs(shares[1] - shares[2]) <= 1


@pytest.mark.parametrize(("first", "growth"), [(FIRST_LENGTH, GROWTH), (FIRST_GROWTH, NEAR_GROWTH)])
def test_annealings_grow_to_the_longest_however_many_a_search_of_hours_makes(first: float, growth: float) -> None:
    lengths = [annealing_length(first, growth, n) for n in (0, 1, 5, MOST_GROWTHS, 10**6)]
    assert lengths[:3] == pytest.approx([first * growth**n for n in (0, 1, 5)])
    assert lengths[3:] == [LONGEST, LONGEST]
