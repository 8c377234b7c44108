"""The matrix of a large network stays one that a page can hold."""

import numpy as np

from dtfm_lab.domain.network import Topology
from dtfm_lab.figures import link_matrix


def of(n: int, **more: object) -> Topology:
    return Topology.from_matrices(np.full((n, n), 1.0), np.full((n, n), 10.0), gpu="T4", **more)


def test_one_device_of_each_host_is_drawn():
    figure = link_matrix(of(600, hosts=[f"host-{i // 8}" for i in range(600)]))
    assert np.shape(figure.data[0].z) == (75, 75)
    assert "one device of each of 75 hosts" in figure.layout.title.subtitle.text


def test_one_in_so_many_is_drawn_where_there_are_no_hosts():
    figure = link_matrix(of(600))
    assert np.shape(figure.data[0].z) == (300, 300)
    assert "one in 2 of 600 devices" in figure.layout.title.subtitle.text
