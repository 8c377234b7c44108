"""Nouns as plotly figures: pure functions, nothing fetched from any network."""

from dtfm_lab.figures.coarse_graph import coarse_graph
from dtfm_lab.figures.comparison import comparison
from dtfm_lab.figures.convergence import convergence
from dtfm_lab.figures.cost_breakdown import cost_breakdown
from dtfm_lab.figures.gantt import gantt
from dtfm_lab.figures.link_matrix import link_matrix
from dtfm_lab.figures.losses import losses
from dtfm_lab.figures.network import network
from dtfm_lab.figures.theme import theme

__all__ = [
    "coarse_graph",
    "comparison",
    "convergence",
    "cost_breakdown",
    "gantt",
    "link_matrix",
    "losses",
    "network",
    "theme",
]
