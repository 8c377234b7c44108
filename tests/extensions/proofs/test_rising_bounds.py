"""Lower bounds that rise while a search runs: they never pass the optimum, and equal arguments give equal steps."""

from itertools import islice

import numpy as np
import pytest
from bound_networks import KINDS, drawn_case, optimum, reference
from hypothesis import given, settings
from hypothesis import strategies as st

from dtfm_lab.extensions.proofs import bound_search
from dtfm_lab.planning import lower_bound_s
from dtfm_lab.planning.cost import bound_of_pairs, pair_costs


@pytest.mark.parametrize("kind", KINDS)
def test_the_bound_lies_below_the_optimum_and_near_it(kind):
    cases = [drawn_case(i) for i in range(KINDS.index(kind), 12 * len(KINDS), len(KINDS))]
    ratios = []
    for _, topology, job in cases:
        best_s = optimum(pair_costs(topology, job), job.n_stages, job.n_replicas)[1]
        ratios.append(lower_bound_s(topology, job) / best_s)
    assert max(ratios) <= 1 + 1e-9
    assert np.median(ratios) >= 0.8


@given(st.integers(0, 10**6), st.sampled_from([1 + 1e-9, 1.05, 1.5]))
@settings(max_examples=18, deadline=None, derandomize=True)
def test_a_bound_that_rises_never_passes_the_optimum(i, loose):
    _, topology, job = drawn_case(i)
    pair, shape = pair_costs(topology, job), (job.n_stages, job.n_replicas)
    best_s = optimum(pair, *shape)[1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bound_search, "candidate_groups", lambda *_: None)  # else all chains would be tried
        patch.setattr(bound_search, "EFFORTS", ((0.0, 0, 0.1), (0.05, 2, 0.05)))
        told = list(islice(bound_search.increasing_bounds(pair, *shape, best_s * loose), 60))
    assert told[0] == pytest.approx(bound_of_pairs(pair, *shape))
    assert told == sorted(told)
    assert told[-1] <= best_s * (1 + 1e-8)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "least"), [("thinlink48", 0.938), ("geometric64", 0.862), ("cities64", 0.835)])
def test_the_bound_of_irregular_networks_rises(name, least):
    topology, job, best_s = reference(name)
    pair = pair_costs(topology, job)
    told = islice(bound_search.increasing_bounds(pair, job.n_stages, job.n_replicas, best_s), 1000)
    assert next(told) < least * best_s
    assert least * best_s < next(bound_s for bound_s in told if bound_s > least * best_s) <= best_s


def test_the_placement_known_of_sixteen_devices_in_eight_cities_is_the_best():
    topology, job, best_s = reference("cities16")
    *_, last = bound_search.increasing_bounds(
        pair_costs(topology, job), job.n_stages, job.n_replicas, best_s * (1 + 1e-9)
    )
    assert last == pytest.approx(best_s, rel=1e-8)


def test_equal_arguments_give_equal_steps():
    topology, job, best_s = reference("thinlink48")
    pair = pair_costs(topology, job)
    one, other = (list(islice(bound_search.increasing_bounds(pair, 6, 8, best_s), 60)) for _ in range(2))
    assert one == other
