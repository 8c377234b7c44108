"""A run trains what one process would train, and takes as long as predicted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from run_helpers import lecture_hall_plan
from training_alone import train_alone

import dtfm_lab as lab
from dtfm_lab.runtime.client.launch import start

STEPS = 20


@pytest.mark.parametrize(
    ("n_stages", "n_replicas", "schedule", "dtype"),
    [(2, 4, "gpipe", "fp64"), (4, 2, "1f1b", "fp32")],
    ids=["2x4 gpipe", "4x2 1f1b"],
)
def test_twenty_steps_equal_one_process_and_the_prediction_holds(
    n_stages: int, n_replicas: int, schedule: str, dtype: str, tmp_path: Path
) -> None:
    """Every schedule in both precisions, on a smaller model: ``test_equality``."""
    losses, parameters = train_alone(lab.load_job("tiny", dtype=dtype), STEPS)
    plan = lecture_hall_plan(n_stages, n_replicas, dtype=dtype)
    run = start(plan, schedule, iterations=STEPS, parameters_folder=tmp_path)
    measured = run.wait()
    assert measured.context.losses == pytest.approx(losses, abs=1e-9 if dtype == "fp64" else 1e-5)
    trained = {n: a for s in range(n_stages) for n, a in np.load(tmp_path / f"stage-{s}.npz").items()}
    assert trained.keys() == parameters.keys()
    if dtype == "fp64":
        for name, wanted in parameters.items():
            np.testing.assert_allclose(trained[name], wanted, atol=1e-9, rtol=0, err_msg=name)
    for stage in range(n_stages):
        assert len({run.parameter_digests[stage, replica] for replica in range(n_replicas)}) == 1, "replicas differ"

    comparison = lab.compare(lab.simulate(plan, like=measured), measured)
    print(f"{plan!r} {schedule} {dtype}: error {comparison.iteration_error:+.2%}")
    assert abs(comparison.iteration_error) < 0.06
    assert len(comparison.rows) == len(measured)


def test_losses_fall_on_real_text() -> None:
    losses = lab.run(lecture_hall_plan(4, 2), iterations=12).context.losses
    assert losses[0] == pytest.approx(np.log(256), abs=0.1), "an untrained model guesses bytes evenly"
    assert losses[-1] < 0.7 * losses[0]


def test_a_users_own_text_is_trained_on(tmp_path: Path) -> None:
    text = tmp_path / "own.txt"
    text.write_bytes(b"ab" * 500)
    losses = lab.run(lecture_hall_plan(4, 2), iterations=20, text=text).context.losses
    assert losses[-1] < np.log(2), "better than guessing one of two letters"
