"""Every way to average: whoever takes part, each replica steps with the sum of all gradients, and none twice."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_schedule import shuffled

from dtfm_lab.domain.errors import UnknownName
from dtfm_lab.domain.schedule import (
    COMPUTE,
    RECEIVES,
    SENDS,
    Action,
    Averaging,
    Kind,
    Programs,
    Step,
    lower,
    synchronisations,
)

names = st.sampled_from(sorted(synchronisations))
regions = st.lists(st.sampled_from(["", "Tokyo", "Seoul", "Oregon"]), min_size=1, max_size=9).map(tuple)

Shards = tuple[frozenset[int], ...]
"""per shard of the gradient, the replicas whose contributions are in the sum"""


def leaders_of(in_region: tuple[str, ...]) -> list[int]:
    """The first replica of each region; where no region is known, each for itself."""
    return [r for r, name in enumerate(in_region) if not name or name not in in_region[:r]]


class Sums:
    """Which replicas' gradients every message and every step holds, found by following needs alone.

    Order in a program does not count, only what a step needs, needs of its needs, and the computations before
    it: what both interpreters promise.
    """

    def __init__(self, name: str, in_region: tuple[str, ...]) -> None:
        self.name, self.n, self.leaders = name, len(in_region), leaders_of(in_region)
        self.programs: Programs = lower(shuffled(1, 1, 0), self.n, Averaging(name, (in_region,)))
        self.steps: list[tuple[Step, ...]] = [self.programs.of(0, r) for r in range(self.n)]
        self.at = [{step.action: i for i, step in enumerate(steps)} for steps in self.steps]
        self.n_shards = {"central": 1, "tree": 1, "hierarchical": len(self.leaders)}.get(name, self.n)
        self.carried = cache(self._carried)

    def known_to(self, replica: int, i: int) -> list[int]:
        """Everything that is over on this device when step i runs, in the order of the program."""
        steps, known, todo = self.steps[replica], set(), [i]
        while todo:
            step = steps[at := todo.pop()]
            before = [j for j in range(at) if steps[j].action.kind in COMPUTE] if step.action.kind in COMPUTE else []
            fresh = {*step.needs, *before[-1:]} - known
            known |= fresh
            todo += fresh
        return sorted(known)

    def held(self, replica: int, i: int) -> Shards:
        """The device's gradient when step i runs."""
        own: list[frozenset[int]] = [frozenset([replica])] * self.n_shards
        for j in self.known_to(replica, i):
            step = self.steps[replica][j]
            if step.action.kind is Kind.REDUCE:
                for need in step.needs:
                    if self.steps[replica][need].action.kind is Kind.RECV_G:
                        for shard, sums in self.received(replica, need).items():
                            assert not own[shard] & sums, f"{step.action} of replica {replica} adds a gradient twice"
                            own[shard] = own[shard] | sums
            elif step.action.kind is Kind.RECV_P:
                for shard, sums in self.received(replica, j).items():
                    own[shard] = sums
        return tuple(own)

    def received(self, replica: int, i: int) -> dict[int, frozenset[int]]:
        action = self.steps[replica][i].action
        sender = action.other_end(replica, self.n)[1]
        sent = Action(action.stage, RECEIVES[action.kind], action.microbatch, action.peer)
        return self.carried(sender, self.at[sender][sent])

    def _carried(self, replica: int, i: int) -> dict[int, frozenset[int]]:
        """Per shard in it, what a message sums."""
        step, held = self.steps[replica][i], self.held(replica, i)
        target = step.action.other_end(replica, self.n)[1]
        shards = self.shards_of(step, replica, target)
        assert step.share == pytest.approx(len(shards) / self.n_shards)
        return {shard: held[shard] for shard in shards}

    def shards_of(self, step: Step, replica: int, target: int) -> list[int]:
        """Which shards a message carries: a rule of the way to average that only its prose states."""
        gathers = step.action.kind is Kind.SEND_G
        turn = step.action.microbatch
        if self.name in ("central", "tree") or (self.name == "hierarchical" and turn == 0):
            return list(range(self.n_shards))
        if self.name == "hierarchical":
            return [self.leaders.index(target if gathers else replica)]
        if self.name == "ring":
            return [(replica - turn + (not gathers)) % self.n]
        return [target if gathers else replica]

    def stepped_with(self, replica: int) -> Shards:
        return self.held(replica, self.at[replica][Action(0, Kind.STEP)])


@given(names, regions)
@settings(max_examples=50)
def test_every_replica_steps_with_the_sum_of_all_gradients_and_none_counts_twice(name, in_region):
    sums = Sums(name, in_region)
    everyone = frozenset(range(sums.n))
    for replica in range(sums.n):
        assert sums.stepped_with(replica) == (everyone,) * sums.n_shards


@given(names, st.integers(1, 9))
@settings(max_examples=45)
def test_messages_carry_what_the_textbook_says(name, n):
    """Gradients sent per device: (D - 1) / D out and as much back; central and tree move whole ones, D - 1 each way."""
    programs = lower(shuffled(1, 1, 0), n, Averaging(name))
    sent = [sum(step.share for step in programs.of(0, r) if step.action.kind in SENDS) for r in range(n)]
    received = [sum(step.share for step in programs.of(0, r) if step.action.kind in RECEIVES) for r in range(n)]
    if name == "central":
        assert sent == received == [n - 1 if r == 0 else 1 for r in range(n)] or n == 1
    elif name == "tree":
        assert sum(sent) == sum(received) == 2 * (n - 1)
        assert max(sent, default=0) <= 3
    else:
        assert sent == pytest.approx([2 * (n - 1) / n] * n)
        assert received == pytest.approx(sent)


@given(regions)
@settings(max_examples=25)
def test_across_regions_only_their_first_replicas_talk(in_region):
    sums = Sums("hierarchical", in_region)
    for replica, steps in enumerate(sums.steps):
        for step in steps:
            if step.action.kind in SENDS:
                other = step.action.other_end(replica, sums.n)[1]
                inside = in_region[replica] == in_region[other] != ""
                assert inside or {replica, other} <= set(sums.leaders)


@given(names, regions)
@settings(max_examples=40)
def test_what_passes_a_codec_is_what_comes_in_and_each_sum_that_goes_out(name, in_region):
    """A message is decoded where it comes in; a sum is coded once for all its receivers, and passed on as it is."""
    n = len(in_region)
    sums = Sums(name, in_region)
    programs = lower(shuffled(1, 1, 0), n, Averaging(name, (in_region,), compressed=True))
    for replica in range(n):
        steps = programs.of(0, replica)
        came = sum(step.share for step in steps if step.action.kind in RECEIVES)
        arrived = {
            (shard, of)
            for i, step in enumerate(sums.steps[replica])
            if step.action.kind is Kind.RECV_P
            for shard, of in sums.received(replica, i).items()
        }
        left = {
            (shard, of)
            for i, step in enumerate(sums.steps[replica])
            if step.action.kind in SENDS
            for shard, of in sums.carried(replica, i).items()
        }
        assert sum(step.coded for step in steps) == pytest.approx(came + len(left - arrived) / sums.n_shards)


@pytest.mark.parametrize("name", sorted(synchronisations))
def test_a_single_replica_averages_nothing(name):
    assert [step.action.kind for step in lower(shuffled(1, 2, 0), 1, Averaging(name)).of(0, 0)][4:] == [Kind.STEP]


@pytest.mark.parametrize("name", sorted(synchronisations))
def test_only_sharded_takes_turns(name):
    steps = lower(shuffled(1, 1, 0), 4, Averaging(name)).of(0, 0)
    assert {step.in_turn for step in steps if step.action.kind in SENDS} == {name == "sharded"}


def test_devices_of_no_region_are_each_their_own():
    alone, apart = (
        lower(shuffled(1, 1, 0), 3, Averaging("hierarchical", (in_region,)))
        for in_region in (("", "", ""), ("a", "b", "c"))
    )
    assert alone.tails == apart.tails
    found = Counter(step.action.kind for step in alone.of(0, 0))
    assert (found[Kind.SEND_G], found[Kind.RECV_G], found[Kind.REDUCE]) == (2, 2, 1)


def test_an_unknown_way_is_refused_with_the_known_ones():
    with pytest.raises(UnknownName, match="no synchronisation named 'rings'; did you mean 'ring'"):
        lower(shuffled(1, 1, 0), 2, Averaging("rings"))


@given(names, regions)
@settings(max_examples=25)
def test_no_message_to_a_peer_can_be_ready_before_an_earlier_one(name, in_region):
    """What an earlier one was made by, a later one waits for: on a link of their own, no times decide their order."""
    sums = Sums(name, in_region)
    for replica, steps in enumerate(sums.steps):
        made_by: dict[int, set[int]] = {}
        for i, step in enumerate(steps):
            if step.action.kind in SENDS:
                other = step.action.other_end(replica, sums.n)[1]
                before = made_by.setdefault(other, set())
                assert before <= set(sums.known_to(replica, i)), step.action
                before |= {j for j in step.needs if steps[j].action.kind in COMPUTE}
