"""The pane Advice: asked beside the page, stopped, and out of date after an edit."""

from __future__ import annotations

from loops import until

import dtfm_lab as lab
from dtfm_lab.extensions.advice.pane import NOTHING_YET, OTHER, QUICK, AdvicePanel
from dtfm_lab.widgets.lab_state import LabState


def a_panel() -> AdvicePanel:
    panel = AdvicePanel(LabState(topology=lab.load_topology("at-home"), job=lab.load_job("small")))
    panel._controls["seconds"].value = "1"
    return panel


async def test_it_says_what_lab_advise_says_and_that_an_edit_came_after():
    panel = a_panel()
    state = panel._lab_state
    assert NOTHING_YET.split(":")[0] in panel.summary.value
    panel.start.click()
    assert "advice" in state.busy
    await until(lambda: panel.asking is None and panel.advice is not None)
    asked = lab.advise(state.topology, state.job, tokens="100M", seconds=1)
    assert [way.name for way in panel.advice.options] == [way.name for way in asked.options]
    assert panel.result(state) == panel.advice.verdict
    assert panel.advice.verdict.split(",")[0] in panel.summary.value
    assert "advice" not in state.busy
    assert not panel.staleness(state)

    state.job = lab.load_job("small", global_batch=32)
    assert panel.staleness(state) == OTHER
    assert OTHER in panel.summary.value


async def test_stop_keeps_the_ways_so_far():
    panel = a_panel()
    panel._controls["seconds"].value = "30"
    panel.start.click()
    await until(lambda: panel.advice is not None)
    panel.stop.click()
    await until(lambda: panel.asking is None)
    assert 1 <= len(panel.advice.options) < panel.advice.wanted
    assert panel.advice.verdict


async def test_a_mistake_is_one_line_and_what_was_found_stays():
    panel = a_panel()
    state = panel._lab_state
    panel.start.click()
    await until(lambda: panel.asking is None)
    found = panel.summary.value
    for name, text, said in (
        ("deadline_days", "soon", "deadline_days is soon; wanted a number"),
        ("budget_dollars", "-1", "budget_dollars is -1"),
        ("tokens", "many", "tokens is 'many'"),
    ):
        panel._controls[name].value, kept = text, panel._controls[name].value
        panel.start.click()
        await until(lambda: panel.asking is None and state.message != "")
        assert panel.summary.value == found
        assert said in state.message
        assert "\n" not in state.message
        panel._controls[name].value = kept
    state.topology = None
    assert panel.start.disabled
    assert OTHER in panel.summary.value


async def test_opened_with_a_plan_it_compares_by_itself_once_and_shows_a_card():
    panel = a_panel()
    state = panel._lab_state
    state.shown_panes = ("advice",)
    assert panel.asking is None, "no plan yet"
    state.plan = lab.plan(state.topology, lab.load_job("small", n_stages=2, n_replicas=2), steps=1)
    await until(lambda: panel.asking is None and panel.advice is not None)
    assert QUICK in panel.summary.value
    assert panel.advice.stopped, "upgrades and interruptions take longer"
    assert panel.card.words.startswith(("Rent ", "Use "))
    state.shown_panes = ()
    first = panel.advice
    state.shown_panes = ("advice",)
    assert panel.asking is None
    assert panel.advice is first
