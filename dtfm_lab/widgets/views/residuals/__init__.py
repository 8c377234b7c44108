"""Measured less predicted, row by row: a table to sort, with bars left and right of zero."""

from collections.abc import Callable
from typing import Any

import traitlets

from dtfm_lab.compare.errors import signed_s
from dtfm_lab.figures.palette import BLUE, ORANGE
from dtfm_lab.figures.theme import literal, short
from dtfm_lab.widgets.comparing.residuals import relative
from dtfm_lab.widgets.views.view import Figure, View

MOST_ROWS = 24
"""Most rows of the still picture."""


class ResidualsView(View):
    """Draws one of several tables; a click on a row that ``selects`` calls ``choose`` with its id."""

    tables = traitlets.List(traitlets.Dict()).tag(sync=True)
    """The tables, as ``residuals.tables`` returns them."""
    table = traitlets.Unicode("links").tag(sync=True)
    """The key of the table that is shown."""
    sort_by = traitlets.Enum(["label", "predicted_s", "measured_s", "error_s", "relative"], "error_s").tag(sync=True)
    descending = traitlets.Bool(True).tag(sync=True)
    """Whether the largest come first; errors are sorted by size."""
    selected = traitlets.List(traitlets.Unicode()).tag(sync=True)
    """The ids of the selected rows."""
    title = traitlets.Unicode("Residuals").tag(sync=True)
    caption = traitlets.Unicode("").tag(sync=True)

    def __init__(self, choose: Callable[[str], None] | None = None, **traits: Any) -> None:
        super().__init__(**traits)
        self._choose = choose
        self.on_msg(self._on_message)

    @property
    def shown(self) -> dict[str, Any] | None:
        """The table that is shown; None before any."""
        found = [table for table in self.tables if table["key"] == self.table] or self.tables
        return found[0] if found else None

    def figure(self) -> Figure | None:
        table = self.shown
        if table is None or not table["rows"]:
            return None
        rows = table["rows"][:MOST_ROWS]
        more = f", largest {len(rows)} of {table['count']}" if len(rows) < table["count"] else ""
        errors = [row["error_s"] for row in rows]
        texts = [signed_s(row["error_s"]) + ("" if row["relative"] is None else f" ({relative(row)})") for row in rows]
        margin = 0.35 * (max(0.0, *errors) - min(0.0, *errors))
        bars = {
            "type": "bar",
            "orientation": "h",
            "x": errors,
            "y": list(range(len(rows))),
            "text": texts,
            "width": 0.6,
        }
        labels = {"tickvals": bars["y"], "ticktext": short(row["label"] for row in rows), "autorange": "reversed"}
        reach = [min(0.0, *errors) - margin * (min(errors) < 0), max(0.0, *errors) + margin * (max(errors) > 0)]
        return {
            "data": [
                bars | {"textposition": "outside", "marker": {"color": [ORANGE if e < 0 else BLUE for e in errors]}}
            ],
            "layout": {
                "title": {"text": f"{literal(table['name'])}: measured less predicted{more}"},
                "height": 110 + 22 * len(rows),
                "xaxis": {"range": reach, "ticksuffix": " s"},
                "yaxis": labels | {"showgrid": False},
                "shapes": [{"type": "line", "x0": 0, "x1": 0, "yref": "paper", "y0": 0, "y1": 1, "line": {"width": 1}}],
            },
        }

    def alt_text(self) -> str:
        table = self.shown
        if table is None or not table["rows"]:
            return f"{self.title}: nothing to compare yet"
        worst = table["rows"][0]
        return f"{self.title}, {table['name']}: largest {worst['label']}, {relative(worst)} of the predicted"

    def _on_message(self, _widget: object, content: dict[str, Any], _buffers: object) -> None:
        match content:
            case {"kind": "choose", "id": str(chosen)} if self._choose is not None:
                self._choose(chosen)
