"""A fused attention's own speed: its closed form, where it holds, the published kernels, and all doors alike."""

from dataclasses import replace

import numpy as np
import pytest

from dtfm_lab.costs.efficiency import KERNEL_HEAD, PRODUCTS, ShareFactor, efficiency_of
from dtfm_lab.domain.job import MODELS, Job, llama
from dtfm_lab.domain.network import Device, Topology
from dtfm_lab.planning.evaluate import evaluate
from dtfm_lab.planning.iteration.problem import IterationProblem
from dtfm_lab.simulation import simulate
from dtfm_lab.simulation.simulate import iteration_seconds

B200 = PRODUCTS["B200"]
LAYERS, HEADS = 2, 32
LONG = llama(n_layers=LAYERS, d_model=4096, n_heads=HEADS, n_kv_heads=8, d_ff=14336, seq_len=32768, vocab_size=128256)


def job_of(model=LONG, **fields) -> Job:
    given = {"n_stages": 1, "n_replicas": 1, "global_batch": 8, "microbatch": 1, "dtype": "bf16"}
    return Job(model=model, **given | {"memory_traffic": True} | fields)


def flop_at_the_peak(job: Job, gpu: str = "B200") -> float:
    """FLOP at the peak that take as long as a forward and a backward."""
    one = Device(name="one", gpu=gpu)
    gpus = job.data_gpus * (job.tensor_parallel or 1)
    group = replace(one, gpus=gpus, peak_flop_per_s=gpus * one.peak_flop_per_s, memory_bytes=gpus * one.memory_bytes)
    return 3 * job.microbatch * job.modelled().forward_flop / efficiency_of(job, group).share


def without_kernel(job: Job, monkeypatch: pytest.MonkeyPatch) -> float:
    """The same where the attention counts as a product of the largest k."""
    with monkeypatch.context() as patched:
        patched.setitem(PRODUCTS, "B200", B200._replace(fused=None))
        return flop_at_the_peak(job)


@pytest.mark.parametrize("tokens", [4096, 32768, 131072])
@pytest.mark.parametrize("microbatch", [1, 2])
def test_a_causal_kernel_takes_two_half_products_forward_and_five_backward(tokens, microbatch, monkeypatch):
    job = job_of(LONG.with_seq_len(tokens), microbatch=microbatch)
    square = microbatch * LAYERS * HEADS * 2 * tokens**2 * 128
    kernel = 7 * square / 2 / (B200.fused.most * tokens / (tokens + B200.fused.half_length))
    assert flop_at_the_peak(job) - without_kernel(job, monkeypatch) == pytest.approx(
        kernel - 6 * square / B200.most, rel=1e-6
    )


def test_heads_that_are_narrower_take_as_long_and_wider_ones_have_no_kernel(monkeypatch):
    def attention(head_dim: int) -> float:
        """What the kernel takes beyond a product of the largest k."""
        model = llama(n_layers=2, d_model=32 * head_dim, n_heads=32, d_ff=8192, seq_len=8192, vocab_size=32000)
        job = job_of(model)
        return flop_at_the_peak(job) - without_kernel(job, monkeypatch) + 3 * 2 * model.attention_flop / B200.most

    assert attention(64) == pytest.approx(attention(KERNEL_HEAD))
    assert attention(256) == pytest.approx(2 * 3 * 2 * 4 * 8192**2 * 32 * 128 / B200.most)  # as before


@pytest.mark.parametrize("job", [job_of(attention="unfused"), job_of(MODELS["deepseek-v3"])])
def test_what_is_no_such_kernel_counts_as_before(job, monkeypatch):
    assert flop_at_the_peak(job) == without_kernel(job, monkeypatch)


def test_long_sequences_take_less_and_their_flop_are_told_as_ever(monkeypatch):
    job = job_of(LONG.with_seq_len(131072))
    plan = evaluate(pair(), job, stages=[[0]])
    with monkeypatch.context() as patched:
        patched.setitem(PRODUCTS, "B200", B200._replace(fused=None))
        before = simulate(plan)
    after = simulate(plan)
    assert after.iteration_s < 0.7 * before.iteration_s
    assert after.context.plan.flop == before.context.plan.flop == 3 * 8 * job.modelled().forward_flop


def pair() -> Topology:
    return Topology.from_matrices(np.zeros((2, 2)), np.full((2, 2), 100.0), gpu="B200", name="pair")


def test_simulation_search_and_calibration_take_the_same_seconds():
    model = LONG.with_seq_len(131072)
    problem = IterationProblem.of(pair(), job_of(model, microbatch=None, memory_traffic=False))
    for microbatch in problem.microbatches:
        job = job_of(model, microbatch=microbatch, memory_traffic=False)
        plan = evaluate(pair(), job, stages=[[0]])
        seconds = job.flop / problem.flop_per_s_of(microbatch)[0]
        assert iteration_seconds(plan) == pytest.approx(seconds, rel=1e-9)
        assert iteration_seconds(plan, efficiency=ShareFactor(0.5)) == pytest.approx(2 * seconds, rel=1e-9)
        assert (problem.flop_per_s >= problem.flop_per_s_of(microbatch)).all()


def test_a_group_shares_its_attention_evenly(monkeypatch):
    """With context parallelism each GPU has a part of the queries, and all keys."""
    one = job_of()
    for job in (one.with_fields(context_parallel=8), one.with_fields(tensor_parallel=8)):
        apart = [flop_at_the_peak(each) - without_kernel(each, monkeypatch) for each in (one, job)]
        assert apart[0] == pytest.approx(apart[1], rel=1e-6)
