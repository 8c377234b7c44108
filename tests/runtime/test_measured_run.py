"""Real workers on a network that was timed at several sizes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from run_helpers import small_plan

import dtfm_lab as lab
from dtfm_lab.domain.network import Links
from dtfm_lab.domain.schedule import Kind


def test_messages_of_a_real_run_take_what_was_measured_and_are_predicted_so():
    plan = small_plan(2, 2)
    size = plan.job.activation_bytes
    table = 0.003 + np.cumsum(np.random.default_rng(0).uniform(0.01, 0.05, (4, 4, 3)), axis=2)
    topology = replace(plan.topology, message_bytes=[size / 2, size, 64 * size], message_s=table)
    plan = replace(plan, topology=topology)
    measured = lab.run(plan, "1f1b", iterations=2, clock="virtual")
    predicted = lab.simulate(plan, like=measured)
    rows = lab.compare(predicted, measured).rows
    messages = rows[rows["lane"] != "compute"]
    assert messages["duration_s_error"].abs().max() < 1e-9
    forwards = messages[(messages["kind"] == Kind.SEND_F) & (messages["replica"] == 1)]
    here, there = plan.placement.devices[:, 1]
    took_s = forwards["end_s_measured"] - forwards["start_s_measured"]
    assert took_s.to_numpy() == pytest.approx(Links.of(topology).moving_s(here, there, size))
    assert took_s.to_numpy() == pytest.approx(table[here, there, 1] - topology.latency_s[here, there])
