"""The bound of a search rises by what is proved, by the planner or by what an extension registers."""

import pytest
from planning_networks import network

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.registry import Registry
from dtfm_lab.planning import lower_bound_s, search
from dtfm_lab.planning.bounds import search_bound as module

JOB = Job.from_bytes(4, 3, 1e8, 2e8)


@pytest.fixture
def kinds(monkeypatch):
    """The registry of bounds, emptied."""
    emptied = Registry("bound of a search")
    monkeypatch.setattr(module, "search_bounds", emptied)
    return emptied


def bounds_of(topology, **options):
    return [step.bound_s for step in search(topology, JOB, steps=6, seed=0, **options)]


def test_without_an_entry_the_bound_stays_what_was_known_before_the_search(kinds):
    topology = network("jittered", 12, 0)
    assert set(bounds_of(topology)) == {lower_bound_s(topology, JOB)}


@pytest.mark.parametrize("improve", [True, False])
def test_an_entry_raises_the_bound_but_never_above_the_best_plan_and_only_when_asked(kinds, improve):
    class Doubling(module.SearchBound):
        def _raise(self, best_s, generation, elapsed_s):
            self.bound_s *= 2

    kinds.register("doubling")(Doubling)
    topology = network("jittered", 12, 0)
    *_, last = search(topology, JOB, steps=6, seed=0, improve_bound=improve)
    assert last.bound_s == (last.best_s if improve else lower_bound_s(topology, JOB))
