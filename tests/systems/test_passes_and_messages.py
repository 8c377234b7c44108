"""What an iteration consists of: messages inside passes are told apart from computing."""

import pytest

import dtfm_lab as lab
from dtfm_lab.systems.outcome import GATHERING, causes_of

BANDWIDTH_GBPS = 1.0


def network(n: int, bandwidth_gbps: float = BANDWIDTH_GBPS) -> lab.Topology:
    return lab.Topology.from_matrices(
        latency_ms=[[0.0 if i == j else 1.0 / bandwidth_gbps for j in range(n)] for i in range(n)],
        bandwidth_gbps=[[0.0 if i == j else bandwidth_gbps for j in range(n)] for i in range(n)],
        gpu="A100",
    )


def causes(bandwidth_gbps: float, **fields: object) -> dict[str, float]:
    topology = network(4, bandwidth_gbps)
    job = lab.load_job("gpt3-xl", n_stages=1, n_replicas=4, global_batch=64, microbatch=1, **fields)
    plan = lab.evaluate(topology, job, stages=[[0, 1, 2, 3]])
    trace = lab.simulate(plan)
    return causes_of(plan, trace, trace.iteration_s, None)


def test_they_add_up_to_the_iteration():
    topology = network(4)
    job = lab.load_job("gpt3-xl", n_stages=1, n_replicas=4, global_batch=64, microbatch=1, sharding="zero-3")
    plan = lab.evaluate(topology, job, stages=[[0, 1, 2, 3]])
    trace = lab.simulate(plan)
    assert sum(causes_of(plan, trace, trace.iteration_s, None).values()) == pytest.approx(trace.iteration_s)


def test_what_zero_3_gathers_on_slow_links_is_not_computing():
    found = causes(1.0, sharding="zero-3")
    assert next(iter(found)) == GATHERING
    assert found["compute"] == pytest.approx(causes(1.0)["compute"])


def test_fast_links_leave_little_to_gather():
    found = causes(1e6, sharding="zero-3")
    assert found[GATHERING] < 0.2 * found["compute"]


def test_without_messages_in_passes_there_is_no_gathering():
    assert GATHERING not in causes(1.0)


def test_sums_of_gpus_that_share_a_layer_are_not_computing():
    topology = lab.load_topology("shared-cards").grouped(8)
    job = lab.load_job("gpt3-xl", n_stages=4, n_replicas=1, global_batch=64, microbatch=1, tensor_parallel=8)
    plan = lab.evaluate(topology, job, stages=[[0], [1], [2], [3]])
    trace = lab.simulate(plan)
    assert causes_of(plan, trace, trace.iteration_s, None)[GATHERING] > 0
