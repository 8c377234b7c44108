"""Panels under each other on one time axis, each with a heading."""

from collections.abc import Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots


def stacked(heights: Sequence[float], headings: Sequence[str], *, gap_px: float, total_px: float) -> go.Figure:
    """An empty figure of panels under each other on one x axis, each with a heading at its left end.

    Parameters
    ----------
    heights
        Of each panel, in any unit.
    gap_px, total_px
        Pixels between two panels, and of the whole.
    """
    figure = make_subplots(
        rows=max(1, len(heights)),
        cols=1,
        shared_xaxes=True,
        row_heights=list(heights) or None,
        vertical_spacing=gap_px / total_px if len(heights) > 1 else 0.0,
        subplot_titles=list(headings) or None,
    )
    return figure.update_annotations(x=0, xanchor="left")
