"""A calibration is a factor on what the lab says of a GPU, so it holds for micro-batches that were not measured."""

import numpy as np
import pytest

import dtfm_lab as lab
from dtfm_lab.costs.efficiency import ShareFactor
from dtfm_lab.domain.job import Job, gpt
from dtfm_lab.domain.network import Topology
from dtfm_lab.planning.evaluate import evaluate
from dtfm_lab.simulation.simulate import iteration_seconds

WIDE = gpt(n_layers=2, d_model=2304, n_heads=24, seq_len=2048, vocab_size=51200)


def test_a_calibration_carries_over_to_other_micro_batches():
    """One measured iteration, of a machine that reaches nine tenths of what the lab says, tells all others."""
    pair = Topology.from_matrices(np.zeros((2, 2)), np.full((2, 2), 100.0), gpu="A100", name="pair")
    sizes = {"n_stages": 1, "n_replicas": 2, "global_batch": 8}
    jobs = [Job(model=WIDE, microbatch=microbatch, **sizes) for microbatch in (1, 4)]
    plans = [evaluate(pair, job, stages=[[0, 1]]) for job in jobs]
    measured_s = [iteration_seconds(plan, efficiency=ShareFactor(0.9)) for plan in plans]
    calibration = lab.published.calibrate([(plans[0], measured_s[0])])
    assert calibration.factor == pytest.approx(0.9, rel=1e-4)
    assert calibration.spread > 0
    assert lab.simulate(plans[1], efficiency=calibration).iteration_s == pytest.approx(measured_s[1], rel=1e-4)
