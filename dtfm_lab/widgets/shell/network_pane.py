"""The left half of the lab: the network on a canvas, a map or as a matrix, and the inspector below it."""

from collections.abc import Mapping, Sequence
from typing import Any

import ipywidgets as w

from dtfm_lab.domain.network import find_place
from dtfm_lab.widgets.controls import more_menu
from dtfm_lab.widgets.lab_state import RESULT_TRAITS, LabState
from dtfm_lab.widgets.network.link_edits import with_link
from dtfm_lab.widgets.network.network_panel import VIEWS, NetworkPanel
from dtfm_lab.widgets.shell.inspection import inspect
from dtfm_lab.widgets.views.inspector import Inspector
from dtfm_lab.widgets.views.tabs import TabsView

LEAST_PLACES = 2
"""Regions that are known places from which a network opens on the map."""


class NetworkPane:
    """Frames the network panel's picture, with tabs above and the inspector below."""

    def __init__(self, lab_state: LabState, panel: NetworkPanel, player: w.Widget) -> None:
        """``player`` is the row that plays an iteration on the picture."""
        self._lab_state, self._panel = lab_state, panel
        self._replaced: str | None = None
        tabs = [{"name": name, "title": VIEWS[name]} for name in ("map", "canvas", "matrix")]
        self.tabs = TabsView(label="Views of the network", tabs=tabs, value=panel.shown.value)
        self.inspector = Inspector(self._set_link, self._select)
        head = w.HBox([self.tabs, w.Box(layout=w.Layout(flex="1 1 0")), more_menu(panel.menu)])
        head.add_class("dtfm-head")
        self.view = w.VBox([head, panel.picture, player, self.inspector])
        self.view.add_class("dtfm-cause")
        self.tabs.observe(lambda change: setattr(panel.shown, "value", change["new"]), "value")
        panel.shown.observe(lambda change: setattr(self.tabs, "value", change["new"]), "value")
        traits = [*RESULT_TRAITS, "selected", "selected_link", "selected_stage"]
        lab_state.observe(lambda _: self._inspect(), traits)
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
        elif topology is not None and set(ends) <= set(topology.names):
            drawing.document = with_link(drawing.document, (ends[0], ends[1]), gbps, ms)
