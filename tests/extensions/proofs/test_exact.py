"""``exact`` is held against trying every placement, and against the optima of the paper's cases."""

import subprocess
import sys
import threading

import numpy as np
import pytest
from bound_networks import drawn_case, optimum
from hypothesis import given, settings
from hypothesis import strategies as st
from planning_networks import KINDS, found_after, network, optimum_s

from dtfm_lab.domain.job import JOBS, Job
from dtfm_lab.extensions.proofs import exact as module
from dtfm_lab.extensions.proofs.exact import exact
from dtfm_lab.extensions.proofs.optima import candidate_groups, exhaustive
from dtfm_lab.files import load_topology
from dtfm_lab.planning import plan, search
from dtfm_lab.planning.cost import pair_costs
from dtfm_lab.planning.problem import Problem

SHAPES = [(8, 2, 4), (8, 4, 2), (8, 8, 1), (8, 1, 8), (7, 3, 2), (7, 2, 3), (6, 2, 2), (6, 4, 1), (5, 1, 3), (6, 3, 2)]


def problem_of(topology, job) -> Problem:
    """With nothing known of its cost, so that all proof is the planner's own."""
    return Problem(pair=pair_costs(topology, job), n_stages=job.n_stages, n_replicas=job.n_replicas, bound_s=0.0)


@given(st.sampled_from(KINDS), st.sampled_from(SHAPES), st.integers(0, 10**6), st.floats(6, 9.5), st.floats(6, 9.5))
@settings(max_examples=20)
def test_all_chains_of_groups_hold_the_best_of_all_placements(kind, shape, seed, gradient, hop):
    n, n_stages, n_replicas = shape
    topology, job = network(kind, n, seed), Job.from_bytes(n_stages, n_replicas, 10**gradient, 10**hop)
    grid, cost_s = optimum(pair_costs(topology, job), n_stages, n_replicas)
    assert len(set(grid.ravel())) == n_stages * n_replicas
    assert cost_s == pytest.approx(optimum_s(topology, job), rel=1e-12)


def test_few_devices_are_proved_at_once():
    for i in range(84):
        _, topology, job = drawn_case(i)
        steps = list(exact(problem_of(topology, job), np.random.default_rng(0)))
        best_s = optimum(pair_costs(topology, job), job.n_stages, job.n_replicas)[1]
        assert steps[-1].best_s == pytest.approx(best_s, rel=1e-12)
        assert steps[-1].bound_s == steps[-1].best_s


def test_a_long_search_yields_between_and_finds_the_same(monkeypatch):
    _, topology, job = drawn_case(7 * 3 + 1)
    pair = pair_costs(topology, job)
    _, cost_s = optimum(pair, job.n_stages, job.n_replicas)
    monkeypatch.setattr("dtfm_lab.extensions.proofs.optima.STEPS", 7)
    *between, last = exhaustive(pair, job.n_stages, *candidate_groups(pair, job.n_replicas, np.inf))
    assert len(between) > 5
    assert last.cost_s == pytest.approx(cost_s, rel=1e-12)
    assert not any(step.done for step in between)


@pytest.mark.parametrize("shape", [(8, 2, 4), (8, 4, 2), (9, 4, 2), (9, 2, 4), (9, 3, 3), (8, 8, 1)])
@pytest.mark.parametrize("kind", ["even", "clustered"])
def test_counts_of_classes_give_the_same_optimum(kind, shape, monkeypatch):
    monkeypatch.setattr(module, "candidate_groups", lambda *_: None)
    n, n_stages, n_replicas = shape
    topology, job = network(kind, n, 5), Job.from_bytes(n_stages, n_replicas, 3e8, 1e8)
    *_, last = exact(problem_of(topology, job), np.random.default_rng(0))
    best_s = optimum(pair_costs(topology, job), n_stages, n_replicas)[1]
    assert last.best_s == pytest.approx(best_s, rel=1e-9)
    assert last.bound_s == last.best_s


@pytest.mark.parametrize("kind", KINDS)
def test_the_ranges_that_a_proof_begins_with_leave_the_optimum_its_place(kind):
    problem = problem_of(network(kind, 6, 1), Job.from_bytes(3, 2, 3e8, 1e8))
    _, best_s = optimum(problem.pair, 3, 2)
    ranges = list(module._initial_ranges(problem, 1.01 * best_s))
    assert min(bound_s for bound_s, *_ in ranges) <= best_s * (1 + 1e-9)


@pytest.mark.parametrize(
    ("name", "best_s"),
    [("datacenter", 3.439799), ("spot", 31.634160), ("universities", 16.086840), ("regional", 34.802041)],
)
def test_the_solver_alone_proves_the_papers_cases(name, best_s):
    *_, last = exact(problem_of(load_topology(name), JOBS["dtfm-gpt3-xl"]), np.random.default_rng(0))
    assert last.best_s == last.bound_s == pytest.approx(best_s, abs=1e-6)


def test_a_search_that_is_closed_leaves_no_solver_running():
    steps = exact(problem_of(load_topology("worldwide"), JOBS["dtfm-gpt3-xl"]), np.random.default_rng(0))
    for step in steps:
        if step.operator == "solver":
            break
    steps.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "constraint solver"]


def test_equal_steps_give_equal_proofs(monkeypatch):
    monkeypatch.setattr(module, "EFFORT", 0.2)
    runs = [list(search(load_topology("worldwide"), JOBS["dtfm-gpt3-xl"], "exact", seed=3, steps=2)) for _ in range(2)]
    one, other = ([(step.best_s, step.bound_s) for step in run][-1] for run in runs)
    assert one == other


def test_many_devices_all_different_say_how_far_the_proof_got():
    topology, job = network("geometric", 24, 0), Job.from_bytes(3, 8, 1e9, 5e8)
    steps = list(search(topology, job, "exact", steps=25))
    assert steps[-1].bound_s >= steps[0].bound_s > 0
    assert plan(topology, job, "exact", steps=2).gap > 0


@pytest.mark.parametrize("kind", ["even", "asymmetric"])
def test_how_long_kernels_take_to_compile_decides_nothing(kind, monkeypatch):
    monkeypatch.setattr(module, "increasing_bounds", lambda *upper: (upper[-1] * (0.9 + 1e-3 * k) for k in range(99)))
    assert found_after(0, kind, "exact") == found_after(1, kind, "exact") == found_after(40, kind, "exact")


INTERRUPTED = """
import os, signal, time
from ortools.sat.python import cp_model
from dtfm_lab.extensions.proofs.optima import cp_solver
cp_solver(1.0).solve(cp_model.CpModel())
try:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(10)
except KeyboardInterrupt:
    print("kept")
"""


@pytest.mark.slow
def test_after_the_solver_an_interrupt_is_python_s_again():
    ended = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (0, "kept\n")


AT_WORK = """
import os, signal, threading
from dtfm_lab.domain.job.presets import JOBS
from dtfm_lab.files import load_topology
from dtfm_lab.planning import search
try:
    for step in search(load_topology("worldwide"), JOBS["dtfm-gpt3-xl"], "exact", seconds=60):
        if any(thread.name == "constraint solver" for thread in threading.enumerate()):
            threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
except KeyboardInterrupt:
    assert not any(thread.name == "constraint solver" for thread in threading.enumerate())
    print("kept")
"""


@pytest.mark.slow
def test_an_interrupt_while_the_solver_works_ends_it_and_nothing_else():
    ended = subprocess.run([sys.executable, "-c", AT_WORK], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (0, "kept\n")
