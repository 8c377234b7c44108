"""What several places say is one answer: what fits, what binds, and what a mailed page predicts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from loops import until

import dtfm_lab as lab
from dtfm_lab.planning import simulated
from dtfm_lab.planning.explain.iteration_analysis import IterationAnalysis
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.live_search import LiveSearch
from dtfm_lab.widgets.planner.job_controls import ObjectiveControls
from dtfm_lab.widgets.planner.search_panel import SearchPanel
from dtfm_lab.widgets.schedule.predictions import ChartedPrediction, shares_of
from dtfm_lab.widgets.schedule.schedule_panel import SchedulePanel
from dtfm_lab.widgets.shell.bar import bar_numbers, next_action
from dtfm_lab.widgets.shell.headline import headline
from dtfm_lab.widgets.shell.still_page import made_of
from dtfm_lab.widgets.views.convergence import BOUND


@pytest.fixture
def state() -> LabState:
    topology, job = lab.load_topology("lecture-hall"), lab.load_job("small").with_fields(n_stages=4, n_replicas=2)
    plan = lab.plan(topology, job, steps=1)
    return LabState(topology=topology, job=job, plan=plan, schedule=plan.job.schedule_name)


async def test_a_plan_that_does_not_fit_is_told_in_the_bar_in_the_sentence_and_on_the_button(state) -> None:
    panel = SchedulePanel(state)
    trace = lab.simulate(state.plan, state.schedule)
    state.predicted = trace
    prediction = replace(ChartedPrediction.of(state.plan, trace), lacking="ada needs 12.3 GiB and has 12 GiB")
    panel.show(prediction)
    number = bar_numbers(state, None)[0]
    assert (number["note"], number["bad"]) == ("does not fit in memory", True)
    said = headline(state, None, None, "")
    assert (said.lead, said.rest, said.kind) == ("The plan does not fit:", f"{prediction.lacking}.", "error")
    assert next_action(state).label.endswith(", although it does not fit")
    panel.show(replace(prediction, lacking=""))
    assert not bar_numbers(state, None)[0]["bad"]
    assert next_action(state).label == "Run it for real"


@pytest.mark.parametrize("gbps", [0.001, 100.0])
def test_the_strip_and_the_sentence_are_about_one_quantity(gbps) -> None:
    topology = lab.load_topology("lecture-hall").scaled(bandwidth=gbps)
    plan = lab.plan(topology, lab.load_job("tiny"), steps=1)
    analysis = IterationAnalysis(plan)
    first, *_ = shares_of(analysis.trace)
    words = {"device": "computing", "link": "messages", "synchronisation": "averaging"}
    assert first["name"] == f"critical path: {words[analysis.binds]}"
    assert first["share"] == pytest.approx(analysis.by_class[analysis.binds] / analysis.iteration_s)


def test_a_mailed_page_says_what_was_measured_beside_its_one_prediction(state) -> None:
    trace = lab.simulate(state.plan)
    measured = replace(trace, context=replace(trace.context, source="measured", clock="virtual"))
    assert "not measured" in made_of(state.plan, trace)
    assert "measured on the virtual clock" in made_of(state.plan, trace, measured)


def test_dollars_without_prices_offer_typical_ones_and_act_with_them() -> None:
    the_lab = lab.Lab("campus", "tiny", autosave=False, live=False)
    state, panel = the_lab.lab_state, the_lab.plan_panel
    state.plan = lab.plan(state.topology, state.job, steps=1)
    searched: list[str] = []
    panel.real.redo = lambda: searched.append(panel.objective_controls.objective.value)
    assert panel.typical_prices.layout.display == "none"
    panel.objective_controls.objective.value = "price"
    assert (panel.typical_prices.layout.display, searched) == ("", [])
    assert state.note_of("plan").endswith("Press Use typical prices.")
    panel.typical_prices.click()
    assert (searched, state.note_of("plan")) == (["price"], "")
    assert any(device.price_per_hour for device in state.topology.devices)


def test_dollars_on_devices_without_a_typical_price_ask_for_one() -> None:
    the_lab = lab.Lab("lecture-hall", autosave=False, live=False)
    the_lab.plan_panel.objective_controls.objective.value = "price"
    assert the_lab.plan_panel.typical_prices.layout.display == "none"
    assert "type its price below the picture" in the_lab.lab_state.note_of("plan")


async def test_the_slow_search_leaves_the_note_on_missing_prices() -> None:
    the_lab = lab.Lab("lecture-hall", autosave=False, live=False)
    state, panel = the_lab.lab_state, the_lab.plan_panel
    the_lab.show_pane("plan")
    panel.objective_controls.objective.value = "price"
    said = state.note_of("plan")
    panel.slow.value = True
    await until(lambda: bool(panel.teaching.view.frames))
    panel.slow.value = False
    assert state.note_of("plan") == said != ""


def test_the_curve_ends_at_the_bound_that_the_bar_tells(state) -> None:
    steps = list(lab.search(state.topology, state.job, seed=0, steps=2))
    live = LiveSearch()
    live.begin()
    for step in steps:
        live.add(replace(step, bound_s=0.1 * step.best_s))
    live.add(replace(steps[-1], bound_s=0.1 * steps[-1].best_s), last=True)
    live.is_over = True
    found = simulated(steps[-1].plan)
    panel = SearchPanel(state, lambda: None, ObjectiveControls(state, lambda: None), lambda *_: None)
    state.plan = replace(found, iteration_lower_bound_s=0.9 * found.iteration_s)
    state.live_search = live
    panel.look(True)
    (rows,) = panel.curve.points.values()
    assert rows[-1][BOUND] == pytest.approx(0.9 * found.iteration_s)
