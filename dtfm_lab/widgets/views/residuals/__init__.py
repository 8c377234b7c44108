"""Predicted less measured, row by row: a table to sort, with bars left and right of zero."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import traitlets

from dtfm_lab.widgets.comparing.residuals import relative
from dtfm_lab.widgets.views.residuals.snapshot import picture
from dtfm_lab.widgets.views.view import View


class ResidualsView(View):
    """Draws one of several tables; a click on a row that ``selects`` calls ``choose`` with its id."""

    tables = traitlets.List(traitlets.Dict()).tag(sync=True)
    """as ``residuals.tables`` makes them"""
    table = traitlets.Unicode("links").tag(sync=True)
    """the key of the one that is shown"""
    sort_by = traitlets.Enum(["label", "predicted_s", "measured_s", "error_s", "relative"], "error_s").tag(sync=True)
    descending = traitlets.Bool(True).tag(sync=True)
    """errors by their size"""
    selected = traitlets.List(traitlets.Unicode()).tag(sync=True)
    """ids of rows"""
    title = traitlets.Unicode("Residuals").tag(sync=True)
    caption = traitlets.Unicode("").tag(sync=True)

    def __init__(self, choose: Callable[[str], None] | None = None, **traits: Any) -> None:
        super().__init__(**traits)
        self._choose = choose
        self.on_msg(self._answer)

    @property
    def shown(self) -> dict[str, Any] | None:
        """The table that is shown; None before any."""
        found = [table for table in self.tables if table["key"] == self.table] or self.tables
        return found[0] if found else None

    def picture(self) -> str:
        return picture(self.shown)

    def words(self) -> str:
        table = self.shown
        if table is None or not table["rows"]:
            return f"{self.title}: nothing to compare yet"
        worst = table["rows"][0]
        return f"{self.title}, {table['name']}: largest {worst['label']}, {relative(worst)} of the measured"

    def _answer(self, _widget: object, content: dict[str, Any], _buffers: object) -> None:
        match content:
            case {"kind": "choose", "id": str(chosen)} if self._choose is not None:
                self._choose(chosen)
