"""Step 6: the prediction beside the measurement, stage by stage and link by link."""

from __future__ import annotations

import ipywidgets as w
import pandas as pd

from dtfm_lab.compare import Comparison
from dtfm_lab.domain.units import format_s
from dtfm_lab.figures.palette import KIND_NAMES
from dtfm_lab.widgets import markup
from dtfm_lab.widgets.bars import DRAWN
from dtfm_lab.widgets.bench import Bench

WORST_LINKS = 12
COLUMNS = ["", "predicted", "measured", "error", "relative"]


class ComparePanel:
    """Shows ``bench.comparison``."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self.summary = w.HTML()
        self.stages, self.kinds, self.links = w.HTML(), w.HTML(), w.HTML()
        tables = w.HBox([self.stages, self.kinds, self.links], layout=w.Layout(flex_flow="row wrap"))
        self.view = w.VBox([self.summary, tables])
        bench.observe(lambda _: self._show(), "comparison")
        self._show()

    def _show(self) -> None:
        comparison = self._bench.comparison
        if comparison is None:
            self.summary.value = markup.line("Nothing measured yet: run the plan first.")
            self.stages.value = self.kinds.value = self.links.value = ""
            return
        context = comparison.measured.context
        self.summary.value = markup.line(
            f"predicted {format_s(comparison.predicted_iteration_s)}, measured "
            f"<b>{format_s(comparison.measured.iteration_s)}</b> (median of {comparison.measured.n_iterations}, "
            f"{context.clock} clock, {context.links} links): <b>error {comparison.iteration_error:+.2%}</b>; "
            f"{context.late_messages} late messages, {context.overruns} overruns. Negative: predicted too little.",
            "figure",
        )
        self.stages.value = markup.table(COLUMNS, _rows(comparison.stages, "stage {}"), "Computing, per stage")
        names = {str(kind): KIND_NAMES[kind] for kind in DRAWN}
        kinds = comparison.kinds[comparison.kinds.index.isin(names)].rename(index=names)
        self.kinds.value = markup.table(COLUMNS, _rows(kinds, "{}"), "One action, per kind")
        self.links.value = _links(comparison)


def _rows(frame: pd.DataFrame, label: str) -> list[list[str]]:
    return [
        [
            label.format(name),
            format_s(float(row["predicted_s"])),
            format_s(float(row["measured_s"])),
            format_s(float(row["error_s"])),
            "" if pd.isna(row["relative_error"]) else f"{row['relative_error']:+.1%}",
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
