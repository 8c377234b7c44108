"""Messages of one directed pair queue, or all of one NIC; synchronisation takes turns."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtfm_lab.domain.errors import UnknownName
from dtfm_lab.domain.network import Links, OutgoingLinks, Topology

messages = st.lists(st.tuples(st.integers(0, 2), st.floats(0, 10), st.floats(0, 10), st.booleans()), max_size=12)


def three(queueing: str = "pairs") -> Links:
    """From device 0: latencies 0.1, 0.2 and 0.3 s, bandwidths 1, 2 and 3 bytes/s."""
    return Links(np.array([[0.1, 0.2, 0.3]] * 3), np.array([[1.0, 2.0, 3.0]] * 3), queueing)


def test_an_idle_link_takes_latency_plus_size_over_bandwidth():
    passage = OutgoingLinks(three(), 0).carry(1, 2.0, 8, in_turn=False)
    assert (passage.start_s, passage.end_s) == (2, 6)
    assert (passage.first_byte_s, passage.delivered_s) == (2.2, 6.2)


@given(messages)
@settings(max_examples=25)
def test_messages_of_one_pair_keep_their_order_and_never_overlap(sent):
    links, last_end_s = OutgoingLinks(three(), 0), dict.fromkeys(range(3), 0.0)
    for to, ready_s, n_bytes, _ in sent:
        passage = links.carry(to, ready_s, n_bytes, in_turn=False)
        assert passage.start_s == max(ready_s, last_end_s[to])
        assert passage.end_s == pytest.approx(passage.start_s + n_bytes / (to + 1))
        last_end_s[to] = passage.end_s


@given(messages)
@settings(max_examples=25)
def test_messages_of_one_nic_leave_one_at_a_time_whoever_they_are_for(sent):
    nic, end_s = OutgoingLinks(three("nics"), 0), 0.0
    for to, ready_s, n_bytes, _ in sent:
        passage = nic.carry(to, ready_s, n_bytes, in_turn=False)
        assert passage.start_s == max(ready_s, end_s)
        assert passage.end_s == pytest.approx(passage.start_s + n_bytes / (to + 1))
        assert passage.latency_s == pytest.approx((to + 1) / 10)
        end_s = passage.end_s


@given(messages, st.sampled_from(["pairs", "nics"]))
@settings(max_examples=25)
def test_synchronisation_starts_when_the_one_before_has_arrived(sent, queueing):
    links, turn_s = OutgoingLinks(three(queueing), 0), 0.0
    for to, ready_s, n_bytes, _ in sent:
        passage = links.carry(to, ready_s, n_bytes, in_turn=True)
        assert passage.start_s == max(ready_s, turn_s)
        turn_s = passage.delivered_s


def test_a_reset_makes_every_link_idle():
    for queueing in ("pairs", "nics"):
        links = OutgoingLinks(three(queueing), 1)
        passage = links.carry(0, 0.0, 5, in_turn=True)
        links.reset()
        assert links.carry(0, 0.0, 5, in_turn=True) == passage


def test_links_are_those_of_a_topology_in_their_direction():
    topology = Topology.from_matrices([[0, 10], [20, 0]], [[1, 8], [4, 1]])
    links = Links.of(topology, "nics")
    assert OutgoingLinks(links, 0).carry(1, 0.0, 1e9, in_turn=False) == pytest.approx((0, 1, 0.01))
    assert OutgoingLinks(links, 1).carry(0, 0.0, 1e9, in_turn=False) == pytest.approx((0, 2, 0.02))
    slower = links.scaled(latency=3, bandwidth=0.5)
    assert OutgoingLinks(slower, 0).carry(1, 0.0, 1e9, in_turn=False) == pytest.approx((0, 2, 0.03))
    assert slower.queueing == "nics"


def test_free_links_take_no_time():
    assert OutgoingLinks(Links.free(2), 0).carry(1, 3.0, 1e12, in_turn=True) == (3.0, 3.0, 0.0)


def test_an_unknown_queueing_is_refused_with_the_known_ones():
    with pytest.raises(UnknownName, match="no queueing named 'nic'; did you mean 'nics'"):
        three("nic")
