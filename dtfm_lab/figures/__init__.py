"""Nouns as plotly figures: pure functions, nothing fetched from any network."""

from dtfm_lab.figures.baselines import baselines
from dtfm_lab.figures.blame import blame, drift
from dtfm_lab.figures.bubble import bubble
from dtfm_lab.figures.coarse_graph import coarse_graph
from dtfm_lab.figures.comparison import comparison
from dtfm_lab.figures.convergence import convergence
from dtfm_lab.figures.cost_breakdown import cost_breakdown
from dtfm_lab.figures.five_steps import five_steps, step
from dtfm_lab.figures.gantt import gantt
from dtfm_lab.figures.link_matrix import link_matrix
from dtfm_lab.figures.losses import losses
from dtfm_lab.figures.matching import matching
from dtfm_lab.figures.memory_over_time import memory_over_time
from dtfm_lab.figures.network import network
from dtfm_lab.figures.network_map import network_map
from dtfm_lab.figures.pinned import pinned
from dtfm_lab.figures.plan_map import plan_map
from dtfm_lab.figures.refit import refit
from dtfm_lab.figures.sensitivity import sensitivity
from dtfm_lab.figures.side_by_side import side_by_side
from dtfm_lab.figures.sweep import sweep
from dtfm_lab.figures.theme import alt_text, theme

__all__ = [
    "alt_text",
    "baselines",
    "blame",
    "bubble",
    "coarse_graph",
    "comparison",
    "convergence",
    "cost_breakdown",
    "drift",
    "five_steps",
    "gantt",
    "link_matrix",
    "losses",
    "matching",
    "memory_over_time",
    "network",
    "network_map",
    "pinned",
    "plan_map",
    "refit",
    "sensitivity",
    "side_by_side",
    "step",
    "sweep",
    "theme",
]
