"""One drawing: what it remembers, what its views make of it, and how fast a drag is accepted, always to its end."""

from __future__ import annotations

import asyncio
import copy
import sys
from typing import Any

from loops import send, until

from dtfm_lab.widgets.network.drawing import LOOK_S, MOST_KEPT, Drawing, PacedEdits, empty_document
from dtfm_lab.widgets.views.view import DocumentView


def device(name: str, x: float = 0.0) -> dict[str, Any]:
    return {"name": name, "region": "", "gpu": "T4", "x": x, "y": 0.0}


def with_devices(*names: str) -> dict[str, Any]:
    return empty_document() | {"devices": [device(name) for name in names]}


def test_undo_and_redo_walk_through_what_was_drawn() -> None:
    drawing = Drawing(with_devices())
    for names in ("a", "ab", "abc"):
        drawing.document = with_devices(*names)
    drawing.undo()
    drawing.undo()
    assert [one["name"] for one in drawing.document["devices"]] == ["a"]
    assert (drawing.can_undo, drawing.can_redo) == (True, True)
    drawing.redo()
    assert drawing.document == with_devices("a", "b")
    drawing.document = with_devices("z")
    assert not drawing.can_redo, "an edit ends the way forward"


def test_of_many_edits_the_last_can_be_undone() -> None:
    drawing = Drawing(with_devices())
    for i in range(MOST_KEPT + 20):
        drawing.document = empty_document() | {"devices": [device("a", x=i)]}
    for _ in range(MOST_KEPT):
        drawing.undo()
    assert not drawing.can_undo
    assert drawing.document["devices"][0]["x"] == 19


def test_another_network_begins_a_history_of_its_own_with_nothing_selected() -> None:
    drawing = Drawing(with_devices("a"))
    drawing.document, drawing.selected, drawing.selected_link = with_devices("a", "b"), ["b"], ["a", "b"]
    drawing.begin(with_devices("c"))
    assert (drawing.can_undo, drawing.selected, drawing.selected_link) == (False, [], [])


def test_a_history_of_a_large_network_holds_what_did_not_change_once() -> None:
    names = [f"d{i}" for i in range(100)]
    links = [
        {"source": a, "target": b, "latency_ms": 1.0, "bandwidth_gbps": 1.0, "one_way": False}
        for a in names
        for b in names
        if a < b
    ]
    drawing = Drawing(with_devices(*names) | {"links": links})
    for i in range(5):  # as they come from a page: everything is new
        drawing.document = copy.deepcopy(drawing.document | {"name": str(i)})
        moved = copy.deepcopy(drawing.document)
        moved["links"][70]["latency_ms"] = float(i)
        del moved["links"][3]
        drawing.document = moved
    before, now = drawing.history[-1]["links"], drawing.document["links"]
    fresh = [link for link in now if not any(link is old for old in before)]
    assert len(fresh) < 80
    assert sys.getrefcount(now[-1]) > 5, "one link, in every document"


def test_a_view_that_has_left_stays_as_it_is_until_it_follows_again() -> None:
    drawing = Drawing(with_devices("a"))
    view = DocumentView(drawing)
    view.leave()
    drawing.document = with_devices("a", "b")
    assert (view.following, len(view.document["devices"])) == (False, 1)
    view.follow()
    assert len(view.document["devices"]) == 2
    view.document = with_devices("c")
    assert drawing.document == with_devices("c")
    assert drawing.can_undo


def test_the_many_edits_of_one_drag_are_undone_at_once() -> None:
    view = DocumentView(document=with_devices("a"))
    view.document = with_devices("a", "b")
    send(view, {"kind": "gesture", "phase": "begin"})
    for x in range(5):
        view.document = empty_document() | {"devices": [device("a", x=x), device("b")]}
    send(view, {"kind": "gesture", "phase": "end"})
    assert len(view.drawing.history) == 2
    send(view, {"kind": "undo"})
    assert view.document == with_devices("a", "b")
    assert (view.can_undo, view.can_redo) == (True, True)
    send(view, {"kind": "redo"})
    assert view.document["devices"][0]["x"] == 4


def test_a_drag_that_ends_where_it_began_leaves_no_entry_and_an_unended_one_is_ended_by_undo() -> None:
    drawing = Drawing(with_devices("a"))
    drawing.gesture("begin")
    drawing.document = with_devices("b")
    drawing.document = with_devices("a")
    drawing.gesture("end")
    assert not drawing.can_undo
    drawing.gesture("begin")  # its page went away before it said that it was over
    drawing.document = with_devices("c")
    drawing.undo()
    assert drawing.document == with_devices("a")


def paced(*, answering: bool) -> tuple[Drawing, PacedEdits, list[str], list[bool]]:
    drawing, accepted, answers = Drawing(), [], [answering]
    edits = PacedEdits(drawing, lambda: accepted.append(drawing.document["name"]), accepted.append)
    edits.is_answering = lambda: answers[0]
    return drawing, edits, accepted, answers


def draw(drawing: Drawing, name: str) -> None:
    drawing.document = empty_document() | {"name": name}


async def test_moments_of_a_drag_wait_for_the_answer_and_only_the_newest_is_accepted():
    drawing, _, accepted, answers = paced(answering=True)
    drawing.gesture("begin")
    for name in "abc":
        draw(drawing, name)
    assert accepted == []
    answers[0] = False
    await until(lambda: accepted == ["c"])


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
