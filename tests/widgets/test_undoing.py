"""One history for links, devices, job, objective, choices and moves by hand; its button says what it takes back."""

from __future__ import annotations

import pytest
from loops import until

import dtfm_lab as lab
from dtfm_lab.widgets.network.document_conversion import document_of
from dtfm_lab.widgets.network.drawing import change_words
from dtfm_lab.widgets.network.links import with_link
from dtfm_lab.widgets.shell.headline import headline
from dtfm_lab.widgets.undoing import UndoHistory


@pytest.fixture
def the_lab() -> lab.Lab:
    made = lab.Lab("lecture-hall", autosave=False, live=False)
    made.lab_state.plan = lab.plan(made.topology, made.job, steps=1)
    return made


def pull(the_lab: lab.Lab, gbps: float) -> None:
    drawing = the_lab.network_panel.drawing
    drawing.document = with_link(drawing.document, ("ada", "edsger"), gbps, 8.0)


def test_every_part_goes_back_with_an_edit_of_one() -> None:
    parts = {"a": 1, "b": 1}
    history = UndoHistory()
    for name in parts:
        history.add_part(name, lambda name=name: parts[name], lambda value, name=name: parts.update({name: value}))
    history.keep("a 1 → 2")
    parts |= {"a": 2, "b": 7}  # b follows a
    assert (history.undo_label, history.can_redo) == ("a 1 → 2", False)
    assert history.undo() == "a 1 → 2"
    assert parts == {"a": 1, "b": 1}
    assert (history.undo_label, history.redo_label, history.said) == ("", "a 1 → 2", "Undone: a 1 → 2.")
    history.redo()
    assert parts == {"a": 2, "b": 7}
    history.keep("another")
    assert (history.said, history.can_redo, history.undo()) == ("", False, "another")
    history.clear()
    assert history.undo() == history.redo() == ""


def test_the_last_edit_is_taken_back_whatever_it_was_of(the_lab) -> None:
    state, history, controls = the_lab.lab_state, the_lab.lab_state.history, the_lab.plan_panel.job_controls
    network, job, schedule = state.topology, state.job, state.schedule
    pull(the_lab, 0.01)
    controls.batch.value = 2 * job.global_batch
    controls.shape.value = (8, 1)
    controls.job.value = "tiny"
    the_lab.plan_panel.objective_controls.objective.value = "price"
    the_lab.schedule_panel.schedule.value = "1f1b" if schedule != "1f1b" else "gpipe"
    labels = []
    while history.can_undo:
        labels.append(the_lab.bar.view.undo_label)
        the_lab._press("undo")
    assert labels[0].startswith(f"Schedule {schedule} → ")
    assert labels[1:] == [
        "seconds an iteration → dollars a billion tokens",
        "small → tiny",
        "Stages 4 → 8, replicas 2 → 1",
        f"Batch {job.global_batch} → {2 * job.global_batch}",
        "front – back changed",
    ]
    assert (state.topology.fingerprint, state.job, state.schedule) == (network.fingerprint, job, schedule)
    assert the_lab.plan_panel.objective_controls.objective.value == "iteration"
    while history.can_redo:
        history.redo()
    assert (state.job.name, state.schedule != schedule) == ("tiny", True)
    assert state.topology.fingerprint != network.fingerprint


def test_a_device_that_comes_back_brings_the_job_and_the_plan_of_before(the_lab) -> None:
    state, drawing = the_lab.lab_state, the_lab.network_panel.drawing
    plan, job = state.plan, state.job
    drawing.document = drawing.document | {"devices": drawing.document["devices"][1:]}
    assert state.history.undo_label == "ada removed"
    assert state.job != job
    state.history.undo()
    assert (state.job, state.plan) == (job, plan)
    assert not state.plan_is_stale
    assert headline(state, None, None, "").lead == "Undone:"


async def test_a_move_by_hand_and_an_edit_are_undone_in_their_order(the_lab) -> None:
    state, hand = the_lab.lab_state, the_lab.groups_panel.hand
    plan, job = state.plan, state.job
    first, other = plan.stages[0][0], plan.stages[1][0]
    hand.exchange(first, other)
    await until(lambda: state.plan is not plan)
    made = state.plan
    assert state.history.undo_label == f"{first} and {other} swapped"
    the_lab.plan_panel.job_controls.batch.value *= 2
    hand.undo.click()
    assert (state.plan, state.job) == (made, job)
    hand.undo.click()
    assert state.plan is plan
    assert hand.undo.disabled
    hand.redo.click()
    assert state.plan is made


def test_a_refused_job_and_another_network_are_no_edits(the_lab) -> None:
    history = the_lab.lab_state.history
    the_lab.plan_panel.job_controls.batch.value = 10**20
    assert not history.can_undo
    pull(the_lab, 0.01)
    the_lab.open_network("mixed-gpus")
    assert not history.can_undo


def test_an_edit_of_the_drawing_is_told_in_a_few_words() -> None:
    before = document_of(lab.load_topology("lecture-hall"))
    first, *others = before["devices"]
    assert change_words(before, before | {"devices": others}) == "ada removed"
    assert change_words(before | {"devices": others}, before) == "ada added"
    moved = before | {"devices": [first | {"x": first["x"] + 5}, *others]}
    assert change_words(before, moved) == "ada moved"
    assert change_words(before, before | {"devices": [first | {"gpu": "A100"}, *others]}) == "ada changed"
    link = {"source": "ada", "target": "john", "latency_ms": 1, "bandwidth_gbps": 1, "one_way": False}
    assert change_words(before, before | {"links": [link]}) == "ada – john changed"
