"""One history of the user's edits: links, devices, job, objective, choices and moves by hand. It has no widget."""

from collections import deque
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

import traitlets

T = TypeVar("T")
MOST_KEPT = 100
"""Maximum number of edits that can be undone. A thousand of a large network would fill the memory."""


class Undoable(Generic[T]):
    """Past states for undo, and undone states for redo."""

    def __init__(self, most: int) -> None:
        self.past: deque[T] = deque(maxlen=most)
        self.future: deque[T] = deque(maxlen=most)

    def add(self, before: T) -> None:
        """Keep the state before a change. Clears what could be redone."""
        self.past.append(before)
        self.future.clear()

    def clear(self) -> None:
        self.past.clear()
        self.future.clear()

    def turn(self, now: T, *, back: bool) -> T | None:
        """Return the state before the last change, or with ``back=False`` the state before the last undo.

        ``now`` is the current state, which is kept for the opposite direction. None if there is no state to return.
        """
        source, target = (self.past, self.future) if back else (self.future, self.past)
        if not source:
            return None
        target.append(now)
        return source.pop()


class Edit(NamedTuple):
    """An edit in a few words, and every part's value before it."""

    label: str
    values: dict[str, Any]


class UndoHistory(traitlets.HasTraits):
    """Edits of all parts of the lab, in order.

    A part has a function that reads it and one that writes it. ``undo`` writes all parts, in the order in which they
    were added, because an edit of one part can change others: a device that leaves changes the job's shape.
    """

    can_undo = traitlets.Bool(False)
    can_redo = traitlets.Bool(False)
    undo_label = traitlets.Unicode("")
    """What ``undo`` would undo, such as "Batch 16 → 32". Empty for nothing."""
    redo_label = traitlets.Unicode("")
    said = traitlets.Unicode("")
    """What was last undone or redone. Empty after another edit."""

    def __init__(self, most: int = MOST_KEPT) -> None:
        super().__init__()
        self.edits: Undoable[Edit] = Undoable(most)
        self.is_turning = False
        """True while an edit is undone or redone. Changes made during that time are not recorded as edits."""
        self._parts: dict[str, tuple[Callable[[], Any], Callable[[Any], None]]] = {}

    def add_part(self, name: str, read: Callable[[], Any], write: Callable[[Any], None]) -> None:
        self._parts[name] = read, write

    def snapshot(self, **before: Any) -> dict[str, Any]:
        """Return every part's value. ``before`` gives values that replace the current ones."""
        return {name: before[name] if name in before else read() for name, (read, _) in self._parts.items()}

    def keep(self, label: str, values: dict[str, Any] | None = None, **before: Any) -> None:
        """Record an edit with every part's value before it.

        ``before`` gives the values of parts that have changed already. Other values are read now, unless ``values``
        gives all of them.
        """
        if not self.is_turning:
            self.edits.add(Edit(label, self.snapshot(**before) if values is None else values))
            self._tell()
            self.said = ""

    def undo(self) -> str:
        """Undo the last edit and return its label. Empty without an edit."""
        return self._turn(back=True)

    def redo(self) -> str:
        return self._turn(back=False)

    def clear(self) -> None:
        self.edits.clear()
        self._tell()
        self.said = ""

    def _turn(self, *, back: bool) -> str:
        source = self.edits.past if back else self.edits.future
        if not source:
            return ""
        edit = self.edits.turn(Edit(source[-1].label, self.snapshot()), back=back)
        assert edit is not None
        # Parts that change now must not record a separate edit.
        self.is_turning = True
        try:
            for name, (_, write) in self._parts.items():
                if name in edit.values:
                    write(edit.values[name])
        finally:
            self.is_turning = False
        self._tell()
        self.said = f"{'Undone' if back else 'Redone'}: {edit.label}."
        return edit.label

    def _tell(self) -> None:
        past, future = self.edits.past, self.edits.future
        # Together, so that no button shows another edit's label.
        with self.hold_trait_notifications():
            self.can_undo, self.can_redo = bool(past), bool(future)
            self.undo_label = past[-1].label if past else ""
            self.redo_label = future[-1].label if future else ""
