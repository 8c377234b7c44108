"""One word says what a prediction rests on, and why where it is a guess."""

import re

import numpy as np
import pytest

from dtfm_lab.costs.basis import basis_of
from dtfm_lab.costs.efficiency import ShareFactor
from dtfm_lab.domain.job import Job, gpt
from dtfm_lab.domain.job.model.families import with_adapters
from dtfm_lab.domain.network import Device, Topology
from dtfm_lab.domain.network.estimate import BETWEEN, BandwidthEstimate
from dtfm_lab.domain.plan import Plan
from dtfm_lab.planning.evaluate import evaluate

WIDE = gpt(name="wide", n_layers=24, d_model=2304, n_heads=24, seq_len=2048, vocab_size=51200)


def planned(n_hosts: int = 2, *, gpu: str = "A100", gpus: int = 1, model: object = WIDE, **network: object) -> Plan:
    devices = tuple(Device(name=f"d{i}", gpu=gpu, host=f"h{i}", gpus=gpus) for i in range(n_hosts))
    bandwidth = np.full((n_hosts, n_hosts), 1e10)
    topology = Topology(devices, np.where(np.eye(n_hosts), 0.0, 1e-5), bandwidth, name="hosts", **network)
    job = Job(
        name="j", model=model, n_stages=1, n_replicas=n_hosts, global_batch=n_hosts, microbatch=1, tensor_parallel=gpus
    )
    return evaluate(topology, job, rank_map=list(range(n_hosts)))


def test_what_was_tested_is_modelled():
    assert basis_of(planned()) == ("modelled", "")


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        (planned(gpu="RTX 3060"), "share of its peak RTX 3060 reaches"),
        (
            planned(16),
            "between more than 8 hosts varied by a factor of six .* this one of 16 hosts states no link_spread",
        ),
        (planned(gpus=12), "groups of 12 GPUs share a layer; up to 8 were tested"),
        (
            planned(model=gpt(name="s", n_layers=2, d_model=2304, n_heads=24, seq_len=64, vocab_size=512)),
            "the model has 129 million parameters; 1 to 1,100 billion were tested",
        ),
        (
            planned(estimates=(BandwidthEstimate(BETWEEN, 1e10, 1e9, 4e11),)),
            r"bandwidths are estimates: between hosts 80 Gbit/s \(8 to 3,200\)",
        ),
    ],
    ids=["gpu", "hosts", "tensor", "model", "links"],
)
def test_what_nobody_tested_is_guessed_and_why_is_said(plan: Plan, says: str):
    word, because = basis_of(plan)
    assert word == "guessed"
    assert re.search(says, because), because


def test_frozen_parameters_count_too():
    assert basis_of(planned(model=with_adapters(WIDE, 16))).word == "modelled"


def test_links_that_were_corrected_are_no_estimates():
    assert basis_of(planned(estimates=(BandwidthEstimate(BETWEEN, 2e10, 1e9, 4e11),))).word == "modelled"


def test_a_network_that_says_how_sure_it_is_is_no_guess_on_many_hosts():
    assert basis_of(planned(16, link_spread=0.5)).word == "modelled"


def test_what_you_measured_calibrates_any_gpu():
    assert basis_of(planned(gpu="RTX 3090"), ShareFactor(0.9)).word == "calibrated"
    assert basis_of(planned(gpu="RTX 3090"), 0.3) == ("guessed", "the efficiency is a number of yours")
