"""Without OR-tools small networks are still proved, bounds stay quick ones, and other proofs say what to install."""

import sys

import pytest
from planning_networks import network

from dtfm_lab.domain.errors import MissingExtra
from dtfm_lab.domain.job import Job
from dtfm_lab.planning import lower_bound_s, plan


@pytest.fixture(autouse=True)
def without_the_solver(monkeypatch):
    monkeypatch.setitem(sys.modules, "ortools", None)


def test_few_devices_are_proved_by_trying_every_chain():
    assert plan(network("jittered", 8, 0), Job.from_bytes(4, 2, 1e8, 2e8), "exact", steps=50).gap == pytest.approx(0)


@pytest.mark.parametrize("kind", ["clustered", "geometric"])
def test_a_proof_of_many_devices_says_what_to_install(kind):
    with pytest.raises(MissingExtra, match=r"a proof needs ortools, .*: pip install 'dtfm_lab\[proofs\]'"):
        plan(network(kind, 24, 0), Job.from_bytes(4, 6, 1e8, 2e8), "exact", steps=60)


def test_other_planners_find_the_same_plan_with_the_quick_bound():
    topology, job = network("geometric", 24, 0), Job.from_bytes(4, 6, 1e8, 2e8)
    assert plan(topology, job, steps=20).lower_bound_s == lower_bound_s(topology, job)
