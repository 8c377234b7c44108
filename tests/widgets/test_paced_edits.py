"""A drag is accepted as fast as the lab can answer it, and always to its end."""

import asyncio

import pytest
from loops import on_a_loop, until

pytest.importorskip("anywidget", reason="needs the lab extra")

from dtfm_lab.widgets.network.drawing import EMPTY_DOCUMENT, LOOK_S, Drawing, PacedEdits


def paced(*, answering: bool) -> tuple[Drawing, PacedEdits, list[str], list[bool]]:
    drawing, accepted, answers = Drawing(), [], [answering]
    edits = PacedEdits(drawing, lambda: accepted.append(drawing.document["name"]), accepted.append)
    edits.is_answering = lambda: answers[0]
    return drawing, edits, accepted, answers


def draw(drawing: Drawing, name: str) -> None:
    drawing.document = EMPTY_DOCUMENT | {"name": name}


@on_a_loop
async def test_moments_of_a_drag_wait_for_the_answer_and_only_the_newest_is_accepted():
    drawing, _, accepted, answers = paced(answering=True)
    drawing.gesture("begin")
    for name in "abc":
        draw(drawing, name)
    assert accepted == []
    answers[0] = False
    await until(lambda: accepted == ["c"])


@on_a_loop
async def test_the_end_of_a_drag_is_accepted_at_once_and_no_later_again():
    drawing, _, accepted, answers = paced(answering=True)
    drawing.gesture("begin")
    draw(drawing, "last")
    assert accepted == []
    drawing.gesture("end")
    assert accepted == ["last"]
    answers[0] = False
    await asyncio.sleep(5 * LOOK_S)
    assert accepted == ["last"]


@on_a_loop
async def test_an_edit_that_is_no_drag_is_accepted_at_once():
    drawing, _, accepted, _ = paced(answering=True)
    draw(drawing, "a")
    draw(drawing, "b")
    assert accepted == ["a", "b"]


def test_without_a_loop_a_drag_is_accepted_at_once():
    drawing, _, accepted, _ = paced(answering=True)
    drawing.gesture("begin")
    draw(drawing, "a")
    assert accepted == ["a"]
