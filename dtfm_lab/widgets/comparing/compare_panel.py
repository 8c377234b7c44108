"""The step Compare: prediction against measurement, the suspects, and a refit of the network."""

import asyncio
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

import ipywidgets as w
import plotly.graph_objects as go

from dtfm_lab import figures
from dtfm_lab.compare import Comparison
from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import format_s
from dtfm_lab.figures.theme import count
from dtfm_lab.widgets import markup
from dtfm_lab.widgets.comparing.refitting import Refitting
from dtfm_lab.widgets.comparing.residuals import tables
from dtfm_lab.widgets.comparing.suspects import SuspectList
from dtfm_lab.widgets.controls import show, stylesheet
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.panel import Panel
from dtfm_lab.widgets.tasks import begin
from dtfm_lab.widgets.views.as_figure import AsFigure
from dtfm_lab.widgets.views.residuals import ResidualsView

ARROW = " -> "
SAVED = ("table", "sort_by", "descending")
"""Traits of the residuals view that a workspace keeps."""
BESIDE_ZERO = "right of 0: later or longer than predicted; left: earlier or shorter"


class ComparePanel(Panel):
    """Shows ``lab_state.comparison``; a click on a row selects its device or link in the lab's state."""

    hint = "where the prediction was wrong"

    def __init__(self, lab_state: LabState, plan_again: Callable[[], None] | None = None) -> None:
        """``plan_again`` starts a search, see ``Refitting``."""
        self._lab_state = lab_state
        self._devices_of: dict[str, tuple[str, ...]] = {}
        self.summary = w.HTML()
        self.suspects = SuspectList(self.select)
        self.residuals = ResidualsView(self._choose, title="Residuals")
        self.refitting = Refitting(lab_state, plan_again)
        self.refit = self.refitting.button
        self.as_figure = AsFigure(self._residuals_figure, lab_state, self._report_error)
        self.blame_as_figure = AsFigure(self._blame_figure, lab_state, self._report_error)
        self._figures = w.HBox([w.HTML(), self.as_figure.button, w.HTML(), self.blame_as_figure.button])
        self._figures.children[0].value = markup.line("Residuals:")
        self._figures.children[2].value = markup.line("Who is to blame:")
        outputs = [self.as_figure.output, self.blame_as_figure.output]
        self.error = w.HTML()
        parts = [self.summary, self.suspects.view, self.residuals, self._figures, self.error, *outputs]
        self.view = w.VBox([stylesheet(Path(__file__).with_name("compare.css")), *parts, self.refitting.view])
        lab_state.observe(lambda _: self._show(), "comparison")
        lab_state.observe(lambda _: self._mark(), ["selected", "selected_link"])
        self.residuals.observe(lambda _: self._mark(), "table")
        self._show()

    def settings(self) -> dict[str, Any]:
        """Return which table is shown, and in what order."""
        return {name: getattr(self.residuals, name) for name in SAVED}

    def restore(self, settings: dict[str, Any]) -> None:
        for name in SAVED:
            if name in settings and self._is_possible(name, settings[name]):
                setattr(self.residuals, name, settings[name])

    def redo(self) -> None:
        self.refitting.redo()

    def select(self, of: str, name: str) -> None:
        """Select a "link" ("a -> b"), a "device", a "card" (of a device) or a "stage" in the lab's state."""
        if of == "link":
            self._lab_state.selected_link = tuple(name.split(ARROW, 1))
        elif of == "stage":
            self._lab_state.selected = self._devices_of.get(name, ())
        else:
            self._lab_state.selected = (name,)

    def _show(self) -> None:
        comparison = self._lab_state.comparison
        self.suspects.clear()
        self.error.value = ""
        self.residuals.tables = []
        for part in (self.residuals, self._figures):
            show(part, comparison is not None)
        for made in (self.as_figure, self.blame_as_figure):
            made.put_away()  # it is of another comparison
        self.refitting.follow(comparison, None if comparison is None else self._plan())
        if comparison is None:
            self.summary.value = markup.line("Nothing measured yet: run the plan first.")
            return
        by_stage = comparison.rows.groupby("stage")["device"].unique()
        self._devices_of = {str(stage): tuple(names) for stage, names in by_stage.items()}
        self.summary.value = markup.line(_summary(comparison), "figure")
        begin(self.suspects.show(comparison, lambda: comparison is self._lab_state.comparison), self._report_error)
        begin(self._tabulate(comparison), self._report_error)

    async def _tabulate(self, comparison: Comparison) -> None:
        self.residuals.caption = "comparing action by action"
        found = await asyncio.to_thread(tables, comparison)
        if comparison is self._lab_state.comparison:
            with self.residuals.hold_sync():
                self.residuals.tables = found
                self.residuals.caption = BESIDE_ZERO + _noise(comparison)
            self._mark()

    def _plan(self) -> Plan | None:
        """Return the plan that ran; where it is unknown, the plan with the choices."""
        try:
            return self._lab_state.ran or self._lab_state.chosen_plan
        except LabError:
            return None

    def _choose(self, row: str) -> None:
        of = {"links": "link", "messages": "link", "devices": "device", "stages": "stage"}.get(self.residuals.table)
        if of is not None:
            self.select(of, row)

    def _mark(self) -> None:
        """Mark the rows of the devices or the link that are selected in the lab's state."""
        chosen, link = self._lab_state.selected, self._lab_state.selected_link
        match self.residuals.table:
            case "links" | "messages":
                self.residuals.selected = [ARROW.join(link)] if link else []
            case "devices":
                self.residuals.selected = list(chosen)
            case "stages":
                by_stage = self._devices_of.items()
                self.residuals.selected = [stage for stage, names in by_stage if set(names) <= set(chosen)]
            case _:
                self.residuals.selected = []

    def _is_possible(self, name: str, value: object) -> bool:
        match name:
            case "descending":
                return isinstance(value, bool)
            case "sort_by":
                return value in self.residuals.traits()["sort_by"].values
        return value in ("links", "messages", "devices", "stages", "kinds")

    def _residuals_figure(self) -> go.Figure | None:
        comparison = self._lab_state.comparison
        return None if comparison is None else figures.comparison(comparison)

    def _blame_figure(self) -> go.Figure | None:
        comparison = self._lab_state.comparison
        return None if comparison is None else figures.blame(comparison)

    def _report_error(self, message: str) -> None:
        self.error.value = markup.line(escape(message), "warning")


def _summary(comparison: Comparison) -> str:
    context = comparison.measured.context
    return (
        f"predicted {format_s(comparison.predicted_iteration_s)}, measured "
        f"<b>{format_s(comparison.measured.iteration_s)}</b> (median of {comparison.measured.n_iterations}, "
        f"{escape(context.provenance)}): <b>error {comparison.error_text}</b>; "
        f"{count(context.late_messages, 'late message')}, {count(context.overruns, 'overrun')}."
    )


def _noise(comparison: Comparison) -> str:
    n = comparison.measured.n_iterations
    return f" · whiskers: 95 % interval over {n} iterations" if n > 1 else " · one iteration, so no interval"
