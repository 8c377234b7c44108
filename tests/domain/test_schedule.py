"""A schedule as data: actions read as they are written, orders go through text, nonsense is refused."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtfm_lab.domain.errors import ScheduleError
from dtfm_lab.domain.schedule import RECEIVES, SENDS, Action, Kind, Schedule

F, B, I, W = Kind.FORWARD, Kind.BACKWARD, Kind.BACKWARD_INPUT, Kind.BACKWARD_WEIGHT  # noqa: E741
seeds = st.integers(0, 10_000)


def shuffled(n_devices: int, n_microbatches: int, seed: int, per_device: int = 1, split: bool = False) -> Schedule:
    """Any order that runs each backward after its forward, and each W after its I."""
    rng, programs = random.Random(seed), []
    for position in range(n_devices):
        stages = [position + k * n_devices for k in range(per_device)]
        kinds = (F, I, W) if split else (F, B)
        order = [(s, m) for s in stages for m in range(n_microbatches) for _ in kinds]
        rng.shuffle(order)
        seen: dict[tuple[int, int], int] = {}
        program = []
        for s, m in order:
            program.append(Action(s, kinds[seen.get((s, m), 0)], m))
            seen[s, m] = seen.get((s, m), 0) + 1
        programs.append(tuple(program))
    return Schedule("shuffled", n_microbatches, tuple(programs))


@pytest.mark.parametrize(
    ("action", "text"),
    [
        (Action(2, F, 0), "2F0"),
        (Action(0, Kind.RECV_P, peer=2), "0RECV_P-2"),
        (Action(0, Kind.SEND_G, 2, 1), "0SEND_G2+1"),
        (Action(0, Kind.RECV_E, peer=-3), "0RECV_E+3"),
        (Action(3, Kind.REDUCE, 1), "3REDUCE1"),
        (Action(3, Kind.STEP), "3STEP"),
    ],
    ids=str,
)
def test_an_action_reads_as_it_is_written(action, text):
    assert str(action) == text
    assert Action.parse(text) == action


@given(
    st.integers(0, 999_999),
    st.sampled_from(list(Kind)),
    st.none() | st.integers(0, 999_999_999),
    st.none() | st.integers(-99, 99),
)
@settings(max_examples=25)
def test_every_action_comes_back_from_its_text(stage, kind, m, peer):
    if kind not in SENDS and kind not in RECEIVES:
        peer = None
    assert Action.parse(str(Action(stage, kind, m, peer))) == Action(stage, kind, m, peer)


@pytest.mark.parametrize("text", ["", "F0", "0Q0", "0F-", "0 F0", "0SEND_X1", "1234567F0", "0FB0", "0f0"])
def test_a_text_that_is_no_action_is_refused_in_one_line(text):
    with pytest.raises(ScheduleError, match=r"is not an action; wanted one such as 0F3, 2B0, 1I3 or 1W3"):
        Action.parse(text)


def test_a_computation_has_no_other_end():
    for action in (Action(0, F, 1), Action(0, Kind.REDUCE), Action(0, Kind.SEND_G)):
        with pytest.raises(ValueError, match=f"{action} is not a transfer"):
            action.other_end(0, 1)


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 3), st.booleans(), seeds)
@settings(max_examples=40)
def test_a_schedule_comes_back_from_its_orders(n_devices, n_microbatches, per_device, split, seed):
    schedule = shuffled(n_devices, n_microbatches, seed, per_device, split)
    assert Schedule.from_orders("shuffled", schedule.orders) == schedule
    assert (schedule.n_devices, schedule.stages_per_device) == (n_devices, per_device)
    assert schedule.n_stages == n_devices * per_device
    held = [set(schedule.stages_of(position)) for position in range(n_devices)]
    assert sorted(stage for stages in held for stage in stages) == list(range(schedule.n_stages))
    for stages, program in zip(held, schedule.programs, strict=True):
        assert {action.stage for action in program} == stages
    assert sum(1 for _ in schedule) == schedule.n_stages * n_microbatches * (3 if split else 2)


REFUSED = {
    "lost backward": (1, "0F0", "0B0 is missing"),
    "lost forward": (2, "0F0 0B0", "0F1 is missing"),
    "lost weights": (1, "0F0 0I0", "0W0 is missing"),
    "repeated": (1, "0F0 0B0 0B0", "0B0 is there twice"),
    "whole and split": (1, "0F0 0B0 0I0 0W0", "0I0 is there twice"),
    "too many": (1, "0F0 0B0 0F1", "0F1 is not a pass of micro-batches 0 to 0"),
    "backwards first": (1, "0B0 0F0", "0B0 comes before its 0F0"),
    "weights first": (1, "0F0 0W0 0I0", "0W0 comes before its 0I0"),
    "a message": (1, "0F0 0SEND_F0 0B0", "0SEND_F0 is not a pass"),
    "no micro-batch": (1, "0F 0B", "0F is not a pass"),
    "another stage's": (1, "1F0 1B0", "1F0 is out of place; it holds stage 0"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_program_that_is_none_is_refused_in_one_line(what):
    n_microbatches, order, says = REFUSED[what]
    with pytest.raises(ScheduleError, match=f"schedule mine, device 0: {says}"):
        Schedule("mine", n_microbatches, (tuple(map(Action.parse, order.split())),))


def test_devices_hold_stages_in_turn():
    with pytest.raises(ScheduleError, match="device 1: 2F0 is out of place; it holds stage 1, 3"):
        Schedule.from_orders("mine", ["0F0 2F0 2B0 0B0", "1F0 2F0 2B0 1B0"])
    with pytest.raises(ScheduleError, match="device 1: 3F0 is missing"):
        Schedule.from_orders("mine", ["0F0 2F0 2B0 0B0", "1F0 1B0"])


@pytest.mark.parametrize(
    ("name", "orders", "says"),
    [
        ("two\nlines", ["0F0 0B0"], "wanted text without control characters"),
        (None, ["0F0 0B0"], "wanted text without control characters"),
        ("mine", [], "schedule mine has no program; wanted one a device"),
        ("mine", ["", ""], "schedule mine has 0 micro-batches; wanted 1 or more"),
        ("mine", ["0F0+1 0B0"], "is not a pass of micro-batches"),
    ],
)
def test_a_schedule_that_is_none_is_refused_in_one_line(name, orders, says):
    with pytest.raises(ScheduleError, match=says):
        Schedule.from_orders(name, orders)


def test_a_message_to_another_pipelines_device_names_its_offset():
    send, receive = Action.parse("1SEND_F3+2"), Action.parse("2RECV_F3-2")
    assert send.counterpart() == receive
    assert send.other_end(1, 4) == (2, 3)
    assert receive.other_end(3, 4) == (1, 1)
    assert Action.parse("2SEND_B3+3").other_end(2, 4) == (1, 1)
