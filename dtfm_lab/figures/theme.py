"""The look that all figures share, on a light page and on a dark one."""

from __future__ import annotations

import html
import itertools
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

import plotly.graph_objects as go

from dtfm_lab.figures.palette import CATEGORIES
from dtfm_lab.planning.search import PROVEN

SUBTITLE_LETTERS = 130
"""that fit into the width of a notebook cell"""
TITLE_LETTERS = 100
TITLE_LINE_PX = 22
NAME_LETTERS = 26
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
            "annotationdefaults": {"bgcolor": paper, "borderpad": 2},
            "xaxis": axis,
            "yaxis": {**axis, "ticklabelstandoff": 4},
        }
    )


def titled(figure: go.Figure, title: str, subtitle: str = "", **layout: Any) -> go.Figure:
    """The figure in the lab's look, in place, a long subtitle in several lines; ``layout`` adds to it."""
    lines = [literal(line) for line in textwrap.wrap(subtitle, SUBTITLE_LETTERS)]
    title_lines = [literal(line) for line in textwrap.wrap(title, TITLE_LETTERS)]
    top = 64 + TITLE_LINE_PX * max(0, len(title_lines) - 1)
    top += 20 + SUBTITLE_LINE_PX * (len(lines) - 1) if lines else 0
    figure.update_layout(
        template=template(),
        title={"text": "<br>".join(title_lines), "subtitle": {"text": "<br>".join(lines)}},
        margin={"t": top, "r": 32, "b": 60, "l": 32},
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


def short(names: Iterable[str]) -> list[str]:
    """Devices, and links "a -> b", as they fit beside an axis; literal. Where one is long, what all have in common at
    their beginning or end is left out, and then the middle of what is still long."""
    links = [name.split(" -> ") for name in names]
    every = sorted({end for link in links for end in link})
    before = after = 0
    if len(every) > 1 and max(map(len, every)) > NAME_LETTERS:
        before = _in_common(every)
        after = _in_common([end[before:][::-1] for end in every])

    def said(end: str) -> str:
        left = ("…" if before else "") + end[before : len(end) - after] + ("…" if after else "")
        return left if len(left) <= NAME_LETTERS else f"{left[: NAME_LETTERS // 2]}…{left[1 - NAME_LETTERS // 2 :]}"

    return [literal(" → ".join(map(said, link))) for link in links]


def _in_common(texts: Sequence[str]) -> int:
    """Letters at the beginning that all have in common."""
    alike = itertools.takewhile(lambda letters: len(set(letters)) == 1, zip(*texts, strict=False))
    return sum(1 for _ in alike)


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


def count(n: int, noun: str) -> str:
    """``1 device``, ``8 devices``."""
    return f"{n} {noun}" if n == 1 else f"{n:,} {noun}s"


def bare(figure: go.Figure, *, square: bool = False) -> go.Figure:
    """No axes: positions have no unit."""
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False)
    if square:
        figure.update_yaxes(scaleanchor="x", scaleratio=1)
    return figure


LEGEND_BELOW = {"orientation": "h", "yref": "container", "y": 0.01, "yanchor": "bottom", "x": 0, "xanchor": "left"}
