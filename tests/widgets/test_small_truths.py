"""Smaller truths: pins, suspects, plans of other panes, progress, and an edit while something else is searched for."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from loops import until

import dtfm_lab as lab
from dtfm_lab.runtime.client.run_report import describe_profiling
from dtfm_lab.widgets.comparing.findings import tiles_of
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.planner.replanning import LiveReplanning
from dtfm_lab.widgets.what_if.setting import WhatIfSetting
from dtfm_lab.widgets.what_if.setting_controls import Pins


@pytest.fixture
def state() -> LabState:
    topology, job = lab.load_topology("lecture-hall"), lab.load_job("tiny").with_fields(n_stages=4, n_replicas=2)
    plan = lab.plan(topology, job, steps=1)
    return LabState(topology=topology, job=job, plan=plan, schedule=plan.job.schedule_name)


def test_a_pin_means_the_same_links_after_the_network_was_scaled(state) -> None:
    base = WhatIfSetting.of(state.plan, state.schedule, state.queueing)
    pins = Pins(lambda setting: None, lambda: None)
    pins.add(base.with_values(bandwidth=0.25), base)
    pins.add(base, base)
    pins.rescale({"bandwidth": 0.25, "latency": 1.0}, base)
    taken, before = pins.pins
    assert (taken.setting.values["bandwidth"], taken.name) == (1.0, "the plan")
    assert before.setting.values["bandwidth"] == 4.0
    assert before.name != "the plan"
    scaled = state.topology.scaled(bandwidth=0.25).scaled(bandwidth=4.0)
    assert scaled.bandwidth_bytes_per_s[0, 1] == pytest.approx(state.topology.bandwidth_bytes_per_s[0, 1])


def test_an_error_in_its_interval_is_no_alarm(state) -> None:
    predicted = lab.simulate(state.plan)
    slow = state.topology.with_link(0, 1, bandwidth_gbps=0.02).with_link(2, 3, bandwidth_gbps=0.01)
    measured = lab.simulate(lab.evaluate(slow, state.plan.job, stages=state.plan.stages), state.schedule)
    comparison = lab.compare(predicted, measured)
    same = lab.compare(predicted, predicted)
    assert not tiles_of(same)[0].is_alarming
    error = tiles_of(comparison)[0]
    assert not (error.is_alarming and comparison.is_inside)


def test_a_better_plan_of_another_pane_becomes_the_labs_and_a_worse_one_does_not(state) -> None:
    state.takes_offers = True
    own = state.plan = replace(state.plan, iteration_s=2 * state.plan.iteration_s)
    better = replace(own, iteration_s=own.iteration_s * 0.9)
    assert not state.offer(replace(own, iteration_s=own.iteration_s * 1.1), "Systems")
    assert not state.offer(replace(better, objective="price"), "Systems")
    assert state.plan is own
    assert state.offer(better, "Systems")
    assert (state.plan, state.hand_note) == (better, "Systems found a plan that is 10 % better.")
    state.job = state.job.with_fields(global_batch=2 * state.job.global_batch)
    assert not state.offer(replace(better, iteration_s=own.iteration_s / 2), "Systems"), "of another job"


@pytest.mark.parametrize(("profiled", "words"), [((0, 0), "1 of 1"), ((0, 5), "1 of 5"), ((4, 4), "4 of 4")])
def test_profiling_is_counted_alike_everywhere(profiled, words) -> None:
    assert describe_profiling(SimpleNamespace(profiled=profiled)) == f"profiling {words}"


async def test_an_edit_during_a_search_that_was_asked_for_is_planned_for_once_that_ends(state) -> None:
    LiveReplanning(state)
    state.set_busy("plan", True)
    before = state.plan
    state.topology = state.topology.with_link(0, 1, bandwidth_gbps=0.01)
    assert state.plan is before
    state.set_busy("plan", False)
    await until(lambda: not state.plan_is_stale)
