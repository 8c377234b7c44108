"""The two halves of the lab: at the left the network and the inspector, at the right one result at a time, or two.

Results are under tabs, and nothing in their half changes its height.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, NamedTuple

from dtfm_lab.domain.network import find_place
from dtfm_lab.widgets import markup
from dtfm_lab.widgets import quiet as w
from dtfm_lab.widgets.controls import Panel, button, classed, mark, more_menu, show, spacer, toggle
from dtfm_lab.widgets.lab_state import RESULT_TRAITS, LabState
from dtfm_lab.widgets.network.links import with_link
from dtfm_lab.widgets.network.network_panel import VIEWS, NetworkPanel
from dtfm_lab.widgets.shell.inspection import inspect
from dtfm_lab.widgets.tasks import SLOW_S, OncePerTurn
from dtfm_lab.widgets.views.frame import Inspector, TabsView

LEAST_PLACES = 2
"""Regions that are known places from which a network opens on the map."""


class StepState(NamedTuple):
    """How far a step has come."""

    done: str = ""
    """The result in a few words; empty while there is none."""
    stale: str = ""
    """Why the result is out of date; empty where it is not."""

    @property
    def kind(self) -> str:
        """``stale``, ``done`` or ``open``."""
        return "stale" if self.stale else "done" if self.done else "open"


def _never(_: LabState) -> str:
    return ""


@dataclass(frozen=True)
class LabStep:
    """One step of the lab, with all that the lab needs to number, save, restore and mark it."""

    name: str
    """Short name, as in ``LabState.step``, ``LabState.busy`` and ``LabState.pane``."""
    panel: Panel
    title: str
    """What its tab says."""
    result: Callable[[LabState], str] = _never
    """Returns the result in a few words; empty while there is none."""
    staleness: Callable[[LabState], str] = _never
    """Returns why the result is out of date; empty where it is not."""
    redo: str = ""
    """Text of the button that calls ``panel.redo`` where the step is out of date; empty for no button."""
    asked_for: bool = False
    """Whether it shows what a person asked for, such as a measurement, which no new plan makes again."""
    css: str = ""
    """Styles of the pane, beside those that all share."""
    position: int = 1000
    """Where its tab stands among the others, in ascending order."""

    @property
    def saved_name(self) -> str:
        """The name under which a workspace keeps the panel's settings."""
        return self.name.replace("-", "_")

    def state(self, lab_state: LabState) -> StepState:
        return StepState(self.result(lab_state), self.staleness(lab_state))


class Panes:
    """Shows the panels of the steps; ``lab_state.pane`` names the one that is shown."""

    def __init__(self, lab_state: LabState, steps: Sequence[LabStep], is_live: Callable[[], bool]) -> None:
        """``is_live``: whether every edit is followed by a new plan, so that what is of the plan will be anew soon."""
        self._lab_state, self._steps, self._is_live = lab_state, {step.name: step for step in steps}, is_live
        self._second = ""
        """Name of the pane that is shown below while the half is split."""
        self.tabs = TabsView(label="Results", numbered=True, value=lab_state.pane)
        self._stale = classed(w.HTML(layout=w.Layout(min_width="0", flex="1 1 0")), "dtfm-stale-note")
        self.redo = button("Again", "", "Make it anew from what is drawn and chosen now", "auto")
        self.split = toggle("Split", "Two results, one above the other")
        self.swap = toggle("Swap", "The network at the right, the results at the left")
        head = classed(w.HBox([self.tabs, self._stale, self.redo, self.split, self.swap]), "dtfm-head")
        self._boxes = {step.name: w.VBox() for step in steps}  # filled when they are first shown
        for name, box in self._boxes.items():
            classed(box, "dtfm-out", f"dtfm-out-{name}")
        outs = classed(w.VBox(list(self._boxes.values())), "dtfm-outs")
        self.view = classed(w.VBox([head, outs]), "dtfm-effect")
        self.redo.on_click(lambda _: self._steps[lab_state.pane].panel.redo())
        self.split.observe(lambda _: self._show(), "value")
        self.tabs.observe(lambda change: lab_state.set_trait("pane", change["new"]), "value")
        lab_state.observe(self._follow, "pane")
        self._showing = OncePerTurn(self._show_states)
        lab_state.observe(lambda _: self._changed(), [*RESULT_TRAITS, "bound_s", "busy"])
        self._show()
        self._show_states()

    def _follow(self, change: Mapping[str, str]) -> None:
        if change["new"] not in self._steps:
            return
        self._second = change["old"] if change["old"] in self._steps else self._second
        self.tabs.value = change["new"]
        self._show()
        self._show_states()

    def _show(self) -> None:
        first, split = self._lab_state.pane, self.split.value
        if split and self._second in ("", first):
            self._second = next(name for name in self._steps if name != first)
        for name, box in self._boxes.items():
            shown = name == first or (split and name == self._second)
            if shown:
                box.children = (self._steps[name].panel.view,)
            show(box, shown)
            mark(box, "dtfm-second", split and name == self._second)
        self._lab_state.shown_panes = (first, self._second) if split else (first,)

    def _changed(self) -> None:
        """Mark what has changed; what an edit made stale only if no new plan follows within a moment."""
        self._showing.ask(SLOW_S if self._is_live() and self._lab_state.plan_is_stale else 0.0)

    def _show_states(self) -> None:
        """Mark every tab, and say why the shown result is out of date."""
        state = self._lab_state
        tabs, may_redo = [], True
        for name, step in self._steps.items():
            found = step.state(state)
            kind = "busy" if name in state.busy else found.kind
            tabs.append({"name": name, "title": step.title, "kind": kind, "words": found.stale or found.done})
            box = self._boxes[name]
            mark(box, "dtfm-stale", bool(found.stale))
            if name == state.pane:
                waits = bool(found.stale) and not (self._is_live() and not step.asked_for)
                self._stale.value = markup.line(escape(f"before the last edit: {found.stale}")) if waits else ""
                self._stale.tooltip = found.stale
                self.redo.description = step.redo or "Again"
                show(self.redo, waits and bool(step.redo) and may_redo and name not in state.busy)
            may_redo = may_redo and not found.stale
        self.tabs.tabs = tabs


class NetworkPane:
    """Frames the network panel's picture, with tabs above and the inspector below."""

    def __init__(self, lab_state: LabState, panel: NetworkPanel, player: w.Widget) -> None:
        """``player`` is the row that plays an iteration on the picture."""
        self._lab_state, self._panel = lab_state, panel
        tabs = [{"name": name, "title": VIEWS[name]} for name in ("map", "canvas", "matrix")]
        self.tabs = TabsView(label="Views of the network", tabs=tabs, value=panel.shown.value)
        self.inspector = Inspector(self._set_link, self._select)
        more = more_menu(panel.menu, "Other links", "What links have that nobody has drawn")
        head = classed(w.HBox([self.tabs, spacer(), more]), "dtfm-head")
        self.view = classed(w.VBox([head, panel.picture, player, self.inspector]), "dtfm-cause")
        w.link((panel.shown, "value"), (self.tabs, "value"))
        inspecting = OncePerTurn(self._inspect)
        lab_state.observe(lambda _: inspecting.ask(), RESULT_TRAITS)
        pointed_at = ["selected", "selected_link", "selected_stage", "shown_stages", "shown_tasks"]
        lab_state.observe(lambda _: self._inspect(), pointed_at)
        self.open_best_view()
        self._inspect()

    def open_best_view(self) -> None:
        """Show the map where at least two regions are known places, else the canvas."""
        topology = self._lab_state.topology
        regions = set() if topology is None else {device.region for device in topology.devices}
        known = sum(find_place(region) is not None for region in regions)
        self._panel.shown.value = "map" if known >= LEAST_PLACES else "canvas"

    def _inspect(self) -> None:
        self.inspector.facts = inspect(self._lab_state)

    def _select(self, what: Mapping[str, Any]) -> None:
        """Select a stage or devices; nothing where neither is named."""
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
