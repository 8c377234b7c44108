"""Messages of one directed pair queue, pairs are independent, synchronisation takes turns."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtfm_lab.domain.links import OutgoingLinks

messages = st.lists(st.tuples(st.integers(0, 2), st.floats(0, 10), st.floats(0, 10), st.booleans()), max_size=12)


def test_an_idle_link_takes_latency_plus_size_over_bandwidth():
    passage = OutgoingLinks([0.0, 0.5], [1.0, 4.0]).carry(1, 2.0, 8, in_turn=False)
    assert (passage.start_s, passage.end_s) == (2, 4)
    assert (passage.first_byte_s, passage.delivered_s) == (2.5, 4.5)


@given(messages)
@settings(max_examples=50, deadline=None)
def test_messages_of_one_pair_keep_their_order_and_never_overlap(sent):
    links, last_end_s = OutgoingLinks([0.1, 0.2, 0.3], [1.0, 2.0, 3.0]), dict.fromkeys(range(3), 0.0)
    for to, ready_s, n_bytes, in_turn in sent:
        passage = links.carry(to, ready_s, n_bytes, in_turn=in_turn)
        assert passage.start_s >= max(ready_s, last_end_s[to])
        assert passage.end_s == pytest.approx(passage.start_s + n_bytes / (to + 1))
        last_end_s[to] = passage.end_s


@given(messages)
@settings(max_examples=50, deadline=None)
def test_synchronisation_starts_when_the_one_before_has_arrived(sent):
    links, turn_s = OutgoingLinks([0.1, 0.2, 0.3], [1.0, 2.0, 3.0]), 0.0
    for to, ready_s, n_bytes, _ in sent:
        passage = links.carry(to, ready_s, n_bytes, in_turn=True)
        assert passage.start_s == max(ready_s, turn_s)
        turn_s = passage.delivered_s


def test_a_busy_pair_does_not_hold_up_another():
    links = OutgoingLinks([0, 0], [1.0, 1.0])
    links.carry(0, 0.0, 100, in_turn=False)
    assert links.carry(1, 0.0, 1, in_turn=False).start_s == 0
    assert links.carry(0, 0.0, 1, in_turn=False).start_s == 100


def test_a_reset_makes_every_link_idle():
    links = OutgoingLinks([1.0], [1.0])
    first = links.carry(0, 0.0, 5, in_turn=True)
    links.reset()
    assert links.carry(0, 0.0, 5, in_turn=True) == first
