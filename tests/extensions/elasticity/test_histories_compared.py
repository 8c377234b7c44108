"""Predicted and measured hours side by side."""

from dataclasses import replace

import pytest

import dtfm_lab as lab
from dtfm_lab.domain.errors import TraceError
from dtfm_lab.extensions.elasticity.history import History, TimeUse

TABLE = {n: 10.0 * n for n in range(1, 9)}


def played(**options: float) -> History:
    availability = lab.Availability.sampled(
        lab.load_topology("lecture-hall"), 3600.0, mean_life_s=900.0, mean_absence_s=600.0, seed=1
    )
    return lab.replay(TABLE, 80.0, availability, "oobleck", bound=False, **options)


def test_a_history_beside_itself_differs_in_nothing() -> None:
    history = played()
    found = lab.compare(history, history)
    assert found.goodput_error == found.pace_error == found.time_error == 0
    frame = found.to_frame()
    assert (frame.start_s[1:].to_numpy() == frame.end_s[:-1].to_numpy()).all()
    assert frame.predicted_steps.sum() == history.steps.sum()
    for state in (TimeUse.TRAINING, TimeUse.REDONE, TimeUse.RECONFIGURING, TimeUse.IDLE):
        column = frame[f"measured_{state.name.lower()}_s"]
        assert column.sum() == pytest.approx(history.seconds[state.name.lower()])


def test_the_errors_of_pace_and_time_multiply_to_that_of_the_goodput() -> None:
    predicted, measured = played(), played(regroup_s=60.0)
    fewer = tuple(replace(one, samples=one.samples * 0.9) for one in predicted.operations)
    slower = lab.compare(predicted, replace(predicted, operations=fewer))
    assert (slower.pace_error, slower.goodput_error) == pytest.approx((-0.1, -0.1))
    found = lab.compare(predicted, measured)
    assert (1 + found.pace_error) * (1 + found.time_error) == pytest.approx(1 + found.goodput_error)
    assert found.time_error < 0
    assert "predicted" in found.text
    changes = found.to_frame()
    assert (changes.measured_reconfiguring_s >= changes.predicted_reconfiguring_s - 1e-6).mean() > 0.5


def test_other_hours_are_refused() -> None:
    history = played()
    with pytest.raises(TraceError, match="wanted the same hours"):
        lab.compare(history, lab.replay(TABLE, 80.0, history.availability.until(1800.0), "oobleck", bound=False))
