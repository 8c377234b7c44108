"""The two halves of the lab: at the left the network and the inspector, at the right one result at a time, or two.

Results are under tabs, and nothing in their half changes its height.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, NamedTuple

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

TABS = PLAN, SEARCH, WHAT_IF, RUN, SYSTEMS, LEARN = "Plan", "Search", "What if", "Run", "Systems", "Learn"
"""The tabs of the lab in order. Tabs with other names, such as those of plug-ins, come after them."""
FILL_PAUSE_S = 0.2
"""Seconds between two panes that are put on the page before anyone has opened them: an iteration plays meanwhile."""
LEAST_PLACES = 2
"""Regions that are known places from which a network opens on the map."""


class StepState(NamedTuple):
    """How far a step has come."""

    done: str = ""
    """The result in a few words; empty while there is none."""
    stale: str = ""
    """Why the result is out of date; empty if it is not."""

    @property
    def kind(self) -> str:
        """``stale``, ``done`` or ``open``."""
        return "stale" if self.stale else "done" if self.done else "open"


def _never(_: LabState) -> str:
    return ""


def _always(_: LabState) -> bool:
    return True


@dataclass(frozen=True)
class LabStep:
    """One step of the lab, with all that the lab needs to number, save, restore and mark it."""

    name: str
    """Short name, as in ``LabState.step``, ``LabState.busy`` and ``LabState.pane``."""
    panel: Panel
    title: str
    """What its page says, and its tab where that has the same name."""
    result: Callable[[LabState], str] = _never
    """Returns the result in a few words; empty while there is none."""
    staleness: Callable[[LabState], str] = _never
    """Returns why the result is out of date; empty if it is not."""
    redo: str = ""
    """Text of the button that calls ``panel.redo`` where the step is out of date; empty for no button."""
    asked_for: bool = False
    """True if it shows what a person asked for, such as a measurement, which no new plan makes again."""
    css: str = ""
    """Styles of the pane, beside those that all share."""
    position: int = 1000
    """Where it stands among the pages of its tab, in ascending order; tabs that are not in ``TABS`` are ordered by it,
    too. What a pane rests on has a lower position."""
    tab: str = ""
    """The tab it is a page of, such as ``"Systems"``; empty for a tab of its own, named as the pane."""
    is_offered: Callable[[LabState], bool] = _always
    """Returns whether the tab offers it now. A pane that is shown stays."""

    @property
    def order(self) -> tuple[int, int]:
        """What panes are sorted by: their tab, then their position."""
        tab = self.tab or self.title
        return TABS.index(tab) if tab in TABS else len(TABS), self.position

    @property
    def saved_name(self) -> str:
        """The name under which a workspace keeps the panel's settings."""
        return self.name.replace("-", "_")

    def state(self, lab_state: LabState) -> StepState:
        return StepState(self.result(lab_state), self.staleness(lab_state))


class Panes:
    """Shows the panels of the steps; ``lab_state.pane`` names the one that is shown.

    The page switches tabs by itself, and Python follows: every pane is on the page soon after the lab, see ``_fill``.
    """

    def __init__(self, lab_state: LabState, steps: Sequence[LabStep], is_live: Callable[[], bool]) -> None:
        """``is_live``: whether every edit is followed by a new plan, so that what is of the plan will be again soon."""
        self._lab_state, self._steps, self._is_live = lab_state, {step.name: step for step in steps}, is_live
        self._before = ""
        """Name of the pane that was shown before."""
        self.tabs = TabsView(label="Results", numbered=True, value=lab_state.pane, on_rendered=self._fill)
        self._stale = classed(w.HTML(layout=w.Layout(min_width="0", flex="1 1 0")), "dtfm-stale-note")
        self.redo = button("Again", "", "Make it again from what is drawn and chosen now", "auto")
        self.split = toggle("Two panes", "Two results, one above the other")
        self.swap = toggle("Network at the right", "The network at the right, the results at the left")
        layout = more_menu([self.split, self.swap], "⋯", "How the lab is laid out")
        layout.add_class("dtfm-layout-menu")
        head = classed(w.HBox([self.tabs, self._stale, self.redo, layout]), "dtfm-head")
        self._boxes = {step.name: w.VBox() for step in steps}
        for name, box in self._boxes.items():
            classed(box, "dtfm-out", f"dtfm-out-{name}")
        outs = classed(w.VBox(list(self._boxes.values())), "dtfm-outs")
        self.view = classed(w.VBox([head, outs]), "dtfm-effect")
        self.redo.on_click(lambda _: self._steps[lab_state.pane].panel.redo())
        self.split.observe(lambda _: self._split(), "value")
        self.tabs.observe(lambda change: lab_state.set_trait("pane", change["new"]), "value")
        lab_state.observe(self._follow, "pane")
        self._showing = OncePerTurn(self._show_states)
        lab_state.observe(lambda _: self._changed(), [*RESULT_TRAITS, "bound_s", "busy"])
        self._show()
        self._show_states()

    @property
    def css(self) -> str:
        """Styles that show those panes alone which the tabs name, so that the page needs no Python to switch."""
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
        if self.tabs.value != change["new"]:  # else the page has switched by itself
            if self.tabs.second:
                self.tabs.second = change["old"]
            self.tabs.value = change["new"]
        self._show()
        self._show_states()

    def _split(self) -> None:
        """Show the pane before below the one that is shown, or no longer."""
        first = self._lab_state.pane
        others = [name for name in (self._before, *self._steps) if name not in ("", first)]
        self.tabs.second = others[0] if self.split.value else ""
        self._show()

    def _show(self) -> None:
        self._lab_state.shown_panes = tuple(filter(None, (self._lab_state.pane, self.tabs.second)))
        for name in self._lab_state.shown_panes:
            self._put(name)

    def _put(self, name: str) -> None:
        """Put a pane on the page, where it is shown from then on without waiting for Python."""
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
        """Mark what has changed; what an edit made stale only if no new plan follows within a moment."""
        self._showing.ask(SLOW_S if self._is_live() and self._lab_state.plan_is_stale else 0.0)

    def _show_states(self) -> None:
        """Mark every tab, and say why the shown result is out of date."""
        state = self._lab_state
        tabs, may_redo = [], self._may_redo()
        for name, step in self._steps.items():
            found = step.state(state)
            kind = "busy" if name in state.busy else found.kind
            if step.is_offered(state) or name in state.shown_panes:
                words = found.stale or found.done
                tabs.append({"name": name, "title": step.title, "tab": step.tab, "kind": kind, "words": words})
            box = self._boxes[name]
            mark(box, "dtfm-stale", bool(found.stale))
            if name == state.pane:
                waits = bool(found.stale) and not (self._is_live() and not step.asked_for)
                self._stale.value = markup.line(escape(f"before the last edit: {found.stale}")) if waits else ""
                self._stale.tooltip = found.stale
                self.redo.description = step.redo or "Again"
                show(self.redo, waits and bool(step.redo) and may_redo and name not in state.busy)
        self.tabs.tabs = tabs

    def _may_redo(self) -> bool:
        """True if nothing that the shown pane rests on is out of date itself."""
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
        matrix = button("Matrix of all links", "", "Latency and bandwidth of every directed link", "auto")
        matrix.on_click(lambda _: panel.shown.set_trait("value", "matrix"))
        more = more_menu(
            [matrix, *panel.menu], "More", "The matrix of all links, and what links have that are not drawn"
        )
        head = classed(w.HBox([self.tabs, spacer(), more]), "dtfm-head")
        panel.shown.observe(lambda _: self._offer_layouts(), "value")
        self._offer_layouts()
        self.view = classed(w.VBox([head, panel.picture, player, self.inspector]), "dtfm-cause")
        w.link((panel.shown, "value"), (self.tabs, "value"))
        inspecting = OncePerTurn(self._inspect)
        lab_state.observe(lambda _: inspecting.ask(), RESULT_TRAITS)
        pointed_at = ["selected", "selected_link", "selected_stage", "shown_stages", "shown_tasks"]
        lab_state.observe(lambda _: self._inspect(), pointed_at)
        self.open_best_view()
        self._inspect()

    def _offer_layouts(self) -> None:
        """Offer map and rows; the matrix, which is in the menu, only while it is shown."""
        names = ["map", "canvas", *(["matrix"] if self._panel.shown.value == "matrix" else [])]
        self.tabs.tabs = [{"name": name, "title": VIEWS[name]} for name in names]

    def open_best_view(self) -> None:
        """Show the map where at least two regions are known places, else the canvas."""
        topology = self._lab_state.topology
        regions = set() if topology is None else {device.region for device in topology.devices}
        known = sum(find_place(region) is not None for region in regions)
        self._panel.shown.value = "map" if known >= LEAST_PLACES else "canvas"

    def _inspect(self) -> None:
        facts, selected = inspect(self._lab_state), self._lab_state.selected
        if facts["kind"] in ("device", "link") and "rows" in facts:
            facts["rows"] = [*self.answers.rows(), *facts["rows"]]
            facts["can_explain"] = self.answers.can_explain
            drawn = self._panel.drawn_hosts.entries(selected)
            facts["fields"] = fields_of(self._panel.drawing.document, drawn[0]) if len(drawn) == 1 else []
        self.inspector.facts = facts

    def _edit(self, key: str, text: str) -> None:
        """Change a field of the selected device, as one step of the history; or say why it is where it is."""
        if key == "why":
            return self.answers.explain()
        drawn = self._panel.drawn_hosts.entries(self._lab_state.selected)
        if len(drawn) != 1:
            return None
        try:
            self._panel.drawing.document = with_field(self._panel.drawing.document, drawn[0], key, text)
        except TopologyError as error:
            self._lab_state.report_error("network", str(error))
            self.inspector.send_state("facts")  # the field shows what holds again
        return None

    def _select(self, what: Mapping[str, Any]) -> None:
        """Select a stage or devices; nothing if neither is named."""
        state = self._lab_state
        state.selected_link = ()
        state.selected = tuple(what.get("devices", ()))
        state.selected_stage = int(what.get("stage", -1))

    def _set_link(self, ends: Sequence[str], gbps: float, ms: float, phase: str) -> None:
        """Give a link other numbers, at every move of a slider; the whole gesture is one step of the history."""
        drawing, topology = self._panel.drawing, self._lab_state.topology
        if phase in ("begin", "end"):
            drawing.gesture(phase)
        elif topology is not None and len(drawn := self._panel.drawn_hosts.link(ends)) == 2:
            drawing.document = with_link(drawing.document, (drawn[0], drawn[1]), gbps, ms)
