"""The builders: valid at every size, what each holds in memory, what each is good for."""

import json
import math
import random
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import equal, even, passes_of, plan_of, schedule_of

from dtfm_lab.domain.errors import JobError, ScheduleError, UnknownName
from dtfm_lab.domain.schedule import PASSES, Schedule, lower
from dtfm_lab.simulation import memory, simulate
from dtfm_lab.simulation.engine import simulate_iteration
from dtfm_lab.simulation.schedules import build, peak_activations, schedules

NAMES = list(schedules)
sizes = st.tuples(st.integers(1, 9), st.integers(1, 12))
seeds = st.integers(0, 1000)


@given(sizes, st.sampled_from(NAMES), seeds)
@settings(max_examples=25)
def test_a_builder_makes_each_pass_of_each_microbatch_once(size, name, seed):
    schedule = schedule_of(name, *size, seed)
    actions = list(schedule)
    assert (schedule.name, schedule.n_devices) == (name, size[0])
    assert len(actions) == len(set(actions))
    assert set(actions) == passes_of(schedule, schedule.n_microbatches)


@given(sizes, st.sampled_from(NAMES), seeds)
def test_microbatches_pass_every_stage_in_order(size, name, seed):
    schedule = schedule_of(name, *size, seed)
    for position, program in enumerate(schedule.programs):
        for stage in schedule.stages_of(position):
            for kind in PASSES:
                found = [a.microbatch for a in program if (a.stage, a.kind) == (stage, kind)]
                assert found in ([], list(range(schedule.n_microbatches)))


ORDERS_OF_ANY_COUNT = ["1f1b", "adaptive-1f1b", "gpipe", "zb-h1"]


@given(sizes, st.integers(1, 12), st.sampled_from(ORDERS_OF_ANY_COUNT), seeds)
@settings(max_examples=25)
def test_without_the_last_microbatches_a_schedule_is_the_same_schedule_of_fewer(size, fewer, name, seed):
    """Of 1F1B it is exactly 1F1B, whatever the warm-ups."""
    n_stages, n_microbatches = size
    warmups = sorted(random.Random(seed).choices(range(n_microbatches + 2), k=n_stages), reverse=True)
    built, wanted = (
        schedules[name](n_stages, m, warmups=warmups) for m in (n_microbatches, min(fewer, n_microbatches))
    )
    counts = (wanted.n_microbatches,)
    assert lower(built, 1, microbatch_counts=counts).pipelines == lower(wanted, 1).pipelines


def test_an_order_of_no_microbatch_is_refused():
    with pytest.raises(ScheduleError, match="has 0 micro-batches; wanted 1 or more"):
        replace(schedules["1f1b"](2, 3), n_microbatches=0)


@given(sizes)
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
def test_interleaving_holds_whole_rounds_of_all_stages_but_one_and_twice_the_way_to_the_end(n_devices, rounds, stages):
    schedule = schedules["interleaved-1f1b"](n_devices, rounds * n_devices, stages_per_device=stages)
    warmups = [(stages - 1) * n_devices + 2 * (n_devices - 1 - p) for p in range(n_devices)]
    most = stages * rounds * n_devices
    assert peak_activations(schedule) == tuple(min(warmup + 1, most) for warmup in warmups)


@given(sizes, seeds)
def test_a_device_that_warms_up_with_w_forwards_holds_w_plus_1_activations(size, seed):
    n_stages, n_microbatches = size
    warmups = sorted(((seed * (s + 7)) % (n_microbatches + 3) for s in range(n_stages)), reverse=True)
    schedule = schedules["adaptive-1f1b"](*size, warmups=warmups)
    assert peak_activations(schedule) == tuple(min(w + 1, n_microbatches) for w in warmups)
    for word, after in pairwise(schedule.orders[0].split()[warmups[0] :]):
        assert "F" not in word or "B" in after  # from here on no two forwards in a row


@given(sizes)
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


@pytest.mark.parametrize(
    ("name", "counts", "choices", "says"),
    [
        ("gpipe", (0, 4), {}, "schedule gpipe: n_stages is 0; wanted a whole number from 1"),
        ("1f1b", (2, 0), {}, "schedule 1f1b: n_microbatches is 0; wanted"),
        ("zb-h1", (2, 1.5), {}, "schedule zb-h1: n_microbatches is 1.5; wanted"),
        ("gpipe", ("2", 4), {}, "schedule gpipe: n_stages is '2'; wanted"),
        ("1f1b", (2.5, 4), {}, "schedule 1f1b: n_stages is 2.5; wanted"),
        ("1f1b", (8, 10**9), {}, "1,000,000,000 micro-batches through 8 stages; wanted at most 2,000,000 passes"),
        (
            "interleaved-1f1b",
            (1, 1),
            {"stages_per_device": 10**9},
            "1 micro-batch through 1,000,000,000 stages; wanted",
        ),
        ("interleaved-1f1b", (2, 4), {"stages_per_device": 0}, "stages_per_device is 0; wanted"),
        ("interleaved-1f1b", (4, 9), {}, "9 micro-batches on 4 devices do not divide into 2 rounds; .* 8 or 10"),
        ("adaptive-1f1b", (3, 9), {"warmups": (1, 0)}, "2 warm-ups; wanted one per device, 3"),
        ("adaptive-1f1b", (2, 9), {"warmups": 3}, "warm-ups are 3; wanted one per device"),
        ("adaptive-1f1b", (2, 9), {"warmups": (1, -1)}, "warm-up of device 1 is -1; wanted a whole number from 0"),
        ("adaptive-1f1b", (3, 9), {"warmups": (1, 2, 0)}, "device 1 warms up with 2 forwards, device 0 with 1; wanted"),
    ],
)
def test_counts_that_a_schedule_cannot_serve_are_refused_in_one_line(name, counts, choices, says):
    with pytest.raises(ScheduleError, match=says):
        schedules[name](*counts, **choices)


def test_what_does_not_fit_a_plan_is_refused():
    with pytest.raises(
        ScheduleError, match=r"schedule gpipe is of 3 devices and 4 micro-batches; job \w+ wants 2 and 4"
    ):
        build(plan_of(2, 4), schedules["gpipe"](3, 4))
    with pytest.raises(UnknownName, match="no pipeline schedule named 'gpip'"):
        build(plan_of(2, 4), "gpip")
    with pytest.raises(JobError, match="too few for 6 stages"):
        build(plan_of(2, 4, n_layers=5, stages_per_device=3), "interleaved-1f1b")


# gPipe that empties its pipeline after every so many micro-batches


flushed_sizes = st.tuples(st.integers(1, 6), st.integers(1, 12), st.integers(1, 14))
seconds = st.floats(0.1, 5)


@given(flushed_sizes, seconds, seconds)
def test_on_free_links_every_flush_costs_the_pipeline_s_bubble_again(size, forward_s, backward_s):
    """Of ceil(M / k) groups each fills and drains: M + ceil(M / k) (S - 1) forwards and backwards."""
    n_stages, n_microbatches, every = size
    plan = plan_of(n_stages, n_microbatches)
    built = schedules["gpipe"](n_stages, n_microbatches, flush_every=every)
    found = simulate_iteration(plan, built, equal(plan, forward_s, backward_s), even(n_stages))
    passes = n_microbatches + math.ceil(n_microbatches / every) * (n_stages - 1)
    assert found.makespan_s == pytest.approx(passes * (forward_s + backward_s))


@given(flushed_sizes)
def test_a_device_holds_as_many_activations_as_go_between_flushes(size):
    n_stages, n_microbatches, every = size
    built = schedules["gpipe"](n_stages, n_microbatches, flush_every=every)
    assert set(built) == passes_of(built, n_microbatches)
    assert peak_activations(built) == (min(every, n_microbatches),) * n_stages


def test_a_job_is_simulated_with_its_flushes_and_holds_less():
    plain, flushed = plan_of(3, 8, d_model=5), plan_of(3, 8, d_model=5, flush_every=2)
    assert build(flushed, "gpipe") == schedules["gpipe"](3, 8, flush_every=2)
    assert simulate(flushed).iteration_s > simulate(plain).iteration_s
    assert (memory(flushed).peak_bytes < memory(plain).peak_bytes).all()


def test_another_schedule_than_gpipe_is_refused():
    with pytest.raises(JobError, match="flush_every is 2 with schedule '1f1b'; wanted gpipe"):
        plan_of(2, 4, flush_every=2, schedule="1f1b")
    with pytest.raises(ScheduleError, match="schedule 1f1b takes no flush_every, which is 2; wanted gpipe"):
        simulate(plan_of(2, 4, flush_every=2), "1f1b")
    with pytest.raises(ScheduleError, match="flush_every is 0; wanted a whole number from 1"):
        schedules["gpipe"](2, 4, flush_every=0)


# our builders against torch.distributed.pipelining, whose orders are stored: torch_orders.py says how


DUMP = Path(__file__).with_name("torch_orders.py")
STORED = json.loads((Path(__file__).parents[1] / "data" / "torch_orders.json").read_text())
CASES = [(name, size) for name, orders in STORED["orders"].items() for size in orders]


def ours(name, size):
    n_devices, stages_per_device, n_microbatches = map(int, size.split())
    return schedules[name](n_devices, n_microbatches, stages_per_device=stages_per_device)


@pytest.mark.parametrize(("name", "size"), CASES)
def test_a_builder_orders_what_torch_does(name, size):
    assert list(ours(name, size).orders) == STORED["orders"][name][size]


@pytest.mark.parametrize("size", STORED["refused"])
def test_interleaving_refuses_what_torch_refuses(size):
    with pytest.raises(ScheduleError, match="do not divide into"):
        ours("interleaved-1f1b", size)


@pytest.mark.slow
def test_torch_still_orders_as_stored():
    pytest.importorskip("torch.distributed.pipelining")
    told = subprocess.run([sys.executable, DUMP], capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    anew = json.loads(told.stdout)
    assert anew["orders"] == STORED["orders"]
    assert anew["refused"] == STORED["refused"]
