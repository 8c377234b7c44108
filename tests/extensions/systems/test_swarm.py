"""SWARM's closed form: the textbook's time on equal devices, and what slower devices and links make of it."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dtfm_lab as lab
from dtfm_lab.domain.job import Layer, LayerKind, ModelSpec
from dtfm_lab.domain.network import Device, Topology
from dtfm_lab.extensions.systems.api import Budget, outcome_of, work_of
from dtfm_lab.extensions.systems.modelled.swarm import SwarmStrategy
from dtfm_lab.planning import evaluate
from dtfm_lab.simulation import simulate

JOB = lab.load_job("gpt3-xl", global_batch=24, microbatch=1)


def seconds(plan, queueing="pairs", **assumptions):
    return SwarmStrategy(**assumptions).seconds(plan, Budget(queueing=queueing))


def on_free_links(speeds, n_stages, n_microbatches):
    """A plan of equal stages whose forward takes a second on a device of speed 1, links without cost."""
    n = len(speeds)
    peak = [1e12 * speed / 0.4 for speed in speeds]
    devices = [Device(name=f"d{i}", peak_flop_per_s=one, memory_bytes=1e12) for i, one in enumerate(peak)]
    bandwidth = np.full((n, n), 1e30)
    np.fill_diagonal(bandwidth, np.inf)
    topology = Topology(tuple(devices), np.zeros((n, n)), bandwidth)
    layer = Layer(kind=LayerKind.BLOCK, parameters=8, forward_flop=1e12, output_elements=1)
    sizes = {"d_model": 1, "n_heads": 1, "seq_len": 1, "vocab_size": 1, "tied": False}
    model = ModelSpec(name="equal", layers=(layer,) * n_stages, **sizes)
    shape = {"n_stages": n_stages, "n_replicas": n // n_stages, "global_batch": n_microbatches, "microbatch": 1}
    job = lab.Job(model=model, synchronisation="sharded-at-once", **shape)
    return evaluate(topology, job, stages=np.arange(n).reshape(n_stages, -1).tolist())


@pytest.mark.parametrize("queueing", ["pairs", "nics"])
@pytest.mark.parametrize("network", ["worldwide", "shared-nics"])
@pytest.mark.parametrize("n_stages", [1, 3, 8])
def test_with_one_device_a_stage_no_schedule_is_faster(network, queueing, n_stages):
    job = JOB.with_fields(n_stages=n_stages, n_replicas=1, schedule="gpipe")
    plan = evaluate(lab.load_topology(network), job, stages=[[3 * i] for i in range(n_stages)])
    closed_s, simulated_s = seconds(plan, queueing, resends_inputs=False), simulate(plan, queueing=queueing).iteration_s
    assert closed_s <= simulated_s * (1 + 1e-9)
    if n_stages == 1:
        assert closed_s == pytest.approx(simulated_s)


@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 6))
def test_equal_devices_on_free_links_take_the_textbooks_time(n_stages, n_replicas, each):
    plan = on_free_links([1.0] * n_stages * n_replicas, n_stages, each * n_replicas)
    assert seconds(plan) == pytest.approx((each + n_stages - 1) * 3)


@given(st.lists(st.sampled_from([1.0, 2.0, 5.0]), min_size=6, max_size=6), st.integers(6, 40))
def test_no_stage_serves_faster_than_its_devices_together(speeds, n_microbatches):
    plan = on_free_links(speeds, 2, n_microbatches - n_microbatches % 3)
    work_s = 3 * plan.job.global_batch / np.reshape(speeds, (2, 3)).sum(axis=1).min()
    assert seconds(plan) >= work_s * (1 - 1e-9)
    assert seconds(plan, routing="random") >= seconds(plan) * (1 - 1e-9)


def test_few_micro_batches_under_way_leave_the_busiest_stage_idle():
    """With one on its way for each device, the next begins when one is back: Little's law."""
    plan = on_free_links([1.0] * 4, 4, 100)
    assert seconds(plan, trainers=1) == pytest.approx(seconds(plan))
    slow = replace(plan.topology, latency_s=100.0 * (1 - np.eye(4)))
    few, many = (seconds(plan.changed(topology=slow), trainers=n) for n in (1, 1000))
    way_s = 4 * 3 + 2 * 3 * 100
    assert few == pytest.approx(way_s + 99 * way_s / 4)
    assert many == pytest.approx(way_s + 99 * 3)


def test_gradients_that_travel_with_inputs_make_the_links_busier():
    plan = evaluate(lab.load_topology("worldwide"), JOB.with_fields(n_stages=3, n_replicas=1), stages=[[0], [9], [18]])
    once, twice = (seconds(plan, resends_inputs=resends) for resends in (False, True))
    assert once < twice < 2 * once


def test_the_same_seed_deals_the_same_stages():
    topology, budget = lab.load_topology("volunteers"), Budget(seed=3)
    first, second = (outcome_of(SwarmStrategy(), topology, JOB, budget) for _ in range(2))
    assert first.iteration_s == second.iteration_s == SwarmStrategy().seconds(first.plan, budget)
    assert first.plan.placement.devices.tolist() == second.plan.placement.devices.tolist()
    assert sum(first.causes.values()) == pytest.approx(first.iteration_s)


def test_stages_are_as_fast_as_dealing_devices_out_makes_them():
    topology = lab.load_topology("mixed-gpus")
    plan = next(SwarmStrategy().plans(topology, work_of(JOB.with_fields(global_batch=256)), Budget()))
    speed = np.array([device.peak_flop_per_s for device in topology.devices])[plan.placement.devices].sum(axis=1)
    fastest = max(device.peak_flop_per_s for device in topology.devices)
    assert np.ptp(speed) <= fastest


def test_the_closed_form_takes_measured_messages_where_there_are_any():
    """Measured on the line of latency and bandwidth, and drawn with another bandwidth, they change nothing."""
    network = lab.load_topology("thin-link")
    sizes, apart = np.array([1.0, 1e15]), ~np.eye(len(network), dtype=bool)
    message_s = np.where(apart[:, :, None], np.stack([network.transfer_s(n) for n in sizes], axis=2), np.nan)
    measured = replace(network.scaled(bandwidth=1000), message_bytes=sizes, message_s=message_s)
    there, here = (
        [one.least_s for one in SwarmStrategy().branches(topology, work_of(JOB), Budget())]
        for topology in (measured, network)
    )
    assert there == pytest.approx(here)
