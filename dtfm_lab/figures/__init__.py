"""Plotly figures of networks, plans, traces and results, made by pure functions that download nothing.

``maps`` draws networks, ``plan`` plans and searches, ``timeline`` traces over time, ``results`` comparisons, sweeps,
sensitivities and losses. The package itself has what they share: look, colours, lines and ticks.
"""

from typing import Any

from dtfm_lab.domain.extension import attribute, offered
from dtfm_lab.figures.maps.link_matrix import link_matrix
from dtfm_lab.figures.maps.network import network, network_map, plan_map
from dtfm_lab.figures.plan.coarse_graph import coarse_graph, cost_breakdown, matching
from dtfm_lab.figures.plan.convergence import convergence
from dtfm_lab.figures.plan.frontier import frontier
from dtfm_lab.figures.plan.replans import replans
from dtfm_lab.figures.results.comparison import blame, comparison
from dtfm_lab.figures.results.losses import losses
from dtfm_lab.figures.results.sensitivity import sensitivity
from dtfm_lab.figures.results.sweep import sweep
from dtfm_lab.figures.saving import save
from dtfm_lab.figures.theme import alt_text, theme
from dtfm_lab.figures.timeline.bubble import bubble
from dtfm_lab.figures.timeline.gantt import gantt
from dtfm_lab.figures.timeline.memory_over_time import memory_over_time

__all__ = [
    "alt_text", "blame", "bubble", "coarse_graph", "comparison", "convergence", "cost_breakdown",
    "frontier", "gantt", "link_matrix", "losses", "matching",
    "memory_over_time", "network", "network_map", "plan_map", "replans", "save", "sensitivity", "sweep",
    "theme",
]  # fmt: skip
__all__ += sorted(offered("figures"))  # extensions are imported on first use


def __getattr__(name: str) -> Any:
    """Return the figure function of this name from an extension. Raises AttributeError if none has it."""
    return attribute("figures", __name__, name)
