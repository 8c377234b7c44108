"""Lowering adds messages, synchronisation and the step around the passes, and never reorders them."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_schedule import shuffled

from dtfm_lab.domain.errors import ScheduleError
from dtfm_lab.domain.schedule import (
    BY_SHARDS,
    PASSES,
    RECEIVES,
    SENDS,
    Action,
    Averaging,
    Kind,
    Programs,
    Schedule,
    lower,
    synchronisations,
)

REGIONS = ("", "Tokyo", "Seoul")
TIED = {Kind.SEND_E, Kind.RECV_E}


@st.composite
def lowered(draw) -> Programs:
    """Programs of any order of passes, on up to five devices of up to six replicas, of any counts of micro-batches."""
    n_devices, n_replicas, n_microbatches = draw(st.integers(1, 5)), draw(st.integers(1, 6)), draw(st.integers(1, 5))
    per_device = 1 if n_devices == 1 else draw(st.integers(1, 3))
    schedule = shuffled(n_devices, n_microbatches, draw(st.integers(0, 999)), per_device, draw(st.booleans()))
    counts = st.none() | st.tuples(*[st.integers(1, n_microbatches)] * n_replicas)
    region = st.sampled_from(REGIONS)
    row = st.tuples(*[region] * n_replicas)
    synchronisation = draw(st.sampled_from(sorted(synchronisations)))
    averaging = Averaging(
        synchronisation,
        draw(st.tuples(*[row] * n_devices)),
        compressed=draw(st.booleans()),
        sharding=draw(st.sampled_from(("none", "zero-1") if synchronisation in BY_SHARDS else ("none",))),
    )
    return lower(
        schedule,
        n_replicas,
        averaging,
        tied=draw(st.booleans()),
        synchronise=draw(st.booleans()),
        microbatch_counts=draw(counts),
    )


def devices_of(programs: Programs) -> list[tuple[int, int]]:
    return [(p, r) for p in range(programs.n_positions) for r in range(programs.n_replicas)]


@given(lowered())
@settings(max_examples=25)
def test_each_send_has_exactly_one_receive_at_its_other_end(programs):
    n_replicas, n_devices = programs.n_replicas, programs.n_positions
    sent, received = Counter(), Counter()
    for position, replica in devices_of(programs):
        for step in programs.of(position, replica):
            action = step.action
            assert action.stage % n_devices == position
            if action.kind in SENDS:
                stage, other = action.other_end(replica, n_replicas)
                assert (stage % n_devices, other) != (position, replica)
                assert action.counterpart().stage == stage
                assert action.counterpart().other_end(other, n_replicas) == (action.stage, replica)
                sent[other, action.counterpart(), step.share] += 1
            elif action.kind in RECEIVES:
                received[replica, action, step.share] += 1
    assert sent == received
    assert set(sent.values()) <= {1}


@given(lowered())
@settings(max_examples=25)
def test_passes_keep_their_order_and_the_step_comes_last(programs):
    for position, replica in devices_of(programs):
        actions = [step.action for step in programs.of(position, replica)]
        n_microbatches = programs.microbatch_counts[replica]
        ordered = [a for a in programs.schedule.programs[position] if a.microbatch < n_microbatches]
        assert [a for a in actions if a.kind in PASSES] == ordered
        assert len(set(actions)) == len(actions)
        (stepped,) = (a for a in actions if a.kind is Kind.STEP)
        writes = Action(position, Kind.REDUCE, programs.n_replicas)  # where replicas split states
        assert actions[-1] == (writes if writes in actions else stepped)


@given(lowered())
@settings(max_examples=25)
def test_whatever_a_step_needs_stands_before_it_and_is_worth_waiting_for(programs):
    for position, replica in devices_of(programs):
        steps = programs.of(position, replica)
        for i, step in enumerate(steps):
            assert all(0 <= need < i for need in step.needs)
            assert all(steps[need].action.kind not in SENDS for need in step.needs)
            assert (step.action.kind not in RECEIVES) or not step.needs


@given(lowered())
@settings(max_examples=25)
def test_no_work_is_done_that_nobody_needs(programs):
    """Whatever is received or computed serves, over steps of the same device, a send or the device's last step."""
    for position, replica in devices_of(programs):
        steps = programs.of(position, replica)
        used = {need for step in steps for need in step.needs}
        last_pass = max(i for i, step in enumerate(steps) if step.action.kind in PASSES)
        for i, step in enumerate(steps):
            if step.action.kind in PASSES:
                assert i <= last_pass  # gradients are whole when the last one is done
            elif step.action.kind in RECEIVES or step.action.kind in (Kind.PACK, Kind.REDUCE):
                assert i in used or i == len(steps) - 1


@given(lowered())
@settings(max_examples=25)
def test_each_pass_waits_for_its_message_and_each_message_for_its_pass(programs):
    schedule, n_devices = programs.schedule, programs.n_positions
    last = schedule.n_stages - 1
    for steps in (steps for pipeline in programs.pipelines for steps in pipeline):
        for step in steps:
            stage, kind, m, _ = step.action
            needs = {steps[need].action for need in step.needs}
            if kind is Kind.FORWARD and stage > 0 and n_devices > 1:
                assert needs == {Action(stage, Kind.RECV_F, m)}
            elif kind in (Kind.BACKWARD, Kind.BACKWARD_INPUT):
                gradient = {Action(stage, Kind.RECV_B, m)} if stage < last and n_devices > 1 else set()
                assert needs == gradient | {Action(stage, Kind.FORWARD, m)}
            elif kind is Kind.BACKWARD_WEIGHT:
                assert needs == {Action(stage, Kind.BACKWARD_INPUT, m)}
            elif kind is Kind.SEND_F:
                assert needs == {Action(stage, Kind.FORWARD, m)}
            elif kind is Kind.SEND_B:
                assert len(needs) == 1
                assert needs <= {Action(stage, Kind.BACKWARD, m), Action(stage, Kind.BACKWARD_INPUT, m)}


@given(lowered())
@settings(max_examples=40)
def test_replicas_of_as_many_microbatches_share_one_pipeline_and_only_their_tails_differ(programs):
    assert sorted(replica for replicas in programs.replicas for replica in replicas) == [*range(programs.n_replicas)]
    assert len(programs.pipelines) == len(programs.replicas) == len(set(programs.microbatch_counts))
    for pipeline, replicas in zip(programs.pipelines, programs.replicas, strict=True):
        for position, replica in ((p, r) for p in range(programs.n_positions) for r in replicas):
            steps = programs.of(position, replica)
            assert programs.pipeline(position, replica) is pipeline[position]
            assert steps[: len(pipeline[position])] == pipeline[position]
            assert not {step.action.kind for step in steps[len(pipeline[position]) :]} & {*PASSES, Kind.SEND_F}


@given(lowered())
@settings(max_examples=40)
def test_a_pipeline_of_fewer_micro_batches_is_that_of_the_order_without_the_last_ones(programs):
    for pipeline, replicas in zip(programs.pipelines, programs.replicas, strict=True):
        n, whole = programs.microbatch_counts[replicas[0]], programs.schedule.programs
        fewer = Schedule("fewer", n, tuple(tuple(one for one in order if one.microbatch < n) for order in whole))
        assert pipeline == lower(fewer, 1, synchronise=False).pipelines[0]


@pytest.mark.parametrize("counts", [(2, 2), (2, 2, 0), (3, 2, 2), (2, 2, 2, 2)])
def test_counts_that_are_none_of_the_schedules_are_refused(counts):
    with pytest.raises(ScheduleError, match=r"one count for each of 3 replicas, from 1 to the schedule's 2"):
        lower(shuffled(2, 2, 0), 3, microbatch_counts=counts)


def tail_kinds(*, compressed: bool) -> list[Counter]:
    """Of the two ends and the middle of three devices, two replicas."""
    programs = lower(shuffled(3, 2, 0), 2, Averaging(compressed=compressed))
    return [Counter(step.action.kind for step in tails[0]) for tails in programs.tails]


@pytest.mark.parametrize("synchronise", [True, False])
@pytest.mark.parametrize("per_device", [1, 2])
def test_a_tied_embedding_is_exchanged_once_each_way_whether_replicas_average_or_not(synchronise, per_device):
    schedule = shuffled(3, 2, 0, per_device)
    programs = lower(schedule, 2, tied=True, synchronise=synchronise)
    last = schedule.n_stages - 1
    for replica in range(2):
        found = [
            [step.action for step in programs.of(position, replica) if step.action.kind in TIED]
            for position in range(3)
        ]
        assert found == [
            [Action(0, Kind.SEND_E, peer=last), Action(0, Kind.RECV_E, peer=-last)],
            [],
            [Action(last, Kind.SEND_E, peer=-last), Action(last, Kind.RECV_E, peer=last)],
        ]


def test_the_tied_gradient_is_sent_when_the_replicas_have_averaged_theirs():
    steps = lower(shuffled(2, 2, 0), 3, tied=True).of(0, 1)
    (sent,) = (step for step in steps if step.action.kind is Kind.SEND_E)
    needs = Counter(steps[need].action.kind for need in sent.needs)
    assert (needs[Kind.REDUCE], needs[Kind.RECV_P]) == (1, 2)


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("name", sorted(synchronisations))
def test_local_updates_step_on_their_own_gradients_and_average_afterwards(name, compressed):
    averaging = Averaging(name, (("a", "a", "b"),) * 2, compressed=compressed, locally=True)
    steps = lower(shuffled(2, 2, 0), 3, averaging, tied=True).of(0, 1)
    (stepped,) = (i for i, step in enumerate(steps) if step.action.kind is Kind.STEP)
    assert Kind.RECV_E in {steps[need].action.kind for need in steps[stepped].needs}
    between = [i for i, step in enumerate(steps) if step.action.kind in (Kind.PACK, Kind.SEND_G, Kind.REDUCE)]
    assert all(i > stepped and steps[i].needs for i in between)
    last = steps[-1]
    assert last.action == Action(0, Kind.REDUCE, 3), "a round of its own"
    averages = {i for i, step in enumerate(steps[:-1]) if step.action.kind in (Kind.REDUCE, Kind.RECV_P)}
    assert averages <= set(last.needs)


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("name", BY_SHARDS)
def test_replicas_that_split_states_step_between_the_average_of_their_shard_and_sending_it_on(name, compressed):
    averaging = Averaging(name, compressed=compressed, sharding="zero-1")
    steps = lower(shuffled(2, 2, 0), 3, averaging, tied=True).of(0, 1)
    (stepped,) = (i for i, step in enumerate(steps) if step.action.kind is Kind.STEP)
    *sums, last = (i for i, step in enumerate(steps) if step.action.kind is Kind.REDUCE)
    assert max(sums) == stepped - 1
    assert stepped - 1 in steps[stepped].needs
    assert all(stepped in step.needs for step in steps if step.action.kind is Kind.SEND_P)
    assert last == len(steps) - 1
    assert steps[last].action == Action(0, Kind.REDUCE, 3), "a round of its own"
    arrived = {i for i, step in enumerate(steps) if step.action.kind is Kind.RECV_P}
    assert arrived | {stepped} <= set(steps[last].needs)
    assert steps[stepped - 1].coded == pytest.approx(1 / 3 if name == "ring" else 2 / 3), "only what was received"
    assert (steps[stepped].coded, steps[last].coded) == (0, 0)


def test_a_tied_gradient_is_exchanged_before_shards_of_it_are_sent():
    steps = lower(shuffled(2, 2, 0), 3, Averaging(sharding="zero-1"), tied=True).of(0, 1)
    (received,) = (i for i, step in enumerate(steps) if step.action.kind is Kind.RECV_E)
    assert all(received in step.needs for step in steps if step.action.kind is Kind.SEND_G)


@given(lowered())
@settings(max_examples=25)
def test_an_iteration_alone_exchanges_nothing_between_replicas(programs):
    between = {Kind.SEND_G, Kind.RECV_G, Kind.SEND_P, Kind.RECV_P, Kind.REDUCE, Kind.PACK}
    averaging = Averaging("ring", compressed=True)
    alone = lower(programs.schedule, programs.n_replicas, averaging, tied=True, synchronise=False)
    for position, replica in devices_of(alone):
        assert not {step.action.kind for step in alone.of(position, replica)} & between


def test_gradients_are_packed_once_before_they_are_sent_and_only_where_compressed():
    assert [kinds[Kind.PACK] for kinds in tail_kinds(compressed=False)] == [0, 0, 0]
    assert [kinds[Kind.PACK] for kinds in tail_kinds(compressed=True)] == [1, 1, 1]
    steps = lower(shuffled(1, 1, 0), 3, Averaging(compressed=True)).of(0, 0)
    (packed,) = (i for i, step in enumerate(steps) if step.action.kind is Kind.PACK)
    assert all(packed in step.needs for step in steps if step.action.kind is Kind.SEND_G)


def test_one_device_with_several_stages_passes_results_on_without_messages():
    schedule = Schedule.from_orders("alone", ["0F0 1F0 1B0 0B0"])
    steps = lower(schedule, 1).of(0, 0)
    assert [step.action for step in steps] == [*schedule, Action(0, Kind.STEP)]
    assert [step.needs for step in steps] == [(), (0,), (1,), (0, 2), (3,)]


@pytest.mark.parametrize(
    ("order", "says"),
    [
        ("1F0 0F0 1B0 0B0", "1F0 comes before 0F0, which it needs"),
        ("0F0 1F0 0B0 1B0", "0B0 comes before 1B0, which it needs"),
    ],
)
def test_one_device_that_asks_for_a_later_result_of_its_own_is_refused(order, says):
    with pytest.raises(ScheduleError, match=says):
        lower(Schedule.from_orders("alone", [order]), 1)


@pytest.mark.parametrize("name", ["sharded", "ring"])
def test_more_actions_than_can_be_held_are_refused_before_they_are_made(name):
    with pytest.raises(
        ScheduleError, match=r"1 stage x 4,096 replicas are some [\d,]+ actions an iteration; wanted at most"
    ):
        lower(shuffled(1, 1, 0), 4096, Averaging(name))
    assert lower(shuffled(1, 1, 0), 4096, Averaging("central")).n_replicas == 4096
