"""A run with a secret: the residuals tell it, nothing else does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dtfm_lab import lab
from dtfm_lab.runtime.client.launch import FACTOR, draw, prepare, start_mystery
from dtfm_lab.runtime.protocol.run_options import RunOptions, RunSpec

PLAN = lab.evaluate("lecture-hall", "tiny", stages=[[0, 2], [4, 6]])


def test_secrets_are_devices_that_compute_and_links_that_carry_messages() -> None:
    spec = prepare(PLAN, "gpipe", RunOptions(iterations=1))
    drawn = {draw(spec, np.random.default_rng(seed)) for seed in range(200)}
    frame = lab.simulate(PLAN, "gpipe").to_frame()
    assert {secret.name for secret in drawn if secret.of == "link"} == set(frame["link"].unique()) - {""}
    assert {secret.name for secret in drawn if secret.of == "device"} == set(frame["device"].unique())
    real = prepare(PLAN, "gpipe", RunOptions(iterations=1, clock="real"))
    assert {draw(real, np.random.default_rng(seed)).of for seed in range(50)} == {"device"}, "links are real there"


def test_a_slow_worker_reaches_the_coordinator_in_a_specification_that_it_can_remember() -> None:
    spec = replace(prepare(PLAN, "gpipe", RunOptions(iterations=1)), slow_worker=(1, FACTOR))
    arrived = RunSpec.from_line(spec.to_line())
    assert arrived.slow_worker == (1, FACTOR)
    assert {arrived: "remembered"}[arrived] == "remembered"


@pytest.mark.parametrize("of", ["link", "device"])
def test_the_first_suspect_is_the_culprit_and_the_record_does_not_tell_it(of: str) -> None:
    pytest.importorskip("torch")
    spec = prepare(PLAN, "gpipe", RunOptions(iterations=1))
    seed = next(seed for seed in range(50) if draw(spec, np.random.default_rng(seed)).of == of)
    run, secret = start_mystery(PLAN, "gpipe", np.random.default_rng(seed), iterations=5)
    measured = run.wait()
    assert run.conditions == run.slowdowns == {}
    assert secret.name not in run._repr_html_() or of == "device"
    comparison = lab.compare(lab.simulate(PLAN, like=measured), measured)
    first = comparison.suspects.iloc[0]
    assert (first["of"], first["name"]) == (secret.of, secret.name)
    assert first["ratio"] == pytest.approx(FACTOR, rel=0.4)
