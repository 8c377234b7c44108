"""The search for seconds against everything: all subsets, shapes, cuts and placements of a few devices."""

from functools import lru_cache

import pytest
from every_plan import uneven
from small_mixed import Best, brute_force, small_job, small_network, with_moved_shares

from dtfm_lab.domain.job import gpt
from dtfm_lab.domain.plan import Plan
from dtfm_lab.planning import search
from dtfm_lab.simulation import memory, simulate
from dtfm_lab.simulation.simulate import iteration_seconds

CASES = [(4, 0), (4, 1), (4, 2), (4, 3), (5, 0), (5, 1), (5, 2)]
"""Numbers of devices and seeds; the benchmark has twenty of up to six devices."""
HEAVY = [case for case in CASES if case != (5, 2)]
"""Those whose devices hold a model with a large vocabulary."""
SAME = 1 + 1e-9
STEPS = 8


@lru_cache
def found(
    n: int, seed: int, n_replicas: int | None, differing: bool = False, vocabulary: int = 8192
) -> tuple[Best, Plan, Plan]:
    """The best plan with even shares, as brute force has it and as a plan, and the plan that the search finds.

    ``differing``: for a model whose blocks pass on more or less. A large vocabulary makes the head heavy.
    """
    topology, job = small_network(n, seed), small_job(n_replicas=n_replicas)
    if vocabulary != 8192:
        model = gpt(name="heavy", n_layers=6, d_model=1024, n_heads=16, seq_len=1024, vocab_size=vocabulary)
        job = job.with_fields(model=model)
    if differing:
        job = job.with_fields(model=uneven(job.modelled(), seed))
    best = brute_force(topology, job, alone=vocabulary != 8192)
    *_, last = search(topology, job, objective="iteration", seed=0, steps=STEPS, improve_bound=False)
    return best, best.plan(topology, job), last.plan


@pytest.mark.parametrize(("n_replicas", "differing"), [(None, False), (2, False), (None, True), (1, True)])
@pytest.mark.parametrize(("n", "seed"), CASES)
def test_no_plan_with_even_shares_is_faster_and_brute_force_is_simulated_as_it_was_priced(
    n, seed, n_replicas, differing
):
    best, opponent, ours = found(n, seed, n_replicas, differing)
    assert simulate(opponent).iteration_s == pytest.approx(best.iteration_s, rel=1e-12)
    assert ours.iteration_s is not None
    assert ours.iteration_s <= best.iteration_s * SAME
    assert memory(opponent).fits
    assert memory(ours).fits


@pytest.mark.parametrize(("n", "seed"), HEAVY)
def test_with_a_head_of_several_blocks_no_cut_is_much_faster(n, seed):
    """Also of the cuts in which the embedding or the head has a stage of its own."""
    best, opponent, ours = found(n, seed, 1, vocabulary=65536)
    assert simulate(opponent).iteration_s == pytest.approx(best.iteration_s, rel=1e-12)
    assert ours.iteration_s is not None
    assert ours.iteration_s <= best.iteration_s * 1.02


def test_the_search_gives_a_heavy_head_a_stage_of_its_own():
    _, _, ours = found(4, 3, 1, vocabulary=65536)
    assert ours.blocks_per_stage == (2, 4, 0)


@pytest.mark.parametrize(("n", "seed"), CASES)
def test_where_moving_micro_batches_of_the_best_even_plan_saves_time_the_free_plan_is_as_fast_as_that_at_least(n, seed):
    _, opponent, ours = found(n, seed, 2)
    moved_s = [iteration_seconds(moved) for moved in with_moved_shares(opponent)]
    assert ours.iteration_s is not None
    assert ours.iteration_s <= min(moved_s, default=float("inf")) * SAME


def test_two_replicas_of_unlike_speeds_are_faster_with_shares_by_speed():
    faster = [ours.iteration_s < best.iteration_s * 0.97 for best, _, ours in (found(*case, 2) for case in CASES)]
    assert sum(faster) >= 3
