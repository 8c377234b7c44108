"""The bound beside a search rises, whatever time kernels took, and goes on after it."""

import pytest

import dtfm_lab as lab
from dtfm_lab.planning.iteration.bounds import work_bound_s
from dtfm_lab.planning.iteration.bounds.iteration_bound import BEGIN, IncrementalBound
from dtfm_lab.planning.iteration.problem import IterationProblem, SearchTarget
from dtfm_lab.planning.iteration.rising_bounds import rising_bounds
from dtfm_lab.planning.search import SearchRequest

LIMIT_S = 8.0


@pytest.fixture(scope="module")
def planned():
    topology = lab.load_topology("lecture-hall")
    job = lab.load_job("tiny", n_stages=None, n_replicas=None, microbatch=1)
    return topology, job, lab.plan(topology, job, objective="iteration", steps=2, seed=0)


def updated(planned, *, compiling_s, searched_s):
    topology, job, plan = planned
    problem = IterationProblem.of(topology, job)
    request = SearchRequest(topology=topology, job=job, planner="evolutionary", seconds=LIMIT_S)
    bound = IncrementalBound([problem], SearchTarget(), request)
    bound.update(plan.iteration_s, 3, lambda: compiling_s + searched_s, compiling_s=compiling_s)
    return bound.iteration_s


@pytest.mark.parametrize("compiling_s", [0.0, 1e-6, 30.0])
def test_the_bound_of_a_timed_search_rises_however_long_kernels_took(planned, compiling_s):
    topology, job, plan = planned
    work_s = work_bound_s(IterationProblem.of(topology, job))
    assert updated(planned, compiling_s=compiling_s, searched_s=0.0) == work_s
    assert updated(planned, compiling_s=compiling_s, searched_s=0.9 * BEGIN * LIMIT_S) == work_s
    assert work_s < updated(planned, compiling_s=compiling_s, searched_s=LIMIT_S) <= plan.iteration_s


def test_bounds_go_on_rising_after_a_search_from_what_was_proven(planned):
    topology, job, plan = planned
    whole = list(rising_bounds(topology, job, plan.iteration_s))
    assert whole == sorted(whole)
    assert work_bound_s(IterationProblem.of(topology, job)) < whole[-1] <= plan.iteration_s
    known_s = 0.9 * whole[-1]
    further = list(rising_bounds(topology, job, lambda: plan.iteration_s, lower_s=known_s))
    assert further[0] == known_s
    assert further[-1] == pytest.approx(whole[-1], rel=5e-3)


def test_of_choices_left_open_the_bound_is_the_least():
    topology = lab.load_topology("lecture-hall")
    job = lab.load_job("tiny", n_stages=None, n_replicas=2, microbatch=1)
    open_ = job.with_fields(sharding=None)
    plan = lab.plan(topology, open_, objective="iteration", steps=4, seed=0)
    *_, bound_s = rising_bounds(topology, open_, plan.iteration_s)
    each = []
    for sharding in ("none", "zero-1", "zero-2", "zero-3"):
        *_, one_s = rising_bounds(topology, job.with_fields(sharding=sharding), plan.iteration_s)
        each.append(one_s)
    assert bound_s <= plan.iteration_s
    assert plan.iteration_lower_bound_s == pytest.approx(bound_s, rel=5e-3)
    assert bound_s == pytest.approx(min(each), rel=5e-3)


def test_before_the_first_generation_is_complete_the_search_has_nearly_all_of_the_time(planned, monkeypatch):
    """A search that its limit cuts there keeps what it has: a plan made in half of the time is much worse."""
    topology, job, plan = planned
    bound = IncrementalBound(
        [IterationProblem.of(topology, job)],
        SearchTarget(),
        SearchRequest(topology=topology, job=job, planner="evolutionary", seconds=LIMIT_S),
    )
    shares_s = []
    monkeypatch.setattr(bound, "_raise_until", lambda _best_s, share_s: shares_s.append(share_s))
    for generation, complete in ((0, False), (0, True), (1, False)):
        bound.update(plan.iteration_s, generation, lambda: LIMIT_S, complete=complete)
    assert shares_s[0] <= 0.1 * LIMIT_S < shares_s[1] <= shares_s[2]
