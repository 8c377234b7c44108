"""Frames, labelled matrices and graphs: whatever comes in memory is a network or a line that names the link."""

from contextlib import suppress

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtfm_lab.domain.errors import LabError, TopologyError
from dtfm_lab.domain.network import MOST_DEVICES, Device, Topology


def network(seed: int = 0, n: int = 4) -> Topology:
    rng = np.random.default_rng(seed)
    return Topology.from_matrices(rng.random((n, n)), rng.uniform(0.1, 9, (n, n)), names=[f"d{i}" for i in range(n)])


def frame(**changed) -> pd.DataFrame:
    return network(n=2).to_frame().assign(**changed)


def graph(kind=nx.DiGraph, **changed):
    edge = {"latency_s": 0.5, "bandwidth_bytes_per_s": 8.0} | changed
    made = kind()
    made.add_edges_from([("a", "b", edge), ("b", "a", edge)] if made.is_directed() else [("a", "b", edge)])
    return made


@given(st.integers(0, 1000), st.integers(1, 6))
def test_labelled_matrices_give_the_network_back(seed, n):
    topology = network(seed, n)
    latency_ms, bandwidth_gbps = topology.to_matrices()
    assert list(latency_ms.index) == list(latency_ms.columns) == list(topology.names)
    back = Topology.from_matrices(latency_ms, bandwidth_gbps)
    assert back.names == topology.names
    assert back.latency_s == pytest.approx(topology.latency_s)
    assert back.bandwidth_bytes_per_s == pytest.approx(topology.bandwidth_bytes_per_s)


def test_unlabelled_frames_and_names_of_one_s_own_name_the_devices():
    bare = pd.DataFrame(np.ones((2, 2)))
    assert Topology.from_matrices(bare, bare).names == ("device-0", "device-1")
    labelled = network(n=2).to_matrices()
    assert Topology.from_matrices(*labelled, names=["x", "y"]).names == ("x", "y")
    assert Topology.from_matrices(labelled[0], np.ones((2, 2))).names == ("d0", "d1")


@given(st.permutations(range(6)))
def test_a_frame_may_come_in_any_order_of_rows(order):
    links = network(n=3).to_frame().iloc[order]
    back = Topology.from_frame(links)
    again = back.subset(["d0", "d1", "d2"])
    assert again.latency_s == pytest.approx(network(n=3).latency_s)


@pytest.mark.parametrize("kind", [nx.DiGraph, nx.MultiDiGraph, nx.Graph, nx.MultiGraph])
def test_every_kind_of_graph_is_read(kind):
    topology = Topology.from_networkx(graph(kind))
    assert topology.names == ("a", "b")
    assert topology.latency_s.tolist() == [[0, 0.5], [0.5, 0]]


def test_loops_are_left_aside_and_a_gpu_of_the_table_brings_its_numbers():
    drawn = graph()
    drawn.add_edge("a", "a")
    drawn.add_node("a", gpu="H100", note="mine")
    drawn.add_node("b", gpu="H100", memory_bytes=7.0, position=np.array([1, 2]))
    first, second = Topology.from_networkx(drawn).devices
    assert (first.peak_flop_per_s, first.memory_bytes) == (989e12, 80 * 2**30)
    assert (second.peak_flop_per_s, second.memory_bytes, second.position) == (989e12, 7.0, (1.0, 2.0))


def twice(kind):
    drawn = graph(kind)
    drawn.add_edge("a", "b", latency_s=1, bandwidth_bytes_per_s=1)
    return drawn


many = pd.DataFrame(
    {"source": [f"a{i}" for i in range(MOST_DEVICES)], "target": "b", "latency_ms": 1, "bandwidth_gbps": 1}
)
matrix = np.ones((2, 2))
labelled = pd.DataFrame(matrix, index=["a", "b"], columns=["a", "b"])

REFUSALS = {
    "complex matrices": (lambda: Topology.from_matrices(matrix * 1j, matrix), "latency_ms is not a matrix of numbers"),
    "a huge integer": (lambda: Topology.from_matrices([[10**400]], matrix), "latency_ms is not a matrix of numbers"),
    "beyond floats": (lambda: Topology.from_matrices(matrix, matrix * 1e308), "bandwidth is inf"),
    "too slow for floats": (lambda: Topology.from_matrices(matrix, matrix * 1e-320), "more than 0 bytes/s"),
    "labels of two kinds": (
        lambda: Topology.from_matrices(labelled, labelled.iloc[::-1]),
        "bandwidth_gbps is labelled",
    ),
    "no frame": (lambda: Topology.from_frame([1, 2]), r"links are \[1, 2\]; wanted a DataFrame"),
    "no column": (lambda: Topology.from_frame(frame().drop(columns="source")), "no column 'source' among 'target, lat"),
    "a column twice": (lambda: Topology.from_frame(frame().rename(columns={"target": "source"})), "2 column 'source'"),
    "a row twice": (
        lambda: Topology.from_frame(pd.concat([frame()] * 2)),
        "link d0 -> d1 stands twice; wanted one row",
    ),
    "a row of nobody": (lambda: Topology.from_frame(frame(source=["d0", None])), "row 1 names no device"),
    "a row of words": (lambda: Topology.from_frame(frame(latency_ms="slow")), "link d0 -> d1: latency_ms is 'slow'"),
    "a row of lists": (lambda: Topology.from_frame(frame(latency_ms=[[1, 2], 1])), r"latency_ms is \[1, 2\]; wanted"),
    "a crowd of rows": (lambda: Topology.from_frame(many), "4,097 devices; wanted at most 4,096"),
    "no graph": (lambda: Topology.from_networkx({"a": 1}), r"graph is {'a': 1}; wanted a networkx graph"),
    "a crowd of nodes": (lambda: Topology.from_networkx(nx.empty_graph(5000)), "5,000 devices; wanted at most 4,096"),
    "an empty graph": (lambda: Topology.from_networkx(nx.Graph()), "no devices"),
    "an edge twice": (lambda: Topology.from_networkx(twice(nx.MultiDiGraph)), "edge a -> b stands twice; wanted one"),
    "both ways twice": (lambda: Topology.from_networkx(twice(nx.MultiGraph)), "edge a -> b stands twice"),
    "words on an edge": (
        lambda: Topology.from_networkx(graph(latency_s="5")),
        "edge a -> b: latency_s is '5'; wanted a",
    ),
    "a truth on an edge": (lambda: Topology.from_networkx(graph(latency_s=True)), "latency_s is True; wanted a number"),
    "a list on an edge": (
        lambda: Topology.from_networkx(graph(bandwidth_bytes_per_s=[1])),
        r"is \[1\]; wanted a number",
    ),
    "no number on an edge": (lambda: Topology.from_networkx(graph(latency_s=np.nan)), "link a -> b: latency is nan"),
    "an edge without end": (lambda: Topology.from_networkx(graph(latency_s=10**400)), "latency_s is 1000"),
    "a speed of words": (
        lambda: Device(name="a", peak_flop_per_s="fast"),
        "peak_flop_per_s is 'fast'; wanted a number",
    ),
    "an endless price": (lambda: Device(name="a", price_per_hour=np.inf), "price_per_hour is inf; wanted 0 or more"),
    "a position of words": (lambda: Device(name="a", position="ab"), "position is 'ab'; wanted two numbers"),
    "a name of two lines": (lambda: Device(name="a\nb"), r"device 'a\\nb' holds a character that cannot be printed"),
    "half a character": (lambda: Device(name="a", region="\ud800"), r"device a: region '\\ud800' holds a character"),
    "a name without end": (lambda: Device(name="a" * 201), "has 201 characters; wanted at most 200"),
    "a number without end": (lambda: Device(name=10**5000), "name is a number too long to write; wanted text"),
    "a network of two lines": (lambda: Topology.from_matrices(matrix, matrix, name="a\nb"), r"topology 'a\\nb' holds"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_is_no_network_is_refused_in_one_line(name):
    make, says = REFUSALS[name]
    with pytest.raises(TopologyError, match=says) as refused:
        make()
    assert len(str(refused.value)) < 300


anything = st.sampled_from(
    [None, True, -1, 0, 2.5, np.nan, np.inf, 10**400, 1j, "", "x", "1", [], [1], {}, b"x", object(), np.ones(2), "\0"]
)


@given(st.lists(st.tuples(anything, anything, anything, anything), max_size=4))
@settings(max_examples=25)
def test_any_frame_is_read_or_refused(rows):
    links = pd.DataFrame(rows, columns=["source", "target", "latency_ms", "bandwidth_gbps"], dtype=object)
    with suppress(LabError):
        Topology.from_frame(links)


@given(st.dictionaries(st.sampled_from(["latency_s", "bandwidth_bytes_per_s"]), anything), anything, anything)
@settings(max_examples=25)
def test_any_graph_is_read_or_refused(edge, gpu, position):
    drawn = graph(**edge)
    drawn.add_node("a", gpu=gpu, position=position, peak_flop_per_s=position)
    with suppress(LabError):
        Topology.from_networkx(drawn)


@given(anything | st.lists(st.lists(anything, max_size=3), max_size=3), anything)
@settings(max_examples=25)
def test_any_matrices_are_read_or_refused(latency_ms, bandwidth_gbps):
    with suppress(LabError):
        Topology.from_matrices(latency_ms, bandwidth_gbps)


def test_a_thousand_devices_are_checked_once_each():
    """Names are counted, not compared in pairs; a doubled one is still found."""
    n = 1024
    crowd = Topology.from_matrices(np.ones((n, n)), np.ones((n, n)))
    assert len(Topology.from_frame(crowd.to_frame())) == n
    with pytest.raises(TopologyError, match="2 devices are named 'x'"):
        Topology(
            (*crowd.devices[:-2], Device(name="x"), Device(name="x")), crowd.latency_s, crowd.bandwidth_bytes_per_s
        )
