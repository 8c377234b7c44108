"""The tour: each step is done by what it asks for, by hand or by the tour, and it can be left and taken up again."""

import pytest

pytest.importorskip("anywidget", reason="needs the lab extra")

from loops import on_a_loop, until

from dtfm_lab.widgets.shell.tour import NETWORK, STEPS, StepStart, slow_a_link
from dtfm_lab.widgets.workbench import Lab


def lab():
    return Lab(autosave=False)


@on_a_loop
async def test_it_opens_a_network_where_none_is_drawn():
    shown = lab()
    shown.tour.start()
    assert shown.topology.name == NETWORK
    assert shown.tour.view.step["title"] == STEPS[0].title
    assert not shown.tour.view.done


@on_a_loop
async def test_the_first_four_steps_are_done_by_the_tour_itself():
    shown = lab()
    shown.tour.start()
    await until(lambda: shown.predicted is not None)
    for step in STEPS[:4]:
        assert shown.tour.view.step["title"] == step.title
        if step.act_label:
            assert not shown.tour.view.done, step.title
            shown.tour.view._press("act")
        await until(lambda: shown.tour.view.done)
        shown.tour.view._press("next")
    assert shown.lab_state.pane == "run"
    assert not shown.tour.view.done
    assert shown.lab_state.message == ""


@on_a_loop
async def test_a_slowed_link_is_one_step_of_the_undo_history():
    shown = lab()
    shown.open_network(NETWORK)
    await until(lambda: shown.plan is not None)
    before = StepStart.of(shown.lab_state)
    await slow_a_link(shown)
    assert STEPS[0].is_done(shown.lab_state, before)
    shown.network_panel.drawing.undo()
    assert not STEPS[0].is_done(shown.lab_state, before)


@on_a_loop
async def test_it_goes_on_where_it_was_left():
    shown = lab()
    shown.tour.start()
    shown.tour.view._press("next")
    shown.tour.view._press("next")
    shown.tour.view._press("leave")
    assert not shown.tour.is_on
    shown.tour.start()
    assert shown.tour.view.step["title"] == STEPS[2].title
    shown.tour.view._press("back")
    assert shown.tour.view.at == 1


@on_a_loop
async def test_it_begins_anew_after_it_was_finished():
    shown = lab()
    shown.tour.start()
    for _ in STEPS:
        shown.tour.view._press("next")
    assert not shown.tour.is_on
    shown.tour.start()
    assert shown.tour.view.at == 0
