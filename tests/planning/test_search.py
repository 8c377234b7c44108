"""Searching: the known optima, the same plan for the same seed, and refusals."""

import textwrap
import time
from dataclasses import replace
from functools import partial
from importlib import import_module
from itertools import pairwise

import numpy as np
import pytest
from planning_networks import KINDS, found_after, network, optimum_s, renumbered

from dtfm_lab.domain.errors import PlanError, UnknownName
from dtfm_lab.domain.job import JOBS, Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.files import load_topology
from dtfm_lab.planning import evaluate, plan, planners, search
from dtfm_lab.planning.background_tasks import while_compiling

DTFM = JOBS["dtfm-gpt3-xl"]
OPTIMA_S = {
    "datacenter": 3.439799,
    "spot": 31.634160,
    "universities": 16.086840,
    "regional": 34.802041,
    "worldwide": 49.218380,
}
"""Proven by integer programming on region counts."""


@pytest.mark.parametrize("name", OPTIMA_S)
@pytest.mark.parametrize("shuffle", [None, 1, 2])
def test_the_optimum_of_each_published_case_is_found_however_devices_are_numbered(name, shuffle):
    topology = load_topology(name)
    if shuffle is not None:
        topology, _ = renumbered(topology, shuffle)
    assert plan(topology, DTFM, seed=3, steps=5).cost.total_s == pytest.approx(OPTIMA_S[name], abs=1e-6)


def test_a_proven_plan_ends_the_search():
    steps = list(search(load_topology("datacenter"), DTFM, steps=50))
    assert len(steps) < 50
    assert steps[-1].plan.gap == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("shape", [(8, 2, 4), (8, 4, 2), (7, 3, 2), (6, 2, 2)])
@pytest.mark.parametrize("kind", KINDS)
def test_the_evolutionary_planner_finds_the_best_of_all_placements_of_a_few_devices(kind, shape):
    n, n_stages, n_replicas = shape
    topology, job = network(kind, n, 8), Job.from_bytes(n_stages, n_replicas, 1e8, 2e8)
    optimum = pytest.approx(optimum_s(topology, job))
    assert any(step.best_s == optimum for step in search(topology, job, steps=200))


@pytest.mark.parametrize("name", sorted(planners))
def test_the_same_seed_takes_the_same_steps_bit_for_bit(name):
    topology, job = network("jittered", 22, 4), Job.from_bytes(4, 5, 1e8, 2e8)
    runs = [list(search(topology, job, name, seed=7, steps=20)) for _ in range(2)]
    one, other = (
        [
            (step.devices.tolist(), step.best_s, step.median_s, step.diversity, step.parents, step.evaluations)
            for step in run
            if step.complete
        ]
        for run in runs
    )
    assert one == other


@pytest.mark.parametrize("name", ["dtfm", "evolutionary", "hybrid", "random"])
@pytest.mark.parametrize("kind", ["even", "asymmetric"])
def test_how_long_kernels_take_to_compile_decides_nothing(name, kind):
    assert found_after(0, kind, name) == found_after(1, kind, name) == found_after(40, kind, name)


def test_no_second_of_compiling_counts_however_rarely_it_is_looked_at(monkeypatch):
    monkeypatch.setattr("dtfm_lab.planning.background_tasks.POLL_S", 10.0)  # as if numba held the interpreter
    kernels = partial(time.sleep, 0.3)
    assert [*while_compiling(kernels, kernels)][-1] >= 0.3
    assert [*while_compiling(kernels, kernels)] == []


@pytest.mark.parametrize("name", sorted(planners))
def test_every_step_is_a_plan_no_worse_than_the_one_before(name):
    topology, job = network("geometric", 24, 5), Job.from_bytes(4, 5, 1e8, 2e8)
    steps = list(search(topology, job, name, seed=1, steps=15))
    assert [*dict.fromkeys(step.generation for step in steps)] == list(range(15))
    assert all(b.best_s <= a.best_s and b.evaluations >= a.evaluations for a, b in pairwise(steps))
    for step in steps:
        assert step.plan.cost.total_s == pytest.approx(step.best_s)
        assert step.bound_s <= step.best_s
        assert (step.plan.planner, step.plan.seed, len(step.plan.idle_devices)) == (name, 1, 4)


def test_evolution_beats_chance():
    topology, job = network("geometric", 32, 5), Job.from_bytes(4, 8, 1e8, 2e8)
    evolved, chance = (plan(topology, job, name, seed=0, steps=20).cost.total_s for name in ("evolutionary", "random"))
    assert evolved < 0.9 * chance


def test_a_terrible_device_is_left_idle():
    latency = np.random.default_rng(0).uniform(5, 50, (16, 16))
    latency = latency + latency.T
    latency[6] = latency[:, 6] = 3000.0
    topology = Topology.from_matrices(latency, np.full((16, 16), 1.0))
    assert 6 in plan(topology, Job.from_bytes(3, 5, 1e8, 2e8), seed=0, steps=3).idle_devices


@pytest.mark.parametrize("name", sorted(planners))
def test_a_device_that_is_all_but_unreachable_makes_no_plan_look_cheaper_than_it_is(name):
    rng = np.random.default_rng(1)
    latency = rng.uniform(1, 100, (24, 24))
    latency[0] = latency[:, 0] = 1e33
    topology = Topology.from_matrices(latency, np.full((24, 24), 1.0))
    for step in search(topology, Job.from_bytes(4, 5, 1e8, 2e8), name, seed=0, steps=10):
        assert step.plan.cost.total_s == pytest.approx(step.best_s)
    assert step.gap > 0


@pytest.fixture(scope="module")
def found():
    return plan(network("geometric", 24, 5), Job.from_bytes(4, 5, 1e8, 2e8), seed=0, steps=30)


@pytest.mark.parametrize("name", sorted(planners))
def test_a_search_goes_on_from_a_given_plan(name, found):
    topology, job = found.topology, found.job
    other, _ = renumbered(topology, 4)
    for there in (topology, other):
        first = next(search(there, job, name, seed=9, start=found, steps=1))
        assert first.best_s <= found.cost.total_s * (1 + 1e-12)


def test_steps_and_seconds_both_bound_a_search():
    topology, job = network("geometric", 24, 5), Job.from_bytes(4, 5, 1e8, 2e8)
    assert {step.generation for step in search(topology, job, steps=3)} == {0, 1, 2}
    assert {step.generation for step in search(topology, job, seconds=1e-9)} == {0}


def test_an_initial_population_that_takes_too_long_is_not_waited_for(monkeypatch, registered_planners):
    topology, job = network("geometric", 24, 5), Job.from_bytes(4, 5, 1e8, 2e8)

    def endless_start(problem, rng):
        first = next(planners["evolutionary"](problem, rng))
        while True:
            yield replace(first, complete=False)

    registered_planners.register("endless_start")(endless_start)
    monkeypatch.setattr(import_module("dtfm_lab.planning.search"), "INITIAL_POPULATION_S", 0.01)
    assert plan(topology, job, "endless_start", seconds=0.01).generation == 0


def test_the_initial_population_begins_with_a_random_placement():
    topology, job = network("geometric", 24, 5), Job.from_bytes(4, 5, 1e8, 2e8)
    first, *_, last = search(topology, job, seed=0, steps=1)
    assert first.generation == last.generation == 0
    assert first.evaluations == 1
    assert first.best_s > last.best_s


def test_an_interrupt_keeps_the_best_so_far(registered_planners):
    topology, job = network("geometric", 24, 5), Job.from_bytes(4, 5, 1e8, 2e8)

    def interrupted(problem, rng):
        complete = 0
        for step in planners["evolutionary"](problem, rng):
            complete += step.complete
            if complete == 4:
                raise KeyboardInterrupt
            yield step

    registered_planners.register("interrupted")(interrupted)
    assert plan(topology, job, "interrupted", steps=10).generation == 3


def test_a_job_that_is_too_large_names_the_shapes_that_fit():
    with pytest.raises(PlanError) as refusal:
        search(network("even", 8, 0), DTFM)
    assert str(refusal.value) == (
        "8 stages x 8 replicas need 64 devices, even-8-0 has 8; 1 x 8, 2 x 4, 4 x 2 or 8 x 1 would use all of them"
    )


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        ({"seed": -1}, "seed is -1"),
        ({"seed": 1.5}, "seed is 1.5"),
        ({"steps": 0}, "steps is 0"),
        ({"steps": True}, "steps is True"),
        ({"seconds": 0}, "seconds is 0"),
        ({"seconds": float("nan")}, "seconds is nan"),
        ({"seconds": "2"}, "seconds is '2'"),
    ],
)
def test_limits_out_of_range_are_refused_at_once(limits, says):
    with pytest.raises(PlanError, match=says):
        search(network("even", 8, 0), Job.from_bytes(2, 4, 1, 1), **limits)


def test_an_unknown_planner_and_a_start_of_another_shape_are_refused():
    topology, job = network("even", 8, 0), Job.from_bytes(2, 4, 1, 1)
    with pytest.raises(UnknownName, match="did you mean 'evolutionary'"):
        search(topology, job, "evolutionery")
    start = evaluate(topology, job, stages=[[0, 1], [2, 3]])
    with pytest.raises(PlanError, match="start is a placement of 2 x 2; the job wants 2 x 4"):
        search(topology, job, start=start)


def test_the_example_of_a_planner_is_one(registered_planners, monkeypatch):
    text = import_module("dtfm_lab.planning.planners").__doc__
    monkeypatch.setattr(import_module("dtfm_lab.planning"), "planners", registered_planners)
    exec(textwrap.dedent(text.partition("::\n")[2]), {})
    topology, job = network("geometric", 12, 5), Job.from_bytes(3, 3, 1e8, 2e8)
    steps = list(search(topology, job, "hill-climbing", seed=1, steps=200))
    assert steps[-1].best_s < steps[0].best_s
    assert steps[-1].plan.cost.total_s == pytest.approx(steps[-1].best_s)
