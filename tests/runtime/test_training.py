"""A run trains what one process would train, and takes as long as predicted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from run_helpers import lecture_hall_plan
from training_alone import train_alone

import dtfm_lab as lab
from dtfm_lab.runtime.client.launch import start

STEPS = 12


def test_a_run_equals_one_process_learns_and_sends_for_as_long_as_was_predicted(tmp_path: Path) -> None:
    """On a model that learns; every schedule in both precisions, on a smaller one: ``test_equality``."""
    losses, parameters = train_alone(lab.load_job("tiny", dtype="fp64"), STEPS)
    plan = lecture_hall_plan(4, 2, dtype="fp64")
    run = start(plan, "1f1b", iterations=STEPS, parameters_folder=tmp_path)
    measured = run.wait()
    assert measured.context.losses == pytest.approx(losses, abs=1e-9)
    trained = {n: a for stage in range(4) for n, a in np.load(tmp_path / f"stage-{stage}.npz").items()}
    assert trained.keys() == parameters.keys()
    for name, wanted in parameters.items():
        np.testing.assert_allclose(trained[name], wanted, atol=1e-9, rtol=0, err_msg=name)
    for stage in range(4):
        assert len({run.parameter_digests[stage, replica] for replica in range(2)}) == 1, "replicas differ"
    assert losses[0] == pytest.approx(np.log(256), abs=0.1), "an untrained model guesses bytes evenly"
    assert losses[-1] < 0.7 * losses[0]

    comparison = lab.compare(lab.simulate(plan, like=measured), measured)
    print(f"{plan!r}: error {comparison.iteration_error:+.2%}")  # of computations, which a crowded machine slows
    assert len(comparison.rows) == len(measured)
    messages = comparison.rows[comparison.rows["lane"] != "compute"]
    assert messages["duration_s_error"].abs().max() < 1e-9


def test_a_users_own_text_is_trained_on(tmp_path: Path) -> None:
    text = tmp_path / "own.txt"
    text.write_bytes(b"ab" * 500)
    losses = lab.run(lecture_hall_plan(4, 2), iterations=20, text=text).context.losses
    assert losses[-1] < np.log(2), "better than guessing one of two letters"
