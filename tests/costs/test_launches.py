"""Kernels are launched one after the other: no block passes in less, and the search counts what the engine counts."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest

import dtfm_lab as lab
from dtfm_lab.costs.seconds import layer_passes, pass_times, stage_passes
from dtfm_lab.domain.job import Job, LayerKind, gpt
from dtfm_lab.domain.network import Device, Topology
from dtfm_lab.domain.schedule import Kind
from dtfm_lab.planning.evaluate import evaluate
from dtfm_lab.planning.iteration.problem import pass_table

LAUNCH_S = 4.4e-3
MODEL = gpt(name="small", n_layers=6, d_model=256, n_heads=4, seq_len=128, vocab_size=512)
OPTIONS = [
    {},
    {"block_launch_s": LAUNCH_S},
    {"checkpointing": "block", "block_launch_s": 1e-5},
    {"checkpointing": "stage", "memory_traffic": True, "block_launch_s": LAUNCH_S},
    {"tensor_parallel": 2, "memory_traffic": True},
    {"tensor_parallel": 2, "checkpointing": "selective", "block_launch_s": 1e-4},
]


def job(**fields: object) -> Job:
    sizes = {"global_batch": 8, "microbatch": 2, "n_stages": 2, "n_replicas": 1, "dtype": "bf16"}
    return Job(name="launched", model=MODEL, **(sizes | {"tensor_parallel": 1, "sharding": "none"} | fields))


def devices(gpus: int) -> Topology:
    one = Device(name="a", gpu="A100", gpus=gpus, inner_bandwidth_bytes_per_s=1e11, inner_latency_s=1e-6)
    two = Device(name="b", gpu="A100", gpus=gpus, inner_bandwidth_bytes_per_s=1e11, inner_latency_s=1e-6)
    return Topology((one, two), np.array([[0, 1e-3], [1e-3, 0]]), np.full((2, 2), 1e9), name="two")


def seconds(of: Job) -> dict[Kind, float]:
    """Of the second stage, which has the head."""
    rows = pass_times(evaluate(devices(of.group_gpus), of, rank_map=[0, 1]), 2)
    return {row.kind: row.seconds for row in rows if row.stage == 1}


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: " ".join(options) or "nothing")
def test_the_searchs_table_of_a_stage_is_what_the_engine_counts(options: dict[str, object]):
    of = job(**options)
    plan = evaluate(devices(of.group_gpus), of, rank_map=[0, 1])
    table = pass_table(of, [plan.topology.devices[0]], None)
    rows = {(row.stage, row.kind): row.seconds for row in pass_times(plan, 2)}
    received = table.receive_s[0, 3]
    ends = np.array([table.ends_s[0, :, 0], table.ends_s[1, :, 0] + received])
    ends[0, 1] += received
    for stage, (begin, end) in enumerate(pairwise((0, 3, 6))):
        for way, (kind, sums) in enumerate(((Kind.FORWARD, table.forward_s), (Kind.BACKWARD, table.backward_s))):
            expected = sums[0, end] - sums[0, begin] + ends[stage, way] - (received if (stage, way) == (1, 1) else 0.0)
            assert rows[stage, kind] == pytest.approx(expected, rel=1e-12)


def test_small_blocks_take_as_long_as_their_launches_and_large_ones_as_long_as_they_compute():
    free, launched = seconds(job()), seconds(job(block_launch_s=LAUNCH_S))
    head = next(layer for layer in MODEL.layers if layer.kind is LayerKind.HEAD)
    speed = 312e12
    forward_s, backward_s = layer_passes(job(), head, devices(1).devices[0], 0.4 * speed)[:2]
    assert launched[Kind.FORWARD] == pytest.approx(3 * LAUNCH_S / 3 + forward_s)
    assert launched[Kind.BACKWARD] == pytest.approx(3 * 2 * LAUNCH_S / 3 + backward_s)
    assert launched[Kind.BACKWARD_INPUT] + launched[Kind.BACKWARD_WEIGHT] == pytest.approx(launched[Kind.BACKWARD])
    assert seconds(job(block_launch_s=1e-9)) == free, "a launch that is hidden behind computing costs nothing"


def test_a_block_that_is_computed_again_is_launched_again():
    once, again = (seconds(job(block_launch_s=LAUNCH_S, checkpointing=how)) for how in ("none", "block"))
    assert again[Kind.BACKWARD] - once[Kind.BACKWARD] == pytest.approx(3 * LAUNCH_S / 3)
    assert again[Kind.FORWARD] == once[Kind.FORWARD]


def stages(blocks: Sequence[int]) -> Job:
    return job(n_stages=len(blocks), blocks_per_stage=tuple(blocks))


def test_a_last_stage_may_hold_the_head_alone():
    of, device = stages([6, 0]), devices(1).devices[0]
    (head,) = of.stage_layers[1]
    assert head.kind is LayerKind.HEAD
    plan = lab.plan(devices(1), of, steps=2)
    assert plan.iteration_s == pytest.approx(lab.simulate(plan).iteration_s)
    whole = stage_passes(of, MODEL.layers, device, 1e14)
    parts = [stage_passes(of, layers, device, 1e14) for layers in of.stage_layers]
    assert sum(part.forward for part in parts) == pytest.approx(whole.forward)
