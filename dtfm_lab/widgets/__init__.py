"""What a person touches and watches. Each view works alone in a cell; ``Lab`` joins them."""

from dtfm_lab.widgets.candidates import CandidatesView
from dtfm_lab.widgets.convergence import ConvergenceView
from dtfm_lab.widgets.devices_view import DevicesView
from dtfm_lab.widgets.editor import TopologyEditor
from dtfm_lab.widgets.gantt import GanttView
from dtfm_lab.widgets.groups import GroupsView
from dtfm_lab.widgets.loss_view import LossView
from dtfm_lab.widgets.map_view import MapView
from dtfm_lab.widgets.matrix_view import MatrixView
from dtfm_lab.widgets.residuals_view import ResidualsView
from dtfm_lab.widgets.workbench import Lab

__all__ = [
    "CandidatesView",
    "ConvergenceView",
    "DevicesView",
    "GanttView",
    "GroupsView",
    "Lab",
    "LossView",
    "MapView",
    "MatrixView",
    "ResidualsView",
    "TopologyEditor",
]
