"""Latency in milliseconds or seconds, bandwidth in Gbit/s or bytes/s: every door takes either by name, and one only."""

import re

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import yaml

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.network import Topology
from dtfm_lab.files import load_topology
from dtfm_lab.files.topology_yaml import topology_from_mapping

LATENCY = {"latency_ms": 5.0, "latency_s": 0.005}
BANDWIDTH = {"bandwidth_gbps": 2.0, "bandwidth_bytes_per_s": 2.5e8}
KEYS = [(latency, bandwidth) for latency in LATENCY for bandwidth in BANDWIDTH]
BOTH = [("latency_ms", "latency_s", "bandwidth_gbps"), ("latency_ms", "bandwidth_gbps", "bandwidth_bytes_per_s")]
SPEED = LATENCY | BANDWIDTH


def speeds(keys):
    return {key: SPEED[key] for key in keys}


def from_matrices(keys, _):
    return Topology.from_matrices(**{key: np.full((2, 2), value) for key, value in speeds(keys).items()})


def rows(keys):
    return pd.DataFrame({"source": ["a", "b"], "target": ["b", "a"], **speeds(keys)})


def from_frame(keys, _):
    return Topology.from_frame(rows(keys))


def from_networkx(keys, _):
    graph = nx.Graph()
    graph.add_edge("a", "b", **speeds(keys))
    return Topology.from_networkx(graph)


def from_yaml(keys, folder):
    data = {"dtfm_topology": 1, "default": speeds(keys), "devices": [{"name": "a"}, {"name": "b"}]}
    (folder / "a.yaml").write_text(yaml.safe_dump(data))
    return load_topology(folder / "a.yaml")


def from_csv(keys, folder):
    rows(keys).to_csv(folder / "a.csv", index=False)
    return load_topology(folder / "a.csv")


def from_matrices_in_csv(keys, folder):
    for key, value in speeds(keys).items():
        pd.DataFrame(np.full((2, 2), value)).to_csv(folder / f"m.{key}.csv", index=False, header=False)
    return load_topology(folder / f"m.{keys[0]}.csv")


def from_npz(keys, folder):
    np.savez(folder / "a.npz", **{key: np.full((2, 2), value) for key, value in speeds(keys).items()})
    return load_topology(folder / "a.npz")


def with_link(keys, _):
    one = np.ones((2, 2))
    return Topology.from_matrices(one, one).with_link(0, 1, **speeds(keys))


DOORS = [from_matrices, from_frame, from_networkx, from_yaml, from_csv, from_matrices_in_csv, from_npz, with_link]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("keys", KEYS)
def test_either_unit_is_taken_by_its_name(door, keys, tmp_path):
    topology = door(keys, tmp_path)
    assert topology.latency_s[0, 1] == topology.latency_s[1, 0] == pytest.approx(0.005, rel=1e-15)
    assert topology.bandwidth_bytes_per_s[0, 1] == pytest.approx(2.5e8, rel=1e-15)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("keys", BOTH)
def test_a_number_in_both_units_is_refused(door, keys, tmp_path):
    with pytest.raises(LabError, match=r"both .* and .* are given|columns .* wanted one"):
        door(keys, tmp_path)


@pytest.mark.parametrize("door", [door for door in DOORS if door is not with_link])
def test_a_number_in_neither_unit_is_refused(door, tmp_path):
    with pytest.raises(LabError, match=re.escape("bandwidth_gbps")):
        door(["latency_ms"], tmp_path)


def test_a_device_s_numbers_and_times_by_message_size_are_taken_in_either_unit(tmp_path):
    measured = {"message_bytes": [1.0, 1000.0], "links": [{"from": "a", "to": "b", "message_s": [0.006, 0.007]}]}
    hardware = {"gpu": "mine", "peak_flop_per_s": 1e12, "memory_bytes": 2**30, "uplink_bytes_per_s": 1.25e7}
    data = {"dtfm_topology": 1, "default": speeds(KEYS[0]), "measured": measured}
    topology = topology_from_mapping(data | {"devices": [{"name": "a"} | hardware, {"name": "b"}]})
    device = topology.devices[0]
    assert (device.peak_flop_per_s, device.memory_bytes) == (1e12, 2**30)
    assert topology.bandwidth_bytes_per_s.tolist() == [[np.inf, 1.25e7], [2.5e8, np.inf]]
    assert topology.message_s[0, 1] == pytest.approx([0.006, 0.007])
    in_si = {"message_bytes": [1.0, 1000.0], "message_s": topology.message_s}
    np.savez(tmp_path / "a.npz", **{key: np.full((2, 2), value) for key, value in speeds(KEYS[0]).items()}, **in_si)
    assert load_topology(tmp_path / "a.npz").message_s[0, 1] == pytest.approx([0.006, 0.007])
    graph = nx.Graph()
    graph.add_edge("a", "b", **speeds(KEYS[0]))
    graph.add_node("a", gpu="mine", peak_tflops=1, memory_gib=1)
    assert Topology.from_networkx(graph).devices[0].memory_bytes == 2**30
    both = Topology.from_matrices(**{key: np.ones((2, 2)) for key in KEYS[0]}, gpu=["A100", "T4"], memory_gib=[1, 2])
    assert [device.memory_bytes for device in both.devices] == [2**30, 2**31]


@pytest.mark.parametrize(
    ("region", "says"),
    [
        ({"count": 0}, r"regions\[0\]\.count: input should be greater than or equal to 1; found 0"),
        ({}, "region r has no devices; wanted a count, or devices"),
        ({"count": 2, "gpu": "A1000"}, "device r-0: no GPU named 'A1000'; did you mean 'A100'"),
        ({"count": 2, "uplink_bytes_per_s": "1"}, "uplink_bytes_per_s is '1'; wanted a number"),
        ({"count": 2, "latency_s": 1, "latency_ms": 1}, "both latency_ms and latency_s are given"),
    ],
)
def test_a_region_that_is_empty_or_contradicts_itself_is_refused(region, says):
    data = {"dtfm_topology": 1, "default": speeds(KEYS[0]), "regions": [{"name": "r"}]}
    assert len(topology_from_mapping(data | {"devices": [{"name": "a", "region": "r"}, {"name": "b"}]})) == 2
    with pytest.raises(LabError, match=says):
        topology_from_mapping(data | {"devices": [{"name": "a"}], "regions": [{"name": "r"} | region]})
