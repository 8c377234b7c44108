"""The interactive lab. Each view works alone in a notebook cell, and ``Lab`` joins the views."""

from typing import Any

from dtfm_lab.domain.extension import attribute, offered
from dtfm_lab.widgets.views.candidates import CandidatesView
from dtfm_lab.widgets.views.convergence import ConvergenceView
from dtfm_lab.widgets.views.devices import DevicesView
from dtfm_lab.widgets.views.editor import TopologyEditor
from dtfm_lab.widgets.views.frontier import FrontierView
from dtfm_lab.widgets.views.gantt import GanttView
from dtfm_lab.widgets.views.groups import GroupsView
from dtfm_lab.widgets.views.losses import LossView
from dtfm_lab.widgets.views.map import MapView
from dtfm_lab.widgets.views.matrix import MatrixView
from dtfm_lab.widgets.views.residuals import ResidualsView
from dtfm_lab.widgets.views.systems import SystemsView
from dtfm_lab.widgets.workbench import Lab

__all__ = [
    "CandidatesView", "ConvergenceView", "DevicesView", "FrontierView", "GanttView", "GroupsView", "Lab",
    "LossView", "MapView", "MatrixView", "ResidualsView", "SystemsView", "TopologyEditor",
]  # fmt: skip
__all__ += sorted(offered("views"))  # which are imported when they are used


def __getattr__(name: str) -> Any:
    """Return an extension's view by its name. The extension is imported only now."""
    return attribute("views", __name__, name)
