"""A pane that names the nearest neighbour of the device that is selected on the network."""

import ipywidgets as w

from dtfm_lab.widgets.controls import Panel
from dtfm_lab.widgets.shell.panes import LabStep
from dtfm_lab_neighbours.nearest import nearest


class NeighboursPanel(Panel):
    """One line of text, which follows the selection."""

    def __init__(self, lab_state):
        self._lab_state = lab_state
        self.view = w.HTML()
        lab_state.observe(lambda _: self._follow(), ["topology", "selected"])
        self._follow()

    def result(self, _):
        """What the tab's tooltip says."""
        return self.view.value

    def _follow(self):
        topology, selected = self._lab_state.topology, self._lab_state.selected
        asked = selected[0] if topology is not None and selected and selected[0] in topology.names else None
        self.view.value = "Select a device." if asked is None else f"{nearest(topology, asked)} is nearest to {asked}."
        self._lab_state.set_note("neighbours", self.view.value)


def neighbours_step(the_lab):
    """Return the pane for a lab."""
    panel = NeighboursPanel(the_lab.lab_state)
    return LabStep("neighbours", panel, "Neighbours", panel.result)
