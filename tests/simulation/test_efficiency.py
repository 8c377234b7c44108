"""The share of its peak that a device reaches: laws of the products, what it falls back to, and what takes it."""

from dataclasses import replace

import numpy as np
import pytest

from dtfm_lab import lab
from dtfm_lab.domain.errors import JobError
from dtfm_lab.domain.job import Job, gpt, llama
from dtfm_lab.domain.network import Device, Topology
from dtfm_lab.planning import evaluate
from dtfm_lab.planning.iteration.problem import IterationProblem
from dtfm_lab.simulation.efficiency import EFFICIENCY, PRODUCTS, ShareFactor, efficiency_of, products_of, share_of
from dtfm_lab.simulation.simulate import iteration_seconds

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


def test_what_memory_moves_is_in_the_share_unless_it_is_counted_beside():
    apart, within = (efficiency_of(job_of(memory_traffic=counts), group_of(1)).share for counts in (True, False))
    assert within < apart


def test_gpus_that_share_a_layer_have_smaller_products_and_reach_less():
    shares = [efficiency_of(job_of(memory_traffic=True), group_of(gpus)).share for gpus in (1, 2, 4, 8)]
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] < 0.95 * shares[0]


@pytest.mark.parametrize(
    ("gpu", "fields"),
    [
        ("V100", {}),
        ("RTX 4090", {}),
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


def pair() -> Topology:
    return Topology.from_matrices(np.zeros((2, 2)), np.full((2, 2), 100.0), gpu="A100", name="pair")


def test_problem_and_simulation_take_the_share_of_the_micro_batch():
    problem = IterationProblem.of(pair(), job_of(microbatch=None))
    assert len({problem.flop_per_s_of(one)[0] for one in problem.microbatches}) > 1
    for microbatch in problem.microbatches:
        job = job_of(microbatch=microbatch, n_replicas=1)
        plan = evaluate(pair(), job, stages=[[0]])
        seconds = job.flop / problem.flop_per_s_of(microbatch)[0]
        assert iteration_seconds(plan) == pytest.approx(seconds, rel=1e-9)
        assert (problem.flop_per_s >= problem.flop_per_s_of(microbatch)).all()


def test_a_calibration_carries_over_to_other_micro_batches():
    """One measured iteration, of a machine that reaches nine tenths of what the lab says, tells all others."""
    plans = [evaluate(pair(), job_of(microbatch=size), stages=[[0, 1]]) for size in (1, 4)]
    measured_s = [iteration_seconds(plan, efficiency=ShareFactor(0.9)) for plan in plans]
    calibration = lab.calibrate([(plans[0], measured_s[0])])
    assert calibration.factor == pytest.approx(0.9, rel=1e-4)
    assert calibration.spread > 0
    assert lab.simulate(plans[1], efficiency=calibration).iteration_s == pytest.approx(measured_s[1], rel=1e-4)
