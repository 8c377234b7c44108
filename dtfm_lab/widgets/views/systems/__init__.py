"""Each system's iteration time, as bars of causes, with the fastest first. A click chooses one."""

from collections.abc import Sequence
from typing import Any

import traitlets

from dtfm_lab.domain.report import CHANGES
from dtfm_lab.domain.trace.causes import COMPUTE, STACKED
from dtfm_lab.domain.units import format_s
from dtfm_lab.figures.palette import CAUSE_COLORS, GREY
from dtfm_lab.widgets.markup import meaning
from dtfm_lab.widgets.views.view import View

COLORS = {one: CAUSE_COLORS.get("busy" if one == COMPUTE else one, GREY) for one in STACKED}
CAUSES = [{"name": one, "color": color, "word": one if meaning(one) else ""} for one, color in COLORS.items()]
"""Causes from left to right in every bar, with the colours of the figures. ``word`` is in the glossary."""


class SystemsView(View):
    """Draws ``rows``. A click, Enter or Space on one sets ``chosen`` to its name, or clears it if it is chosen already.

    A row that is not predicted yet only has "name" and "title". One without a plan has "reason".
    """

    rows = traitlets.List(traitlets.Dict()).tag(sync=True)
    """{"name", "title", "seconds", "times", "parts", "length", "cut", "shape", "mathematics", "reason", "ours",
    "taken"} of each system, in the order in which they are drawn.

    ``parts`` are [cause, seconds]. ``length`` is the bar's length as a share of the longest bar. A ``cut`` bar is drawn
    shorter than its seconds. ``times`` is its seconds divided by the fastest system's. ``ours`` marks the lab's own
    system, ``taken`` the one whose plan is the lab's. If a row is not an iteration, "told" and "beside" replace the
    text of its seconds and of ``times``.
    """
    causes = traitlets.List(traitlets.Dict(), CAUSES).tag(sync=True)
    changes = traitlets.Unicode(CHANGES).tag(sync=True)
    """Mark next to a system that changes the mathematics of the training."""
    chosen = traitlets.Unicode("").tag(sync=True)
    """Name of the chosen system. Empty for none."""
    title = traitlets.Unicode("What takes how long?").tag(sync=True)
    caption = traitlets.Unicode("").tag(sync=True)
    stale = traitlets.Unicode("").tag(sync=True)
    """Why the bars are out of date. Empty if they are not."""
    not_modelled = traitlets.Dict().tag(sync=True)
    """{system: why it has no model here}, in a list that a click opens."""
    empty_words = traitlets.Unicode("No comparison yet").tag(sync=True)

    def show(self, rows: Sequence[dict[str, Any]], stale: str = "") -> None:
        """Draw these rows."""
        with self.hold_sync():
            self.rows, self.stale = list(rows), stale

    def alt_text(self) -> str:
        parts = [f"{row['title']} {words_of(row)}" for row in self.rows if row.get("seconds") or row.get("reason")]
        return f"{self.title} {'; '.join(parts) or self.empty_words}"


def words_of(row: dict[str, Any]) -> str:
    """Return ``12.3 s, 1.50 x`` and any change to the mathematics, or the reason why a system has no plan."""
    if not row.get("seconds"):
        return f"has no plan: {row['reason']}"
    if row.get("told"):
        return f"{row['told']}, {row['beside']}"
    times = f", {row['times']:.2f} x" if row["times"] > 1 else ""
    differs = f" {CHANGES} {row['mathematics']}" if row.get("mathematics") else ""
    return f"{format_s(row['seconds'])}{times}{differs}"
