"""The network: what it refuses, and that cutting, changing and converting it lose nothing."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtfm_lab.domain.errors import LabError, TopologyError, UnknownName
from dtfm_lab.domain.network import Device, Topology

seeds = st.integers(0, 10_000)


def network(seed: int, n: int = 5) -> Topology:
    """Random, asymmetric, in two regions, no two devices alike."""
    rng = np.random.default_rng(seed)
    devices = tuple(
        Device(name=f"d{i}", region="ab"[i % 2], peak_flop_per_s=1e12 + i, price_per_hour=i, position=(i, -i))
        for i in range(n)
    )
    return Topology(devices, rng.random((n, n)), rng.uniform(1e6, 1e9, (n, n)), name=f"random-{seed}")


def pair(latency_ms=1.0, bandwidth_gbps=1.0, **options) -> Topology:
    return Topology.from_matrices(np.full((2, 2), latency_ms), np.full((2, 2), bandwidth_gbps), **options)


def same(a: Topology, b: Topology) -> bool:
    return (
        a.devices == b.devices
        and np.array_equal(a.latency_s, b.latency_s)
        and np.array_equal(a.bandwidth_bytes_per_s, b.bandwidth_bytes_per_s)
    )


def test_matrices_are_milliseconds_and_gigabits_from_row_to_column():
    topology = Topology.from_matrices(
        [[7, 1], [2, 7]], [[7, 8], [16, 7]], names=["a", "b"], regions=np.array(["x", "y"])
    )
    assert topology.latency_s.tolist() == [[0, 0.001], [0.002, 0]]
    assert topology.bandwidth_bytes_per_s.tolist() == [[np.inf, 1e9], [2e9, np.inf]]
    assert topology.names == ("a", "b")
    assert topology.regions == ("x", "y")
    assert {type(device.region) for device in topology.devices} == {str}


@given(seeds, st.floats(0, 1e12))
def test_a_transfer_takes_latency_plus_size_over_bandwidth(seed, n_bytes):
    topology = network(seed)
    off = ~np.eye(len(topology), dtype=bool)
    transfer_s = topology.transfer_s(n_bytes)
    assert transfer_s[off] == pytest.approx((topology.latency_s + n_bytes / topology.bandwidth_bytes_per_s)[off])
    assert not transfer_s.diagonal().any()


@given(seeds)
def test_a_round_trip_is_there_and_back_whatever_the_direction(seed):
    topology = network(seed)
    round_trip_s = topology.round_trip_s(1e6)
    assert np.array_equal(round_trip_s, round_trip_s.T)
    assert round_trip_s[1, 3] == pytest.approx(topology.transfer_s(1e6)[1, 3] + topology.transfer_s(1e6)[3, 1])


def test_a_topology_cannot_be_changed_behind_its_back():
    given_s = np.ones((2, 2))
    topology = Topology((Device(name="a"), Device(name="b")), given_s, np.ones((2, 2)))
    given_s[0, 1] = 99
    assert topology.latency_s[0, 1] == 1
    with pytest.raises(ValueError, match="read-only"):
        topology.latency_s[0, 1] = 2


@given(seeds, st.permutations(range(5)), st.integers(1, 5))
def test_a_subset_keeps_every_link_of_its_devices_in_the_order_asked(seed, order, size):
    topology, keep = network(seed), order[:size]
    part = topology.subset(keep)
    assert part.names == tuple(topology.names[i] for i in keep)
    for a, i in enumerate(keep):
        for b, j in enumerate(keep):
            assert part.latency_s[a, b] == topology.latency_s[i, j]
            assert part.bandwidth_bytes_per_s[a, b] == topology.bandwidth_bytes_per_s[i, j]
    assert same(part, topology.subset([topology.names[i] for i in keep]))


@given(seeds, st.booleans())
def test_with_link_changes_one_pair_and_nothing_else(seed, one_way):
    topology = network(seed)
    changed = topology.with_link("d1", 3, latency_s=9.0, bandwidth_bytes_per_s=5.0, one_way=one_way)
    differs = {tuple(ij) for ij in np.argwhere(changed.latency_s != topology.latency_s).tolist()}
    assert differs == ({(1, 3)} if one_way else {(1, 3), (3, 1)})
    assert changed.latency_s[1, 3] == 9
    assert changed.bandwidth_bytes_per_s[1, 3] == 5
    assert same(topology, network(seed))


@given(seeds, st.integers(0, 4), st.integers(0, 4), st.sampled_from(["latency_s", "bandwidth_bytes_per_s"]))
@settings(max_examples=30)
def test_the_fingerprint_changes_with_any_link(seed, i, j, what):
    topology = network(seed)
    if i != j:
        slower = topology.with_link(i, j, **{what: getattr(topology, what)[i, j] * 1.001}, one_way=True)
        assert slower.fingerprint != topology.fingerprint
    assert network(seed).fingerprint == topology.fingerprint


@pytest.mark.parametrize("change", [{"gpu": "A100"}, {"peak_flop_per_s": 1.0}, {"region": "z"}, {"price_per_hour": 3}])
def test_the_fingerprint_changes_with_any_device_but_not_with_its_place_on_the_canvas(change):
    def made(**fields):
        return Topology((Device(name="a", **fields),), [[0]], [[0]]).fingerprint

    assert made(**change) != made()
    assert made(position=(3.0, 4.0)) == made()
    assert len(made()) == 12


@given(seeds)
def test_networkx_and_back_is_the_same_network(seed):
    topology = network(seed)
    back = Topology.from_networkx(topology.to_networkx())
    assert same(back, topology)
    assert back.name == topology.name
    assert back.fingerprint == topology.fingerprint


REFUSALS = {
    "a negative latency": (lambda: pair(latency_ms=-1), r"device-0 -> device-1: latency is -0.001; .* 0 or more"),
    "a missing latency": (lambda: pair(latency_ms=np.nan), "latency is nan"),
    "no bandwidth": (lambda: pair(bandwidth_gbps=0), r"bandwidth is 0.0; .* more than 0 bytes/s.*2 such links"),
    "two of one name": (lambda: pair(names=["a", "a"]), "2 devices are named 'a'; names must be unique"),
    "names in one text": (lambda: pair(names="ab"), "names are 'ab'; wanted a list, one for each of 2 devices"),
    "too few names": (lambda: pair(names=["a"]), "names: 1 for 2 devices; wanted one each"),
    "nobody": (lambda: pair().subset([]), "no devices; wanted at least one"),
    "a device without speed": (lambda: Device(name="a", peak_flop_per_s=0), "peak_flop_per_s is 0; wanted a number"),
    "a device that pays": (lambda: Device(name="a", price_per_hour=-1), "price_per_hour is -1; wanted 0 or more"),
    "no GPU": (lambda: Device(name="a", gpus=0), "gpus is 0; wanted a whole number, 1 or more"),
    "half a GPU": (lambda: Device(name="a", gpus=1.5), "gpus is 1.5; wanted a whole number, 1 or more"),
    "a message before it": (lambda: Device(name="a", inner_latency_s=-1), "inner_latency_s is -1; wanted 0 or more"),
    "no link inside": (
        lambda: Device(name="a", inner_bandwidth_bytes_per_s=0.0),
        "inner_bandwidth_bytes_per_s is 0.0; wanted a number above 0",
    ),
    "a link to itself": (lambda: pair().with_link(1, 1, latency_s=1), "device-1 -> device-1: a device has no link"),
    "a link cut": (lambda: pair().with_link(0, 1, bandwidth_bytes_per_s=0), "device-0 -> device-1: bandwidth is 0"),
    "a graph with a gap": (lambda: Topology.from_networkx(nx.empty_graph(2)), r"no edge 0 -> 1 \(2 such links\)"),
    "an edge of no speed": (lambda: Topology.from_networkx(nx.path_graph(2)), "edge 0 -> 1: no latency_s and no"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_an_impossible_network_is_refused_in_one_line(name):
    make, says = REFUSALS[name]
    with pytest.raises(TopologyError, match=says):
        make()


def test_an_unknown_device_is_refused_with_the_nearest_one():
    with pytest.raises(UnknownName, match=r"no device named 'devise-1'; did you mean 'device-1'\?"):
        pair().with_link("device-0", "devise-1", latency_s=1)
    for make in (
        lambda: pair().subset(["nobody"]),
        lambda: pair().subset([9]),
        lambda: pair().subset([-1]),
        lambda: pair().with_link(0, 9, latency_s=1.0),
        lambda: pair().with_link(0, -1, latency_s=1.0),
        lambda: Topology.from_matrices([[0, 1], [1]], np.ones((2, 2))),
    ):
        with pytest.raises(LabError):
            make()
