"""Step 6: the prediction beside the measurement: who is to blame, since when, and what would have been right."""

from __future__ import annotations

import asyncio
from html import escape
from typing import Any

import ipywidgets as w
import pandas as pd

from dtfm_lab import lab
from dtfm_lab.compare import Comparison, Refit
from dtfm_lab.compare.refit import in_units
from dtfm_lab.domain.origin import origin
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Kind
from dtfm_lab.domain.units import format_s
from dtfm_lab.figures.palette import KIND_NAMES
from dtfm_lab.widgets import markup
from dtfm_lab.widgets.bars import DRAWN
from dtfm_lab.widgets.bench import Bench
from dtfm_lab.widgets.tasks import begin

WORST_LINKS = 12
MOST_SUSPECTS = 6
MOST_FITTED = 12
COLUMNS = ["", "predicted", "measured", "error", "relative"]
FITTED = ["drawn", "fitted", "low", "high"]


class ComparePanel:
    """Shows ``bench.comparison``, and refits it when told to."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._plan: Plan | None = None
        self.summary, self.blame = w.HTML(), w.HTML()
        self.stages, self.kinds, self.links = w.HTML(), w.HTML(), w.HTML()
        self.refit = w.Button(
            description="Refit",
            icon="wrench",
            layout=w.Layout(width="105px", display="none"),
            tooltip="Fit latencies, bandwidths and computations to what was measured, and predict anew",
        )
        self.fitted = w.HTML()
        tables = w.HBox([self.stages, self.kinds, self.links], layout=w.Layout(flex_flow="row wrap"))
        self.view = w.VBox([self.summary, self.blame, self.refit, self.fitted, tables])
        self.refit.on_click(lambda _: self._press())
        bench.observe(lambda _: self._show(), "comparison")
        self._show()

    def _show(self) -> None:
        comparison = self._bench.comparison
        self.blame.value = self.fitted.value = ""
        self.refit.layout.display = "none" if comparison is None else ""
        if comparison is None:
            self.summary.value = markup.line("Nothing measured yet: run the plan first.")
            self.stages.value = self.kinds.value = self.links.value = ""
            return
        self._plan = self._bench.chosen_plan
        context = comparison.measured.context
        self.summary.value = markup.line(
            f"predicted {format_s(comparison.predicted_iteration_s)}, measured "
            f"<b>{format_s(comparison.measured.iteration_s)}</b> (median of {comparison.measured.n_iterations}, "
            f"{escape(origin(context))}): <b>error {comparison.iteration_error:+.2%}</b>; "
            f"{context.late_messages} late messages, {context.overruns} overruns. Errors are predicted less measured.",
            "figure",
        )
        begin(self._tell(comparison), self._complain)
        self.stages.value = markup.table(COLUMNS, _rows(comparison.stages, "stage {}"), "Computing, per stage")
        names = {str(kind): KIND_NAMES[kind] for kind in DRAWN}
        kinds = comparison.kinds[comparison.kinds.index.isin(names)].rename(index=names)
        self.kinds.value = markup.table(COLUMNS, _rows(kinds, "{}"), "One action, per kind")
        self.links.value = _links(comparison)

    async def _tell(self, comparison: Comparison) -> None:
        """Suspects first, one line each, then since when."""
        lines = await asyncio.to_thread(_blamed, comparison)
        if comparison is self._bench.comparison:
            self.blame.value = lines

    def _press(self) -> None:
        if self._bench.comparison is not None and not self.refit.disabled:
            begin(self._refit(self._bench.comparison), self._complain)

    async def _refit(self, comparison: Comparison) -> None:
        if self._plan is None:
            return
        self.refit.disabled = True
        self.fitted.value = markup.line("fitting links and computations")
        try:
            found = await asyncio.to_thread(comparison.refit, self._plan, lab.simulate)
        finally:
            self.refit.disabled = False
        if comparison is self._bench.comparison:
            self.fitted.value = _fitted(found)

    def _complain(self, message: str) -> None:
        self.fitted.value = markup.line(escape(message), "warning")


def _blamed(comparison: Comparison) -> str:
    """HTML; takes a moment."""
    sentences = comparison.suspects["sentence"].tolist()
    lines = [markup.line(escape(sentence), "warning") for sentence in sentences[:MOST_SUSPECTS]]
    if (more := len(sentences) - MOST_SUSPECTS) > 0:
        lines.append(markup.line(f"and {more} more, in <code>comparison.suspects</code>"))
    told = [*lines, markup.line(escape(comparison.verdict)), markup.line(escape(comparison.drift.sentence))]
    return "".join(told).replace("-&gt;", "→")


def _fitted(found: Refit) -> str:
    """The new error, and the values that were drawn out of their intervals."""
    off = found.off
    line = markup.line(
        f"<b>{escape(found.sentence)}</b>; {len(off)} of {len(found.table)} values drawn out of their 95 % intervals",
        "figure",
    )
    if not len(off):
        return line
    rows = [
        [_of(row), *(in_units(row.what, getattr(row, column)) for column in FITTED)]
        for row in off.head(MOST_FITTED).itertuples(index=False)
    ]
    more = f" (furthest {MOST_FITTED} of {len(off)})" if len(off) > MOST_FITTED else ""
    return line + markup.table(["", *FITTED], rows, f"Out of their intervals{more}")


def _of(row: Any) -> str:
    if row.of == "link":
        return f"{row.name.replace('->', '→')}, {row.what.split('_')[0]}"
    return f"{row.name}, {KIND_NAMES[Kind(row.kind)]} of stage {row.stage}"


def _rows(frame: pd.DataFrame, label: str) -> list[list[str]]:
    return [
        [
            label.format(name),
            format_s(float(row["predicted_s"])),
            format_s(float(row["measured_s"])),
            format_s(float(row["error_s"])),
            "" if pd.isna(row["relative_error"]) else f"{row['relative_error']:+z.1%}",
        ]
        for name, row in frame.iterrows()
    ]


def _links(comparison: Comparison) -> str:
    links = comparison.links
    worst = links["arrival_error_s"].abs().sort_values(ascending=False, kind="stable").index[:WORST_LINKS]
    rows = [
        [
            str(name).replace("->", "→"),
            format_s(float(links.at[name, "predicted_s"])),
            format_s(float(links.at[name, "measured_s"])),
            format_s(float(links.at[name, "arrival_error_s"])),
        ]
        for name in worst
    ]
    caption = "Messages, per link" + (f" (worst {WORST_LINKS} of {len(links)})" if len(links) > WORST_LINKS else "")
    return markup.table(["", "predicted", "measured", "arrival error"], rows, caption)
