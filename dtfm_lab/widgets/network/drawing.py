"""The drawn network with its undo history: the state that canvas, map and matrix share.

During a drag, edits are accepted only as fast as the lab can answer, so that the page shows a plan for each accepted
edit.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import traitlets

from dtfm_lab.domain.units import counted
from dtfm_lab.widgets.lab_state import Guard
from dtfm_lab.widgets.tasks import begin, has_event_loop
from dtfm_lab.widgets.undoing import MOST_KEPT, UndoHistory

Document = dict[str, Any]

BY_DISTANCE = "distance"
"""Value of ``document["fill"]`` for which the distance of two known cities sets the links between them. Regions that a
line joins keep its numbers."""
AS_DRAWN = "drawn"
"""Value of ``document["fill"]`` for which other regions' links are set too, by the distance on the canvas."""
PATIENCE_S = 0.5
"""Maximum seconds that an edit of a drag waits for the plan and the prediction of the previous one."""
LEAST_S = 0.2
"""Minimum seconds between two accepted edits of a drag, so that the page has time to draw the results of each."""
LOOK_S = 0.01


def empty_document() -> Document:
    """Return a blank canvas with ordinary internet links. Links between regions depend on their distance."""
    empty: Document = {part: [] for part in ("devices", "regions", "between", "links")}
    return {"name": "drawn", **empty, "default": {"latency_ms": 20.0, "bandwidth_gbps": 0.1}, "fill": AS_DRAWN}


class Drawing(traitlets.HasTraits):
    """A document in screen units (ms, Gbit/s) and its selection. Setting ``document`` can be undone."""

    document = traitlets.Dict()
    selected = traitlets.List(traitlets.Unicode())
    """Names of the selected devices or hosts."""
    selected_members = traitlets.List(traitlets.Unicode())
    """Devices that are selected inside a host of ``selected``. If a selected host has none, all of it is selected."""
    selected_link = traitlets.List(traitlets.Unicode())
    """Source and target of the selected link, which need not have a line. Empty for none."""
    can_undo = traitlets.Bool(False)
    can_redo = traitlets.Bool(False)
    is_in_gesture = traitlets.Bool(False)
    """True during a drag."""
    playback = traitlets.Bytes(b"")
    """The iteration that the views play. It and the traits below are described in ``DocumentView``."""
    playback_devices = traitlets.List(traitlets.Unicode())
    conditions = traitlets.Dict()
    restored_from = traitlets.Dict()

    def __init__(self, document: Document | None = None, history: UndoHistory | None = None) -> None:
        """``history`` is shared with other parts of the lab. By default the drawing has its own."""
        super().__init__(document=empty_document() if document is None else document)
        self.edits = UndoHistory(MOST_KEPT) if history is None else history
        self.edits.add_part("drawing", lambda: self.document, self._put)
        for name in ("can_undo", "can_redo"):
            traitlets.dlink((self.edits, name), (self, name))
        self.on_swap: Callable[[str, str], None] = lambda a, b: None
        """Called with two devices when one is dropped on the other, to swap their places in the plan."""
        self._gesture_from: dict[str, Any] | None = None
        """Values of all parts of the history when the current gesture began. None between gestures."""
        self._is_undoing = Guard()
        """True while the document changes without a new entry in the history."""
        self.observe(self._record, "document")

    @traitlets.validate("document")
    def _share(self, proposal: dict[str, Any]) -> Document:
        """Return the new document, sharing all equal parts with the old document, to keep a long history small."""
        before: Document = self._trait_values.get("document", {})
        new: Document = proposal["value"]
        return {key: _shared(value, before[key]) if key in before else value for key, value in new.items()}

    @property
    def history(self) -> list[Document]:
        return [edit.values["drawing"] for edit in self.edits.edits.past]

    def gesture(self, phase: str) -> None:
        """Begin or end a gesture, such as a drag. Its edits become one entry of the history.

        ``phase`` is "begin" or "end".
        """
        before, self._gesture_from = self._gesture_from, self.edits.snapshot() if phase == "begin" else None
        if before is not None and before["drawing"] != self.document:
            self.edits.keep(change_words(before["drawing"], self.document), before)
        self.is_in_gesture = self._gesture_from is not None

    def undo(self) -> None:
        self.gesture("end")
        self.edits.undo()

    def redo(self) -> None:
        self.gesture("end")
        self.edits.redo()

    def begin(self, document: Document) -> None:
        """Take another document and clear the history."""
        self._put(document)
        self._gesture_from = None
        self.is_in_gesture = False
        self.edits.clear()
        self.selected, self.selected_members, self.selected_link = [], [], []

    def _put(self, document: Document) -> None:
        with self._is_undoing:
            self.document = document

    def _record(self, change: dict[str, Any]) -> None:
        if not self._is_undoing and self._gesture_from is None:
            self.edits.keep(change_words(change["old"], change["new"]), drawing=change["old"])


def change_words(before: Document, after: Document) -> str:
    """Return what an edit of the drawing changes, in a few words: "ada removed", "front – back changed"."""
    was, now = ({one["name"]: one for one in document["devices"]} for document in (before, after))
    for names, verb in ((now.keys() - was.keys(), "added"), (was.keys() - now.keys(), "removed")):
        # With equal numbers, a renamed device would be reported as removed and added.
        if names and len(was) != len(now):
            return f"{_some(sorted(names), 'device')} {verb}"
    if changed := [name for name in now.keys() & was.keys() if now[name] != was[name]]:
        # Moving changes the drawing only, so it is told apart from real changes.
        moved = all({**was[name], "x": 0, "y": 0} == {**now[name], "x": 0, "y": 0} for name in changed)
        return f"{_some(sorted(changed), 'device')} {'moved' if moved else 'changed'}"
    pairs = [" – ".join(_ends(line)) for line in _changed_lines(before, after)]
    return f"{_some(pairs, 'link')} changed" if pairs else "the drawing changed"


def _changed_lines(before: Document, after: Document) -> list[dict[str, Any]]:
    """Return the links, pairs of regions and regions whose lines differ between the documents, one line for each."""
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for part in ("links", "between", "regions"):
        for one, other in ((after, before), (before, after)):
            for line in one[part]:
                if line not in other[part]:
                    found.setdefault(_ends(line), line)
    return list(found.values())


def _ends(line: dict[str, Any]) -> tuple[str, ...]:
    if "source" in line:
        return line["source"], line["target"]
    if "name" in line:
        return (line["name"],)
    return tuple(map(str, line.get("regions") or (line.get("from"), line.get("to"))))


def _some(names: list[str], noun: str) -> str:
    return names[0] if len(names) == 1 else counted(len(names), noun)


def _shared(new: Any, before: Any) -> Any:
    """Return ``new`` with equal parts of ``before`` reused: all of it, or the beginning and the end of a list."""
    # Equal parts are shared, so that many kept edits take little memory.
    if new == before:
        return before
    if not isinstance(new, list) or not isinstance(before, list):
        return new
    most = min(len(new), len(before))
    head = next((i for i in range(most) if new[i] != before[i]), most)
    tail = next((i for i in range(most - head) if new[-1 - i] != before[-1 - i]), most - head)
    return [*before[:head], *new[head : len(new) - tail], *before[len(before) - tail :]]


class PacedEdits:
    """Calls ``accept`` after every edit of a drawing, at a limited rate during a drag.

    A hand moves faster than plans are found. If every move were accepted at once, each would end the previous move's
    search, and no result would be seen until the hand rests. So during a drag, the newest move is accepted once the
    previous one has its plan, or after ``PATIENCE_S``. The last move of a drag is accepted at once.
    """

    def __init__(self, drawing: Drawing, accept: Callable[[], None], report_error: Callable[[str], None]) -> None:
        self._drawing, self._accept, self._report_error = drawing, accept, report_error
        self.is_answering: Callable[[], bool] = lambda: False
        """True if a plan or a prediction that follows from an edit is being computed."""
        self._waits = False
        self._accepted_s = -LEAST_S
        drawing.observe(lambda _: self._edited(), "document")
        drawing.observe(lambda _: self._accept_last(), "is_in_gesture")

    def _edited(self) -> None:
        if self._waits:
            return
        if self._is_ahead() and has_event_loop():
            self._waits = True
            begin(self._accept_once_answered(), self._report_error)
        else:
            self._accept_now()

    def _is_ahead(self) -> bool:
        is_too_soon = time.monotonic() - self._accepted_s < LEAST_S
        return self._drawing.is_in_gesture and (is_too_soon or self.is_answering())

    def _accept_last(self) -> None:
        """Accept the waiting edit, if there is one."""
        if self._waits:
            self._accept_now()

    def _accept_now(self) -> None:
        self._waits, self._accepted_s = False, time.monotonic()
        self._accept()

    async def _accept_once_answered(self) -> None:
        began_s = time.monotonic()
        while self._waits and self._is_ahead() and time.monotonic() - began_s < PATIENCE_S:
            await asyncio.sleep(LOOK_S)
        self._accept_last()
