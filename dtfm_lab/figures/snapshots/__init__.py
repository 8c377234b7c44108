"""A plotly figure as standalone SVG: the still picture for readers without widgets, and the SVG export of a chart."""

from dtfm_lab.figures.snapshots.drawing import MOST_BARS, svg

__all__ = ["MOST_BARS", "svg"]
