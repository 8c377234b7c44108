"""What the editor draws is what the planner plans on."""

from __future__ import annotations

import numpy as np
import pytest

import dtfm_lab as lab
from dtfm_lab.domain.topology import Topology

documents = pytest.importorskip("dtfm_lab.widgets.documents", reason="needs the lab extra")


@pytest.mark.parametrize("name", lab.topology_names())
def test_a_shipped_network_survives_the_canvas(name: str) -> None:
    topology = lab.load_topology(name)
    drawn = documents.topology_of(documents.document_of(topology), topology.devices)
    np.testing.assert_array_equal(drawn.latency_s, topology.latency_s)
    np.testing.assert_array_equal(drawn.bandwidth_bytes_per_s, topology.bandwidth_bytes_per_s)
    assert drawn.fingerprint == topology.fingerprint


def test_an_asymmetric_network_survives_the_canvas() -> None:
    rng = np.random.default_rng(0)
    topology = Topology.from_matrices(rng.uniform(1, 90, (6, 6)), rng.uniform(0.1, 5, (6, 6)), regions=list("aabbcc"))
    drawn = documents.topology_of(documents.document_of(topology), topology.devices)
    np.testing.assert_allclose(drawn.latency_s, topology.latency_s, rtol=1e-15)
    np.testing.assert_allclose(drawn.bandwidth_bytes_per_s, topology.bandwidth_bytes_per_s, rtol=1e-15)


def test_a_device_that_changes_its_gpu_takes_that_gpus_numbers() -> None:
    topology = lab.load_topology("raspberry-pi")
    document = documents.document_of(topology)
    pi = next(device for device in document["devices"] if device["name"] == "raspberry")
    pi["gpu"] = "A100"
    assert documents.topology_of(document, topology.devices).devices[-1].peak_flop_per_s == 312e12
    pi["gpu"] = "V100"
    assert documents.topology_of(document, topology.devices).devices[-1].peak_flop_per_s == 125e12


def test_an_empty_canvas_says_how_to_begin() -> None:
    with pytest.raises(lab.LabError, match="the canvas is empty: press D"):
        documents.topology_of(documents.empty_document())
