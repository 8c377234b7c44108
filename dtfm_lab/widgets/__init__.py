"""What a person touches and watches. Each view works alone in a cell; ``Lab`` joins them."""

from dtfm_lab.widgets.comparing.residuals_view import ResidualsView
from dtfm_lab.widgets.groups.groups_view import GroupsView
from dtfm_lab.widgets.network.editor import TopologyEditor
from dtfm_lab.widgets.network.map_view import MapView
from dtfm_lab.widgets.network.matrix_view import MatrixView
from dtfm_lab.widgets.planner.convergence import ConvergenceView
from dtfm_lab.widgets.running.devices_view import DevicesView
from dtfm_lab.widgets.running.loss_view import LossView
from dtfm_lab.widgets.schedule.candidates import CandidatesView
from dtfm_lab.widgets.schedule.gantt import GanttView
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
