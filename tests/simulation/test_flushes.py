"""GPipe that empties its pipeline after every so many micro-batches."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import equal, even, passes_of, plan_of

from dtfm_lab.domain.errors import JobError, ScheduleError
from dtfm_lab.simulation import build, memory, simulate
from dtfm_lab.simulation.engine import simulate_iteration
from dtfm_lab.simulation.schedules import schedules
from dtfm_lab.simulation.schedules.builtin import peak_activations

sizes = st.tuples(st.integers(1, 6), st.integers(1, 12), st.integers(1, 14))
seconds = st.floats(0.1, 5)


@given(sizes, seconds, seconds)
@settings(max_examples=40, deadline=None)
def test_on_free_links_every_flush_costs_the_pipeline_s_bubble_again(size, forward_s, backward_s):
    """Of ceil(M / k) groups each fills and drains: M + ceil(M / k) (S - 1) forwards and backwards."""
    n_stages, n_microbatches, every = size
    plan = plan_of(n_stages, n_microbatches)
    built = schedules["gpipe"](n_stages, n_microbatches, flush_every=every)
    found = simulate_iteration(plan, built, equal(plan, forward_s, backward_s), even(n_stages))
    passes = n_microbatches + math.ceil(n_microbatches / every) * (n_stages - 1)
    assert found.makespan_s == pytest.approx(passes * (forward_s + backward_s))


@given(sizes)
@settings(max_examples=40, deadline=None)
def test_a_device_holds_as_many_activations_as_go_between_flushes(size):
    n_stages, n_microbatches, every = size
    built = schedules["gpipe"](n_stages, n_microbatches, flush_every=every)
    assert set(built) == passes_of(built, n_microbatches)
    assert peak_activations(built) == (min(every, n_microbatches),) * n_stages


@given(st.integers(1, 6), st.integers(1, 12), st.integers(0, 3))
@settings(max_examples=20, deadline=None)
def test_one_flush_after_all_microbatches_is_gpipe(n_stages, n_microbatches, more):
    flushed = schedules["gpipe"](n_stages, n_microbatches, flush_every=n_microbatches + more)
    assert flushed == schedules["gpipe"](n_stages, n_microbatches)


def test_a_job_is_simulated_with_its_flushes_and_holds_less():
    plain, flushed = plan_of(3, 8, d_model=5), plan_of(3, 8, d_model=5, flush_every=2)
    assert build(flushed, "gpipe") == schedules["gpipe"](3, 8, flush_every=2)
    assert simulate(flushed).iteration_s > simulate(plain).iteration_s
    assert (memory(flushed).peak_bytes < memory(plain).peak_bytes).all()


def test_another_schedule_than_gpipe_is_refused():
    with pytest.raises(JobError, match="flush_every is 2 with schedule '1f1b'; wanted gpipe"):
        plan_of(2, 4, flush_every=2, schedule="1f1b")
    with pytest.raises(ScheduleError, match="schedule 1f1b knows no flush_every, which is 2; wanted gpipe"):
        simulate(plan_of(2, 4, flush_every=2), "1f1b")
    with pytest.raises(ScheduleError, match="flush_every is 0; wanted a whole number from 1"):
        schedules["gpipe"](2, 4, flush_every=0)
