"""Devices of one host share its NIC: laws of the simulation, and closed forms of small cases."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import equal, plan_of, uneven

from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Kind
from dtfm_lab.domain.trace import Trace
from dtfm_lab.simulation import simulate
from dtfm_lab.simulation.measured_predecessors import with_predecessors

seeds = st.integers(0, 2**16)
queueings = st.sampled_from(["pairs", "nics"])
AVERAGING = st.sampled_from(["sharded", "sharded-at-once", "central", "ring", "hierarchical"])


def on_hosts(topology: Topology, hosts: list[str]) -> Topology:
    return replace(
        topology, devices=tuple(replace(d, host=host) for d, host in zip(topology.devices, hosts, strict=True))
    )


def seconds(plan: Plan, topology: Topology, queueing: str = "pairs") -> float:
    plan = plan.changed(topology=topology)
    return simulate(plan, "1f1b", queueing=queueing, profile=equal(plan, 1, 2)).iteration_s


def starts_s(trace: Trace, kind: Kind) -> list[float]:
    """When the actions of a kind start in the first iteration, in order."""
    rows = trace.to_frame()
    return sorted(rows[(rows["kind"] == kind.value) & (rows["iteration"] == 0)]["start_s"])


@given(seeds, queueings, AVERAGING)
@settings(max_examples=25)
def test_a_host_of_one_device_is_a_device(seed, queueing, synchronisation):
    network = uneven(6, seed)
    plan = plan_of(3, 4, 2, network, synchronisation=synchronisation)
    alone = on_hosts(network, [f"host {i}" if i % 2 else "" for i in range(6)])
    assert seconds(plan, alone, queueing) == seconds(plan, network, queueing)


@given(seeds)
@settings(max_examples=25)
def test_where_all_devices_are_of_one_host_nothing_takes_a_nic(seed):
    network = uneven(4, seed)
    plan = plan_of(2, 3, 2, network)
    together = on_hosts(network, ["host"] * 4)
    assert seconds(plan, together) == seconds(plan, network)
    assert seconds(plan, together, "nics") == seconds(plan, network)


@pytest.mark.parametrize("queueing", ["pairs", "nics"])
def test_two_messages_that_leave_a_host_for_two_others_go_one_after_the_other(queueing):
    """Two pipelines of two stages; both first stages send at the same time, a message of 2 bytes at 1 byte/s."""
    network = Topology.from_matrices(
        np.zeros((4, 4)), np.full((4, 4), 8e-9), hosts=["left", "left", "a", "b"], names=list("wxyz")
    )
    plan = plan_of(2, 1, 2, network, synchronisation="central", synchronise_every=2)
    trace = simulate(plan, "gpipe", queueing=queueing, profile=equal(plan, 1, 2))
    assert starts_s(trace, Kind.SEND_F) == [1.0, 3.0]
    # the gradients leave NICs of their own, at 3 + 1 + 2 and 5 + 1 + 2, and the first is in when the second comes
    assert starts_s(trace, Kind.SEND_B) == [6.0, 8.0]


def test_messages_to_one_host_come_in_one_after_the_other():
    network = Topology.from_matrices(np.zeros((4, 4)), np.full((4, 4), 8e-9), hosts=["a", "b", "right", "right"])
    plan = plan_of(2, 1, 2, network, synchronise_every=2)
    trace = simulate(plan, "gpipe", profile=equal(plan, 1, 2))
    assert starts_s(trace, Kind.SEND_F) == [1.0, 1.0]
    assert starts_s(trace, Kind.RECV_F) == [1.0, 3.0]


@given(seeds, queueings)
@settings(max_examples=25)
def test_what_an_action_of_a_measured_trace_waited_for_is_found_on_nics_too(seed, queueing):
    """From the times alone, as of a run, every wait is explained: something it waited for ended as it began."""
    network = on_hosts(uneven(8, seed), [str(h) for h in np.random.default_rng(seed).integers(0, 3, 8)])
    plan = plan_of(4, 3, 2, network, synchronisation="ring")
    trace = simulate(plan, "1f1b", queueing=queueing, profile=equal(plan, 1, 2))
    found = with_predecessors(trace, plan, trace.context.recorded_schedule)
    started = trace.start_s > 0
    assert (found.after[started] >= 0).all()
    computing = started & np.array([not trace.actions[a].kind.startswith(("SEND", "RECV")) for a in trace.action])
    sending = started & np.array([trace.actions[a].kind.startswith("SEND") for a in trace.action])
    for rows in (np.flatnonzero(computing), np.flatnonzero(sending)):
        assert trace.end_s[found.after[rows]] == pytest.approx(trace.start_s[rows])
