"""A schedule as data: every transfer has two ends, lowering adds and never reorders, nonsense is refused."""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtfm_lab.domain.errors import ScheduleError
from dtfm_lab.domain.schedule import (
    COMPUTE,
    RECEIVES,
    SENDS,
    Action,
    Kind,
    Lane,
    Schedule,
    lower,
    needs,
    with_synchronisation,
    with_transfers,
)

sizes = st.tuples(st.integers(1, 5), st.integers(1, 6), st.integers(1, 4))
seeds = st.integers(0, 10_000)


def shuffled(n_stages: int, n_microbatches: int, seed: int) -> Schedule:
    """Any order that runs each backward after its forward: lowering must not care which."""
    rng, programs = random.Random(seed), []
    for stage in range(n_stages):
        order = [m for m in range(n_microbatches) for _ in range(2)]
        rng.shuffle(order)
        seen: set[int] = set()
        program = []
        for m in order:
            program.append(Action(stage, Kind.BACKWARD if m in seen else Kind.FORWARD, m))
            seen.add(m)
        programs.append(tuple(program))
    return Schedule("shuffled", n_microbatches, tuple(programs))


@pytest.mark.parametrize(
    ("action", "text"),
    [
        (Action(2, Kind.FORWARD, 0), "2F0"),
        (Action(2, Kind.BACKWARD, 11), "2B11"),
        (Action(1, Kind.SEND_F, 3), "1SEND_F3"),
        (Action(0, Kind.RECV_B, 3), "0RECV_B3"),
        (Action(0, Kind.SEND_G, peer=1), "0SEND_G+1"),
        (Action(0, Kind.RECV_P, peer=2), "0RECV_P-2"),
        (Action(3, Kind.REDUCE), "3REDUCE"),
        (Action(3, Kind.STEP), "3STEP"),
    ],
    ids=str,
)
def test_an_action_reads_as_it_is_written_elsewhere(action, text):
    assert str(action) == text


def test_every_kind_has_one_lane():
    for kind in Kind:
        expected = Lane.COMPUTE if kind in COMPUTE else Lane.SEND if kind in SENDS else Lane.RECEIVE
        assert Action(0, kind).lane is expected
    assert len(COMPUTE) + len(SENDS) + len(RECEIVES) == len(Kind)


@given(sizes, seeds)
@settings(max_examples=40, deadline=None)
def test_each_send_has_exactly_one_receive_at_its_other_end(size, seed):
    n_stages, n_microbatches, n_replicas = size
    lowered = lower(shuffled(n_stages, n_microbatches, seed), n_replicas)
    sent, received = Counter(), Counter()
    for replica in range(n_replicas):
        for action in lowered:
            if action.kind in SENDS:
                stage, other = action.other_end(replica, n_replicas)
                assert (stage, other) != (action.stage, replica)
                assert action.counterpart().stage == stage
                assert action.counterpart().other_end(other, n_replicas) == (action.stage, replica)
                sent[other, action.counterpart()] += 1
            elif action.kind in RECEIVES:
                received[replica, action] += 1
    assert sent == received
    assert set(sent.values()) <= {1}


@given(sizes, seeds)
@settings(max_examples=40, deadline=None)
def test_lowering_adds_to_the_compute_order_and_never_changes_it(size, seed):
    n_stages, n_microbatches, n_replicas = size
    schedule = shuffled(n_stages, n_microbatches, seed)
    lowered = lower(schedule, n_replicas)
    for before, after in zip(schedule.programs, lowered.programs, strict=True):
        assert tuple(a for a in after if a.kind in (Kind.FORWARD, Kind.BACKWARD)) == before
        assert len(set(after)) == len(after)
        assert after[-1].kind is Kind.STEP


@given(sizes, seeds)
@settings(max_examples=40, deadline=None)
def test_whatever_an_action_needs_stands_before_it_in_the_same_program(size, seed):
    n_stages, n_microbatches, n_replicas = size
    lowered = lower(shuffled(n_stages, n_microbatches, seed), n_replicas)
    for program in lowered.programs:
        at = {action: i for i, action in enumerate(program)}
        for action in program:
            for need in needs(action, n_stages, n_microbatches, n_replicas):
                assert at[need] < at[action]


@given(sizes, seeds)
@settings(max_examples=40, deadline=None)
def test_no_work_is_done_that_nobody_needs(size, seed):
    """Everything but the step and the sends is consumed on its own device."""
    n_stages, n_microbatches, n_replicas = size
    for program in lower(shuffled(n_stages, n_microbatches, seed), n_replicas).programs:
        used = {need for action in program for need in needs(action, n_stages, n_microbatches, n_replicas)}
        assert {a for a in program if a.kind not in SENDS and a.kind is not Kind.STEP} == used


@given(sizes)
@settings(max_examples=30, deadline=None)
def test_messages_are_as_many_as_boundaries_and_peers_ask_for(size):
    n_stages, n_microbatches, n_replicas = size
    found = Counter(a.kind for a in lower(shuffled(n_stages, n_microbatches, 0), n_replicas))
    for kind in (Kind.SEND_F, Kind.SEND_B, Kind.RECV_F, Kind.RECV_B):
        assert found[kind] == (n_stages - 1) * n_microbatches
    for kind in (Kind.SEND_G, Kind.RECV_G, Kind.SEND_P, Kind.RECV_P):
        assert found[kind] == n_stages * (n_replicas - 1)
    assert found[Kind.REDUCE] == (n_stages if n_replicas > 1 else 0)
    assert found[Kind.STEP] == n_stages


@given(st.integers(2, 8))
@settings(max_examples=7, deadline=None)
def test_no_two_replicas_serve_the_same_peer_first(n_replicas):
    (program,) = with_synchronisation(shuffled(1, 1, 0), n_replicas).programs
    sends = [a for a in program if a.kind is Kind.SEND_G]
    for turn in range(n_replicas - 1):
        assert len({sends[turn].other_end(r, n_replicas) for r in range(n_replicas)}) == n_replicas


def test_a_single_stage_ships_nothing_and_a_single_replica_averages_nothing():
    alone = shuffled(1, 3, 0)
    assert with_transfers(alone).programs == alone.programs
    assert [a.kind for a in with_synchronisation(alone, 1).programs[0][6:]] == [Kind.STEP]


def test_a_computation_has_no_other_end():
    with pytest.raises(ValueError, match="0F1 is no transfer"):
        Action(0, Kind.FORWARD, 1).other_end(0, 1)


F, B = Kind.FORWARD, Kind.BACKWARD


@pytest.mark.parametrize(
    ("program", "says"),
    [
        ([(0, F, 0)], "stage 0: 0B0 is missing; wanted each F and B once"),
        ([(0, F, 0), (0, B, 0), (0, B, 0)], "0B0 is out of place"),
        ([(0, F, 0), (0, B, 0), (0, F, 1)], "0F1 is out of place"),
        ([(1, F, 0), (1, B, 0)], "1F0 is out of place"),
        ([(0, B, 0), (0, F, 0)], "0B0 comes before its forward"),
    ],
    ids=["lost", "repeated", "too many", "another stage's", "backwards first"],
)
def test_a_program_that_loses_or_repeats_an_action_is_refused(program, says):
    with pytest.raises(ScheduleError, match=says):
        Schedule("mine", 1, (tuple(Action(*a) for a in program),))
