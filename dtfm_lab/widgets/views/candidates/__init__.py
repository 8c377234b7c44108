"""A table to choose from: each schedule on one plan, filled in as rows are computed."""

from collections.abc import Mapping
from typing import Any

import traitlets

from dtfm_lab.domain.units import format_s
from dtfm_lab.figures.palette import SKY
from dtfm_lab.figures.theme import literal
from dtfm_lab.widgets.views.view import Figure, View


class CandidatesView(View):
    """Draws rows {"name", "iteration_s", "bubble", "memory", "fits", "problem"}; a click sets ``chosen``.

    A row that is not computed yet has a name only; one that cannot be computed has ``problem``, the reason as one line.
    """

    rows = traitlets.List(traitlets.Dict()).tag(sync=True)
    chosen = traitlets.Unicode("").tag(sync=True)
    title = traitlets.Unicode("Schedules").tag(sync=True)
    caption = traitlets.Unicode("").tag(sync=True)
    stale = traitlets.Bool(False).tag(sync=True)
    """Whether the rows were computed for a plan or choices that have changed since."""

    def figure(self) -> Figure | None:
        if not self.rows:
            return None
        seconds = [row.get("iteration_s", 0.0) for row in self.rows]
        names = [f"<b>{row['name']}</b>" if row["name"] == self.chosen else row["name"] for row in self.rows]
        at = list(range(len(names)))
        bars = {"type": "bar", "orientation": "h", "x": seconds, "y": at, "width": 0.65, "marker": {"color": SKY}}
        return {
            "data": [bars | {"text": [literal(_row_words(row)) for row in self.rows], "textposition": "outside"}],
            "layout": {
                "title": {"text": literal(self.title)},
                "height": 90 + 26 * len(at),
                "margin": {"b": 20},
                "xaxis": {"range": [0, 3.2 * max(seconds) or 1.0], "showgrid": False, "showticklabels": False},
                "yaxis": {"tickvals": at, "ticktext": names, "autorange": "reversed", "showgrid": False},
            },
        }

    def alt_text(self) -> str:
        computed = [
            f"{row['name']} {format_s(row['iteration_s'])}" + ("" if row["fits"] else ", which does not fit")
            for row in self.rows
            if "iteration_s" in row
        ]
        return f"{self.title}: {'; '.join(computed) or 'none computed yet'}"


def _row_words(row: Mapping[str, Any]) -> str:
    """Return the text beside a schedule's bar."""
    if "iteration_s" not in row:
        return str(row.get("problem", "…"))
    fits = "" if row["fits"] else " · does not fit"
    return f"{format_s(row['iteration_s'])} · bubble {row['bubble']:.1%} · {row['memory']}{fits}"
