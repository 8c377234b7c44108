"""The builders: valid at every size, what each holds in memory, what each is good for."""

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import equal, even, passes_of, plan_of, schedule_of

from dtfm_lab.domain.errors import JobError, ScheduleError, UnknownName
from dtfm_lab.domain.schedule import PASSES, Schedule
from dtfm_lab.domain.trace import ComputeTime
from dtfm_lab.simulation.engine import simulate_iteration
from dtfm_lab.simulation.schedules import build, peak_activations, schedules

NAMES = list(schedules)
sizes = st.tuples(st.integers(1, 9), st.integers(1, 12))
seeds = st.integers(0, 1000)


def test_the_schedules_of_the_lab_are_known():
    assert {"1f1b", "adaptive-1f1b", "gpipe", "interleaved-1f1b", "zb-h1"} <= set(NAMES)


@given(sizes, st.sampled_from(NAMES), seeds)
@settings(max_examples=100, deadline=None)
def test_a_builder_makes_each_pass_of_each_microbatch_once(size, name, seed):
    schedule = schedule_of(name, *size, seed)
    actions = list(schedule)
    assert (schedule.name, schedule.n_devices) == (name, size[0])
    assert len(actions) == len(set(actions))
    assert set(actions) == passes_of(schedule, schedule.n_microbatches)


@given(sizes, st.sampled_from(NAMES), seeds)
@settings(max_examples=60, deadline=None)
def test_microbatches_pass_every_stage_in_order(size, name, seed):
    schedule = schedule_of(name, *size, seed)
    for position, program in enumerate(schedule.programs):
        for stage in schedule.stages_of(position):
            for kind in PASSES:
                found = [a.microbatch for a in program if (a.stage, a.kind) == (stage, kind)]
                assert found in ([], list(range(schedule.n_microbatches)))


ORDERS_OF_ANY_COUNT = ["1f1b", "adaptive-1f1b", "gpipe", "zb-h1"]


@given(sizes, st.integers(1, 12), st.sampled_from(ORDERS_OF_ANY_COUNT), seeds)
@settings(max_examples=100, deadline=None)
def test_without_the_last_microbatches_a_schedule_is_the_same_schedule_of_fewer(size, fewer, name, seed):
    """Of 1F1B it is exactly 1F1B, whatever the warm-ups."""
    n_stages, n_microbatches = size
    warmups = sorted(random.Random(seed).choices(range(n_microbatches + 2), k=n_stages), reverse=True)
    built, wanted = (
        schedules[name](n_stages, m, warmups=warmups) for m in (n_microbatches, min(fewer, n_microbatches))
    )
    assert built.restricted(fewer) == wanted


@given(sizes, st.integers(1, 12), st.sampled_from(NAMES), seeds)
@settings(max_examples=60, deadline=None)
def test_without_the_last_microbatches_no_device_holds_more(size, fewer, name, seed):
    schedule = schedule_of(name, *size, seed)
    fewer = min(fewer, schedule.n_microbatches)
    held, held_before = peak_activations(schedule.restricted(fewer)), peak_activations(schedule)
    most = fewer * schedule.stages_per_device
    assert all(now <= min(before, most) for now, before in zip(held, held_before, strict=True))


def test_an_order_of_no_microbatch_is_refused():
    with pytest.raises(ScheduleError, match="has 0 micro-batches; wanted 1 or more"):
        schedules["1f1b"](2, 3).restricted(0)


@given(sizes, st.sampled_from(NAMES))
@settings(max_examples=50, deadline=None)
def test_two_counts_are_enough_to_build_any_schedule(size, name):
    n_stages, n_microbatches = size[0], size[0] * size[1]
    assert schedules[name](n_stages, n_microbatches).n_microbatches == n_microbatches


@given(sizes)
@settings(max_examples=50, deadline=None)
def test_1f1b_holds_fewer_activations_than_gpipe(size):
    n_stages, n_microbatches = size
    assert peak_activations(schedules["gpipe"](*size)) == (n_microbatches,) * n_stages
    assert peak_activations(schedules["1f1b"](*size)) == tuple(
        min(n_stages - s, n_microbatches) for s in range(n_stages)
    )


@given(sizes)
@settings(max_examples=50, deadline=None)
def test_zb_h1_holds_on_every_device_what_1f1b_holds_on_its_first(size):
    """Until W, which needs the stage's input; only until I it would be as many as 1F1B holds there."""
    n_stages, n_microbatches = size
    schedule = schedules["zb-h1"](*size)
    assert peak_activations(schedule) == (min(n_stages, n_microbatches),) * n_stages
    without_w = Schedule.from_orders(
        "until I", [" ".join(w.replace("I", "B") for w in o.split() if "W" not in w) for o in schedule.orders]
    )
    assert peak_activations(without_w) == peak_activations(schedules["1f1b"](*size))


@given(st.integers(1, 6), st.integers(1, 4), st.integers(2, 4))
@settings(max_examples=50, deadline=None)
def test_interleaving_holds_whole_rounds_of_all_stages_but_one_and_twice_the_way_to_the_end(n_devices, rounds, stages):
    schedule = schedules["interleaved-1f1b"](n_devices, rounds * n_devices, stages_per_device=stages)
    warmups = [(stages - 1) * n_devices + 2 * (n_devices - 1 - p) for p in range(n_devices)]
    most = stages * rounds * n_devices
    assert peak_activations(schedule) == tuple(min(warmup + 1, most) for warmup in warmups)


@given(sizes, seeds)
@settings(max_examples=50, deadline=None)
def test_a_device_that_warms_up_with_w_forwards_holds_w_plus_1_activations(size, seed):
    n_stages, n_microbatches = size
    warmups = sorted(((seed * (s + 7)) % (n_microbatches + 3) for s in range(n_stages)), reverse=True)
    schedule = schedules["adaptive-1f1b"](*size, warmups=warmups)
    assert peak_activations(schedule) == tuple(min(w + 1, n_microbatches) for w in warmups)
    for word, after in pairwise(schedule.orders[0].split()[warmups[0] :]):
        assert "F" not in word or "B" in after  # from here on no two forwards in a row


@given(sizes)
@settings(max_examples=30, deadline=None)
def test_1f1b_and_gpipe_are_adaptive_1f1b_with_certain_warmups(size):
    n_stages, n_microbatches = size
    adaptive = schedules["adaptive-1f1b"]
    assert adaptive(*size).orders == schedules["1f1b"](*size).orders
    assert adaptive(*size, warmups=[n_microbatches] * n_stages).orders == schedules["gpipe"](*size).orders


def test_schedules_written_out():
    def text(name, n_microbatches=4, **choices):
        orders = schedules[name](3, n_microbatches, **choices).orders
        return [" ".join(word[1:] for word in order.split()) for order in orders]

    assert text("gpipe") == ["F0 F1 F2 F3 B0 B1 B2 B3"] * 3
    assert text("1f1b") == ["F0 F1 F2 B0 F3 B1 B2 B3", "F0 F1 B0 F2 B1 F3 B2 B3", "F0 B0 F1 B1 F2 B2 F3 B3"]
    assert text("zb-h1") == [
        "F0 F1 F2 I0 W0 F3 I1 W1 I2 W2 I3 W3",
        "F0 F1 I0 F2 I1 W0 F3 I2 W1 I3 W2 W3",
        "F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3",
    ]
    assert schedules["interleaved-1f1b"](2, 2).orders == (
        "0F0 0F1 2F0 2F1 2B0 2B1 0B0 0B1",
        "1F0 1F1 3F0 3B0 3F1 3B1 1B0 1B1",
    )


@given(st.integers(2, 7), st.integers(2, 12), st.floats(0.1, 5), st.floats(0.1, 5), st.floats(0.1, 5))
@settings(max_examples=50, deadline=None)
def test_on_free_links_zb_h1_leaves_strictly_less_bubble_than_1f1b(n_stages, n_microbatches, f, i, w):
    """Both compute as long; whatever the halves of a backward take."""
    plan = plan_of(n_stages, n_microbatches)
    seconds = {"F": f, "B": i + w, "I": i, "W": w}
    profile = [ComputeTime(s, r, kind, seconds.get(kind, 0.0)) for s, r, kind, _ in equal(plan, 1, 2)]

    def makespan_s(name):
        schedule = schedules[name](n_stages, n_microbatches)
        return simulate_iteration(plan, schedule, profile, even(n_stages), synchronise=False).makespan_s

    assert makespan_s("zb-h1") < makespan_s("1f1b") * (1 - 1e-9)


def test_an_unknown_schedule_is_refused_with_the_known_ones():
    with pytest.raises(UnknownName, match=f"no pipeline schedule named 'zigzag'; known: {', '.join(NAMES)}"):
        schedules["zigzag"]
    with pytest.raises(UnknownName, match="did you mean 'gpipe'"):
        schedules["gpip"]


@pytest.mark.parametrize(
    ("name", "counts", "choices", "says"),
    [
        ("gpipe", (0, 4), {}, "schedule gpipe: n_stages is 0; wanted a whole number from 1"),
        ("1f1b", (2, 0), {}, "schedule 1f1b: n_microbatches is 0; wanted"),
        ("zb-h1", (2, 1.5), {}, "schedule zb-h1: n_microbatches is 1.5; wanted"),
        ("gpipe", ("2", 4), {}, "schedule gpipe: n_stages is '2'; wanted"),
        ("1f1b", (2.5, 4), {}, "schedule 1f1b: n_stages is 2.5; wanted"),
        ("1f1b", (8, 10**9), {}, "1000000000 micro-batches pass 8 stages; wanted at most 2000000 passes"),
        ("interleaved-1f1b", (1, 1), {"stages_per_device": 10**9}, "1 micro-batches pass 1000000000 stages; wanted"),
        ("interleaved-1f1b", (2, 4), {"stages_per_device": 0}, "stages_per_device is 0; wanted"),
        ("interleaved-1f1b", (4, 9), {}, "9 micro-batches on 4 devices do not divide into 2 rounds; .* 8 or 10"),
        ("adaptive-1f1b", (3, 9), {"warmups": (1, 0)}, "2 warm-ups; wanted one a device, 3"),
        ("adaptive-1f1b", (2, 9), {"warmups": 3}, "warm-ups are 3; wanted one a device"),
        ("adaptive-1f1b", (2, 9), {"warmups": (1, -1)}, "warm-up of device 1 is -1; wanted a whole number from 0"),
        ("adaptive-1f1b", (3, 9), {"warmups": (1, 2, 0)}, "device 1 warms up with 2 forwards, device 0 with 1; wanted"),
    ],
)
def test_counts_that_a_schedule_cannot_serve_are_refused_in_one_line(name, counts, choices, says):
    with pytest.raises(ScheduleError, match=says) as refused:
        schedules[name](*counts, **choices)
    assert "\n" not in str(refused.value)


def test_a_plan_gets_its_schedule_by_name():
    plan = plan_of(2, 4, n_layers=6, stages_per_device=3)
    for name in NAMES:
        built = build(plan, name)
        assert (built.name, built.n_devices, built.n_microbatches) == (name, 2, 4)
    assert build(plan, "interleaved-1f1b").n_stages == 6


def test_a_schedule_of_one_s_own_is_taken_as_it_is():
    plan = plan_of(2, 2)
    mine = Schedule.from_orders("mine", ["0F0 0B0 0F1 0B1", "1F0 1B0 1F1 1B1"])
    assert build(plan, mine) is mine


def test_what_does_not_fit_a_plan_is_refused():
    with pytest.raises(
        ScheduleError, match=r"schedule gpipe is of 3 devices and 4 micro-batches; job \w+ wants 2 and 4"
    ):
        build(plan_of(2, 4), schedules["gpipe"](3, 4))
    with pytest.raises(UnknownName, match="no pipeline schedule named 'gpip'"):
        build(plan_of(2, 4), "gpip")
    with pytest.raises(JobError, match="too few for 6 stages"):
        build(plan_of(2, 4, n_layers=5, stages_per_device=3), "interleaved-1f1b")
