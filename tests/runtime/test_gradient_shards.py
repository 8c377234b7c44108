"""Both ends of a message agree on its shard, and the shards make the whole vector."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtfm_lab.domain.job import INT8_BLOCK
from dtfm_lab.domain.schedule import SENDS, Averaging, Kind, Schedule, lower, synchronisations
from dtfm_lab.runtime.protocol.gradient_shards import AVERAGED, Shard, shards_of

ONE = Schedule.from_orders("one", ["0F0 0B0"])


@given(st.sampled_from(sorted(AVERAGED)), st.integers(2, 7), st.data())
@settings(max_examples=25)
def test_a_message_carries_for_its_receiver_what_it_carries_for_its_sender(name, n, data):
    regions = tuple(data.draw(st.sampled_from(["", "a", "b"])) for _ in range(n))
    programs = lower(ONE, n, Averaging(name, (regions,)))
    shards = [shards_of(programs.of(0, replica), name, replica, range(n), n) for replica in range(n)]
    for replica in range(n):
        for step in programs.of(0, replica):
            if step.action.kind not in SENDS:
                continue
            _, other = step.action.other_end(replica, n)
            shard = shards[replica][step.action]
            assert shard == shards[other][step.action.counterpart()]
            assert step.share == pytest.approx(1 / shard.of), "as large as the simulator charges"


@given(st.integers(2, 7), st.data())
@settings(max_examples=25)
def test_around_a_ring_every_member_sends_on_what_it_received_whoever_is_absent(n, data):
    gone = data.draw(st.sets(st.integers(0, n - 1), max_size=n - 2))
    members = [replica for replica in range(n) if replica not in gone]
    absent, last = tuple((0, replica) for replica in sorted(gone)), len(members) - 2
    programs = lower(ONE, n, Averaging("ring"), absent=absent)
    begins = set()
    for replica in members:
        shards = shards_of(programs.of(0, replica), "ring", replica, members, n)
        of = {(action.kind, action.microbatch): shard for action, shard in shards.items()}
        for sent, received in ((Kind.SEND_G, Kind.RECV_G), (Kind.SEND_P, Kind.RECV_P)):
            for i in range(last):
                assert of[sent, i + 1] == of[received, i]
        assert of[Kind.SEND_P, 0] == of[Kind.RECV_G, last]
        begins.add(of[Kind.SEND_G, 0])
    assert begins == {Shard(i, len(members)) for i in range(len(members))}


@given(st.integers(1, 9), st.integers(0, 5000))
@settings(max_examples=25)
def test_shards_are_whole_blocks_that_make_the_vector(n_shards, n_elements):
    bounds = [Shard(i, n_shards).bounds(n_elements) for i in range(n_shards)]
    assert (bounds[0].start, bounds[-1].stop) == (0, n_elements)
    for before, after in itertools.pairwise(bounds):
        assert before.stop == after.start
        assert before.stop % INT8_BLOCK == 0 or before.stop == n_elements


def test_workers_know_every_way_to_average_that_the_lab_comes_with():
    assert set(AVERAGED) == set(synchronisations)
