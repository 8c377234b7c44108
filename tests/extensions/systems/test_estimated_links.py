"""A ranking that depends on links that nobody measured says so."""

from dataclasses import replace

import numpy as np

import dtfm_lab as lab
from dtfm_lab.domain.network import BETWEEN, BandwidthEstimate, at_their_ends
from dtfm_lab.domain.units import format_s, from_gbps
from dtfm_lab.extensions.systems import choosing
from dtfm_lab.simulation.memory import memory


def network(gbps: float, most_gbps: float) -> lab.Topology:
    """Two hosts of two GPUs, whose bandwidth is an estimate."""
    hosts = np.array([0, 0, 1, 1])
    near = hosts[:, None] == hosts[None, :]
    topology = lab.Topology.from_matrices(
        np.where(near, 0.01, 0.1), np.where(near, 2000.0, gbps), gpu="A100", hosts=[f"h{i}" for i in hosts]
    )
    estimate = BandwidthEstimate(BETWEEN, from_gbps(gbps), from_gbps(gbps), from_gbps(most_gbps))
    return replace(topology, estimates=(estimate,))


def test_systems_are_ranked_again_where_estimated_links_are_faster() -> None:
    job = lab.load_job("gpt2-medium", global_batch=16)
    found = lab.strategies(network(1.0, 1000.0), job, systems=["megatron", "fsdp"])
    fast = lab.strategies(network(1000.0, 1000.0), job, systems=["megatron", "fsdp"])
    assert "between hosts 1 Gbit/s (1 to 1,000)" in found.note
    assert f"{fast.best.title} " in found.note.partition("where they are as fast as they may be")[0]
    assert found.note in found.to_dict()["note"]


def test_measured_links_need_no_note() -> None:
    measured = replace(network(1.0, 1000.0), estimates=())
    assert lab.strategies(measured, lab.load_job("gpt2-medium", global_batch=16), systems=["fsdp"]).note == ""


def test_a_note_simulates_plans_that_were_tried_and_searches_nothing(monkeypatch) -> None:
    job = lab.load_job("gpt2-medium", global_batch=16)
    found = lab.strategies(network(1.0, 1000.0), job, systems="megatron")
    (megatron,) = found
    tried = (megatron.plan, *megatron.runners_up)
    shapes = [(one.job.n_stages, one.job.n_replicas, one.job.group_gpus) for one in tried]
    assert 1 < len(set(shapes)) == len(shapes) <= 1 + choosing.MOST_RUNNERS_UP
    assert all(memory(one).fits for one in megatron.runners_up)
    monkeypatch.setattr(choosing, "_branches", None)  # a search would fail
    there = [
        lab.simulate(one.changed(topology=at_their_ends(one.topology, most=True)), queueing="pairs").iteration_s
        for one in tried
    ]
    assert f"takes {format_s(min(there))} where they are as fast as they may be" in found.note
