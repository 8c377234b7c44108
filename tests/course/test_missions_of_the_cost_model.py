"""Missions about the cost model: what wins them, and what does not."""

from itertools import pairwise, permutations

import numpy as np
from mission_cases import READERS, assert_not_won, assert_won_by_its_answer, worked_answer

import dtfm_lab as lab
from dtfm_lab.course import missions


def test_four_by_hand():
    assert_won_by_its_answer("four-by-hand")
    given, right = missions["four-by-hand"].given(READERS[0]), worked_answer("four-by-hand")
    cost = lab.evaluate(given.network, given.job, groups=given.groups).cost
    assert_not_won("four-by-hand", right / 2, because="one way only")
    assert_not_won("four-by-hand", cost.group_s.sum() + cost.pipeline_s, because="at the same time")
    assert_not_won("four-by-hand", cost.group_s.min() + cost.pipeline_s, because="faster group")
    assert_not_won("four-by-hand", cost.data_parallel_s, because="synchronisation alone")
    assert_not_won("four-by-hand", right * 1.03, because="above")


def round_trips(latency_s, bandwidth, size):
    one_way = latency_s + size / bandwidth
    return one_way + one_way.T


def test_own_group_cost():
    assert_won_by_its_answer("own-group-cost")

    def whole_gradients(latency_s, bandwidth, group, gradient_bytes):
        pair_s = round_trips(latency_s, bandwidth, gradient_bytes)
        return max(sum(pair_s[i, j] for j in group if i != j) for i in group)

    def twice_the_way_out(latency_s, bandwidth, group, gradient_bytes):
        one_way = latency_s + gradient_bytes / len(group) / bandwidth
        return 2 * max(sum(one_way[i, j] for j in group if i != j) for i in group)

    def breaks(latency_s, bandwidth, group, gradient_bytes):
        return latency_s[99, 99]

    assert_not_won("own-group-cost", whole_gradients, because="shards")
    assert_not_won("own-group-cost", twice_the_way_out, because="another link")
    assert_not_won("own-group-cost", lambda *given: 1.0, because="it")
    assert_not_won("own-group-cost", lambda *given: None, because="returned NoneType")
    assert_not_won("own-group-cost", breaks, because="raised IndexError")


def test_own_cost():
    assert_won_by_its_answer("own-cost")

    def as_listed(latency_s, bandwidth, groups, gradient_bytes, hop_bytes, orders=lambda groups: [groups]):
        shard_s = round_trips(latency_s, bandwidth, gradient_bytes / len(groups[0]))
        hop_s = round_trips(latency_s, bandwidth, hop_bytes)
        group_s = max(sum(shard_s[i, j] for j in group if i != j) for group in groups for i in group)
        path_s = min(
            sum(max(hop_s[i, j] for i, j in zip(a, b, strict=True)) for a, b in pairwise(order))
            for order in orders(groups)
        )
        return group_s + path_s

    assert_not_won("own-cost", as_listed, because="as they are listed")
    assert_not_won("own-cost", lambda *given: as_listed(*given, orders=permutations), because="it")
    assert_not_won("own-cost", lambda *given: 12.0, because="it")


def test_the_place_where_cities_change_from_stages_to_pipelines_is_the_same_by_hand_and_by_code():
    assert_won_by_its_answer("change-of-places")
    given = missions["change-of-places"].given(READERS[0])
    assert np.isclose(worked_answer("change-of-places"), given.n * given.activations_mb)
    assert_not_won("change-of-places", given.activations_mb, because="shard")
    assert_not_won("change-of-places", given.activations_mb * given.n * 2, because="both sides")
    assert_not_won("change-of-places", given.activations_mb * given.n * 1e6, because="bytes")
