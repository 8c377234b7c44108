"""Seconds in which memory is read and written: closed forms, orders, refusals."""

from __future__ import annotations

from dataclasses import replace

import pytest
from plans import plan_of

from dtfm_lab.domain.errors import JobError
from dtfm_lab.domain.job import Job, gpt
from dtfm_lab.domain.network import HARDWARE
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Kind
from dtfm_lab.simulation.durations import analytic
from dtfm_lab.simulation.engine import programs_of
from dtfm_lab.simulation.memory_intervals import static_memory
from dtfm_lab.simulation.memory_traffic import BACKWARD_READS
from dtfm_lab.simulation.schedules import build_named
from dtfm_lab.simulation.simulate import simulate

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


@pytest.mark.parametrize("how", ["selective", "block", "stage"])
def test_what_is_computed_again_is_moved_again(how):
    assert added_s(checkpointing=how)[0, Kind.BACKWARD] > added_s()[0, Kind.BACKWARD]


def test_halves_of_a_backward_move_what_the_whole_moves():
    whole, halves = added_s(), added_s("zb-h1")
    both = halves[0, Kind.BACKWARD_INPUT] + halves[0, Kind.BACKWARD_WEIGHT]
    assert both == pytest.approx(whole[0, Kind.BACKWARD])


def test_weights_gradients_have_no_attention_in_them():
    added = added_s("zb-h1")
    attention = 2 * 2 * 4 * S * S * D  # sequences, blocks
    assert added[0, Kind.BACKWARD_WEIGHT] == pytest.approx(-attention / (0.4 * HARDWARE["A100"].peak_flop_per_s))


def test_counting_memory_never_shortens_an_iteration():
    free, counted = (simulate(plan_with(memory_traffic=counts), efficiency=0.4).iteration_s for counts in (False, True))
    assert counted > free


def test_faster_memory_takes_less():
    assert added_s(gpu="H200")[0, Kind.FORWARD] < added_s(gpu="A100")[0, Kind.FORWARD]


def test_a_gpu_of_unknown_memory_is_refused():
    plan = plan_with(memory_traffic=True)
    own = replace(plan.topology.devices[0], gpu="mine", peak_flop_per_s=1e12, memory_bytes=1e9)
    plan = plan.changed(topology=replace(plan.topology, devices=(own, *plan.topology.devices[1:])))
    with pytest.raises(
        JobError, match="the memory bandwidth of GPU mine is unknown; memory_traffic wants a GPU of the"
    ):
        simulate(plan)
