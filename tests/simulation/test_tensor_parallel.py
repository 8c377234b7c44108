"""Laws of tensor parallelism: GPUs of one host that act as one device."""

from dataclasses import replace

import numpy as np
import pytest

from dtfm_lab.costs.efficiency import EFFICIENCY, peak_of
from dtfm_lab.costs.memory import activation_memory, static_memory
from dtfm_lab.costs.seconds import analytic, hop_gather_s, ring_all_reduce_s, ring_gather_s
from dtfm_lab.domain.errors import JobError, PlanError, TopologyError
from dtfm_lab.domain.job import MODELS, Job, gpt
from dtfm_lab.domain.network import Device, Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Kind
from dtfm_lab.planning.evaluate import evaluate
from dtfm_lab.simulation.engine import programs_of
from dtfm_lab.simulation.schedules import build
from dtfm_lab.simulation.simulate import simulate

FREE = 1e29
"""Bytes per second of a link that takes no time."""


def hosts(n_hosts: int = 2, per_host: int = 8, inside: float = 300e9, outside: float = 25e9) -> Topology:
    """Hosts of A100s, with bytes per second inside and between them."""
    host = np.arange(n_hosts * per_host) // per_host
    same = host[:, None] == host[None, :]
    return Topology.from_matrices(
        latency_s=np.where(same, 0.0, 1e-5),
        bandwidth_bytes_per_s=np.where(same, inside, outside),
        hosts=[f"host-{i}" for i in host],
        gpu="A100",
    )


def test_a_group_is_as_near_as_its_slowest_inner_link_and_as_its_fastest_link_to_another():
    rng, host = np.random.default_rng(0), np.arange(8) // 4
    latency_s, bandwidth = rng.uniform(1e-6, 1e-3, (8, 8)), rng.uniform(1e9, 9e9, (8, 8))
    network = Topology.from_matrices(
        latency_s=latency_s, bandwidth_bytes_per_s=bandwidth, hosts=[f"host-{i}" for i in host], gpu="A100"
    ).grouped(4)
    inside = ~np.eye(4, dtype=bool)
    for one, device in enumerate(network.devices):
        own = slice(4 * one, 4 * one + 4)
        assert device.inner_latency_s == latency_s[own, own][inside].max()
        assert device.inner_bandwidth_bytes_per_s == bandwidth[own, own][inside].min()
    assert network.latency_s[0, 1] == latency_s[:4, 4:].min()
    assert network.bandwidth_bytes_per_s[1, 0] == bandwidth[4:, :4].max()


def job_of(gpus: int | None, n_stages: int = 2, n_replicas: int = 1, **fields: object) -> Job:
    counts: dict[str, object] = {"n_stages": n_stages, "n_replicas": n_replicas, "global_batch": 8, "microbatch": 1}
    given = {"model": MODELS["gpt3-xl"], "dtype": "bf16", "schedule": "1f1b", "tensor_parallel": gpus}
    return Job(**given | counts | fields)


def placed(gpus: int, network: Topology | None = None, **fields: object) -> Plan:
    job = job_of(gpus, **fields)
    grid = np.arange(job.n_tasklets).reshape(job.n_stages, -1)
    return evaluate(network or hosts(), job, stages=grid.tolist())


def passes(plan: Plan) -> dict[Kind, float]:
    rows = analytic(plan, programs_of(plan, build(plan, "1f1b")), EFFICIENCY)
    return {row.kind: row.seconds for row in rows if row.stage == 0}


def test_devices_of_a_host_become_one_with_all_that_they_have_together():
    network = hosts().grouped(4)
    assert [device.name for device in network.devices] == ["device-0+3", "device-4+3", "device-8+3", "device-12+3"]
    one, alone = network.devices[0], hosts().devices[0]
    assert (one.gpus, one.peak_flop_per_s, one.memory_bytes) == (4, 4 * alone.peak_flop_per_s, 4 * alone.memory_bytes)
    assert (one.inner_bandwidth_bytes_per_s, one.host) == (300e9, "host-0")
    assert network.bandwidth_bytes_per_s[0, 1] == 300e9  # groups of one host
    assert network.bandwidth_bytes_per_s[0, 2] == 25e9  # the hosts' NICs


def test_devices_left_over_or_unlike_are_left_out():
    network = hosts(n_hosts=1, per_host=5)
    assert len(network.grouped(2)) == 2
    mixed = replace(network, devices=(*network.devices[:4], network.devices[4].with_gpu("T4")))
    assert {device.gpu for device in mixed.grouped(4).devices} == {"A100"}
    assert mixed.group_sizes == [1, 2, 4]


def test_a_network_without_such_hosts_is_refused():
    with pytest.raises(
        TopologyError, match="no host of 16 GPUs that are alike, at most 8; wanted 8 or less, of tensor_parallel"
    ):
        hosts().grouped(16)
    alone = Topology.from_matrices(np.zeros((2, 2)), np.ones((2, 2)))
    with pytest.raises(TopologyError, match="at most 1; wanted"):
        evaluate(alone, job_of(2, n_stages=1), stages=[[0]])


def test_groups_of_another_size_are_refused():
    with pytest.raises(TopologyError, match="has devices of 4 GPUs each; wanted groups of 2, or single GPUs"):
        placed(2, hosts().grouped(4))
    plan = placed(1)
    with pytest.raises(PlanError, match=r"device device-0 stands for 1 GPU; job job wants groups of 2"):
        plan.changed(job=job_of(2))


def test_heads_that_the_gpus_do_not_divide_are_refused():
    model = gpt(n_layers=2, d_model=6, n_heads=3, seq_len=4, vocab_size=8)
    with pytest.raises(JobError, match="tensor_parallel is 2; wanted a divisor of the 3 heads"):
        job_of(2, model=model)


@pytest.mark.parametrize("gpus", [2, 4, 8])
def test_with_free_inner_links_passes_take_a_share_each(gpus):
    alone, together = passes(placed(1)), passes(placed(gpus, hosts(inside=FREE)))
    for kind in (Kind.FORWARD, Kind.BACKWARD, Kind.BACKWARD_INPUT, Kind.BACKWARD_WEIGHT):
        assert together[kind] == pytest.approx(alone[kind] / gpus)


def test_a_block_sums_its_activations_twice_in_the_forward_and_twice_in_the_backward():
    free, real = passes(placed(8, hosts(inside=FREE))), passes(placed(8))
    n_bytes = 2048 * 2048 * 2
    once_s = ring_all_reduce_s(n_bytes, 8, 300e9, 0.0)
    assert once_s == pytest.approx(2 * 7 / 8 * n_bytes / 300e9)
    assert real[Kind.FORWARD] - free[Kind.FORWARD] == pytest.approx((2 * 12 + 1) * once_s)  # the embedding, too
    gather_s = ring_gather_s(n_bytes, 8, 300e9, 0.0)
    assert real[Kind.BACKWARD] - free[Kind.BACKWARD] == pytest.approx(2 * 12 * once_s + gather_s)
    assert real[Kind.BACKWARD_WEIGHT] == pytest.approx(free[Kind.BACKWARD_WEIGHT])


def test_recomputation_sums_again():
    free, real = (passes(placed(8, hosts(inside=inside), recompute=True)) for inside in (FREE, 300e9))
    once_s = ring_all_reduce_s(2048 * 2048 * 2, 8, 300e9, 0.0)
    more_s = real[Kind.BACKWARD] - free[Kind.BACKWARD] - ring_gather_s(2048 * 2048 * 2, 8, 300e9, 0.0)
    assert more_s == pytest.approx((4 * 12 + 1) * once_s)


def test_a_hop_is_gathered_by_the_group_that_receives_it():
    group, job = hosts().grouped(4).devices[0], job_of(4)
    assert hop_gather_s(job, group, 12e9) == pytest.approx(3 * 3e9 / 300e9)
    assert hop_gather_s(job, Device(name="alone"), 12e9) == 0.0


@pytest.mark.parametrize("gpus", [2, 8])
def test_a_gpu_holds_its_share_of_parameters_and_the_bytes_of_korthikanti(gpus):
    alone, group = job_of(1), job_of(gpus)
    assert static_memory(group, 2).total.tolist() == static_memory(alone, 2).total.tolist()  # of all GPUs together
    per_block = [activation_memory(job.with_fields(n_stages=24), 24).kept[1] for job in (alone, group)]
    sbh = 2048 * 2048
    assert per_block[0] == 34 * sbh
    assert per_block[1] / gpus == pytest.approx(sbh * (10 + 24 / gpus))


def test_every_gpu_keeps_the_whole_input_that_it_recomputes_from():
    alone, group = (activation_memory(job_of(n, recompute=True), 2) for n in (1, 8))
    assert group.kept[1] == 8 * alone.kept[1]


def test_a_group_has_the_peak_of_all_in_each_dtype():
    alone, group = hosts().devices[0], hosts().grouped(8).devices[0]
    assert all(peak_of(group, dtype) == 8 * peak_of(alone, dtype) for dtype in ("bf16", "fp32", "fp64"))


def test_grouping_before_or_by_the_job_is_the_same():
    before, by_itself = placed(4, hosts().grouped(4)), placed(4)
    assert simulate(before).iteration_s == simulate(by_itself).iteration_s
    assert by_itself.stages == [["device-0+3"], ["device-4+3"]]
