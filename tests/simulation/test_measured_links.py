"""Links that were timed at several sizes: simulator and emulation take the same time for every message."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import Case, cases, node_of, plan_of, uneven
from slow_interpreter import interpret

from dtfm_lab.domain.network import Links, Topology
from dtfm_lab.simulation.sensitivity import gains
from dtfm_lab.simulation.simulate import simulate


def timed(topology: Topology, seed: int, known: float = 0.7) -> Topology:
    """The same network, most of its pairs timed at four sizes around those of the messages."""
    rng, n = np.random.default_rng(seed), len(topology)
    times = topology.latency_s[:, :, None] + np.cumsum(rng.random((n, n, 4)), axis=2)
    times[rng.random((n, n)) > known] = np.nan
    return replace(topology, message_bytes=[1.0, 20.0, 50.0, 300.0], message_s=times)


@dataclass(frozen=True)
class TimedCase(Case):
    @property
    def topology(self) -> Topology:
        return timed(super().topology, self.seed)


@given(cases, st.booleans())
@settings(max_examples=40, deadline=None)
def test_every_row_on_measured_links_is_as_the_links_of_a_real_run_would_have_it(case, synchronise):
    case = TimedCase(**vars(case))
    tasks = case.tasks(synchronise=synchronise)
    simulated = tasks.simulate(case.links)
    nodes = node_of(tasks)
    seconds = {node: float(tasks.compute_s[i]) for node, i in nodes.items()}
    times = interpret(case.plan, tasks.graph.programs, case.links, seconds)
    for node, i in nodes.items():
        assert times[node] == pytest.approx((simulated.start_s[i], simulated.end_s[i]), rel=1e-9, abs=1e-12)


@given(st.integers(0, 1000))
@settings(max_examples=10, deadline=None)
def test_times_as_latency_and_bandwidth_would_have_them_change_no_prediction(seed):
    plain = plan_of(3, 4, 2, uneven(6, seed), d_model=20)
    network = plain.topology
    sizes = np.array([1.0, 20.0, 50.0])  # no message is smaller than the first
    table = np.stack([network.transfer_s(size) for size in sizes], axis=2)
    measured = replace(plain, topology=replace(network, message_bytes=sizes, message_s=table))
    assert sorted(simulate(measured, "1f1b").end_s) == pytest.approx(sorted(simulate(plain, "1f1b").end_s))


def test_a_plan_on_measured_links_takes_longer_where_its_messages_did():
    plan = plan_of(3, 4, 2, uneven(6, 1), d_model=20)
    network = plan.topology
    table = np.stack([network.transfer_s(size) for size in (1.0, 1e3)], axis=2)
    twice = replace(plan, topology=replace(network, message_bytes=[1.0, 1e3], message_s=2 * table))
    assert simulate(twice, "gpipe").iteration_s > 1.5 * simulate(plan, "gpipe").iteration_s
    assert twice.cost.total_s == plan.cost.total_s


def test_more_bandwidth_on_a_measured_link_shortens_its_messages():
    plan = plan_of(2, 4, 1, uneven(2, 1), d_model=20)
    plan = replace(plan, topology=timed(plan.topology, 3, known=1.0))
    (gain,) = gains(plan, "gpipe", what="bandwidth", factor=2)
    improved = Links.of(plan.topology).scaled(bandwidth=2)
    assert gain.iteration_s < gain.before_s
    assert improved.moving_s(0, 1, 40.0) == pytest.approx(Links.of(plan.topology).moving_s(0, 1, 40.0) / 2)
