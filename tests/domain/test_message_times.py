"""Links that were timed at several sizes: what a message takes, and what becomes of the times when links change."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtfm_lab.domain.errors import TopologyError
from dtfm_lab.domain.network import QUEUEING, Device, Links, OutgoingLinks, Topology

seeds = st.integers(0, 10_000)
sizes = st.floats(0, 1e7)
SIZES = np.array([10.0, 1_000.0, 100_000.0])


def network(seed: int, n: int = 4, unknown_pairs: bool = False) -> Topology:
    """Timed at three sizes, no pair like another, nothing to do with its latency and bandwidth."""
    rng = np.random.default_rng(seed)
    times = np.cumsum(rng.random((n, n, len(SIZES))), axis=2)
    if unknown_pairs:
        times[rng.random((n, n)) < 0.5] = np.nan
    devices = tuple(Device(name=f"d{i}") for i in range(n))
    bandwidth = rng.uniform(1e3, 1e6, (n, n))
    return Topology(devices, 0.1 * rng.random((n, n)), bandwidth, message_bytes=SIZES, message_s=times)


def unmeasured(topology: Topology) -> Topology:
    return replace(topology, message_bytes=None, message_s=None)


def same(a: Topology, b: Topology) -> bool:
    names = ("latency_s", "bandwidth_bytes_per_s", "message_bytes", "message_s")
    alike = [
        np.array_equal(*(np.array(getattr(t, what), dtype=float) for t in (a, b)), equal_nan=True) for what in names
    ]
    return all(alike) and a.fingerprint == b.fingerprint


@given(seeds)
def test_a_message_of_a_measured_size_takes_the_measured_time_and_never_less_than_the_latency(seed):
    topology = network(seed)
    off = ~np.eye(len(topology), dtype=bool)
    for k, size in enumerate(SIZES):
        expected = np.maximum(topology.message_s[:, :, k], topology.latency_s)
        assert topology.transfer_s(size)[off] == pytest.approx(expected[off])
    assert not topology.transfer_s(1e6).diagonal().any()


def test_between_two_sizes_time_runs_straight_below_the_first_it_stands_and_above_the_last_it_goes_on():
    times = np.full((2, 2, 2), np.nan)
    times[0, 1] = [2.0, 4.0]
    devices = (Device(name="a"), Device(name="b"))
    topology = Topology(devices, np.full((2, 2), 0.5), np.ones((2, 2)), message_bytes=[10, 30], message_s=times)
    found = [topology.transfer_s(n_bytes)[0, 1] for n_bytes in (0, 10, 15, 20, 30, 50, 110)]
    assert found == pytest.approx([2, 2, 2.5, 3, 4, 6, 12])
    assert topology.transfer_s(20)[1, 0] == 20.5  # not measured: latency and bandwidth


@given(seeds, st.lists(sizes, min_size=1, max_size=5), st.booleans(), st.sampled_from(QUEUEING))
@settings(max_examples=25)
def test_links_topology_and_emulation_agree_on_the_time_of_every_message(seed, n_bytes, unknown_pairs, queueing):
    topology = network(seed, unknown_pairs=unknown_pairs)
    links = Links.of(topology, queueing)
    for size in n_bytes:
        for i in range(4):
            for j in set(range(4)) - {i}:
                passage = OutgoingLinks(links, i).carry(j, 3.0, size, in_turn=False)
                assert passage.delivered_s - 3.0 == pytest.approx(topology.transfer_s(size)[i, j])
                assert passage.latency_s == topology.latency_s[i, j]
                assert passage.end_s >= passage.start_s
    sender, receiver = np.array([0, 1, 2]), np.array([1, 2, 0])
    together = links.moving_s(sender, receiver, np.full(3, n_bytes[0]))
    apart = [links.moving_s(i, j, n_bytes[0]) for i, j in zip(sender.tolist(), receiver.tolist(), strict=True)]
    assert together.tolist() == apart


@given(seeds, st.floats(0.1, 10), st.floats(0.1, 10), sizes)
def test_scaling_scales_latency_and_what_a_message_takes_beyond_it(seed, latency, bandwidth, n_bytes):
    topology = network(seed, unknown_pairs=True)
    scaled = topology.scaled(latency=latency, bandwidth=bandwidth)
    moving_s = topology.transfer_s(n_bytes) - topology.latency_s
    assert scaled.transfer_s(n_bytes) == pytest.approx(topology.latency_s * latency + moving_s / bandwidth)
    there = OutgoingLinks(Links.of(topology).scaled(latency, bandwidth), 0).carry(1, 0.0, n_bytes, in_turn=False)
    assert there.delivered_s == pytest.approx(scaled.transfer_s(n_bytes)[0, 1])


@given(seeds, st.permutations(range(4)), st.integers(1, 4))
def test_a_subset_keeps_the_times_of_its_links(seed, order, size):
    topology, keep = network(seed), order[:size]
    part = topology.subset(keep)
    for a, i in enumerate(keep):
        for b, j in enumerate(keep):
            assert part.transfer_s(5e3)[a, b] == topology.transfer_s(5e3)[i, j]


@pytest.mark.parametrize("one_way", [True, False])
def test_a_link_that_is_changed_forgets_what_was_measured_on_it_and_no_other_does(one_way):
    topology = network(3)
    changed = topology.with_link(1, 2, bandwidth_bytes_per_s=7.0, one_way=one_way)
    assert changed.transfer_s(70)[1, 2] == pytest.approx(topology.latency_s[1, 2] + 10)
    differs = {tuple(ij) for ij in np.argwhere(changed.transfer_s(70) != topology.transfer_s(70)).tolist()}
    assert differs == ({(1, 2)} if one_way else {(1, 2), (2, 1)})


def test_a_network_whose_last_measured_link_changes_is_one_that_was_never_measured():
    topology = network(0, n=2)
    changed = topology.with_link(0, 1, latency_s=0.5)
    assert changed.message_bytes is None
    assert changed.message_s is None
    assert same(changed, unmeasured(topology).with_link(0, 1, latency_s=0.5))


def test_the_fingerprint_tells_measured_times_apart_and_is_as_ever_without_any():
    topology = network(0)
    slower = replace(topology, message_s=topology.message_s * 2)
    larger = replace(topology, message_bytes=SIZES * 2)
    assert len({t.fingerprint for t in (topology, slower, larger, unmeasured(topology))}) == 4
    assert same(topology, network(0))


ones = np.ones((2, 2, 2))
partly = ones.copy()
partly[0, 1, 0] = np.nan
REFUSALS = {
    "times without sizes": ({"message_s": ones}, "message_s comes without message_bytes; wanted both, or neither"),
    "one size": ({"message_bytes": [1], "message_s": ones[:, :, :1]}, "has 1 sizes; wanted from 2 to 64"),
    "a matrix of sizes": ({"message_bytes": [[1, 2]], "message_s": ones}, r"has shape \(1, 2\); wanted \(K,\)"),
    "sizes that fall": ({"message_bytes": [2, 1], "message_s": ones}, r"is \[2.0, 1.0\]; wanted sizes from 0 on"),
    "another shape": ({"message_bytes": [1, 2, 3], "message_s": ones}, r"\(2, 2, 2\); wanted \(2, 2, 3\)"),
    "less than nothing": ({"message_bytes": [1, 2], "message_s": -ones}, r"link a -> b: message_s is \[-1.0, -1.0\]"),
    "less for more": ({"message_bytes": [1, 2], "message_s": ones * [2, 1]}, r"a -> b: message_s is \[2.0, 1.0\]"),
    "some sizes only": ({"message_bytes": [1, 2], "message_s": partly}, r"a -> b: message_s is \[nan, 1.0\]"),
}


@pytest.mark.parametrize(("given", "complaint"), REFUSALS.values(), ids=REFUSALS)
def test_times_that_are_none_are_refused(given, complaint):
    with pytest.raises(TopologyError, match=complaint):
        Topology((Device(name="a"), Device(name="b")), np.zeros((2, 2)), np.ones((2, 2)), **given)
