"""Sailor's choices: subsets by kind and region, cuts and choices as its published runs had them."""

import numpy as np
import pytest

import dtfm_lab as lab
from dtfm_lab.domain.network import Device, Topology
from dtfm_lab.published.sailor_records import plan_of, shared_cards
from dtfm_lab.published.systems.sailor import packaged
from dtfm_lab.systems import Budget, outcome_of, work_of
from dtfm_lab.systems.modelled.sailor import Sailor, blocks_of

JOB = lab.load_job("gpt3-xl", global_batch=256)


@pytest.mark.parametrize("network", ["worldwide", "mixed-gpus", "campus"])
def test_replicas_of_a_stage_are_of_one_kind_in_one_region(network):
    topology = lab.load_topology(network)
    for plan in Sailor().plans(topology, work_of(JOB), Budget()):
        for stage in plan.placement.devices:
            devices = [topology.devices[device] for device in stage]
            assert len({(device.region, device.gpu) for device in devices}) == 1


def test_across_regions_stages_may_be_wider_than_a_region():
    topology = lab.load_topology("ten-cities")
    plans = Sailor(across_regions=True).plans(topology, work_of(JOB.with_fields(global_batch=960)), Budget())
    assert max(plan.job.n_replicas for plan in plans) > 6


def test_devices_that_would_slow_it_down_are_left_out():
    fast = [Device(name=f"fast {i}", gpu="H100", region="here") for i in range(4)]
    slow = [Device(name=f"slow {i}", gpu="T4", region="there") for i in range(4)]
    latency_s, bandwidth = np.full((8, 8), 0.05), np.full((8, 8), 1e7)
    latency_s[:4, :4], bandwidth[:4, :4] = 0.0, 1e10
    np.fill_diagonal(latency_s, 0.0)
    np.fill_diagonal(bandwidth, np.inf)
    outcome = outcome_of(Sailor(), Topology((*fast, *slow), latency_s, bandwidth), JOB)
    assert set(outcome.plan.placement.devices.flat) <= set(range(4))


@pytest.mark.parametrize(("n_blocks", "n_stages"), [(24, 5), (32, 8), (14, 4), (3, 3)])
def test_blocks_over_go_to_the_last_stages(n_blocks, n_stages):
    blocks = blocks_of(n_blocks, n_stages)
    assert sum(blocks) == n_blocks
    assert list(blocks) == sorted(blocks)
    assert max(blocks) - min(blocks) <= 1


def test_published_runs_were_trained_as_the_strategy_trains():
    records = packaged()
    sharing = shared_cards(records.rows)
    for record in records.rows:
        job = plan_of(record, records.message_bytes, sharing).job
        assert Sailor().trained(job).with_fields(gradient_dtype=None) == job.with_fields(checkpointing="none")


@pytest.mark.parametrize("record", [one for one in packaged().rows if one.n_stages > 1], ids=lambda one: one.case)
def test_published_shapes_are_among_those_that_are_looked_at(record):
    """Of a job with the record's micro-batch on as many equal devices."""
    n = record.n_stages * record.n_replicas
    devices = [Device(name=f"d{i}", gpu="H100", region="one") for i in range(n)]
    links = np.full((n, n), 1e10)
    np.fill_diagonal(links, np.inf)
    topology = Topology(tuple(devices), np.zeros((n, n)), links)
    job = JOB.with_fields(microbatch=record.microbatch, global_batch=record.global_batch)
    looked_at = Sailor().candidates(topology, work_of(job), Budget(efficiency=0.4))
    assert (record.n_stages, record.n_replicas) in {one.grid.shape for one in looked_at}
