"""The step Network: one drawing of the network, on a canvas, on a world map, or as a matrix."""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from html import escape
from typing import Any

import numpy as np

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import counted
from dtfm_lab.files import topology_from_mapping, topology_names, topology_to_mapping
from dtfm_lab.widgets import markup
from dtfm_lab.widgets import quiet as w
from dtfm_lab.widgets.controls import Panel, classed, menu, segments, show
from dtfm_lab.widgets.lab_state import Guard, LabState, network_names, planned_as, roles_of, run_staleness
from dtfm_lab.widgets.network.document_conversion import document_of, gpus_of, is_document, topology_of
from dtfm_lab.widgets.network.drawing import AS_DRAWN, BY_DISTANCE, Document, Drawing, PacedEdits, empty_document
from dtfm_lab.widgets.network.drawn_hosts import DrawnHosts
from dtfm_lab.widgets.network.links import RULE, WHERE, filled
from dtfm_lab.widgets.network.matrix_editor import MatrixEditor
from dtfm_lab.widgets.network.network_row import BLANK, NetworkFilesRow
from dtfm_lab.widgets.views.editor import TopologyEditor
from dtfm_lab.widgets.views.map import MapView
from dtfm_lab.widgets.views.view import DocumentView

VIEWS = {"canvas": "Rows", "map": "Map", "matrix": "Matrix"}
"""Labels of the network's views. The canvas is "Rows" because it lays out a region's devices in rows."""
REDRAWN = ["plan", "shown_stages", "shown_tasks", "moment", "selected_stage", "suspects", "binding"]
"""Traits of the lab's state that the drawn network shows."""
MANY_DEVICES = 32
"""If a drawing has more devices than this, and more than ``MANY_LINKS`` links, a note points to the matrix."""
MANY_LINKS = 150
"""Number of links with their own line above which this note appears."""


class NetworkPanel(Panel):
    """Sets ``lab_state.topology`` to the drawing. While the drawing is not valid, the last valid network stays."""

    def __init__(self, lab_state: LabState, topology: Topology | None) -> None:
        self.lab_state = lab_state
        self._timed: Topology | None = None
        """The network that was opened last. Links that are not edited keep its measured message times."""
        self._gpus: list[str] = []
        self._hosts: tuple[list[Any], DrawnHosts] | None = None
        """Cache of ``drawn_hosts``: the document's list of devices, and the result for it."""
        self._matrix_of: tuple[Topology, Topology] | None = None
        """Cache of ``_drawn_network``: the lab's network, and the network of its hosts."""
        self._accepted: tuple[Document, Topology] | None = None
        """The last valid document and its network."""
        self._problem, self._summary = "", ""
        self._is_linking = Guard()
        self.drawing = Drawing(history=lab_state.history)
        self.editor = TopologyEditor(self.drawing, height=0)
        self.map: MapView | None = None
        self.matrix: MatrixEditor | None = None
        shipped = topology is not None and topology.name in topology_names()
        chosen = topology.name if topology is not None and shipped else BLANK
        self.files = NetworkFilesRow(
            lab_state, chosen, show=self.show, show_summary=self._show_summary, download=self.editor.download
        )
        self.choose, self.path = self.files.choose, self.files.path
        self.open, self.save = self.files.open, self.files.save
        self.editor.take_files = self.files.take
        views = [(label, view) for view, label in VIEWS.items()]
        what = ["Devices in rows, drawn by hand", "Regions in their cities", "Every directed link, for large networks"]
        self.shown = segments(views, what, "76px", layout=w.Layout(width="auto"))
        rules = [("all equal, as “any other pair”", "default"), ("by distance of known cities", BY_DISTANCE)]
        rules += [("by distance, else as drawn", AS_DRAWN)]
        what_fills = "Latency and bandwidth between two regions without a line in the drawing"
        self.fill = menu("Regions without a line", "396px", "156px", rules, what_fills)
        self.note = w.HTML()
        self.picture = classed(w.VBox([self.editor]), "dtfm-picture")
        self.menu: list[w.Widget] = [self.fill, self.note]
        """Controls that are used less often."""
        self.view = w.VBox([self.picture])
        self.show(topology)
        self.edits = PacedEdits(self.drawing, self._accept, lambda error: lab_state.report_error("network", error))
        self.drawing.observe(lambda _: self._select_in_lab_state(), ["selected", "selected_members", "selected_link"])
        self.shown.observe(lambda _: self._switch(), "value")
        self.fill.observe(lambda change: self._choose_fill(change["new"]), "value")
        lab_state.observe(lambda _: self._select_in_drawing(), ["selected", "selected_link"])
        lab_state.observe(lambda _: self._update_view(), REDRAWN)
        lab_state.observe(lambda change: self._follow(change["new"]), "topology")

    @property
    def _made(self) -> list[tuple[w.Widget, DocumentView]]:
        """The widgets of the views that have been shown so far, each with the DocumentView in it."""
        made: list[tuple[w.Widget, DocumentView]] = [(self.editor, self.editor)]
        made += [(self.map, self.map)] if self.map is not None else []
        return made + ([(self.matrix.view, self.matrix.canvas)] if self.matrix is not None else [])

    @property
    def canvas(self) -> DocumentView:
        """The view that is shown: canvas, map or matrix."""
        if self.shown.value == "map" and self.map is not None:
            return self.map
        return self.matrix.canvas if self.shown.value == "matrix" and self.matrix is not None else self.editor

    @property
    def _drawn(self) -> set[str]:
        """Names of the drawn devices or hosts."""
        return {device["name"] for device in self.drawing.document["devices"]}

    @property
    def drawn_hosts(self) -> DrawnHosts:
        """Which devices each drawn device or host stands for."""
        document = self.drawing.document
        if self._hosts is None or self._hosts[0] is not document["devices"]:
            self._hosts = (document["devices"], DrawnHosts.of(document))
        return self._hosts[1]

    def show(self, topology: Topology | None, document: Document | None = None) -> None:
        """Draw a network, or a blank canvas for None, and start a new undo history.

        Pass ``document_of(topology)`` as ``document`` if it is known. Computing it is slow for hundreds of devices.
        """
        if document is None:
            self.files.name(topology)
            document = empty_document() if topology is None else document_of(topology)
        self._begin(document, topology)

    def settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = {"document": self.drawing.document, "view": self.shown.value}
        if self._timed is not None and self._timed.message_s is not None:
            settings["measured"] = topology_to_mapping(self._timed, hosts=False)
        return settings

    def restore(self, settings: dict[str, Any]) -> None:
        document = settings.get("document")
        if is_document(document):
            timed = None
            if isinstance(measured := settings.get("measured"), dict):
                with contextlib.suppress(LabError):
                    timed = topology_from_mapping(measured)
            # A saved drawing may differ from the bundled network of that name, so none is named.
            self.choose.value = None if document["devices"] else BLANK
            self._begin(document, timed)
        if settings.get("view") in list(VIEWS):
            self.shown.value = settings["view"]

    def observe_edits(self, call: Callable[[], None]) -> None:
        """Call back at every edit of the drawing, even while it is not valid."""
        self.drawing.observe(lambda _: call(), "document")

    def _begin(self, document: Document, timed: Topology | None) -> None:
        self._timed, self._gpus = timed, gpus_of(document)
        self._accepted = None
        self.drawing.begin(document)
        self._accept()

    def _follow(self, topology: Topology | None) -> None:
        """Draw a network that another panel has set, such as a fitted one. The change can be undone."""
        drawn = None if self._accepted is None else self._accepted[1]
        if topology is None or (drawn is not None and drawn.fingerprint == topology.fingerprint):
            return
        document = document_of(topology)
        self._timed, self._gpus = topology, gpus_of(document)
        self._accepted = (document, topology)
        self.drawing.document = document

    def _accept(self) -> None:
        """Set the network to the drawing, or show why the drawing is not valid."""
        document = self.drawing.document
        self._unselect_removed()
        try:
            topology = self._topology_of(document)
        except LabError as error:
            if document["devices"]:
                kept = (
                    ""
                    if self.lab_state.topology is None
                    else " Until this is fixed, the lab keeps the last valid network."
                )
                self._problem, self._summary = f"{error}.{kept}", ""
            else:  # an empty canvas is no error
                self._problem, self._summary, self._accepted = "", "", None
                self.lab_state.topology = None
        else:
            self._accepted = (document, topology)
            self._problem, self._summary = "", self._summarise(topology)
            self.lab_state.topology = topology
        self._update_view()

    def _unselect_removed(self) -> None:
        """Unselect devices and links that are no longer drawn."""
        drawing, drawn = self.drawing, self._drawn
        if not drawn.issuperset(drawing.selected):
            drawing.selected = [name for name in drawing.selected if name in drawn]
        if not drawn.issuperset(drawing.selected_link):
            drawing.selected_link = []

    def _topology_of(self, document: Document) -> Topology:
        """Return the document's topology. This is quick if devices were only moved."""
        if self._accepted is not None:
            before, topology = self._accepted
            # Only places have changed, so speeds are not computed again, which takes a while on large networks.
            if _unplaced(before) == _unplaced(document) and filled(before) == filled(document):
                drawn = [one for one in document["devices"] for _ in one.get("members") or (one,)]
                pairs = zip(topology.devices, drawn, strict=True)
                moved = tuple(replace(device, position=(one["x"], one["y"])) for device, one in pairs)
                return replace(topology, devices=moved)
        return topology_of(document, self._timed)

    def _summarise(self, topology: Topology) -> str:
        n = len(topology)
        text = f"{counted(n, 'device')}, {n * (n - 1):,} directed links, all with a latency and a bandwidth"
        if self._timed is not None and self._timed.message_s is not None and topology.message_s is not None:
            text += "; links that were not edited keep their measured message times"
        return text

    def _update_view(self) -> None:
        """Update everything around the drawing in the shown view: problem, summary, stages and notes."""
        document, canvas = self.drawing.document, self.canvas
        pairs = filled(document)
        # One message to the page instead of five.
        with canvas.hold_sync():
            canvas.gpus, canvas.filled = self._gpus, pairs
            canvas.problem, canvas.summary = self._problem, self._summary
            canvas.highlight = self._highlight()
        if self.matrix is not None and canvas is self.matrix.canvas:
            self.matrix.show(self._drawn_network())
        self.fill.value = fill if (fill := document.get("fill")) in WHERE else "default"
        notes = [f"{escape(RULE + WHERE[fill])} {len(pairs)} set this way."] if fill in WHERE else []
        n_links = len(document["links"])
        if len(document["devices"]) > MANY_DEVICES and n_links > MANY_LINKS and canvas is self.editor:
            notes.append(f"{n_links:,} links have their own numbers: the matrix shows them all.")
        self.note.value = markup.line("<br>".join(notes))

    def _highlight(self) -> dict[str, Any]:
        """Return ``DocumentView.highlight``: each device's stage and replica, suspects, and what limits the plan."""
        state, hosts, roles = self.lab_state, self.drawn_hosts, self._roles()
        if not roles:
            return roles
        marks = hosts.marks(roles)
        if state.suspects and not run_staleness(state):
            # A link inside a host is drawn as its box. A device there is named too, so that its cell is marked.
            drawn = [hosts.entries(ends) for ends in state.suspects]
            parts = [[name] for ends in state.suspects for name in hosts.parts(ends) if len(hosts.entries(ends)) == 1]
            return marks | {"suspects": [ends for ends in drawn if ends] + parts}
        ends = network_names(state.plan, state.binding)
        binds = hosts.entries(ends)
        shows_plan = not (state.shown_stages or state.shown_tasks or state.moment)
        return marks | {"binds": binds, "parts": hosts.parts(ends)} if binds and shows_plan else marks

    def _roles(self) -> dict[str, Any]:
        plan = self.lab_state.plan
        stages, drawn = dict(self.lab_state.shown_stages), {*self.drawn_hosts.entry_of}
        looked_at, moment = self.lab_state.shown_tasks, self.lab_state.moment
        # Only if all these devices are drawn: some may have left the drawing since.
        if not stages and moment and {*moment["tasks"], *moment["absent"]} <= drawn:
            return highlight_of(moment["tasks"]) | {"absent": moment["absent"]}
        if not stages and looked_at and set(looked_at) <= drawn:
            return highlight_of(looked_at)
        if stages:
            return {"stages": stages} if set(stages) <= drawn else {}
        if plan is None:
            return {}
        marks = highlight_of(self._drawn_roles(plan))
        stage = {} if self.lab_state.selected_stage < 0 else {"stage": self.lab_state.selected_stage}
        return marks | stage if set(marks["stages"]) <= drawn else {}

    def _drawn_roles(self, plan: Plan) -> dict[str, list[int]]:
        """Return {device of the network: [stage, replica]}, even if the plan's devices are groups of several GPUs."""
        topology = self.lab_state.topology
        planned = None if topology is None or plan.job.group_gpus == 1 else planned_as(plan, topology)
        if planned is None:
            return roles_of(plan)
        of = {int(d): [s, r] for (s, r), d in np.ndenumerate(plan.placement.devices)}
        return {name: of[number] for name, number in planned.items() if number in of}

    def _drawn_network(self) -> Topology | None:
        """Return the network with one device per drawn entry: a network of hosts if hosts are drawn."""
        topology, hosts = self.lab_state.topology, self.drawn_hosts
        if topology is None or len(hosts.members) == len(topology):
            return topology
        if self._matrix_of is None or self._matrix_of[0] is not topology:
            firsts = [devices[0] for devices in hosts.members.values()]
            part = topology.subset(firsts)
            named = tuple(replace(d, name=name) for d, name in zip(part.devices, hosts.members, strict=True))
            self._matrix_of = (topology, replace(part, devices=named))
        return self._matrix_of[1]

    def _show_summary(self, line: str) -> None:
        self.canvas.summary = line or self._summary

    def _switch(self) -> None:
        """Show another view. Only the view that is shown follows the drawing."""
        # Made when first shown: the map's coastlines and a large matrix cost time and memory.
        if self.shown.value == "map" and self.map is None:
            self.map = classed(MapView(self.drawing, height=0), "dtfm-fill")
        if self.shown.value == "matrix" and self.matrix is None:
            self.matrix = MatrixEditor(self.drawing, height=0)
        for view, canvas in self._made:
            # Hidden views follow nothing, so that an edit is drawn once.
            if canvas is not self.canvas:
                canvas.leave()
            show(view, canvas is self.canvas)
        self.canvas.follow()
        self.picture.children = tuple(view for view, _ in self._made)
        self._update_view()

    def _choose_fill(self, fill: str) -> None:
        if self.drawing.document.get("fill", "default") != fill:
            self.drawing.document = self.drawing.document | {"fill": fill}

    def _select_in_lab_state(self) -> None:
        if self._is_linking:
            return
        with self._is_linking:
            hosts, drawing, ends = self.drawn_hosts, self.drawing, self.drawing.selected_link
            # Devices of a host that is no longer selected must not come back with it.
            whole = set(hosts.devices(drawing.selected))
            drawing.selected_members = [name for name in drawing.selected_members if name in whole]
            self.lab_state.selected = hosts.devices(drawing.selected, drawing.selected_members)
            self.lab_state.selected_link = tuple(hosts.devices([end])[0] for end in ends if end in hosts.members)

    def _select_in_drawing(self) -> None:
        """Select what is selected elsewhere, if it is drawn."""
        if self._is_linking:
            return
        hosts, ends = self.drawn_hosts, self.lab_state.selected_link
        # A link inside a host is shown by its two devices.
        inside = () if hosts.link(ends) else ends
        chosen = self.lab_state.selected or inside
        with self._is_linking, self.drawing.hold_trait_notifications():
            self.drawing.selected, self.drawing.selected_members = hosts.entries(chosen), hosts.parts(chosen)
            self.drawing.selected_link = hosts.link(ends)


def highlight_of(tasks: Mapping[str, list[int]]) -> dict[str, Any]:
    """Return the marks for ``DocumentView.highlight``. ``tasks`` is {device: [stage, replica]}."""
    return {"stages": {name: stage for name, (stage, _) in tasks.items()}, "tasks": dict(tasks)}


def _unplaced(document: Document) -> dict[str, Any]:
    """Return the document without its devices' positions."""
    return document | {
        "devices": [{key: value for key, value in one.items() if key not in ("x", "y")} for one in document["devices"]]
    }
