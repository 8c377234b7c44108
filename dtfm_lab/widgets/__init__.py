"""What a person touches and watches. Each view works alone in a cell; ``Lab`` joins them."""

from dtfm_lab.widgets.candidates import CandidatesView
from dtfm_lab.widgets.convergence import ConvergenceView
from dtfm_lab.widgets.editor import TopologyEditor
from dtfm_lab.widgets.gantt import GanttView
from dtfm_lab.widgets.groups import GroupsView
from dtfm_lab.widgets.workbench import Lab

__all__ = ["CandidatesView", "ConvergenceView", "GanttView", "GroupsView", "Lab", "TopologyEditor"]
