"""What a new user gets wrong in Python is one line that says what was found and what is wanted."""

from __future__ import annotations

from collections.abc import Callable

import networkx as nx
import numpy as np
import pytest

import dtfm_lab as lab


def graph(**attributes: object) -> nx.Graph:
    drawn = nx.Graph()
    drawn.add_edge("a", "b", latency_ms=5, bandwidth_gbps=1)
    drawn.add_node("a", **attributes)
    return drawn


def unnamed_units() -> nx.Graph:
    drawn = nx.Graph()
    drawn.add_edge("a", "b", latency=5, bandwidth=1)
    return drawn


MISTAKES: dict[str, tuple[Callable[[], object], str]] = {
    "a device of no name": (lambda: lab.Device(name=None), "a device's name is None; wanted text"),
    "no network": (lambda: lab.plan(None, "tiny"), "topology is None; wanted a name or a path"),
    "no job": (lambda: lab.plan("lecture-hall", 5), "job is 5; wanted a Job, a name or a path"),
    "job and network exchanged": (
        lambda: lab.plan("tiny", "lecture-hall"),
        r"no topology named 'tiny'.*\(tiny is a job\)",
    ),
    "a network for a job": (lambda: lab.load_job("campus"), r"no job named 'campus'.*\(campus is a network\)"),
    "a network for a plan": (lambda: lab.simulate("lecture-hall"), "plan is 'lecture-hall', a network; wanted a Plan"),
    "a model's name in a Job": (lambda: lab.Job(model="tiny", global_batch=4), "model is 'tiny'; wanted a ModelSpec"),
    "a start of nothing": (lambda: lab.plan("lecture-hall", "tiny", start=3), "start is 3; wanted a Plan"),
    "GPU in capitals": (
        lambda: lab.Topology.from_networkx(graph(GPU="A100")),
        "node 'a' has 'GPU'; did you mean 'gpu'",
    ),
    "regions of a node": (
        lambda: lab.Topology.from_networkx(graph(regions="x")),
        "has 'regions'; did you mean 'region'",
    ),
    "no units": (
        lambda: lab.Topology.from_networkx(unnamed_units()),
        "edge a -> b: no latency_s and no latency_ms among 'latency, bandwidth'; wanted one of them",
    ),
    "a limit that no plan keeps": (
        lambda: lab.plan(
            lab.Topology.from_matrices(np.ones((2, 2)), np.ones((2, 2)), gpu="A100", price_per_hour=1.0),
            lab.load_job("tiny", n_stages=2, n_replicas=1),
            max_price_per_hour=1e-4,
            steps=1,
        ),
        "no plan was found that fits the memory of the devices and max_price_per_hour 0.0001; wanted higher limits",
    ),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_a_plausible_mistake_is_one_line(what: str) -> None:
    make, says = MISTAKES[what]
    with pytest.raises(lab.LabError, match=says):
        make()


def test_attributes_of_other_tools_are_ignored() -> None:
    drawn = graph(label="a node", color="red", weight=3, x=1.0, pos=(1, 2), gpu="a100")
    assert lab.Topology.from_networkx(drawn).devices[0].gpu == "A100"


def test_devices_without_a_price_are_named_where_prices_count(caplog: pytest.LogCaptureFixture) -> None:
    hall = lab.load_topology("lecture-hall")
    mixed = lab.Topology.from_matrices(*hall.to_matrices(), gpu="laptop", price_per_hour=[0.0] * 5 + [1.0] * 3)
    with caplog.at_level("WARNING"):
        lab.plan(mixed, "tiny", objective="price", steps=1)
    assert "ada, alan, barbara and 2 more of matrices have no price and count as free" in caplog.text
