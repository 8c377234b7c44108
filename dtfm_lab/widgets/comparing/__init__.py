"""The step Compare: how wrong the prediction was, which devices and links are suspects, and a network fitted to the
run."""

import asyncio
from collections.abc import Callable
from html import escape

from dtfm_lab.compare import Comparison
from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.trace import LINK_SEPARATOR
from dtfm_lab.domain.units import counted
from dtfm_lab.widgets import markup
from dtfm_lab.widgets import quiet as w
from dtfm_lab.widgets.comparing.findings import Findings, Tile, hidden, sentences_html, tiles_html
from dtfm_lab.widgets.comparing.refitting import Refitting
from dtfm_lab.widgets.controls import Panel, classed, more_menu, pane, toolbar
from dtfm_lab.widgets.lab_state import Guard, LabState
from dtfm_lab.widgets.tasks import begin
from dtfm_lab.widgets.views.residuals import ResidualsView

NOTHING = Tile("Error", "–", "nothing measured yet"), Tile("From messages", "–", ""), Tile("From computation", "–", "")
BEGUN = "comparing action by action"
TITLES = {"links": "Messages", "devices": "Computation", "stages": "Computation"}
CLICK = "click a row to highlight it on the network"
SECRET = "Something is secretly slow. Read the residuals, then name it."


class ComparePanel(Panel):
    """Shows ``lab_state.comparison``. Clicking a row selects its device, stage or link in the lab's state."""

    def __init__(self, lab_state: LabState, plan_again: Callable[[], None], guessing: w.Widget) -> None:
        """``plan_again`` starts a search, see ``Refitting``. With the control ``guessing``, the user names what is
        secretly slow in a mystery run."""
        self._lab_state, self._is_opening, self._chosen = lab_state, Guard(), ""
        self._findings: Findings | None = None
        self._devices_of: dict[str, tuple[str, ...]] = {}
        self.tiles, self.summary = w.HTML(), w.HTML()
        self.residuals = classed(ResidualsView(self._choose, height=0), "dtfm-fill")
        self._traits = {name: (self.residuals, name) for name in ("table", "sort_by", "descending")}
        self.refitting = Refitting(lab_state, plan_again)
        self.refit = self.refitting.button
        self.error = w.HTML()
        self.view = self._laid_out(guessing)
        lab_state.observe(lambda _: self._show(), "comparison")
        lab_state.observe(lambda _: self._show_findings(), "is_mystery")
        lab_state.observe(lambda _: self._mark(), ["selected", "selected_link", "selected_stage"])
        self.residuals.observe(lambda change: self._choose_table(change["new"]), "table")
        self._show()

    def redo(self) -> None:
        self.refitting.redo()

    def select(self, of: str, name: str) -> None:
        """Select a "link" ("a -> b"), a "device", a device's "nic" or a "stage" in the lab's state."""
        state = self._lab_state
        with state.hold_trait_notifications():
            state.selected_link = tuple(name.split(LINK_SEPARATOR, 1)) if of == "link" else ()
            state.selected_stage = int(name) if of == "stage" else -1
            state.selected = () if of == "link" else self._devices_of.get(name, ()) if of == "stage" else (name,)

    def _laid_out(self, guessing: w.Widget) -> w.VBox:
        what = "The verdict, every suspect and the fitted values"
        more = more_menu([self.summary, self.refitting.table], "In sentences", what)
        self.refitting.note.add_class("dtfm-grow")
        refitting = [self.refit, self.refitting.use, self.refitting.again, self.refitting.note]
        row = toolbar(guessing, *refitting, self.error, more)
        return pane([row, self.tiles, self.residuals], "dtfm-compare")

    def _show(self) -> None:
        comparison = self._lab_state.comparison
        self.error.value = ""
        self._findings = None
        self._lab_state.set_note("compare", "")
        self.refitting.follow(comparison, None if comparison is None else self._plan())
        self.residuals.caption = "" if comparison is None else BEGUN
        if comparison is None:
            self._show_findings()
            return
        self.tiles.value = tiles_html((Tile("Error", "…", BEGUN), *NOTHING[1:]))
        # Here, because a comparison is of one plan, and the lab may show another since.
        by_stage = comparison.rows.groupby("stage")["device"].unique()
        self._devices_of = {str(stage): tuple(names) for stage, names in by_stage.items()}
        begin(self._find(comparison), self._report_error)

    async def _find(self, comparison: Comparison) -> None:
        found = await asyncio.to_thread(Findings.of, comparison)
        if comparison is not self._lab_state.comparison:
            return
        self._findings = found
        self.residuals.caption = "; ".join(filter(None, [found.drift, _of_what(comparison)]))
        self._show_findings()

    def _show_findings(self) -> None:
        """Show the findings. While something is secretly slow, hide everything that names it."""
        found, secret = self._findings, self._lab_state.is_mystery
        # A fit would name what is slow.
        self.refitting.hold(secret=secret)
        self._lab_state.suspects = () if found is None or secret else found.suspects
        if found is None:
            self.tiles.value = tiles_html(NOTHING)
            self.summary.value = markup.line("Nothing to compare yet: press Run first.", "note")
            self.residuals.tables = []
            return
        self.tiles.value = tiles_html(found.tiles, secret=secret)
        self.summary.value = sentences_html((SECRET,) if secret else found.sentences)
        self._lab_state.set_note("compare", SECRET if secret else found.headline)
        with self.residuals.hold_sync():
            self.residuals.tables = hidden(found.tables) if secret else found.tables
            self.residuals.n_stages = len(self._devices_of)
            if not self._chosen:  # messages of emulated links were not timed, so open on what was measured
                with self._is_opening:
                    self.residuals.table = "devices" if found.links_by_model else "links"
        self._mark()
        if not secret and self.refitting.found is None:
            self.refitting.begin()

    def _plan(self) -> Plan | None:
        """Return the plan that ran. If it is unknown, return the lab's plan with ``lab_state.choices``. None without a
        plan, or if its job does not allow them."""
        try:
            return self._lab_state.ran or self._lab_state.chosen_plan
        except LabError:
            return None

    def _choose_table(self, table: str) -> None:
        if not self._is_opening:
            self._chosen = table
        self._mark()

    def _choose(self, row: str) -> None:
        self.select({"links": "link", "devices": "device"}.get(self.residuals.table, "stage"), row)

    def _mark(self) -> None:
        """Mark the rows of the selected devices, stage or link."""
        state, table = self._lab_state, self.residuals.table
        order = "by name" if state.is_mystery else "largest error first"
        self.residuals.title = f"{TITLES.get(table, 'Residuals')}, {order}"
        self.residuals.hint = CLICK
        if table == "links":
            self.residuals.selected = [LINK_SEPARATOR.join(state.selected_link)] if state.selected_link else []
        elif table == "devices":
            self.residuals.selected = list(state.selected)
        else:
            chosen, stage = set(state.selected), state.selected_stage
            whole = [key for key, names in self._devices_of.items() if chosen and set(names) <= chosen]
            self.residuals.selected = [str(stage)] if stage >= 0 else whole

    def _report_error(self, message: str) -> None:
        self.error.value = markup.line(escape(message), "warning")


def _of_what(comparison: Comparison) -> str:
    measured = comparison.measured
    n, context = measured.n_iterations, measured.context
    sure = ", lines: 95 % interval" if n > 1 else ""
    late = f"; {counted(context.late_messages, 'late message')}" if context.late_messages else ""
    return f"mean of {counted(n, 'iteration')}, {context.provenance}{late}{sure}"
