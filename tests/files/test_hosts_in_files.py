"""Hosts in every format of networks: what is written is read again, and short files give the speeds inside a host."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import yaml

import dtfm_lab as lab
from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.network import Topology
from dtfm_lab.files import load_topology, save_topology, topology_from_mapping

HOSTS = ["left", "left", "", "right", "right", "right"]


def network() -> Topology:
    rng = np.random.default_rng(0)
    latency_ms, gbps = rng.integers(1, 4, (6, 6)).astype(float), rng.integers(1, 3, (6, 6)).astype(float)
    return Topology.from_matrices(latency_ms, gbps, hosts=HOSTS, regions=["a", "a", "a", "b", "b", "a"])


def test_a_written_file_says_the_speed_inside_a_host_once(tmp_path):
    data = yaml.safe_load(save_topology(load_topology("shared-nics"), tmp_path / "n.yaml").read_text())
    assert len(data["hosts"]) == 4
    assert data["links"] == []


def test_a_region_counts_its_devices_into_hosts():
    shared = load_topology("shared-nics")
    assert [d.host for d in shared.devices[::8]] == [f"rack-host-{i}" for i in range(4)]
    gbps = shared.to_matrices()[1].to_numpy()
    assert gbps[0, 7] == pytest.approx(3600)
    assert gbps[0, 8] == pytest.approx(100)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"hosts": [{"name": "attic", "latency_ms": 1, "bandwidth_gbps": 1}]}, "attic"),
        ({"regions": [{"name": "r", "count": 2, "host": "h", "per_host": 2}]}, "both host and per_host"),
        ({"regions": [{"name": "r", "count": 2, "per_host": 0}]}, "per_host"),
    ],
)
def test_wrong_hosts_are_refused_in_one_line(change, complaint):
    data = {"dtfm_topology": 1, "default": {"latency_ms": 1, "bandwidth_gbps": 1}}
    data |= {"regions": [{"name": "r", "count": 2, "host": "h"}]} | change
    with pytest.raises(LabError, match=complaint):
        topology_from_mapping(data)


def test_a_network_without_hosts_keeps_its_fingerprint():
    """Of the version before hosts."""
    assert load_topology("worldwide").fingerprint == "a76e72d16ee9"
    assert load_topology("fat-node").fingerprint == "a4e58659ceda"


def test_a_host_is_part_of_the_fingerprint_and_of_a_subset():
    given = network()
    bare = replace(given, devices=tuple(replace(d, host="") for d in given.devices))
    assert given.fingerprint != bare.fingerprint
    assert given.nic_of is not None
    assert given.nic_of.tolist() == [0, 0, 2, 3, 3, 3]
    assert bare.nic_of is None
    assert given.subset([0, 2, 3]).nic_of is None
    assert given.subset([0, 4, 5]).nic_of is not None


def test_a_plans_table_names_hosts_where_there_are_any():
    job = lab.load_job("tiny", n_stages=2, n_replicas=3)
    plan = lab.evaluate(network(), job, stages=[[0, 1, 2], [3, 4, 5]])
    assert plan.to_frame()["host"].tolist() == HOSTS
    bare = replace(plan.topology, devices=tuple(replace(d, host="") for d in plan.topology.devices))
    assert "host" not in plan.changed(topology=bare).to_frame()
