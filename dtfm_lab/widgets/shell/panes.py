"""The two halves of the lab: the network and the inspector on the left, one or two results on the right.

Results are under tabs, and nothing in their half changes its height.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from dtfm_lab.domain.errors import TopologyError
from dtfm_lab.domain.network import find_place
from dtfm_lab.widgets import markup
from dtfm_lab.widgets import quiet as w
from dtfm_lab.widgets.controls import Panel, button, classed, mark, more_menu, show, spacer, toggle
from dtfm_lab.widgets.lab_state import RESULT_TRAITS, LabState
from dtfm_lab.widgets.network.links import with_link
from dtfm_lab.widgets.network.network_panel import VIEWS, NetworkPanel
from dtfm_lab.widgets.shell.inspection import inspect
from dtfm_lab.widgets.shell.selection import SelectionAnswers, fields_of, with_field
from dtfm_lab.widgets.tasks import SLOW_S, OncePerTurn, begin, has_event_loop
from dtfm_lab.widgets.views.frame import Inspector, TabsView

PLAN = "Plan"
SEARCH = "Search"
WHAT_IF = "What if"
RUN = "Run"
SYSTEMS = "Systems"
LEARN = "Learn"
TABS = (PLAN, SEARCH, WHAT_IF, RUN, SYSTEMS, LEARN)
"""The tabs of the lab in order. Tabs with other names, such as the tabs of plug-ins, come after them."""
FILL_PAUSE_S = 0.2
"""Seconds between two panes that are put on the page before the user opens them, so that a playing iteration is not
slowed."""
LEAST_PLACES = 2
"""Minimum number of regions that are known places for a network to open on the map."""


def _never(_: LabState) -> str:
    return ""


def _always(_: LabState) -> bool:
    return True


@dataclass(frozen=True)
class LabStep:
    """One step of the lab, with everything that the lab needs to number, save, restore and mark it."""

    name: str
    """Short name, as in ``LabState.step``, ``LabState.busy`` and ``LabState.pane``."""
    panel: Panel
    title: str
    """Title of the step's page. Also names its tab if ``tab`` is empty."""
    result: Callable[[LabState], str] = _never
    """Returns the result in a few words. Empty without a result."""
    staleness: Callable[[LabState], str] = _never
    """Returns why the result is out of date. Empty if it is not."""
    redo: str = ""
    """Text of the button that calls ``panel.redo``, shown while the result is out of date. Empty for no button."""
    asked_for: bool = False
    """True if the step's result was requested by a person, such as a measurement. A new plan does not redo it."""
    css: str = ""
    """Styles of the pane, in addition to those that all panes share."""
    position: int = 1000
    """Position among the pages of its tab, in ascending order. It also orders tabs that are not in ``TABS``.

    A pane must have a higher position than the panes whose results it uses.
    """
    tab: str = ""
    """Name of the tab that the pane is a page of, such as ``"Systems"``. If empty, it has its own tab, named by
    ``title``."""
    is_offered: Callable[[LabState], bool] = _always
    """Returns True if the tab offers the pane now. A pane that is shown stays."""

    @property
    def order(self) -> tuple[int, int]:
        """Sort key of panes: their tab, then their position."""
        tab = self.tab or self.title
        return TABS.index(tab) if tab in TABS else len(TABS), self.position

    @property
    def saved_name(self) -> str:
        """The name under which a workspace keeps the panel's settings."""
        return self.name.replace("-", "_")


class Panes:
    """Shows the panels of the steps. ``lab_state.pane`` names the one that is shown.

    The page switches tabs by itself, and Python follows. Every pane is on the page soon after the lab opens, see
    ``_fill``.
    """

    def __init__(self, lab_state: LabState, steps: Sequence[LabStep], is_live: Callable[[], bool]) -> None:
        """``is_live`` returns True if every edit is followed by a new plan, so that stale results will be updated
        soon."""
        self._lab_state, self._steps, self._is_live = lab_state, {step.name: step for step in steps}, is_live
        self._before = ""
        """Name of the pane that was shown before."""
        self.tabs = TabsView(label="Results", numbered=True, value=lab_state.pane, on_rendered=self._fill)
        self._stale = classed(w.HTML(layout=w.Layout(min_width="0", flex="1 1 0")), "dtfm-stale-note")
        self.redo = button("Again", "", "Compute it again for the current network and job", "auto")
        self.split = toggle("Two panes", "Show two results, one above the other")
        self.swap = toggle("Network on the right", "Swap the two halves: network on the right, results on the left")
        layout = more_menu([self.split, self.swap], "⋯", "Layout of the lab")
        layout.add_class("dtfm-layout-menu")
        head = classed(w.HBox([self.tabs, self._stale, self.redo, layout]), "dtfm-head")
        self._boxes = {step.name: w.VBox() for step in steps}
        # Styles hide boxes by these classes, see ``css``.
        for name, box in self._boxes.items():
            classed(box, "dtfm-out", f"dtfm-out-{name}")
        outs = classed(w.VBox(list(self._boxes.values())), "dtfm-outs")
        self.view = classed(w.VBox([head, outs]), "dtfm-effect")
        self.redo.on_click(lambda _: self._steps[lab_state.pane].panel.redo())
        self.split.observe(lambda _: self._split(), "value")
        self.tabs.observe(lambda change: lab_state.set_trait("pane", change["new"]), "value")
        lab_state.observe(self._follow, "pane")
        # An edit sets several traits; the tabs are redrawn once for all.
        self._showing = OncePerTurn(self._show_states)
        lab_state.observe(lambda _: self._changed(), [*RESULT_TRAITS, "bound_s", "busy"])
        self._show()
        self._show_states()

    @property
    def css(self) -> str:
        """Styles that show only the panes that the row of tabs names, so that the page can switch without Python."""
        tabs = ".dtfm-effect:has(> .dtfm-head .dtfm-tabs"
        return "".join(
            f'{tabs}):not(:has(> .dtfm-head .dtfm-tabs[data-panes~="{name}"])) .dtfm-out-{name} {{ display: none; }}'
            f'{tabs}[data-second="{name}"]) .dtfm-out-{name} '
            "{ order: 2; border-top: 1px solid var(--jp-border-color2, #e0e0e0); }"
            for name in self._steps
        )

    def _follow(self, change: Mapping[str, str]) -> None:
        if change["new"] not in self._steps:
            return
        self._before = change["old"] if change["old"] in self._steps else self._before
        if self.tabs.value != change["new"]:  # if equal, the page has already switched
            # With two panes, the one that was shown moves to the second place.
            if self.tabs.second:
                self.tabs.second = change["old"]
            self.tabs.value = change["new"]
        self._show()
        self._show_states()

    def _split(self) -> None:
        """Show the previous pane below the current one, or hide it again."""
        first = self._lab_state.pane
        others = [name for name in (self._before, *self._steps) if name not in ("", first)]
        self.tabs.second = others[0] if self.split.value else ""
        self._show()

    def _show(self) -> None:
        self._lab_state.shown_panes = tuple(filter(None, (self._lab_state.pane, self.tabs.second)))
        for name in self._lab_state.shown_panes:
            self._put(name)

    def _put(self, name: str) -> None:
        """Put a pane on the page. From then on it is shown without waiting for Python."""
        if not self._boxes[name].children:
            self._boxes[name].children = (self._steps[name].panel.view,)

    def _fill(self) -> None:
        """Put all panes on the page, one after the other."""
        if has_event_loop():
            begin(self._put_all(), lambda line: self._lab_state.report_error("panes", line))

    async def _put_all(self) -> None:
        for name in self._steps:
            if not self._boxes[name].children:
                self._put(name)
                await asyncio.sleep(FILL_PAUSE_S)

    def _changed(self) -> None:
        """Update the marks of the tabs. After an edit, wait a moment, because a new plan may update the results."""
        self._showing.ask(SLOW_S if self._is_live() and self._lab_state.plan_is_stale else 0.0)

    def _show_states(self) -> None:
        """Mark every tab, and say why the shown result is out of date."""
        state = self._lab_state
        tabs, may_redo = [], self._may_redo()
        for name, step in self._steps.items():
            done, stale = step.result(state), step.staleness(state)
            kind = "busy" if name in state.busy else "stale" if stale else "done" if done else "open"
            if step.is_offered(state) or name in state.shown_panes:
                words = stale or done
                tabs.append({"name": name, "title": step.title, "tab": step.tab, "kind": kind, "words": words})
            box = self._boxes[name]
            mark(box, "dtfm-stale", bool(stale))
            if name == state.pane:
                # Live replanning refreshes the result anyway, unless it is one that only the user starts.
                waits = bool(stale) and not (self._is_live() and not step.asked_for)
                self._stale.value = markup.line(escape(f"before the last edit: {stale}")) if waits else ""
                self._stale.tooltip = stale
                self.redo.description = step.redo or "Again"
                show(self.redo, waits and bool(step.redo) and may_redo and name not in state.busy)
        self.tabs.tabs = tabs

    def _may_redo(self) -> bool:
        """True if everything that the shown pane uses is up to date."""
        shown = self._steps[self._lab_state.pane]
        before = [step for step in self._steps.values() if step.position < shown.position]
        return not any(step.staleness(self._lab_state) for step in before)


class NetworkPane:
    """Frames the network panel's picture, with tabs above and the inspector below."""

    def __init__(self, lab_state: LabState, panel: NetworkPanel, player: w.Widget) -> None:
        """``player`` is the row that plays an iteration on the picture."""
        self._lab_state, self._panel = lab_state, panel
        self.tabs = TabsView(label="Views of the network", value=panel.shown.value)
        self.inspector = Inspector(self._set_link, self._select, self._edit)
        self.answers = SelectionAnswers(lab_state, self._inspect)
        matrix = button("Show all links as a matrix", "", "Latency and bandwidth of every directed link", "auto")
        matrix.on_click(lambda _: panel.shown.set_trait("value", "matrix"))
        more = more_menu(
            [matrix, *panel.menu], "More", "The matrix of all links, and the numbers of links that are not drawn"
        )
        head = classed(w.HBox([self.tabs, spacer(), more]), "dtfm-head")
        panel.shown.observe(lambda _: self._offer_layouts(), "value")
        self._offer_layouts()
        self.view = classed(w.VBox([head, panel.picture, player, self.inspector]), "dtfm-cause")
        w.link((panel.shown, "value"), (self.tabs, "value"))
        # An edit sets several traits, and one look at them is enough.
        inspecting = OncePerTurn(self._inspect)
        lab_state.observe(lambda _: inspecting.ask(), [*RESULT_TRAITS, "is_planning"])
        pointed_at = ["selected", "selected_link", "selected_stage", "shown_stages", "shown_tasks"]
        lab_state.observe(lambda _: self._inspect(), pointed_at)
        self.open_best_view()
        self._inspect()

    def _offer_layouts(self) -> None:
        """Offer map and rows. The matrix is in the menu, and is offered only while it is shown."""
        names = ["map", "canvas", *(["matrix"] if self._panel.shown.value == "matrix" else [])]
        self.tabs.tabs = [{"name": name, "title": VIEWS[name]} for name in names]

    def open_best_view(self) -> None:
        """Show the map if at least two regions are known places, else the canvas."""
        topology = self._lab_state.topology
        regions = set() if topology is None else {device.region for device in topology.devices}
        known = sum(find_place(region) is not None for region in regions)
        self._panel.shown.value = "map" if known >= LEAST_PLACES else "canvas"

    def _inspect(self) -> None:
        facts = inspect(self._lab_state)
        if facts["kind"] in ("device", "link") and "rows" in facts:
            facts["rows"] = [*self.answers.rows(), *facts["rows"]]
            facts["can_explain"] = self.answers.can_explain
            entry = self._edited_entry()
            facts["fields"] = [] if entry is None else fields_of(self._panel.drawing.document, entry)
        self.inspector.facts = facts

    def _edited_entry(self) -> str | None:
        """Return the selected device or host of the drawing. None for several, and for a part of a host: a field would
        change all of the host's devices."""
        hosts, selected = self._panel.drawn_hosts, self._lab_state.selected
        drawn = hosts.entries(selected)
        return drawn[0] if len(drawn) == 1 and not hosts.parts(selected) else None

    def _edit(self, key: str, text: str) -> None:
        """Change a field of the selected device as one undoable edit, or explain why the device is in its place."""
        if key == "why":
            return self.answers.explain()
        if (entry := self._edited_entry()) is None:
            return None
        try:
            self._panel.drawing.document = with_field(self._panel.drawing.document, entry, key, text)
        except TopologyError as error:
            self._lab_state.report_error("network", str(error))
            self.inspector.send_state("facts")  # reset the field to the value that still applies
        return None

    def _select(self, what: Mapping[str, Any]) -> None:
        """Select a stage or devices. Select nothing if neither is named."""
        state = self._lab_state
        state.selected_link = ()
        state.selected = tuple(what.get("devices", ()))
        state.selected_stage = int(what.get("stage", -1))

    def _set_link(self, ends: Sequence[str], gbps: float, ms: float, phase: str) -> None:
        """Change a link's numbers at every move of a slider. The whole gesture is one undoable edit."""
        drawing, topology = self._panel.drawing, self._lab_state.topology
        if phase in ("begin", "end"):
            drawing.gesture(phase)
        elif topology is not None and len(drawn := self._panel.drawn_hosts.link(ends)) == 2:
            drawing.document = with_link(drawing.document, (drawn[0], drawn[1]), gbps, ms)
