"""The network as it is drawn, with its undo history: the state that canvas, map and matrix share."""

import copy
from typing import Any

import traitlets

from dtfm_lab.widgets.lab_state import Guard

Document = dict[str, Any]

EMPTY_DOCUMENT: Document = {
    "name": "untitled",
    "devices": [],
    "regions": [],
    "between": [],
    "links": [],
    "default": {"latency_ms": 50.0, "bandwidth_gbps": 1.0},
}
MOST_KEPT = 100
"""Documents that can be undone to; a thousand of a large network would fill the memory."""


class Drawing(traitlets.HasTraits):
    """A document in screen units (ms, Gbit/s) and what is selected in it. Setting ``document`` can be undone."""

    document = traitlets.Dict()
    selected = traitlets.List(traitlets.Unicode())
    """Names of the selected devices."""
    selected_link = traitlets.List(traitlets.Unicode())
    """Source and target of the selected link, which need not have a line; empty for none."""
    can_undo = traitlets.Bool(False)
    can_redo = traitlets.Bool(False)
    is_in_gesture = traitlets.Bool(False)
    """Whether a drag is under way."""
    playback = traitlets.Bytes(b"")
    """What its views play, with the traits below: see ``DocumentView``."""
    playback_devices = traitlets.List(traitlets.Unicode())
    conditions = traitlets.Dict()
    restored_from = traitlets.Dict()

    def __init__(self, document: Document | None = None) -> None:
        super().__init__(document=copy.deepcopy(EMPTY_DOCUMENT) if document is None else document)
        self._past: list[Document] = []
        self._future: list[Document] = []
        self._gesture_from: Document | None = None
        """The document when the gesture began that is under way; None between gestures."""
        self._is_undoing = Guard()
        """True while the document changes without a new entry in the history."""
        self.observe(self._record, "document")

    @traitlets.validate("document")
    def _share(self, proposal: dict[str, Any]) -> Document:
        """Reuse the parts that did not change, so that the history of a large network stays small."""
        before: Document = self._trait_values.get("document", {})
        new: Document = proposal["value"]
        return {key: _shared(value, before[key]) if key in before else value for key, value in new.items()}

    @property
    def history(self) -> list[Document]:
        return list(self._past)

    def gesture(self, phase: str) -> None:
        """Keep all edits between ``begin`` and ``end`` as one entry of the history: those of one drag."""
        before, self._gesture_from = self._gesture_from, self.document if phase == "begin" else None
        if before is not None and before != self.document:
            self._append_to_past(before)
        self.is_in_gesture = self._gesture_from is not None

    def undo(self) -> None:
        self.gesture("end")
        self._restore_last(self._past, self._future)

    def redo(self) -> None:
        self.gesture("end")
        self._restore_last(self._future, self._past)

    def begin(self, document: Document) -> None:
        """Take another document and clear the history."""
        with self._is_undoing:
            self.document = document
        self._gesture_from = None
        self.is_in_gesture = False
        self._past.clear()
        self._future.clear()
        self._update_history_traits()
        self.selected, self.selected_link = [], []

    def _record(self, change: dict[str, Any]) -> None:
        if not self._is_undoing and self._gesture_from is None:
            self._append_to_past(change["old"])

    def _append_to_past(self, document: Document) -> None:
        self._past = [*self._past[-MOST_KEPT + 1 :], document]
        self._future = []
        self._update_history_traits()

    def _restore_last(self, source: list[Document], target: list[Document]) -> None:
        """Take the last document of ``source``, the past or the future, and append the current one to ``target``."""
        if not source:
            return
        target.append(self.document)
        with self._is_undoing:
            self.document = source.pop()
        self._update_history_traits()

    def _update_history_traits(self) -> None:
        self.can_undo, self.can_redo = bool(self._past), bool(self._future)


def _shared(new: Any, before: Any) -> Any:
    """Return ``new`` with the equal parts of ``before`` in it: all, or the beginning and the end of a list."""
    if new == before:
        return before
    if not isinstance(new, list) or not isinstance(before, list):
        return new
    most = min(len(new), len(before))
    head = next((i for i in range(most) if new[i] != before[i]), most)
    tail = next((i for i in range(most - head) if new[-1 - i] != before[-1 - i]), most - head)
    return [*before[:head], *new[head : len(new) - tail], *before[len(before) - tail :]]
