"""The teaching search: every cost is the lab's, every survivor has earned its place, and it gets where it should."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from planning_networks import KINDS, network

import dtfm_lab as lab
from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.job import Job
from dtfm_lab.lab.plans import default_job
from dtfm_lab.planning.cost import pair_costs, price_placement
from dtfm_lab.planning.teaching import POPULATION, diversity, power_costs, teach
from dtfm_lab.planning.teaching_operators import places_of

shapes = st.sampled_from([(1, 1), (1, 4), (4, 1), (2, 3), (3, 3), (4, 2)])


def frames(topology, job, seed=0, most=25):
    return list(teach(topology, job, np.random.default_rng(seed), most_generations=most))


def a_job(n_stages: int, n_replicas: int) -> Job:
    return Job.from_bytes(n_stages, n_replicas, 1e9, 5e8)


@given(st.sampled_from(KINDS), shapes, st.integers(0, 2), st.integers(0, 100))
def test_every_individual_is_a_placement_and_costs_what_the_lab_says(kind, shape, n_idle, seed):
    topology, job = network(kind, shape[0] * shape[1] + n_idle, seed), a_job(*shape)
    for frame in frames(topology, job, seed, most=12):
        assert len(frame.individuals) == POPULATION
        for one in frame.individuals:
            assert one.grid.shape == shape
            assert len(set(one.grid.ravel().tolist())) == one.grid.size
            assert one.cost_s == pytest.approx(price_placement(topology, job, one.grid).total_s)


def test_equal_seeds_give_equal_frames():
    topology, job = network("clustered", 12, 1), a_job(4, 3)
    one, same, other = (frames(topology, job, seed) for seed in (3, 3, 4))
    assert [[i.number for i in f.individuals] for f in one] == [[i.number for i in f.individuals] for f in same]
    assert [f.best.cost_s for f in one] == [f.best.cost_s for f in same]
    assert [f.median_s for f in one] != [f.median_s for f in other]


def test_it_begins_with_chance_alone_and_the_best_never_gets_dearer():
    found = frames(network("geometric", 16, 0), a_job(4, 4), most=60)
    assert found[0].made_by == {"chance": POPULATION}
    best = [frame.best.cost_s for frame in found]
    assert all(a >= b for a, b in itertools.pairwise(best))
    assert best[-1] < best[0]
    assert [frame.generation for frame in found] == list(range(len(found)))
    assert all(frame.best.cost_s <= frame.individuals[0].cost_s for frame in found)


def test_a_child_has_its_parents_beside_it_and_says_what_was_done():
    topology = network("clustered", 16, 2)
    children = {
        one.number: one
        for frame in frames(topology, a_job(4, 4), most=60)
        for one in frame.individuals
        if one.operator != "chance"
    }
    assert {"crossover", "bringing home"} <= {one.operator for one in children.values()}
    for one in children.values():
        assert len(one.parents) == 1 + (one.operator == "crossover")
        assert all(parent.number < one.number and not parent.parents for parent in one.parents)
        assert one.words


def test_a_crossover_takes_places_whole_from_one_parent():
    topology, job = lab.load_topology("worldwide"), lab.load_job("dtfm-gpt3-xl")
    place_of, places = places_of(topology, pair_costs(topology, job))
    assert set(places) == {device.region for device in topology.devices}
    crossed = next(
        one
        for frame in teach(topology, job, np.random.default_rng(0))
        for one in frame.individuals
        if one.operator == "crossover"
    )
    donor = crossed.parents[1].grid
    taken = [places.index(name) for name in places if name in crossed.words]
    assert taken
    here = np.isin(place_of[donor], taken)
    assert (crossed.grid[here] == donor[here]).all()


@pytest.mark.parametrize("exponent", [1.0, 2.0, 8.0, 64.0])
def test_power_means_lie_between_the_average_and_the_cost(exponent):
    topology, job = network("jittered", 12, 0), a_job(4, 3)
    pair = pair_costs(topology, job)
    grid = np.random.default_rng(0).permutation(12).reshape(4, 3)
    smooth, cost = float(power_costs(grid, pair, exponent)), price_placement(topology, job, grid).total_s
    assert float(power_costs(grid, pair, 1.0)) <= smooth * (1 + 1e-9) <= cost * (1 + 1e-9)
    assert float(power_costs(grid, pair, 1e4)) == pytest.approx(cost, rel=1e-2)


def test_diversity_is_the_share_of_devices_in_different_stages():
    one = np.arange(6).reshape(3, 2)
    assert diversity(np.array([one, one]), 6) == 0.0
    assert diversity(np.array([one, np.roll(one, 1, axis=0)]), 6) == 1.0
    swapped = one.copy()
    swapped[0, 0], swapped[1, 0] = one[1, 0], one[0, 0]
    assert diversity(np.array([one, swapped]), 6) == pytest.approx(2 / 6)


def test_devices_without_regions_are_crossed_by_clusters():
    topology = network("clustered", 16, 2)
    place_of, places = places_of(topology, pair_costs(topology, a_job(4, 4)))
    assert len(place_of) == 16
    assert 2 <= len(places) <= 4
    assert set(place_of.tolist()) == set(range(len(places)))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["worldwide", "campus", "lecture-hall"])
def test_it_ends_where_the_papers_search_ends(name):
    topology = lab.load_topology(name)
    job = default_job(topology)
    job = job if job.shaped else job.fitted(len(topology))
    papers = lab.plan(topology, job, planner="dtfm", objective="communication", seed=0, steps=3000).cost.total_s
    *_, last = teach(topology, job, np.random.default_rng(0))
    assert last.best.cost_s <= papers * (1 + 1e-3)


def test_a_job_of_more_tasklets_than_devices_is_refused():
    with pytest.raises(PlanError, match="need 16 devices"):
        teach(network("even", 8, 0), a_job(4, 4), np.random.default_rng(0))
