"""What a search shows of itself: true placements at true costs, and nothing of its course is changed by looking."""

from dataclasses import replace

import numpy as np
import pytest
from planning_networks import network

import dtfm_lab as lab
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.plan import Placement
from dtfm_lab.planning import planners, search
from dtfm_lab.planning.cost import price_placement
from dtfm_lab.planning.problem import SHOWN, Generation

TASK = network("jittered", 22, 4), Job.from_bytes(4, 5, 1e8, 2e8)
OPEN = {"n_stages": None, "n_replicas": None, "microbatch": None, "schedule": None}
SIMULATED = lab.load_topology("lecture-hall"), lab.load_job("tiny", global_batch=16).with_fields(**OPEN)
WITH_POPULATION = ["dtfm", "evolutionary", "hybrid", "random"]


def sampled(topology, job, planner="evolutionary", steps=25, **options):
    found = [step.with_population() for step in search(topology, job, planner, seed=3, steps=steps, **options)]
    return [step for step in found if step.population is not None]


@pytest.mark.parametrize("planner", WITH_POPULATION)
def test_every_individual_is_a_placement_at_the_cost_that_it_is_shown_with(planner):
    topology, job = TASK
    steps = sampled(topology, job, planner)
    for step in (steps[0], steps[-1]):
        shown = step.population.individuals
        assert 0 < len(shown) <= SHOWN
        for one in shown:
            assert len(np.unique(one.grid)) == one.grid.size == job.n_tasklets
            assert price_placement(topology, job, one.grid).total_s == pytest.approx(one.cost_s)
        costs = [one.cost_s for one in shown]
        assert costs == sorted(costs)
        assert costs[0] == pytest.approx(step.best_s), "the best so far is among them"
    assert len({one.number for step in steps for one in step.population.individuals}) > SHOWN


@pytest.mark.parametrize("start", [False, True])
def test_a_search_from_a_plan_shows_it_first(start):
    topology, job = TASK
    given = {"start": lab.evaluate(topology, job, stages=np.arange(20).reshape(4, 5))} if start else {}
    first = sampled(topology, job, steps=3, **given)[0].population.individuals
    assert any(one.operator == "start" for one in first) == start
    assert any(one.operator == "chance" for one in first)


def test_the_best_plan_of_every_shape_is_shown_at_its_simulated_seconds():
    topology, job = SIMULATED
    last = sampled(topology, job, objective="iteration", steps=12, improve_bound=False)[-1]
    shown = last.population.individuals
    assert shown[0].cost_s == pytest.approx(last.best_s)
    assert np.array_equal(shown[0].grid, last.devices)
    shapes = {one.grid.shape for one in shown}
    assert len(shapes) > 1, "the job leaves its shape open"
    judged = [one.cost_s for one in shown if not one.is_estimate]
    assert judged
    assert min(judged) == shown[0].cost_s
    for one in shown:
        Placement(one.grid)


def test_costs_are_in_the_unit_of_the_objective():
    topology, job = SIMULATED
    topology = replace(topology, devices=tuple(replace(one, price_per_hour=1.5) for one in topology.devices))
    last = sampled(topology, job, objective="price", steps=10, improve_bound=False)[-1]
    assert last.population.individuals[0].cost_s == pytest.approx(last.best_s)


@pytest.mark.parametrize(
    ("planner", "objective"), [(name, "communication") for name in sorted(planners)] + [("evolutionary", "iteration")]
)
def test_looking_changes_nothing(planner, objective):
    topology, job = TASK if objective == "communication" else SIMULATED
    # the bound of the other objective takes half of the time and is no part of the course
    how = {} if objective == "communication" else {"improve_bound": False}

    def course(look):
        steps = search(topology, job, planner, objective=objective, seed=5, steps=12, **how)
        looked = (step.with_population() if look else step for step in steps)
        return [(step.devices.tolist(), step.best_s, step.evaluations) for step in looked if step.complete]

    assert course(look=True) == course(look=False)


def test_a_planner_that_says_nothing_has_no_population(registered_planners):
    @registered_planners.register("silent")
    def silent(problem, rng):
        grid = problem.grid(rng.permutation(problem.n_devices))
        yield Generation(grid, problem.cost(grid), 1)

    step = next(iter(search(*TASK, "silent", steps=1)))
    assert step.held is None
    assert step.with_population().population is None
