"""The base of every step's panel: a view, settings that are saved, and a way to compute its result again."""

from collections.abc import Callable, Mapping
from typing import Any

import ipywidgets as w

from dtfm_lab.widgets.controls import restore_values, values_of


class SavedControls:
    """Controls whose values a workspace file keeps: a subclass names them in ``_controls``."""

    _controls: Mapping[str, w.ValueWidget]

    def settings(self) -> dict[str, Any]:
        return values_of(self._controls)

    def restore(self, settings: object) -> None:
        """Set the controls to saved values; unknown or impossible values are ignored."""
        restore_values(self._controls, settings)


class Panel:
    """The controls and views of one step; a subclass sets ``view`` and overrides the methods that apply to it."""

    view: w.Widget

    def settings(self) -> dict[str, Any]:
        """Return plain values of the controls, as a workspace file keeps them."""
        return {}

    def restore(self, settings: dict[str, Any]) -> None:
        """Set the controls to saved values. Unknown or impossible values are ignored, and nothing is started."""

    def redo(self) -> None:
        """Compute the step's result again, as its main button does."""

    def observe_edits(self, call: Callable[[], None]) -> None:
        """Call back when something changes that a workspace keeps and the lab's state does not hold."""
