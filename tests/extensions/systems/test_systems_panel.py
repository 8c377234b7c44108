"""The pane Systems: asked beside the page, looked at, taken and put back."""

from __future__ import annotations

from dataclasses import replace

import pytest
from loops import until
from own_strategy import Nowhere

import dtfm_lab as lab
from dtfm_lab.domain.job import Job
from dtfm_lab.extensions.systems.api import Outcomes, outcome_of, work_of
from dtfm_lab.extensions.systems.pane import SystemsPanel
from dtfm_lab.extensions.systems.pane.outcome_words import outcome_html, rows_of
from dtfm_lab.extensions.systems.pane.question import tasks_of
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.planner.job_controls import JobControls
from dtfm_lab.widgets.views.systems import SystemsView

NAMES = ("dtfm-lab", "megatron")


def a_panel(network: str = "lecture-hall", job: str = "tiny", names: tuple[str, ...] = NAMES) -> SystemsPanel:
    lab_state = LabState(topology=lab.load_topology(network))
    controls = JobControls(lab_state, lab.load_job(job))
    lab_state.plan = lab.plan(lab_state.topology, lab_state.job, seconds=0.1)
    panel = SystemsPanel(lab_state, controls.take_exactly, names)
    panel.seconds.value = 0.1
    return panel


async def asked(panel: SystemsPanel) -> Outcomes:
    panel.start.click()
    await until(lambda: panel.asking is None)
    assert panel.outcomes is not None
    return panel.outcomes


async def test_rows_are_the_outcomes_the_fastest_first_and_causes_add_up():
    panel = a_panel()
    panel.start.click()
    assert [row["name"] for row in panel.bars.rows] == list(NAMES), "all are listed at once"
    assert panel.start.disabled
    assert not panel.stop.disabled
    await until(lambda: panel.asking is None)
    rows = panel.bars.rows
    assert {row["name"] for row in rows} == set(NAMES)
    assert [row["seconds"] for row in rows] == sorted(row["seconds"] for row in rows)
    assert rows[0]["times"] == 1.0
    for row in rows:
        assert sum(seconds for _, seconds in row["parts"]) == pytest.approx(row["seconds"])
        assert row["ours"] == (row["name"] == "dtfm-lab")
    assert panel.bars.caption == panel.outcomes.sentence
    assert "Megatron-LM" in panel.bars.alt_text()
    assert panel.start.description == "Ask again"


def test_our_own_system_says_what_the_job_fixes_in_the_labs_plan():
    job = lab.load_job("small")
    outcome = lab.strategies("lecture-hall", job, systems=["dtfm-lab"], steps=1)["dtfm-lab"]
    shape = (2, 4) if outcome.job.n_stages == 4 else (4, 2)
    fixed = job.with_fields(n_stages=shape[0], n_replicas=shape[1], microbatch=outcome.job.microbatch * 2)
    said = f"The job fixes {shape[0]} x {shape[1]} in micro-batches of {fixed.microbatch}, and lab.plan keeps that"
    assert said in outcome_html(outcome, fixed)
    as_chosen = {name: getattr(outcome.job, name) for name in ("n_stages", "n_replicas", "microbatch")}
    for same in (fixed.with_fields(n_stages=None, n_replicas=None, microbatch=None), fixed.with_fields(**as_chosen)):
        assert "The job fixes" not in outcome_html(outcome, same)


async def test_what_was_found_before_stop_is_kept():
    panel = a_panel(names=(*NAMES, *(name for name in lab.systems.strategies if name not in NAMES)))
    panel.seconds.value = 0.5
    panel.start.click()
    panel.stop.click()
    assert panel.stop.disabled
    await until(lambda: panel.asking is None)
    assert len(panel.outcomes) >= 1
    assert [row["name"] for row in panel.bars.rows] == [one.strategy.name for one in panel.outcomes]


async def test_a_plan_is_on_the_network_while_its_pane_is_shown_taken_with_its_job_and_put_back():
    panel = a_panel()
    state = panel._lab_state
    before = state.plan, state.job
    outcomes = await asked(panel)
    panel.bars.chosen = "megatron"
    plan = outcomes["megatron"].plan
    assert state.shown_tasks == {
        name: [stage, replica] for stage, names in enumerate(plan.stages) for replica, name in enumerate(names)
    }
    assert tasks_of(plan, lab.load_topology("campus")) == {}, "it is of another network"
    assert "Megatron-LM" in state.note_of("systems")
    state.shown_panes = ("schedule",)
    assert (state.shown_tasks, state.note_of("systems")) == ({}, "")
    state.shown_panes = ("systems",)
    assert state.shown_tasks
    panel.take.click()
    assert state.plan is plan
    assert state.job == state.plan.job
    assert not state.plan_is_stale
    assert not panel.staleness(state), "it is still what was asked about"
    assert [row["name"] for row in panel.bars.rows if row.get("taken")] == ["megatron"]
    assert panel.take.disabled
    assert state.shown_tasks == {}, "the lab shows its own plan"
    panel.back.click()
    assert (state.plan, state.job) == before
    assert not state.plan_is_stale
    assert panel.back.layout.display == "none"


async def test_a_plan_of_groups_draws_its_groups_and_its_gpus_are_asked_about_again():
    panel = a_panel("shared-nics", "gpt3-xl", ("megatron",))
    state = panel._lab_state
    gpus, plan_before = state.topology, state.plan
    outcomes = await asked(panel)
    job = work_of(state.job).with_fields(
        tensor_parallel=4, n_stages=2, n_replicas=4, microbatch=1, schedule="1f1b", checkpointing="block"
    )
    grouped = lab.evaluate(gpus.grouped(4), job, rank_map=range(8)).changed(iteration_s=1.0)
    panel._take_outcomes(replace(outcomes, outcomes=(replace(outcomes["megatron"], found=grouped),)))
    panel.bars.chosen = "megatron"
    assert len(state.shown_tasks) == len(gpus), "each GPU of a group has its stage"
    panel.take.click()
    assert state.message == ""
    assert state.plan is grouped
    assert state.topology.fingerprint == grouped.topology.fingerprint
    assert not state.plan_is_stale
    await asked(panel)
    assert len(panel.outcomes.topology) == len(gpus)
    panel.back.click()
    assert state.topology is gpus
    assert state.plan is plan_before


async def test_why_is_explained_when_it_is_asked_for():
    panel = a_panel()
    outcomes = await asked(panel)
    panel.bars.chosen = "megatron"
    assert panel.why.explaining is None, "only where it is looked at"
    panel.part.value = "Why"
    assert panel.why.explaining is not None
    await until(lambda: panel.why.explaining is None)
    assert "Megatron-LM takes" in panel.why.view.value
    assert "saves" in panel.why.view.value
    told = panel.why.view.value
    panel.bars.chosen = "dtfm-lab"
    panel.bars.chosen = "megatron"
    assert panel.why.explaining is None, "it is known already"
    assert panel.why.view.value == told
    assert outcomes["megatron"] in panel.why.known


async def test_only_the_system_whose_assumption_changes_is_asked_again():
    panel = a_panel()
    edits = []
    panel.observe_edits(lambda: edits.append(1))
    before = await asked(panel)
    panel.bars.chosen = "megatron"
    panel.assumptions.by_field["transport"].value = "overlapped"
    await until(lambda: panel.asking is None)
    after = panel.outcomes
    assert edits
    assert after["dtfm-lab"] is before["dtfm-lab"]
    changed = panel._outcome("megatron")
    assert changed.strategy == lab.systems.variant("megatron", transport="overlapped")
    assert changed.title in [row["title"] for row in panel.bars.rows]
    assert panel.bars.chosen == "megatron", "it stays chosen"
    panel.assumptions.reset.click()
    await until(lambda: panel.asking is None)
    assert panel._outcome("megatron").iteration_s == before["megatron"].iteration_s
    assert panel.settings()["assumptions"] == {}


async def test_an_edit_makes_the_outcomes_stale_and_nothing_is_asked_by_itself():
    panel = a_panel()
    state = panel._lab_state
    await asked(panel)
    panel.bars.chosen = "megatron"
    state.topology = state.topology.scaled(bandwidth=0.5)
    assert panel.staleness(state)
    assert panel.bars.stale
    assert panel.take.disabled
    assert state.shown_tasks == {}
    panel.assumptions.by_field["transport"].value = "overlapped"
    assert panel.asking is None
    await asked(panel)
    assert not panel.bars.stale
    assert panel._outcome("megatron").strategy.transport == "overlapped"


async def test_settings_are_restored_and_impossible_ones_ignored():
    panel, other = a_panel(), a_panel()
    panel.seconds.value, panel.seed.value, panel.part.value = 0.7, 3, "Why"
    await asked(panel)
    panel.bars.chosen = "megatron"
    panel.assumptions.by_field["transport"].value = "overlapped"
    saved = panel.settings()
    other.restore(saved)
    assert other.settings() == saved
    assert other.asking is None
    assert [one.label for one in other.systems] == ["dtfm-lab", "megatron (transport overlapped)"]
    other.restore({"seconds": -1, "assumptions": {"megatron": {"transport": "by pigeon"}, "nobody": {}, "dtfm-lab": 3}})
    assert other.seconds.value == 0.7
    assert other.settings()["assumptions"] == {}
    await until(lambda: panel.asking is None)


def test_a_system_without_a_plan_says_why_and_one_that_changes_the_training_says_how():
    topology, job = lab.load_topology("lecture-hall"), lab.load_job("tiny")
    none = outcome_of(Nowhere(), topology, job)
    found = outcome_of(lab.systems.variant("megatron"), topology, job)
    outcomes = Outcomes(topology=topology, job=job, outcomes=(none, found))
    rows = rows_of(outcomes, [Nowhere()], None)
    assert [row["name"] for row in rows] == ["megatron", "nowhere"]
    assert rows[1]["reason"] == "it wants $1 and <b>more</b> than there is"
    view = SystemsView()
    view.show([rows[0] | {"mathematics": "averages never"}, rows[1]])
    assert "† averages never" in view.alt_text()
    assert "has no plan: it wants $1 and <b>more</b> than there is" in view.alt_text()


def test_a_job_of_given_sizes_cannot_be_asked_about():
    state = LabState(topology=lab.load_topology("lecture-hall"), job=Job.from_bytes(4, 2, 1e9, 1e8))
    assert SystemsPanel(state, lambda _: None, NAMES).start.disabled
