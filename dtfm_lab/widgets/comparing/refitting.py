"""Links and computing times fitted to the measurement, compared with the ones on the canvas."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from html import escape
from typing import Any

import numpy as np
import pandas as pd

from dtfm_lab import lab
from dtfm_lab.compare import Comparison, Refit
from dtfm_lab.compare.refit import ROUNDING, in_units
from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Kind
from dtfm_lab.domain.units import counted
from dtfm_lab.figures.palette import KIND_NAMES
from dtfm_lab.widgets import markup
from dtfm_lab.widgets import quiet as w
from dtfm_lab.widgets.controls import button, show
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.tasks import begin

FITS = "Fit latencies, bandwidths and computing times to what was measured"
USES = "Replace the drawn links with the fitted ones"
MOST_FITTED = 12
"""Maximum rows of the table of fitted values."""
HEAD = ["", "drawn", "fitted", "95 % interval", "times the drawn", "note"]


class Refitting:
    """A button that fits the network to a measured run, a table of the fitted values, and a button that draws the
    fitted network."""

    def __init__(self, lab_state: LabState, plan_again: Callable[[], None]) -> None:
        """``plan_again`` starts a search on the lab's network."""
        self._lab_state = lab_state
        self._comparison: Comparison | None = None
        self._plan: Plan | None = None
        self._drawn: Topology | None = None
        """The network with the fitted links. None if another network is drawn."""
        self._note = ""
        """The line about the fit, shown again when the fitted network is no longer drawn."""
        self._is_secret = self._is_fitting = False
        self.found: Refit | None = None
        self.button = button("Refit", "", FITS, "auto")
        self.use = button("Use the refitted network", "", USES, "auto")
        self.again = button("Plan again", "", "Search again on the refitted network", "auto")
        self.table, self.note = w.HTML(), w.HTML(layout=w.Layout(min_width="0"))
        self.button.on_click(lambda _: self.redo())
        self.use.on_click(lambda _: self.apply())
        self.again.on_click(lambda _: plan_again())
        lab_state.observe(lambda _: self._follow_drawing(), ["topology", "plan"])
        self.follow(None, None)

    def follow(self, comparison: Comparison | None, plan: Plan | None) -> None:
        """Use this comparison for the next fit, and drop the last fit. ``plan`` is the plan that ran, None if it is
        unknown."""
        self._comparison, self._plan, self.found, self._drawn = comparison, plan, None, None
        self.table.value = self.note.value = ""
        show(self.again, False)
        self._update_buttons()

    def hold(self, *, secret: bool) -> None:
        """Hide and disable fitting if ``secret``, otherwise allow it again. While a mystery slows something, fitted
        values would reveal it."""
        self._is_secret = secret
        self._update_buttons()

    @property
    def is_useful(self) -> bool:
        """True if a refit exists that changes links and predicts at least as well as the drawn network."""
        return self.found is not None and not self.found.is_worse and _links_differ(self.found)

    def begin(self) -> None:
        """Fit without being asked, if the plan that ran is known."""
        if self._plan is not None:
            self.redo()

    def redo(self) -> None:
        if self._comparison is None or self.button.disabled:
            return
        if self._plan is None:
            self._report_error("The plan of this run is gone: run again, then refit.")
            return
        begin(self._refit(self._comparison, self._plan), self._report_error)

    async def _refit(self, comparison: Comparison, plan: Plan) -> None:
        self._is_fitting = True
        self._lab_state.set_busy("compare", True)
        self.note.value = markup.line("fitting links and computations")
        self._update_buttons()
        try:
            found = await asyncio.to_thread(comparison.refit, plan, lab.simulate)
        except LabError:
            # Another comparison has replaced this one, and the error is not about it.
            if comparison is self._comparison:
                raise
            return
        finally:
            self._is_fitting = False
            self._update_buttons()
            self._lab_state.set_busy("compare", False)
        if comparison is not self._comparison:
            return
        self.found = found
        self.table.value = _fitted(found)
        links = "" if _links_differ(found) else "every link is as drawn, only computing times were fitted: "
        self.note.value = markup.line(escape(f"{links}{found.sentence}"), "warning" if found.is_worse else "note")
        self._update_buttons()

    def apply(self) -> None:
        """Draw the network with the fitted links."""
        if self.found is None or self._plan is None or self.use.disabled:
            return
        self._lab_state.topology = _with_fitted_links(self._lab_state.topology, self._plan, self.found)
        self._drawn, self._note = self._lab_state.topology, self.note.value
        self._follow_drawing()

    def _follow_drawing(self) -> None:
        """Say whether the plan is for the fitted network. Once another network is drawn, describe the fit again."""
        if self._drawn is None:
            return
        is_drawn, is_stale = self._lab_state.topology is self._drawn, self._lab_state.plan_is_stale
        planned = ", but the plan is for the previous network: plan again" if is_stale else ""
        self.note.value = markup.line(f"The fitted links are drawn{planned}.") if is_drawn else self._note
        show(self.again, is_drawn and is_stale)
        self._drawn = self._drawn if is_drawn else None

    def _update_buttons(self) -> None:
        """Enable the buttons that can be used. A disabled button gives the reason."""
        why = "Nothing measured yet: press Run first" if self._comparison is None else ""
        why = "Not while something is secretly slow: a fit would reveal it" if self._is_secret else why
        for each in (self.button, self.use, self.note):
            show(each, not self._is_secret)
        self.button.disabled = bool(why) or self._is_fitting
        self.button.tooltip = why or FITS
        if self.found is None:
            why = why or "Refit first"
        elif not _links_differ(self.found):
            why = "Every link is as drawn: only computing times were fitted, so the network stays as it is"
        self.use.disabled = bool(why)
        self.use.tooltip = why or USES

    def _report_error(self, message: str) -> None:
        self.note.value = markup.line(escape(message), "warning")


def _with_fitted_links(drawn: Topology | None, plan: Plan, found: Refit) -> Topology:
    """Return the drawn network with the fitted values of all links that the fit changed and whose ends are drawn.

    If none of the fitted devices is drawn, start from the plan's network instead.
    """
    before, fitted = plan.topology, found.topology
    # Another network is open, so the fit starts from the plan's own.
    if drawn is None or not set(fitted.names) & set(drawn.names):
        drawn = before
    # Numbers of the page come back rounded, which does not count as a change.
    changed = ~np.isclose(fitted.latency_s, before.latency_s, rtol=ROUNDING, atol=0.0)
    changed |= ~np.isclose(fitted.bandwidth_bytes_per_s, before.bandwidth_bytes_per_s, rtol=ROUNDING, atol=0.0)
    latency_s, bandwidth = drawn.latency_s.copy(), drawn.bandwidth_bytes_per_s.copy()
    message_s = None if drawn.message_s is None else drawn.message_s.copy()
    at = {name: i for i, name in enumerate(drawn.names)}
    for i, j in np.argwhere(changed).tolist():
        here, there = at.get(fitted.names[i]), at.get(fitted.names[j])
        if i == j or here is None or there is None:
            continue
        latency_s[here, there], bandwidth[here, there] = fitted.latency_s[i, j], fitted.bandwidth_bytes_per_s[i, j]
        # Times measured for the old link are wrong for the new one.
        if message_s is not None:
            message_s[here, there] = np.nan
    return replace(drawn, latency_s=latency_s, bandwidth_bytes_per_s=bandwidth, message_s=message_s)


def _links_differ(found: Refit) -> bool:
    links = found.table[found.table["of"] == "link"]
    return bool((np.abs(links["fitted"] - links["drawn"]) > ROUNDING * links["drawn"].abs()).any())


def _fitted(found: Refit) -> str:
    """Return HTML of the error before and after the fit, and of up to ``MOST_FITTED`` values whose 95 % interval leaves
    out the drawn value."""
    off = found.off
    n_off = f"{len(off)} of {counted(len(found.table), 'value')}"
    line = markup.line(f"<b>{escape(found.sentence)}</b>; {n_off} were drawn outside their 95 % intervals", "figure")
    if not len(off):
        return line
    rows = [_row(row) for row in off.head(MOST_FITTED).itertuples(index=False)]
    more = f", furthest {MOST_FITTED} of {len(off)}" if len(off) > MOST_FITTED else ""
    html = markup.table(pd.DataFrame(rows, columns=HEAD).map(escape), "dtfm-fitted", "fitted values")
    return f"{line}<p>Drawn outside their intervals{more}</p>{html}"


def _row(row: Any) -> list[str]:
    if row.of == "link":
        name = f"{row.name.replace('->', '→')}, {row.what.split('_')[0]}"
    else:
        name = f"{row.name}, {KIND_NAMES[Kind(row.kind)]} of stage {row.stage}"
    is_known = pd.notna(row.drawn)
    times = f"{row.fitted / row.drawn:.3g}" if is_known and row.drawn and pd.notna(row.fitted) else ""
    drawn = in_units(row.what, row.drawn) if is_known else "unknown"
    fitted, low, high = (in_units(row.what, value) for value in (row.fitted, row.low, row.high))
    return [name, drawn, fitted, f"{low} to {high}", times, row.note]
