"""A micro-batch left open may be any that divides the batch; the bound holds for all, and the search finds the best."""

from dataclasses import replace

import numpy as np
import pytest

import dtfm_lab as lab
from dtfm_lab.domain.errors import JobError, PlanError
from dtfm_lab.domain.job.model import gpt
from dtfm_lab.planning.iteration.problem import open_microbatches

MODEL = gpt(n_layers=6, d_model=1024, n_heads=8, seq_len=512, vocab_size=8192)
N = 3
NETWORK = lab.Topology.from_matrices(
    np.full((N, N), 100.0), np.full((N, N), 10.0), gpu=["A100"] * N, memory_gib=[80] * N, name="100 ms"
)


def job(batch, **fields):
    return lab.Job(
        **{"name": "open", "model": MODEL, "n_stages": 3, "n_replicas": 1, "global_batch": batch, "dtype": "fp16"}
        | fields
    )


def planned(network, one, steps):
    return lab.plan(network, one, objective="iteration", steps=steps, seed=0)


@pytest.mark.parametrize("transport", ["overlapped", "batched", "blocking"])
@pytest.mark.parametrize("batch", [9, 27])
def test_no_size_of_micro_batches_given_beats_the_open_one(batch, transport):
    open_ = job(batch, transport=transport)
    best = planned(NETWORK, open_, 6)
    given = [planned(NETWORK, open_.with_fields(microbatch=m), 2).iteration_s for m in open_microbatches(open_)]
    assert best.iteration_lower_bound_s <= min(given)
    assert best.iteration_s <= 1.02 * min(given)


def test_messages_that_cost_their_number_are_few():
    sizes = np.array([1e3, 1e9])
    message_s = np.tile(0.2 + sizes / 1.25e9, (N, N, 1))
    network = replace(NETWORK, latency_s=np.zeros((N, N)), message_bytes=sizes, message_s=message_s)
    assert planned(network, job(27), 4).job.microbatch == 27


def test_open_micro_batches_divide_the_batch_and_leave_every_replica_one():
    assert open_microbatches(job(27)) == (1, 3, 9, 27)
    assert open_microbatches(job(24, n_replicas=4)) == (1, 2, 3, 4, 6)
    assert open_microbatches(job(24, n_replicas=4, sharding="zero-3")) == (1, 2, 3, 6)
    assert open_microbatches(job(12, n_replicas=3, sharding="zero-3")) == (1, 2, 4)
    assert open_microbatches(job(12, microbatch=4)) == (4,)
    with pytest.raises(JobError, match="leave 3 over"):
        job(27, microbatch=4)


def test_sizes_between_those_begun_with_are_found_beside_the_best():
    """At 4 s a message of any size but 15, and memory for all: of 45 sequences, 1, 3, 9 and 45 are begun with."""
    sizes = np.array([1e3, 15 * 2.0 * MODEL.boundary_elements, 45 * 2.0 * MODEL.boundary_elements])
    message_s = np.tile([0.0001, 0.0002, 40.0], (N, N, 1))
    network = replace(NETWORK, latency_s=np.zeros((N, N)), message_bytes=sizes, message_s=message_s)
    best = planned(network, job(45), 5)
    given = {m: planned(network, job(45, microbatch=m), 3).iteration_s for m in (1, 3, 5, 9, 15, 45)}
    assert best.iteration_s <= 1.02 * min(given.values())
    assert best.iteration_lower_bound_s <= min(given.values())


def test_of_a_huge_batch_only_sizes_that_can_be_simulated_are_open():
    tiny = lab.load_job("tiny", n_stages=2, n_replicas=2, global_batch=10**9, microbatch=None)
    assert min(open_microbatches(tiny)) == 10_000
    plan = lab.plan("lecture-hall", tiny, steps=1)
    assert plan.iteration_s == lab.simulate(plan).iteration_s


def test_micro_batches_too_many_to_simulate_are_refused_before_the_search():
    for fields in ({"global_batch": 10**9}, {"global_batch": 10**9, "n_stages": 2, "n_replicas": 2}):
        with pytest.raises(PlanError, match=r"micro-batches of 2 are too many to simulate; .* micro-batch of .*0, or"):
            lab.plan("lecture-hall", lab.load_job("tiny", **fields), steps=1)
    prime = lab.load_job("tiny", global_batch=999_999_937, n_replicas=2, microbatch=None)
    with pytest.raises(PlanError, match="too many to simulate; wanted fewer, or a smaller batch"):
        lab.plan("lecture-hall", prime, steps=1)
