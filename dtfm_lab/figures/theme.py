"""The look that all figures share, on a light page and on a dark one."""

from __future__ import annotations

import html
import textwrap
from typing import Any

import plotly.graph_objects as go

from dtfm_lab.figures.palette import CATEGORIES
from dtfm_lab.planning.search import PROVEN

SUBTITLE_LETTERS = 130
"""that fit into the width of a notebook cell"""
SUBTITLE_LINE_PX = 16
HEADING_PX = 22
WORDLESS = " "
"""at a point without words among others with: where they are empty, plotly loses others when it draws again"""
FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"


def theme(figure: go.Figure, dark: bool = True) -> go.Figure:
    """A copy for a dark page, or for a light one again; the data's colours stay."""
    copy = go.Figure(figure)
    copy.update_layout(template=template(dark))
    return copy


def template(dark: bool = False) -> go.layout.Template:
    """Small: what this lab draws, and none of the maps that plotly's own templates prepare for."""
    ink, soft, paper, grid = (
        ("#e8e8e8", "#b0b0b0", "#111111", "#333333") if dark else ("#212121", "#616161", "#ffffff", "#e6e6e6")
    )
    axis = {
        "gridcolor": grid,
        "linecolor": soft,
        "zerolinecolor": grid,
        "tickcolor": soft,
        "tickfont": {"color": soft},
        "title": {"standoff": 8},
        "automargin": True,
    }
    return go.layout.Template(
        layout={
            "font": {"family": FONT, "size": 12, "color": ink},
            "title": {
                "font": {"size": 16},
                "subtitle": {"font": {"size": 12, "color": soft}},
                "x": 0,
                "xref": "container",
                "xanchor": "left",
                "pad": {"l": 16},
            },
            "paper_bgcolor": paper,
            "plot_bgcolor": paper,
            "colorway": list(CATEGORIES),
            "hoverlabel": {"bgcolor": paper, "font": {"color": ink}, "align": "left"},
            "legend": {"font": {"color": ink}},
            "annotationdefaults": {"bgcolor": paper, "borderpad": 2},
            "xaxis": axis,
            "yaxis": {**axis, "ticklabelstandoff": 4},
        }
    )


def titled(figure: go.Figure, title: str, subtitle: str = "", **layout: Any) -> go.Figure:
    """The figure in the lab's look, in place, a long subtitle in several lines; ``layout`` adds to it."""
    lines = [literal(line) for line in textwrap.wrap(subtitle, SUBTITLE_LETTERS)]
    figure.update_layout(
        template=template(),
        title={"text": literal(title), "subtitle": {"text": "<br>".join(lines)}},
        margin={"t": 64 + (20 + SUBTITLE_LINE_PX * (len(lines) - 1) if lines else 0), "r": 32, "b": 60, "l": 32},
    )
    figure.update_layout(**layout)
    return figure


def with_headings(figure: go.Figure) -> go.Figure:
    """A titled figure with room for the headings of its topmost panels, in place."""
    figure.update_annotations(selector={"yref": "paper", "yanchor": "bottom"}, font_size=13, yshift=2)
    figure.update_layout(margin_t=figure.layout.margin.t + HEADING_PX)
    return figure


def literal(text: str) -> str:
    """Text that plotly shows letter by letter, where it would take <b> for bold, two dollars for TeX, %{x} for a value.

    For every name that a user gives; ``titled`` sees to titles.
    """
    return html.escape(text, quote=False).replace("$", "&#36;").replace("%{", "&#37;{")


def described(figure: go.Figure, words: str) -> go.Figure:
    """Keeps what a reader who cannot see the figure should know, in place; ``alt_text`` gives it back."""
    figure.update_layout(meta={"alt": words})
    return figure


def alt_text(figure: go.Figure) -> str:
    """What the figure shows, in a sentence or two; its title where nothing more was kept."""
    words = (figure.layout.meta or {}).get("alt")
    return str(words or html.unescape(figure.layout.title.text or ""))


def quality(gap: float) -> str:
    """What a plan's gap to its lower bound proves."""
    return "proven best" if gap < PROVEN else f"at most {percent(gap)} of it could be saved"


def percent(gap: float) -> str:
    """With one digit; what is not nothing is never told as nothing."""
    return f"{max(gap, 0.001):.1%}"


def bare(figure: go.Figure, *, square: bool = False) -> go.Figure:
    """No axes: positions have no unit."""
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False)
    if square:
        figure.update_yaxes(scaleanchor="x", scaleratio=1)
    return figure


LEGEND_BELOW = {"orientation": "h", "yref": "container", "y": 0.01, "yanchor": "bottom", "x": 0, "xanchor": "left"}
