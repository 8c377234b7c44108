"""What the lab plans for: seconds, dollars or the communication cost, and what it leaves to the planner."""

from __future__ import annotations

import json

import pytest
from loops import on_a_loop, until
from plan_widgets import JOB, irregular

import dtfm_lab as lab
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import format_s
from dtfm_lab.planning import Cancellation

pytest.importorskip("anywidget", reason="needs the lab extra")

from dtfm_lab.widgets.lab_state import LabState, is_plan_of
from dtfm_lab.widgets.planner.plan_panel import PlanPanel
from dtfm_lab.widgets.planner.plan_words import headline, tables
from dtfm_lab.widgets.planner.short_searches import replanned


def a_panel(job: str = "tiny", network: str = "lecture-hall", **given: object) -> tuple[LabState, PlanPanel]:
    lab_state = LabState(topology=lab.load_topology(network))
    panel = PlanPanel(lab_state, lab.load_job(job, **given))
    return lab_state, panel


def test_what_a_job_leaves_open_stays_open_until_it_is_pinned():
    lab_state, panel = a_panel("gpt3-xl", "campus")
    panel.job_controls.microbatch.value = 0
    assert (panel.job_controls.shape.label, panel.job_controls.microbatch.label, panel.job_controls.schedule.label) == (
        "the planner chooses",
    ) * 3
    assert (lab_state.job.n_stages, lab_state.job.microbatch, lab_state.job.schedule) == (None, None, None)
    panel.job_controls.shape.value, panel.job_controls.microbatch.value, panel.job_controls.schedule.value = (
        (8, 4),
        2,
        "1f1b",
    )
    job = lab_state.job
    assert (job.n_stages, job.n_replicas, job.microbatch, job.schedule) == (8, 4, 2, "1f1b")
    panel.job_controls.shape.value = ()
    assert (lab_state.job.n_stages, lab_state.job.n_replicas) == (None, None)


def test_a_pinned_job_can_be_left_to_the_planner():
    lab_state, panel = a_panel(n_stages=4, n_replicas=2)
    assert panel.job_controls.shape.value == (4, 2)
    panel.job_controls.shape.value = ()
    assert not lab_state.job.shaped


def test_a_job_of_given_sizes_is_planned_for_the_communication_cost_only():
    lab_state = LabState(topology=irregular())
    panel = PlanPanel(lab_state, JOB)
    assert [name for _, name in panel.objective_controls.objective.options] == ["communication"]
    assert panel.objective_controls.objective.value == "communication"
    assert panel.objective_controls.options() == {"objective": "communication"}


def test_limits_count_but_for_the_communication_cost():
    _, panel = a_panel()
    aims = panel.objective_controls
    aims.max_price.value, aims.max_seconds.value = 3.0, 0.5
    assert aims.options()["max_price_per_hour"] == 3.0
    panel.objective_controls.objective.value = "communication"
    assert aims.options() == {"objective": "communication"}


@on_a_loop
async def test_a_plan_for_seconds_is_told_with_both_seconds_and_who_does_what():
    lab_state, panel = a_panel("small", seq_len=64)
    panel.job_controls.shape.value = ()
    panel.real.seconds.value = 0.5
    panel.redo()
    await until(lambda: lab_state.plan is not None)
    plan = lab_state.plan
    assert plan.objective == "iteration"
    assert not lab_state.plan_is_stale, "the job left open what the plan's names"
    assert panel.real.curve.noun == "iteration"
    assert "proven best" not in panel.real.curve.caption
    assert "iteration" in panel.note.value
    assert "communication cost" in panel.note.value
    assert panel.details.value.count("<tr>") == 2 + plan.job.n_stages + plan.job.n_replicas


def test_settings_of_the_objective_come_back():
    _, panel = a_panel()
    panel.objective_controls.objective.value = "price"
    panel.objective_controls.max_seconds.value = 2.5
    panel.job_controls.schedule.value, panel.job_controls.microbatch.value, panel.job_controls.shape.value = (
        "1f1b",
        1,
        (),
    )
    kept = json.loads(json.dumps(panel.settings()))
    _, other = a_panel()
    other.restore(kept)
    assert other.settings() == panel.settings()
    assert other.job_controls.shape.value == ()
    kept["objective"]["more"] = False
    _, third = a_panel()
    third.restore(kept)
    assert "max_iteration_s" not in third.objective_controls.options(), "a file of before had switched them off"


def a_plan(**options: object) -> Plan:
    return lab.plan("mixed-gpus", lab.load_job("gpt3-xl"), objective="iteration", seed=1, steps=2, **options)


def test_a_plan_is_of_a_job_that_leaves_things_open_and_of_no_other():
    plan, job = a_plan(), lab.load_job("gpt3-xl")
    assert is_plan_of(plan.job, job)
    assert is_plan_of(plan.job, plan.job)
    assert not is_plan_of(plan.job, job.with_fields(global_batch=512))
    assert not is_plan_of(plan.job, job.with_fields(n_stages=1, n_replicas=1))


def test_words_hold_for_every_plan():
    plan = a_plan()
    for one in (plan, lab.plan("worldwide", "dtfm-gpt3-xl", steps=1), lab.plan(irregular(), JOB, steps=1)):
        assert headline(one)
        assert (tables(one) == "") == (one.job.model is None)


def test_an_edit_is_followed_by_a_plan_for_the_same_objective():
    plan = a_plan()
    slower = plan.topology.scaled(bandwidth=0.5)
    found = replanned(plan, slower, lab.load_job("gpt3-xl"), Cancellation())
    assert found.plan.objective == "iteration"
    assert found.plan.iteration_s is not None
    took = [format_s(seconds) for seconds in (plan.iteration_s, found.plan.iteration_s)]
    assert found.words.startswith((f"{took[0]} → {took[1]}. ", f"Stays {took[1]}. "))
    again = replanned(found.plan, slower, found.plan.job, Cancellation())
    assert again.plan.stages == found.plan.stages
    assert again.words == f"Stays {took[1]}. The plan stays."
