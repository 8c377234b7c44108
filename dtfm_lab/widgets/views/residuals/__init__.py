"""Measured minus predicted, row by row: a table to sort, the largest error first, with bars left and right of zero."""

from collections.abc import Callable, Sequence
from typing import Any

import traitlets

from dtfm_lab.compare.errors import format_error
from dtfm_lab.widgets.views.view import View

TABLES = ("links", "devices", "stages")
COLUMNS = ("suspicion", "label", "predicted_s", "measured_s", "error_s", "relative")


class ResidualsView(View):
    """Draws one of several tables. A click on a row calls ``choose`` with its id."""

    tables = traitlets.List(traitlets.Dict()).tag(sync=True)
    """The tables, as ``comparing.findings.tables`` returns them."""
    table = traitlets.Enum(TABLES, "links").tag(sync=True)
    """The key of the displayed table."""
    sort_by = traitlets.Enum(COLUMNS, "suspicion").tag(sync=True)
    """A column. With ``suspicion``, rows stay in the given order."""
    descending = traitlets.Bool(True).tag(sync=True)
    """True if the largest come first. Errors are compared without their sign."""
    selected = traitlets.List(traitlets.Unicode()).tag(sync=True)
    """The ids of the selected rows."""
    title = traitlets.Unicode("Residuals, largest error first").tag(sync=True)
    hint = traitlets.Unicode("").tag(sync=True)
    """Text next to the title."""
    caption = traitlets.Unicode("").tag(sync=True)
    n_stages = traitlets.Int(1).tag(sync=True)
    height = traitlets.Int(420).tag(sync=True)
    """Maximum pixels of the table. 0 fills the parent element."""

    def __init__(self, choose: Callable[[str], None] | None = None, **traits: Any) -> None:
        super().__init__(**traits)
        self._choose = choose

    @property
    def shown(self) -> dict[str, Any] | None:
        """The displayed table. None without tables."""
        found = [table for table in self.tables if table["key"] == self.table] or self.tables
        return found[0] if found else None

    def alt_text(self) -> str:
        table = self.shown
        if table is None or not table["rows"]:
            return f"{self.title}: nothing to compare yet"
        first = table["rows"][0]
        return f"{self.title}, {table['name']}: {first['label']} {format_error(first['error_s'], first['predicted_s'])}"

    def received(self, content: dict[str, Any], buffers: Sequence[Any]) -> None:
        match content:
            case {"kind": "choose", "id": str(chosen)} if self._choose is not None:
                self._choose(chosen)
