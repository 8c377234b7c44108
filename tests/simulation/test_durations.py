"""Seconds of a computation: FLOP over what the device reaches, and the coding of what it sends and gets."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from plans import cases, plan_of

from dtfm_lab.costs.efficiency import (
    BACKWARD_READS,
    EFFICIENCY,
    PRODUCTS,
    UNALIGNED,
    ShareFactor,
    efficiency_of,
    peak_of,
    products_of,
    share_of,
)
from dtfm_lab.costs.memory import static_memory
from dtfm_lab.costs.seconds import analytic, compute_seconds
from dtfm_lab.domain.errors import JobError, TraceError
from dtfm_lab.domain.job import BACKWARD_PER_FORWARD, BYTES_PER_ELEMENT, Job, device_gradient_elements, gpt, llama
from dtfm_lab.domain.network import HARDWARE, Device, Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Kind
from dtfm_lab.domain.trace import ComputeTime
from dtfm_lab.planning.evaluate import evaluate
from dtfm_lab.simulation.engine import programs_of
from dtfm_lab.simulation.schedules import build_named, schedules
from dtfm_lab.simulation.simulate import simulate

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
@settings(max_examples=20)
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


# profiles


def test_a_profile_of_whole_backwards_gives_each_half_one_half():
    assert compute_seconds([(0, 0, HALF), (0, 0, REST)], [ComputeTime(0, 0, B, 5.0)]).tolist() == [2.5, 2.5]


@pytest.mark.parametrize("wanted", [(1, 0, B), (1, 1, F), (0, 0, F), (1, 0, HALF), (1, 0, Kind.STEP)])
def test_a_computation_that_the_profile_does_not_know_is_refused(wanted):
    stage, replica, kind = wanted
    says = f"profile has no time for {kind} on stage {stage}, replica {replica}; wanted one for every"
    with pytest.raises(TraceError, match=says):
        compute_seconds([wanted], [ComputeTime(1, 0, F, 1.0)])


# seconds in which memory is read and written: closed forms, orders, refusals


D, S, A, VOCABULARY = 64, 32, 4, 100
MODEL = gpt(n_layers=4, d_model=D, n_heads=A, seq_len=S, vocab_size=VOCABULARY)
STAGES = 2


def plan_with(gpu: str = "A100", **fields: object) -> Plan:
    plan = plan_of(STAGES, 4, 2)
    job = Job(model=MODEL, n_stages=STAGES, n_replicas=2, global_batch=16, microbatch=2, **fields)
    devices = tuple(device.with_gpu(gpu) for device in plan.topology.devices)
    return plan.changed(job=job, topology=replace(plan.topology, devices=devices))


def added_s(name: str = "1f1b", gpu: str = "A100", **fields: object) -> dict[tuple[int, Kind], float]:
    """Seconds by stage and kind that counting memory adds, of replica 0."""
    tables = []
    for counts in (False, True):
        plan = plan_with(gpu, memory_traffic=counts, **fields)
        programs = programs_of(plan, build_named(name, STAGES, plan.job.n_microbatches, {}))
        tables.append({(row.stage, row.replica, row.kind): row.seconds for row in analytic(plan, programs, 0.4)})
    off, on = tables
    return {(stage, kind): on[stage, r, kind] - off[stage, r, kind] for stage, r, kind in off if r == 0}


def test_a_forward_takes_in_addition_what_its_operators_move():
    blocks = 2 * (11 * D + 2 * 4 * D)
    numbers = 2 * S * (blocks + 2 * D), 2 * S * (blocks + 2 * D + 7 * VOCABULARY)
    added = added_s()
    for stage in range(STAGES):
        moved_s = 2 * numbers[stage] / HARDWARE["A100"].memory_bytes_per_s
        assert added[stage, Kind.FORWARD] == pytest.approx(moved_s)
        assert added[stage, Kind.BACKWARD] == pytest.approx(BACKWARD_READS * moved_s)


@pytest.mark.parametrize("checkpointing", ["stage", "block"])
def test_what_is_computed_again_moves_its_numbers_again(checkpointing):
    """Stage 0 has an embedding, which blocks do not compute again."""
    plain, again = added_s(), added_s(checkpointing=checkpointing)
    once_s = plain[0, Kind.FORWARD]
    repeated_s = again[0, Kind.BACKWARD] - plain[0, Kind.BACKWARD]
    assert 0 < repeated_s <= once_s * (1 + 1e-9)
    assert (repeated_s == pytest.approx(once_s)) == (checkpointing == "stage")


def test_an_unfused_attention_moves_its_matrices():
    difference = added_s(attention="unfused")[0, Kind.FORWARD] - added_s()[0, Kind.FORWARD]
    n_bytes = 2 * 2 * 2 * 2 * 2.5 * A * S**2  # bytes, sequences, blocks, written and read, matrices
    assert difference == pytest.approx(n_bytes / HARDWARE["A100"].memory_bytes_per_s)


def test_the_step_reads_and_writes_all_that_is_held():
    plan = plan_with(memory_traffic=True)
    whole = static_memory(plan.job, STAGES).total
    added = added_s()
    for stage in range(STAGES):
        moved_s = 2 * whole[stage] / HARDWARE["A100"].memory_bytes_per_s
        assert added[stage, Kind.STEP] == pytest.approx(moved_s)


def test_halves_of_a_backward_move_what_the_whole_moves():
    whole, halves = added_s(), added_s("zb-h1")
    both = halves[0, Kind.BACKWARD_INPUT] + halves[0, Kind.BACKWARD_WEIGHT]
    assert both == pytest.approx(whole[0, Kind.BACKWARD])


def test_weights_gradients_have_no_attention_in_them():
    added = added_s("zb-h1")
    attention = 2 * 2 * 4 * S * S * D  # sequences, blocks
    assert added[0, Kind.BACKWARD_WEIGHT] == pytest.approx(-attention / (0.4 * HARDWARE["A100"].peak_flop_per_s))


def test_a_gpu_of_unknown_memory_is_refused():
    plan = plan_with(memory_traffic=True)
    own = replace(plan.topology.devices[0], gpu="mine", peak_flop_per_s=1e12, memory_bytes=1e9)
    plan = plan.changed(topology=replace(plan.topology, devices=(own, *plan.topology.devices[1:])))
    with pytest.raises(
        JobError, match="the memory bandwidth of GPU mine is unknown; memory_traffic wants a GPU of the"
    ):
        simulate(plan)


# the share of its peak that a device reaches: laws of the products, what it falls back to, and what takes it


WIDE = gpt(n_layers=2, d_model=4096, n_heads=32, seq_len=2048, vocab_size=51200)
LLAMA = llama(n_layers=2, d_model=4096, n_heads=32, n_kv_heads=8, d_ff=14336, seq_len=4096, vocab_size=128256)


def job_of(model=WIDE, **fields) -> Job:
    given = {"n_stages": 1, "n_replicas": 2, "global_batch": 8, "microbatch": 1, "dtype": "fp16"}
    return Job(model=model, **given | fields)


def group_of(gpus: int, gpu: str = "A100") -> Device:
    one = Device(name="one", gpu=gpu)
    return replace(one, gpus=gpus, peak_flop_per_s=gpus * one.peak_flop_per_s, memory_bytes=gpus * one.memory_bytes)


@pytest.mark.parametrize("model", [WIDE, LLAMA])
@pytest.mark.parametrize("attention", ["fused", "unfused"])
@pytest.mark.parametrize("gpus", [1, 2, 8])
def test_the_products_of_a_block_are_its_flop(model, attention, gpus):
    job, block = job_of(model, attention=attention), model.layers[1]
    found = products_of(job, block, 3, gpus)
    flop = sum(2 * one.rows * one.columns * one.depth * one.times for one in found)
    assert flop == pytest.approx(3 * block.forward_flop / gpus)


@pytest.mark.parametrize("gpu", PRODUCTS)
def test_no_gpu_reaches_more_than_its_large_tiles_do(gpu):
    for job in (job_of(), job_of(LLAMA, dtype="bf16"), job_of(memory_traffic=True)):
        found = efficiency_of(job, Device(name="one", gpu=gpu))
        assert 0 < found.share < PRODUCTS[gpu].most
        assert 0 < found.spread < 0.3


def test_gpus_that_share_a_layer_have_smaller_products_and_reach_less():
    shares = [efficiency_of(job_of(memory_traffic=True), group_of(gpus)).share for gpus in (1, 2, 4, 8)]
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] < 0.95 * shares[0]


def test_sides_that_no_fast_kernel_takes_cost_in_proportion():
    """An eighth of 14,400 is no multiple of 64; that of 13,824 is one. A vocabulary is padded, whatever it is."""

    def share(width: int, gpus: int, vocabulary: int = 50_257) -> float:
        model = gpt(n_layers=48, d_model=width, n_heads=96, seq_len=2048, vocab_size=vocabulary)
        return efficiency_of(job_of(model, memory_traffic=True, microbatch=4), group_of(gpus)).share

    assert share(14_400, 8) == pytest.approx(UNALIGNED * share(13_824, 8), rel=0.1)
    assert share(14_400, 1) > 0.95 * share(13_824, 1)
    assert share(13_824, 8) == pytest.approx(share(13_824, 8, 50_304), rel=0.01)


def test_heads_of_an_odd_width_have_slow_products_where_attention_is_unfused():
    def share(heads: int, attention: str) -> float:
        model = gpt(n_layers=2, d_model=14_400, n_heads=heads, seq_len=2048, vocab_size=51_200)
        return efficiency_of(job_of(model, attention=attention), group_of(1)).share

    assert share(80, "unfused") < share(90, "unfused")  # 180 numbers a head, and 160
    block = gpt(n_layers=1, d_model=14_400, n_heads=80, seq_len=2048, vocab_size=512).layers[1]
    found = products_of(job_of(gpt(n_layers=1, d_model=14_400, n_heads=80, seq_len=2048, vocab_size=512)), block, 1)
    assert all(one.aligned for one in found)  # fused


@pytest.mark.parametrize(
    ("gpu", "fields"),
    [
        ("V100", {}),
        ("RTX 3060", {}),
        ("laptop", {"dtype": "fp32"}),
        ("A100", {"dtype": "fp32"}),
        ("A100", {"model": gpt(n_layers=2, d_model=768, n_heads=12, seq_len=1024, vocab_size=50257)}),
    ],
)
def test_where_no_source_tells_it_is_a_guess_that_says_so(gpu, fields):
    share, spread, source = efficiency_of(job_of(**fields), Device(name="one", gpu=gpu))
    assert (share, spread) == (EFFICIENCY, 0.3)
    assert "guess" in source


def test_a_number_is_taken_as_it_is_and_a_factor_is_on_the_share():
    job, device = job_of(), group_of(1)
    assert share_of(job, device, 0.3) == 0.3
    assert share_of(job, device, ShareFactor(0.9)) == pytest.approx(0.9 * efficiency_of(job, device).share)
    assert share_of(job, device, ShareFactor(9.0)) == 1.0
    with pytest.raises(JobError, match=r"efficiency is 1\.1; wanted more than 0 and at most 1"):
        share_of(job, device, 1.1)
