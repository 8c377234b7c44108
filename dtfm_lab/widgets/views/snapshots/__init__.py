"""A plotly figure as standalone SVG: what a reader without widgets sees, and the SVG export of a chart."""

from dtfm_lab.widgets.views.snapshots.drawing import MOST_BARS, svg

__all__ = ["MOST_BARS", "svg"]
