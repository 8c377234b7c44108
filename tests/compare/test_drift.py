"""Since when an iteration leaves its prediction, and whether that grows."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from measured_traces import lecture_hall_plan, measured

from dtfm_lab.compare import compare
from dtfm_lab.compare.drift import SHARE
from dtfm_lab.simulation.simulate import simulate

PLAN = lecture_hall_plan()
PREDICTED = simulate(PLAN, "1f1b")
PAIR = lecture_hall_plan([[0], [1]], n_stages=2, n_replicas=1, global_batch=8)
SMALL = simulate(PAIR, "1f1b")
"""Of two devices, where only the seconds of whole iterations count."""


def test_a_run_as_predicted_does_not_drift():
    found = compare(PREDICTED, measured(PLAN)).drift
    assert found.devices.empty
    assert found.threshold_s == pytest.approx(SHARE * PREDICTED.iteration_s)
    assert not found.grows
    assert "every action ends within" in found.sentence


@given(st.floats(0.1, 0.9))
def test_drift_begins_with_the_first_action_that_ends_late(share):
    """Everything from some moment on is late by twice the threshold."""
    ran = measured(PLAN, iterations=3)
    late_s = 2 * SHARE * PREDICTED.iteration_s
    after = ran.end_s > share * PREDICTED.iteration_s
    found = compare(PREDICTED, replace(ran, end_s=ran.end_s + late_s * after)).drift
    first = found.devices.iloc[0]
    assert first["late_s"] == pytest.approx(late_s)
    assert first["at_s"] == pytest.approx(ran.end_s[after].min() + late_s)
    assert (found.iterations["at_s"] == first["at_s"]).all()
    assert f"when {first['action']}" in found.sentence


def test_every_device_leaves_the_prediction_at_its_own_time():
    found = compare(PREDICTED, measured(PLAN, slow={(3, 0): 2.0})).drift
    assert found.devices.iloc[0][["stage", "replica", "device"]].tolist() == [3, 0, PLAN.device_names[3][0]]
    assert found.devices["device"].is_unique
    assert found.devices["at_s"].is_monotonic_increasing


@pytest.mark.parametrize("per_iteration_s", [-0.01, 0.01])
def test_an_error_that_grows_from_iteration_to_iteration_is_told(per_iteration_s):
    ran = measured(PLAN, iterations=6)
    last = ran.end_s == np.array([ran.end_s[ran.iteration == i].max() for i in ran.iteration])
    ran = replace(ran, end_s=ran.end_s + (0.1 + per_iteration_s * ran.iteration) * last)
    found = compare(PREDICTED, ran).drift
    assert found.growth_s.value == pytest.approx(per_iteration_s)
    assert found.grows
    assert (
        f"each iteration ends 10 ms {'later' if per_iteration_s > 0 else 'earlier'} than the one before"
        in found.sentence
    )


@pytest.mark.parametrize("seed", range(3))
def test_noise_does_not_grow(seed):
    assert not compare(PREDICTED, measured(PLAN, noise=0.05, iterations=8, seed=seed)).drift.grows


@cache
def exact_run(n_iterations):
    return measured(PAIR, iterations=n_iterations)


def with_errors(errors_s):
    """A run whose iterations end so many seconds later than predicted."""
    ran = exact_run(len(errors_s))
    ends_s = np.array([ran.end_s[ran.iteration == i].max() for i in ran.iteration])
    return replace(ran, end_s=ran.end_s + np.asarray(errors_s)[ran.iteration] * (ran.end_s == ends_s))


@pytest.mark.parametrize("n_iterations", [6, 24])
@pytest.mark.parametrize("begins", [2, 3, 4])
@given(share=st.floats(0.05, 1.0), seed=st.integers(0, 1000), way=st.sampled_from([-1, 1]))
@settings(max_examples=6)
def test_a_slowdown_in_the_middle_of_a_run_is_told_with_its_iteration(n_iterations, begins, share, seed, way):
    step_s = way * share * SMALL.iteration_s
    errors_s = 2 * SMALL.iteration_s + step_s * (np.arange(n_iterations) >= begins)
    noise_s = 0.002 * SMALL.iteration_s * np.random.default_rng(seed).standard_normal(n_iterations)
    found = compare(SMALL, with_errors(errors_s + noise_s)).drift
    first, *more = found.shifts
    assert first.iteration == begins
    assert first.by_s == pytest.approx(step_s, rel=0.1)
    assert not more
    assert not found.grows
    how = "longer" if way > 0 else "shorter"
    assert f"from iteration {begins} on" in found.sentence
    assert f"{how} than before" in found.sentence


def test_a_shift_below_the_threshold_is_none_however_sure():
    for times, n_shifts in ((0.5, 0), (2.0, 1)):
        step_s = times * compare(SMALL, exact_run(12)).drift.threshold_s
        found = compare(SMALL, with_errors(step_s * (np.arange(12) >= 6))).drift
        assert len(found.shifts) == n_shifts


def test_a_device_that_is_slow_for_a_while_shifts_the_error_twice():
    errors_s = 0.2 * np.array([0, 0, 0, 0, 1, 1, 1, 1, 1, 0, 0, 0, 0])
    found = compare(SMALL, with_errors(errors_s)).drift
    assert [shift.iteration for shift in found.shifts] == [4, 9]
    assert [shift.by_s for shift in found.shifts] == pytest.approx([0.2, -0.2])
    assert "from iteration 4 on 200 ms longer than before, from iteration 9 on 200 ms shorter" in found.sentence


@pytest.mark.slow
@given(st.integers(8, 30), st.integers(0, 1000), st.sampled_from([-0.02, 0.02]))
def test_what_grows_by_as_much_each_time_is_no_shift(n_iterations, seed, per_iteration):
    per_iteration_s = per_iteration * SMALL.iteration_s
    noise_s = 0.002 * SMALL.iteration_s * np.random.default_rng(seed).standard_normal(n_iterations)
    errors_s = SMALL.iteration_s + per_iteration_s * np.arange(n_iterations) + noise_s
    found = compare(SMALL, with_errors(errors_s)).drift
    assert found.grows
    assert not found.shifts
    assert "than the one before" in found.sentence


@pytest.mark.slow
def test_noise_alone_is_seldom_a_drift():
    rng = np.random.default_rng(0)
    told = 0
    for _ in range(100):
        errors_s = SMALL.iteration_s * (1 + 0.03 * rng.standard_normal(8))
        found = compare(SMALL, with_errors(errors_s)).drift
        told += bool(found.shifts)
        if not (found.shifts or found.grows):
            assert "over 8 iterations the error stays the same, within noise" in found.sentence
    assert told <= 3


def test_two_iterations_do_not_say_whether_anything_grows():
    found = compare(PREDICTED, measured(PLAN, slow={(0, 0): 1.5}, iterations=2)).drift
    assert found.growth_s.high == np.inf
    assert found.summary()["growth_s"]["high"] is None
    assert "iterations" not in found.sentence
