"""Step 1: the network on the canvas, open and save."""

from __future__ import annotations

from typing import Any

import ipywidgets as w

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.topology import Topology
from dtfm_lab.files import load_topology, save_topology, topology_names
from dtfm_lab.widgets.bench import Bench
from dtfm_lab.widgets.documents import document_of, empty_document, gpus_of, topology_of
from dtfm_lab.widgets.editor import TopologyEditor

BLANK = "(blank canvas)"


class NetworkPanel:
    """Keeps ``bench.topology`` what the canvas draws; a drawing that is not valid yet leaves it as it was."""

    def __init__(self, bench: Bench, topology: Topology | None) -> None:
        self._bench = bench
        self.editor = TopologyEditor()
        self.choose = w.Dropdown(options=[BLANK, *topology_names()], description="Open", layout=w.Layout(width="230px"))
        self.path = w.Text(
            placeholder="network.yaml", description="File", layout=w.Layout(width="300px"), continuous_update=False
        )
        self.save = w.Button(description="Save", icon="save", layout=w.Layout(width="90px"), tooltip="Write the file")
        self.open = w.Button(description="Open", icon="folder-open", layout=w.Layout(width="90px"), tooltip="Read it")
        self.view = w.VBox([w.HBox([self.choose, self.path, self.open, self.save]), self.editor])
        self.show(topology)
        self.choose.value = topology.name if topology is not None and topology.name in topology_names() else BLANK
        self.editor.observe(self._drawn, "document")
        self.choose.observe(self._chosen, "value")
        self.open.on_click(lambda _: self._file(self._open))
        self.save.on_click(lambda _: self._file(self._save))
        bench.observe(self._mark, "plan")

    def show(self, topology: Topology | None) -> None:
        """Put a network on the canvas; None clears it."""
        self._known = () if topology is None else topology.devices
        self.editor.gpus = gpus_of(topology)
        self.editor.document = empty_document() if topology is None else document_of(topology)
        self._accept()

    def _drawn(self, _change: dict[str, Any]) -> None:
        self._accept()

    def _accept(self) -> None:
        document = self.editor.document
        try:
            topology = topology_of(document, self._known)
        except LabError as error:
            # an empty canvas is no mistake, and says itself how to begin
            self.editor.problem = str(error) if document["devices"] else ""
            self.editor.summary = ""
            self._bench.topology = None
            return
        self._known = topology.devices
        self.editor.problem = ""
        n, links = len(topology), len(topology) * (len(topology) - 1)
        self.editor.summary = f"{n} devices, {links} directed links, all with a latency and a bandwidth"
        self._bench.topology = topology
        self._mark()

    def _mark(self, _change: object = None) -> None:
        plan = self._bench.plan
        drawn = {device["name"] for device in self.editor.document["devices"]}
        stages = {} if plan is None else {name: s for s, names in enumerate(plan.stages) for name in names}
        self.editor.highlight = {"stages": stages} if stages and set(stages) <= drawn else {}

    def _chosen(self, change: dict[str, Any]) -> None:
        if change["new"] is not None:
            self.show(None if change["new"] == BLANK else load_topology(change["new"]))

    def _file(self, action: Any) -> None:
        try:
            if not self.path.value.strip():
                raise LabError("no file name; wanted one such as network.yaml")
            self._bench.message = ""
            action(self.path.value.strip())
        except LabError as error:
            self._bench.complain("network", str(error))

    def _open(self, path: str) -> None:
        topology = load_topology(path)
        self.choose.value = None
        self.show(topology)

    def _save(self, path: str) -> None:
        if self._bench.topology is None:
            raise LabError("there is no valid network to save yet; wanted at least one device")
        save_topology(self._bench.topology, path)
        self.editor.summary = f"saved as {path}"
