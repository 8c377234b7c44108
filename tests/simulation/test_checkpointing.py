"""What a job keeps for its backward, computes again and exchanges, by its choices: closed forms, orders, refusals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plans import plan_of

from dtfm_lab.domain.errors import JobError
from dtfm_lab.domain.job import BYTES_PER_ELEMENT, MODELS, Job, ModelSpec, device_gradient_bytes, gpt
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Kind
from dtfm_lab.simulation.durations import analytic
from dtfm_lab.simulation.engine import programs_of
from dtfm_lab.simulation.memory import memory
from dtfm_lab.simulation.memory_intervals import activation_memory, static_memory
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


@pytest.mark.parametrize("name", ["1f1b", "gpipe", "zb-h1"])
@pytest.mark.parametrize("how", ["selective", "block", "stage"])
def test_checkpoints_never_need_more_memory(name, how):
    kept, less = (memory(plan_for(job_of(checkpointing=one)), name).peak_bytes for one in ("none", how))
    assert (less <= kept).all()


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


@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_model_of_an_earlier_file_is_completed(name):
    bare = {"attention_elements": 0, "selective_elements": 0, "selective_flop": 0, "moved_elements": 0}
    model = MODELS[name]
    earlier = replace(model, layers=tuple(replace(layer, **bare) for layer in model.layers))
    assert job_of(earlier, 2).model == model


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


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32", "fp64"])
def test_gradients_in_the_jobs_own_precision_change_nothing(dtype):
    given_, left = job_of(dtype=dtype, gradient_dtype=dtype), job_of(dtype=dtype)
    assert static_memory(given_, 4).total.tolist() == static_memory(left, 4).total.tolist()
    assert seconds(given_) == seconds(left)
    assert device_gradient_bytes(given_, 4) == device_gradient_bytes(left, 4)
