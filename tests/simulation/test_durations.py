"""Seconds of a computation: FLOP over what the device reaches, and the coding of what it sends and gets."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import cases, plan_of

from dtfm_lab.domain.errors import JobError, TraceError
from dtfm_lab.domain.job import BACKWARD_PER_FORWARD, BYTES_PER_ELEMENT, Job, device_gradient_elements, gpt
from dtfm_lab.domain.network import HARDWARE, Device, Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Kind, synchronisations
from dtfm_lab.domain.trace import ComputeTime
from dtfm_lab.planning.evaluate import evaluate
from dtfm_lab.simulation.durations import analytic, compute_seconds
from dtfm_lab.simulation.efficiency import peak_of
from dtfm_lab.simulation.engine import programs_of
from dtfm_lab.simulation.schedules import schedules

F, B, HALF, REST = Kind.FORWARD, Kind.BACKWARD, Kind.BACKWARD_INPUT, Kind.BACKWARD_WEIGHT
Seconds = dict[tuple[int, int, Kind], float]


def three_by_two(**fields: object) -> Plan:
    """Six V100s, three stages of blocks that code."""
    model = gpt(n_layers=6, d_model=64, n_heads=4, seq_len=32, vocab_size=100)
    job = Job(model=model, n_stages=3, n_replicas=2, global_batch=16, microbatch=2, **fields)
    return evaluate(Topology.from_matrices(*np.ones((2, 6, 6))), job, stages=[[0, 1], [2, 3], [4, 5]])


def on(plan: Plan, device: int, **fields: object) -> Plan:
    """The same with one device changed."""
    devices = list(plan.topology.devices)
    devices[device] = replace(devices[device], **fields)
    return replace(plan, topology=replace(plan.topology, devices=tuple(devices)))


def seconds(plan: Plan, name: str = "1f1b", efficiency: float = 0.4, **options: object) -> Seconds:
    schedule = schedules[name](plan.job.n_stages, plan.job.n_microbatches, **options)
    rows = analytic(plan, programs_of(plan, schedule), efficiency)
    table = {row[:3]: row.seconds for row in rows}
    assert len(table) == len(rows)
    return table


def forward_s(plan: Plan, stage: int, flop_per_s: float, n_stages: int | None = None) -> float:
    layers = plan.job.layers_of(n_stages or plan.job.n_stages)[stage]
    return plan.job.microbatch * sum(layer.forward_flop for layer in layers) / flop_per_s


def test_a_stage_takes_its_flop_over_what_the_device_reaches_embedding_and_head_included():
    plan = on(three_by_two(), int(three_by_two().placement.devices[1, 0]), gpu="mine", peak_flop_per_s=1e12)
    table = seconds(plan, efficiency=0.5)
    v100 = HARDWARE["V100"].peak_flop_per_s
    for stage in range(3):
        for replica in range(2):
            reached = 0.5 * (1e12 if (stage, replica) == (1, 0) else v100)
            assert table[stage, replica, F] == pytest.approx(forward_s(plan, stage, reached))
            assert table[stage, replica, B] == pytest.approx(BACKWARD_PER_FORWARD * table[stage, replica, F])
    assert table[2, 0, F] > table[1, 1, F]  # the head


def test_the_halves_of_a_backward_take_what_the_whole_does():
    table = seconds(three_by_two())
    for stage, replica, kind in table:
        if kind is B:
            halves = table[stage, replica, HALF], table[stage, replica, REST]
            assert sum(halves) == pytest.approx(table[stage, replica, B])
            assert halves == pytest.approx([table[stage, replica, F]] * 2)


def test_recomputation_adds_one_forward_to_the_backward_or_to_its_first_half():
    plain, again = seconds(three_by_two()), seconds(three_by_two(recompute=True))
    for stage, replica, kind in plain:
        extra_s = plain[stage, replica, F] if kind in (B, HALF) else 0.0
        assert again[stage, replica, kind] == pytest.approx(plain[stage, replica, kind] + extra_s)


@given(st.floats(1.5, 100))
@settings(max_examples=10, deadline=None)
def test_k_times_the_peak_takes_a_kth_of_the_time_to_compute(k):
    slow, fast = (on(three_by_two(), 0, gpu="mine", peak_flop_per_s=peak) for peak in (1e9, k * 1e9))
    stage, replica = map(int, np.argwhere(slow.placement.devices == 0)[0])
    slow_s, fast_s = seconds(slow), seconds(fast)
    for where in slow_s:
        factor = k if where[:2] == (stage, replica) else 1
        assert slow_s[where] == pytest.approx(factor * fast_s[where])


def test_stages_of_an_interleaved_schedule_add_up_to_the_model():
    plan = three_by_two()
    whole, cut = seconds(plan), seconds(plan, "interleaved-1f1b", stages_per_device=2)
    assert {stage for stage, _, kind in cut if kind is F} == set(range(6))
    assert sum(cut[s, 0, F] for s in range(6)) == pytest.approx(sum(whole[s, 0, F] for s in range(3)))


# peaks


@pytest.mark.parametrize("gpu", sorted(HARDWARE))
def test_a_device_of_the_table_has_a_peak_of_its_own_in_each_dtype(gpu):
    row = HARDWARE[gpu]
    device = Device(name="a", gpu=gpu, peak_flop_per_s=row.peak_flop_per_s)
    for dtype in BYTES_PER_ELEMENT & row.peak.keys():
        assert peak_of(device, dtype) == row.peak[dtype]
    assert peak_of(device, "fp64") < peak_of(device, "fp32") <= min(peak_of(device, "fp16"), peak_of(device, "bf16"))


def test_a_device_without_units_for_a_dtype_computes_it_as_fp32():
    device = Device(name="a", gpu="V100", peak_flop_per_s=HARDWARE["V100"].peak_flop_per_s)
    assert peak_of(device, "bf16") == 15.7e12
    assert peak_of(device, "fp64") == 7.85e12


def test_a_device_that_is_not_as_the_table_has_it_keeps_its_own_figure():
    assert peak_of(Device(name="a", gpu="A100", peak_flop_per_s=1e12), "fp64") == 1e12
    assert peak_of(Device(name="a", gpu="no such thing", peak_flop_per_s=1e12, memory_bytes=1e9), "fp32") == 1e12


def test_fp32_takes_as_much_longer_as_the_table_says():
    half, single = seconds(three_by_two()), seconds(three_by_two(dtype="fp32"))
    peaks = HARDWARE["V100"].peak
    assert single[0, 0, F] == pytest.approx(half[0, 0, F] * peaks["fp16"] / peaks["fp32"])


@pytest.mark.parametrize("efficiency", [0, -0.1, 1.1, float("nan"), float("inf"), "0.4"])
def test_an_efficiency_that_is_no_share_is_refused(efficiency):
    with pytest.raises(JobError, match=r"efficiency is .*; wanted more than 0 and at most 1"):
        seconds(three_by_two(), efficiency=efficiency)


# coding


def test_each_compressed_message_adds_its_coding_at_both_ends():
    """A stage codes what it sends and decodes what it gets: one message each way at the ends, two in the middle."""
    plain, coded = three_by_two(), three_by_two(compression="int8", codec_bytes_per_s=1e6)
    one_s = plain.job.activation_elements * 2 / 1e6
    before, after = seconds(plain), seconds(coded)
    for stage, messages in enumerate([1, 2, 1]):
        for kind in (F, B, HALF):
            assert after[stage, 1, kind] == pytest.approx(before[stage, 1, kind] + messages * one_s)
        assert after[stage, 1, REST] == pytest.approx(before[stage, 1, REST])


def test_one_device_codes_no_message_to_itself():
    plan = plan_of(1, 4, n_layers=4, d_model=64, compression="int8", codec_bytes_per_s=1.0)
    plain = plan_of(1, 4, n_layers=4, d_model=64)
    assert seconds(plan) == seconds(plain)


def test_a_message_that_compression_would_not_make_smaller_costs_no_coding():
    slow = {"codec_bytes_per_s": 1.0}
    assert seconds(three_by_two(compression="fp16", **slow)) == seconds(three_by_two(**slow))
    assert seconds(three_by_two(gradient_compression="int8"))[0, 0, F] == seconds(three_by_two())[0, 0, F]


def test_sharded_averaging_packs_sums_and_unpacks():
    """Of D shards a device codes D - 1, decodes as many and codes its sum, and decodes D - 1 again."""
    plan = three_by_two(gradient_compression="int8", codec_bytes_per_s=1e6)
    table = seconds(plan)
    for stage, n_elements in enumerate(plan.job.stage_parameters):
        whole_s = n_elements * 2 / 1e6
        found = [table[stage, 0, kind] for kind in (Kind.PACK, Kind.REDUCE, Kind.STEP)]
        assert found == pytest.approx([whole_s / 2, whole_s, whole_s / 2])


@given(cases)
@settings(max_examples=60, deadline=None)
def test_a_device_codes_as_long_as_its_steps_say(case):
    """However often it averages: the mean of its averagings times their number."""
    plan, programs = case.plan, programs_of(case.plan, case.schedule)
    table = {row[:3]: row.seconds for row in analytic(plan, programs)}
    n_elements = device_gradient_elements(plan.job, programs.schedule.n_stages)
    for position, tails in enumerate(programs.tails):
        whole_s = n_elements[position] * 4 / plan.job.codec_bytes_per_s if plan.job.codes_gradients else 0.0
        for replica, tail in enumerate(tails):
            kinds = Counter(step.action.kind for step in tail)
            found_s = sum(kinds[kind] * table[position, replica, kind] for kind in (Kind.PACK, Kind.REDUCE, Kind.STEP))
            assert found_s == pytest.approx(whole_s * sum(step.coded for step in tail))


@pytest.mark.parametrize("synchronisation", sorted(synchronisations))
def test_without_compression_averaging_and_stepping_count_as_nothing(synchronisation):
    plan = three_by_two(synchronisation=synchronisation)
    assert not Counter(step.action.kind for step in programs_of(plan, schedules["gpipe"](3, 4)).tails[0][0])[Kind.PACK]
    assert all(s == 0 for (*_, kind), s in seconds(plan).items() if kind not in (F, B, HALF, REST))


# profiles


def test_a_profile_is_looked_up_by_stage_replica_and_kind():
    rows = [ComputeTime(1, 0, F, 3.0), ComputeTime(0, 1, B, 5.0), ComputeTime(0, 0, REST, 7.0)]
    assert compute_seconds([(0, 1, B), (1, 0, F), (0, 0, REST)], rows).tolist() == [5, 3, 7]


def test_a_profile_of_whole_backwards_gives_each_half_one_half():
    assert compute_seconds([(0, 0, HALF), (0, 0, REST)], [ComputeTime(0, 0, B, 5.0)]).tolist() == [2.5, 2.5]


@pytest.mark.parametrize("wanted", [(1, 0, B), (1, 1, F), (0, 0, F), (1, 0, HALF), (1, 0, Kind.STEP)])
def test_a_computation_that_the_profile_does_not_know_is_refused(wanted):
    stage, replica, kind = wanted
    says = f"profile has no time for {kind} on stage {stage}, replica {replica}; wanted one for every"
    with pytest.raises(TraceError, match=says):
        compute_seconds([wanted], [ComputeTime(1, 0, F, 1.0)])
