"""The network as it is drawn, with what was drawn before: one state that the canvas, the map and the matrix share."""

from __future__ import annotations

import copy
from typing import Any

import traitlets

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
"""documents to go back to: a thousand edits of a big network must not fill the memory"""


class Drawing(traitlets.HasTraits):
    """A document in screen units (ms, Gbit/s) and what is selected in it; to set ``document`` is a step of history."""

    document = traitlets.Dict()
    selected = traitlets.List(traitlets.Unicode())
    """names of the selected devices"""
    selected_link = traitlets.List(traitlets.Unicode())
    """source and target of the selected link, drawn or not; empty for none"""
    can_undo = traitlets.Bool(False)
    can_redo = traitlets.Bool(False)

    def __init__(self, document: Document | None = None) -> None:
        super().__init__(document=copy.deepcopy(EMPTY_DOCUMENT) if document is None else document)
        self._before: list[Document] = []
        self._after: list[Document] = []
        self._travelling = False
        self.observe(self._record, "document")

    @traitlets.validate("document")
    def _share(self, proposal: dict[str, Any]) -> Document:
        """What did not change is the document's before, so that a history of large networks stays small."""
        before: Document = self._trait_values.get("document", {})
        new: Document = proposal["value"]
        return {key: _shared(value, before[key]) if key in before else value for key, value in new.items()}

    def undo(self) -> None:
        self._travel(self._before, self._after)

    def redo(self) -> None:
        self._travel(self._after, self._before)

    def begin(self, document: Document) -> None:
        """Another network: nothing of the one before can be undone."""
        self._travelling = True
        try:
            self.document = document
        finally:
            self._travelling = False
        self._before.clear()
        self._after.clear()
        self._tell()
        self.selected, self.selected_link = [], []

    def _record(self, change: dict[str, Any]) -> None:
        if not self._travelling:
            self._before = [*self._before[-MOST_KEPT + 1 :], change["old"]]
            self._after = []
            self._tell()

    def _travel(self, source: list[Document], target: list[Document]) -> None:
        if not source:
            return
        target.append(self.document)
        self._travelling = True
        try:
            self.document = source.pop()
        finally:
            self._travelling = False
        self._tell()

    def _tell(self) -> None:
        self.can_undo, self.can_redo = bool(self._before), bool(self._after)


def _shared(new: Any, before: Any) -> Any:
    """``new``, made of the parts of ``before`` where they are equal: beginning and end of a list, or all of it."""
    if new == before:
        return before
    if not isinstance(new, list) or not isinstance(before, list):
        return new
    most = min(len(new), len(before))
    head = next((i for i in range(most) if new[i] != before[i]), most)
    tail = next((i for i in range(most - head) if new[-1 - i] != before[-1 - i]), most - head)
    return [*before[:head], *new[head : len(new) - tail], *before[len(before) - tail :]]
