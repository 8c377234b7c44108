"""What operators keep, by closed forms of a token; and what a reserve leaves of a device."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import dtfm_lab as lab
from dtfm_lab.domain.errors import JobError
from dtfm_lab.domain.job import Job, ModelSpec, gpt, kept_elements, llama, needed_elements
from dtfm_lab.domain.network import Device, Topology
from dtfm_lab.planning.iteration.problem import IterationProblem
from dtfm_lab.simulation.memory_intervals import memory_limits, usable_bytes

T, D, HEADS, KV, FF, V = 32, 64, 8, 2, 168, 96
GPT = gpt(n_layers=4, d_model=D, n_heads=HEADS, seq_len=T, vocab_size=V)
LLAMA = llama(
    n_layers=4, d_model=D, n_heads=HEADS, n_kv_heads=KV, head_dim=16, d_ff=FF, seq_len=T, vocab_size=V, mlp_bias=True
)


def job_of(model: ModelSpec = GPT, **fields: Any) -> Job:
    sizes: dict[str, Any] = {"n_stages": 2, "n_replicas": 1, "global_batch": 4, "microbatch": 1}
    return Job(model=model, **sizes | fields)


def a_token(job: Job, layer: int) -> float:
    return needed_elements(job, job.modelled().layers[layer]) / T


def test_a_fused_gate_keeps_three_widths_of_its_mlp_and_not_four() -> None:
    usual, fused = job_of(LLAMA), job_of(LLAMA, operators="fused")
    assert a_token(usual, 1) - a_token(fused, 1) == FF
    assert a_token(job_of(operators="fused"), 1) == a_token(job_of(), 1)  # a gpt's MLP has no gate


@pytest.mark.parametrize(
    ("dtype", "operators", "each_bytes"),
    [("bf16", "usual", 4), ("bf16", "eager", 12), ("bf16", "fused", 2), ("fp32", "eager", 12), ("fp32", "fused", 4)],
)
def test_a_head_holds_so_many_bytes_a_logit(dtype: str, operators: str, each_bytes: int) -> None:
    n_bytes = {"bf16": 2, "fp32": 4}[dtype]
    for model in (GPT, LLAMA):
        held = n_bytes * a_token(job_of(model, dtype=dtype, operators=operators), -1)
        assert held == n_bytes * 2 * D + each_bytes * V


def test_without_dropout_a_gpt_keeps_no_masks_and_one_matrix_of_its_attention() -> None:
    assert a_token(job_of(dropout=False), 1) == 16 * D
    assert a_token(job_of(dropout=False, attention="unfused"), 1) == 16 * D + HEADS * T
    assert a_token(job_of(attention="unfused"), 1) == 17 * D + 2.5 * HEADS * T
    assert a_token(job_of(LLAMA, dropout=False), 1) == a_token(job_of(LLAMA), 1)


@pytest.mark.parametrize("checkpointing", ["none", "selective", "block"])
@pytest.mark.parametrize("model", [GPT, LLAMA], ids=["gpt", "llama"])
def test_a_group_that_splits_the_sequence_holds_what_one_gpu_does(model: ModelSpec, checkpointing: str) -> None:
    alone = job_of(model, checkpointing=checkpointing)
    whole = alone.with_fields(tensor_parallel=4)
    split = whole.with_fields(sequence_parallel=True)
    for layer in model.layers:
        for count in (needed_elements, kept_elements):
            assert count(split, layer) == count(alone, layer) <= count(whole, layer)


@pytest.mark.parametrize("dropout", [True, False])
def test_a_group_holds_norms_and_masks_once_for_each_gpu(dropout: bool) -> None:
    one, two = (job_of(tensor_parallel=n, dropout=dropout) for n in (1, 2))
    assert a_token(two, 1) - a_token(one, 1) == (5 if dropout else 4) * D


def network(n: int = 2, gib: float = 10.0) -> Topology:
    devices = tuple(Device(name=f"d{i}", gpu="A100", memory_bytes=gib * 2**30) for i in range(n))
    return Topology(devices, 1e-4 * (1 - np.eye(n)), np.full((n, n), 1e9))


def test_what_a_reserve_leaves_is_the_limit_of_memory_and_of_the_search() -> None:
    job = job_of(reserve_bytes=2e9, fragmentation=0.25)
    left = np.floor(0.75 * (10 * 2**30 - 2e9))
    plan = lab.evaluate(network(), job, stages=[[0], [1]])
    assert (memory_limits(plan) == left).all()
    assert (lab.memory(plan).limit_bytes == left).all()
    assert (IterationProblem.of(network(), job).memory_bytes == left).all()
    assert (
        usable_bytes(replace(job, tensor_parallel=2), network().devices) == np.floor(0.75 * (10 * 2**30 - 4e9))
    ).all()
    assert (usable_bytes(replace(job, reserve_bytes=1e12), network().devices) == 0).all()


def test_a_plan_that_fits_only_without_the_reserve_is_not_found() -> None:
    job = job_of(microbatch=4, n_stages=1, checkpointing="block")
    needs = lab.memory(lab.evaluate(network(1), job, stages=[[0]])).peak_bytes.max()
    tight = network(1, gib=1.01 * float(needs) / 2**30)
    assert lab.plan(tight, job, objective="iteration", steps=1).job.reserve_bytes == 0
    with pytest.raises(lab.LabError):
        lab.plan(tight, job.with_fields(fragmentation=0.06), objective="iteration", steps=1)


def test_a_memory_that_is_all_lost_is_refused() -> None:
    with pytest.raises(JobError, match="fragmentation is 1; wanted a share of the memory below 1"):
        job_of(fragmentation=1.0)
