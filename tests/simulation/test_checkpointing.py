"""What a job keeps for its backward, computes again and exchanges, by its choices: closed forms, orders, refusals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import plan_of

import dtfm_lab as lab
from dtfm_lab.costs.memory import activation_memory, memory_limits, static_memory, usable_bytes
from dtfm_lab.costs.seconds import analytic
from dtfm_lab.domain.errors import JobError
from dtfm_lab.domain.job import (
    BYTES_PER_ELEMENT,
    MODELS,
    Job,
    ModelSpec,
    device_gradient_bytes,
    gpt,
    kept_elements,
    llama,
    needed_elements,
)
from dtfm_lab.domain.network import Device, Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Kind
from dtfm_lab.planning.iteration.problem import IterationProblem
from dtfm_lab.simulation.engine import programs_of
from dtfm_lab.simulation.schedules import build_named

LESS_AND_LESS = ("none", "selective", "block")
"""Checkpointings of which each keeps no more, and computes no less again, than the one before."""
A, S, D, LAYERS = 16, 2048, 2048, 8
GPT = gpt(n_layers=LAYERS, d_model=D, n_heads=A, seq_len=S, vocab_size=50_000)


def job_of(model: ModelSpec = GPT, n_stages: int = 4, **fields: object) -> Job:
    return Job(**{"model": model, "n_stages": n_stages, "n_replicas": 2, "global_batch": 16, "microbatch": 2} | fields)


def plan_for(job: Job) -> Plan:
    return plan_of(job.n_stages, 4, job.n_replicas).changed(job=job)


def seconds(job: Job, name: str = "1f1b") -> dict[tuple[int, Kind], float]:
    plan = plan_for(job)
    schedule = build_named(name, job.n_stages, job.n_microbatches, {})
    return {
        (row.stage, row.kind): row.seconds for row in analytic(plan, programs_of(plan, schedule)) if row.replica == 0
    }


def test_unfused_attention_keeps_five_bytes_for_each_pair_of_tokens_and_head():
    fused, unfused = (activation_memory(job_of(attention=how), 4).kept for how in ("fused", "unfused"))
    assert (unfused - fused == 2 * (LAYERS // 4) * 5 * A * S**2).all()


def test_a_block_of_a_gpt_holds_what_korthikanti_counts():
    block = activation_memory(job_of(n_stages=4, attention="unfused"), 4).kept[1] / (LAYERS // 4)
    assert block == 2 * S * D * (34 + 5 * A * S / D)  # equation 2; its b is the micro-batch


@pytest.mark.parametrize("model", [GPT, MODELS["llama-3-8b"]])
@pytest.mark.parametrize("attention", ["fused", "unfused"])
def test_checkpoints_keep_less_and_repeat_more(model, attention):
    jobs = [job_of(model, checkpointing=how, attention=attention) for how in LESS_AND_LESS]
    kept = [activation_memory(job, 4).kept for job in jobs]
    assert (kept[0] > kept[1]).all()
    assert (kept[1] > kept[2]).all()
    backward = [[seconds(job)[stage, Kind.BACKWARD] for stage in range(4)] for job in jobs]
    assert all(a < b < c for a, b, c in zip(*backward, strict=True))
    forward = [seconds(job)[0, Kind.FORWARD] for job in jobs]
    assert len(set(forward)) == 1


def test_selective_checkpoints_of_a_llama_are_those_of_torchtitan():
    model = MODELS["llama-3-8b"]
    block, d, kv, ff, t = model.layers[1], 4096, 1024, 14336, model.seq_len
    assert block.selective_elements == t * (d + d + kv + d + ff + d)  # input, query, value, attention, gate, down
    assert block.selective_flop == 2 * t * (d * kv + d * d + d * ff)  # key, out, other


@given(st.integers(1, 4), st.integers(1, 6))
@settings(max_examples=25)
def test_block_checkpoints_hold_each_input_and_one_block_more(n_stages, blocks_each):
    model = replace(gpt(n_layers=n_stages * blocks_each, d_model=8, n_heads=2, seq_len=6, vocab_size=11), tied=False)
    model = replace(model, layers=model.layers[1:-1])
    job = job_of(model, n_stages, checkpointing="block")
    of = activation_memory(job, n_stages)
    block = model.layers[0]
    each = 2 * 2  # bytes of a number, sequences
    assert (of.kept == each * blocks_each * model.boundary_elements).all()
    assert (of.recomputed == each * (block.held_elements - model.boundary_elements)).all()
    split = activation_memory(job, n_stages, splits=True)
    assert (split.kept + split.recomputed == activation_memory(job_of(model, n_stages), n_stages).kept).all()


def test_what_the_head_kept_is_free_when_the_blocks_before_it_are_computed_again():
    job = job_of(checkpointing="block", n_stages=1, n_replicas=1, global_batch=2)
    kept, again = (int(one[0]) for one in activation_memory(job, 1))
    head, block = GPT.layers[-1], GPT.layers[1]
    assert again == max(0, 4 * (block.held_elements - S * D - head.held_elements))
    assert kept == 4 * (GPT.layers[0].held_elements + LAYERS * S * D + head.held_elements)


def test_stage_is_what_recompute_is():
    named, flagged = job_of(checkpointing="stage"), job_of(recompute=True)
    assert [one.tolist() for one in activation_memory(named, 4)] == [
        one.tolist() for one in activation_memory(flagged, 4)
    ]
    assert seconds(named) == seconds(flagged)
    assert named.checkpoints == flagged.checkpoints == "stage"


@pytest.mark.parametrize("how", ["selective", "block"])
def test_recompute_beside_checkpoints_of_blocks_is_refused(how):
    with pytest.raises(JobError, match=f"checkpointing is {how} and recompute true; wanted one of them"):
        job_of(recompute=True, checkpointing=how)


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"attention": "unfused"}, "attention_elements"),
        ({"checkpointing": "selective"}, "selective_elements"),
        ({"memory_traffic": True}, "moved_elements"),
    ],
)
def test_a_model_whose_layers_lack_a_choices_numbers_is_refused(fields, what):
    bare = {"attention_elements": 0, "selective_elements": 0, "selective_flop": 0, "moved_elements": 0}
    own = replace(GPT, family="mine", layers=tuple(replace(layer, **bare) for layer in GPT.layers))
    job_of(own)
    with pytest.raises(JobError, match=f"needs {what}, which the layers of model gpt do not give"):
        job_of(own, **fields)


def test_gradients_of_megatron_make_eighteen_bytes_a_parameter():
    job = job_of(gradient_dtype="fp32")
    parts = static_memory(job, 4)
    n = np.array(job.stage_parameters)
    made = BYTES_PER_ELEMENT["fp16"] * job.modelled().layers[1].parameters  # a block's, before they are added in fp32
    held = (parts.parameters, parts.gradients - made, parts.optimizer)
    assert [(part // n).tolist() for part in held] == [[2] * 4, [4] * 4, [12] * 4]
    assert (static_memory(job_of(), 4).total == 16 * n).all()


def test_gradients_are_exchanged_in_their_own_precision():
    half, single = job_of(), job_of(gradient_dtype="fp32")
    assert device_gradient_bytes(single, 4) == tuple(2 * n for n in device_gradient_bytes(half, 4))
    assert single.embedding_bytes == 2 * half.embedding_bytes
    assert single.activation_bytes == half.activation_bytes
    rounded = job_of(gradient_dtype="fp32", gradient_compression="fp16")
    assert rounded.codes_gradients
    assert device_gradient_bytes(rounded, 4) == device_gradient_bytes(half, 4)


# what operators keep, by closed forms of a token; and what a reserve leaves of a device


T, WIDTH, HEADS, KV, FF, V = 32, 64, 8, 2, 168, 96
SMALL_GPT = gpt(n_layers=4, d_model=WIDTH, n_heads=HEADS, seq_len=T, vocab_size=V)
LLAMA = llama(
    n_layers=4,
    d_model=WIDTH,
    n_heads=HEADS,
    n_kv_heads=KV,
    head_dim=16,
    d_ff=FF,
    seq_len=T,
    vocab_size=V,
    mlp_bias=True,
)


def operated(model: ModelSpec = SMALL_GPT, **fields: Any) -> Job:
    sizes: dict[str, Any] = {"n_stages": 2, "n_replicas": 1, "global_batch": 4, "microbatch": 1}
    return Job(model=model, **sizes | fields)


def a_token(job: Job, layer: int) -> float:
    return needed_elements(job, job.modelled().layers[layer]) / T


def test_a_fused_gate_keeps_three_widths_of_its_mlp_and_not_four() -> None:
    usual, fused = operated(LLAMA), operated(LLAMA, operators="fused")
    assert a_token(usual, 1) - a_token(fused, 1) == FF
    assert a_token(operated(operators="fused"), 1) == a_token(operated(), 1)  # a gpt's MLP has no gate


@pytest.mark.parametrize(
    ("dtype", "operators", "each_bytes"),
    [("bf16", "usual", 4), ("bf16", "eager", 12), ("bf16", "fused", 2), ("fp32", "eager", 12), ("fp32", "fused", 4)],
)
def test_a_head_holds_so_many_bytes_a_logit(dtype: str, operators: str, each_bytes: int) -> None:
    n_bytes = {"bf16": 2, "fp32": 4}[dtype]
    for model in (SMALL_GPT, LLAMA):
        held = n_bytes * a_token(operated(model, dtype=dtype, operators=operators), -1)
        assert held == n_bytes * 2 * WIDTH + each_bytes * V


def test_without_dropout_a_gpt_keeps_no_masks_and_one_matrix_of_its_attention() -> None:
    assert a_token(operated(dropout=False), 1) == 16 * WIDTH
    assert a_token(operated(dropout=False, attention="unfused"), 1) == 16 * WIDTH + HEADS * T
    assert a_token(operated(attention="unfused"), 1) == 17 * WIDTH + 2.5 * HEADS * T
    assert a_token(operated(LLAMA, dropout=False), 1) == a_token(operated(LLAMA), 1)


@pytest.mark.parametrize("checkpointing", ["none", "selective", "block"])
@pytest.mark.parametrize("model", [SMALL_GPT, LLAMA], ids=["gpt", "llama"])
def test_a_group_that_splits_the_sequence_holds_what_one_gpu_does(model: ModelSpec, checkpointing: str) -> None:
    alone = operated(model, checkpointing=checkpointing)
    whole = alone.with_fields(tensor_parallel=4)
    split = whole.with_fields(sequence_parallel=True)
    for layer in model.layers:
        for count in (needed_elements, kept_elements):
            assert count(split, layer) == count(alone, layer) <= count(whole, layer)


@pytest.mark.parametrize("dropout", [True, False])
def test_a_group_holds_norms_and_masks_once_for_each_gpu(dropout: bool) -> None:
    one, two = (operated(tensor_parallel=n, dropout=dropout) for n in (1, 2))
    assert a_token(two, 1) - a_token(one, 1) == (5 if dropout else 4) * WIDTH


def network(n: int = 2, gib: float = 10.0) -> Topology:
    devices = tuple(Device(name=f"d{i}", gpu="A100", memory_bytes=gib * 2**30) for i in range(n))
    return Topology(devices, 1e-4 * (1 - np.eye(n)), np.full((n, n), 1e9))


def test_what_a_reserve_leaves_is_the_limit_of_memory_and_of_the_search() -> None:
    job = operated(reserve_bytes=2e9, fragmentation=0.25)
    left = np.floor(0.75 * (10 * 2**30 - 2e9))
    plan = lab.evaluate(network(), job, stages=[[0], [1]])
    assert (memory_limits(plan) == left).all()
    assert (lab.memory(plan).limit_bytes == left).all()
    assert (IterationProblem.of(network(), job).memory_bytes == left).all()
    assert (
        usable_bytes(replace(job, tensor_parallel=2), network().devices) == np.floor(0.75 * (10 * 2**30 - 4e9))
    ).all()
    assert (usable_bytes(replace(job, reserve_bytes=1e12), network().devices) == 0).all()


def test_a_memory_that_is_all_lost_is_refused() -> None:
    with pytest.raises(JobError, match="fragmentation is 1; wanted a share of the memory below 1"):
        operated(fragmentation=1.0)
