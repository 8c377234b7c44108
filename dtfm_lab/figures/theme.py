"""The look that all figures share, on light and dark pages: titles, texts, axes and units."""

import html
import itertools
import textwrap
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any, TypeVar, cast

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.network import shortened
from dtfm_lab.domain.trace import LINK_SEPARATOR
from dtfm_lab.domain.units import format_share
from dtfm_lab.figures.palette import CATEGORIES, EDGES, LINE_GREY, MARKER_EDGE
from dtfm_lab.planning.search import PROVEN

SUBTITLE_LETTERS = 130
"""Number of letters of a subtitle that fit into the width of a notebook cell."""
TITLE_LETTERS = 100
"""Number of letters of a title that fit into the width of a notebook cell."""
TITLE_LINE_PX = 22
NAME_LETTERS = 26
"""Maximum number of letters of a name next to an axis."""
SUBTITLE_LINE_PX = 16
HEADING_PX = 22
WORDLESS = " "
"""The text of a point without text. An empty text would make plotly lose other texts when it draws again."""
CLEAR = "rgba(0, 0, 0, 0)"
"""Transparent."""
UNBOXED: dict[str, Any] = {"showarrow": False, "bgcolor": CLEAR}
"""An annotation that is plain text, without the box and the arrow that plotly adds."""
LEGEND_BELOW = {"orientation": "h", "yref": "container", "y": 0.01, "yanchor": "bottom", "x": 0, "xanchor": "left"}
BELOW_PX = 60
"""Room below a figure whose axis has no title, in pixels."""
AXIS_AND_LEGEND_PX = 104
"""Room below a figure with an axis title and a legend of some lines, in pixels."""
FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
MOST_TICKS = 9
"""Maximum number of ticks on a logarithmic axis."""
F = TypeVar("F", bound=Callable[..., Any])


def figure_of(*kinds: type, wanted: str = "") -> Callable[[F], F]:
    """Return a decorator for functions that draw a figure. They then raise LabError unless their first argument is of
    one of these kinds. ``wanted`` names the kinds in the message."""

    def checks(draw: F) -> F:
        @wraps(draw)
        def checked(*given: Any, **options: Any) -> Any:
            if given and not isinstance(given[0], kinds):
                named = " or ".join(f"{'an' if one.__name__[0] in 'AEIO' else 'a'} {one.__name__}" for one in kinds)
                raise LabError(f"a figure {draw.__name__} of {shortened(given[0])}; wanted {wanted or named}")
            return draw(*given, **options)

        return cast(F, checked)

    return checks


def theme(figure: go.Figure, dark: bool = True) -> go.Figure:
    """Return a copy of the figure for a dark page, or for a light one again. The colours of the data stay."""
    copy = go.Figure(figure)
    copy.update_layout(template=template(dark))
    return copy


def template(dark: bool = False) -> go.layout.Template:
    """Return a small template. It styles only what this lab draws, not all the kinds of chart of plotly's own
    templates."""
    ink, soft, paper, grid = (
        ("#e8e8e8", "#b0b0b0", "#111111", "#333333") if dark else ("#212121", "#616161", "#ffffff", "#e6e6e6")
    )
    axis: dict[str, Any] = {"gridcolor": grid, "zerolinecolor": grid, "tickcolor": soft, "tickfont": {"color": soft}}
    axis |= {"title": {"standoff": 8}, "automargin": True}
    place = {"x": 0, "xref": "container", "xanchor": "left", "pad": {"l": 16}}
    return go.layout.Template(
        layout={
            "font": {"family": FONT, "size": 12, "color": ink},
            "title": {"font": {"size": 16}, "subtitle": {"font": {"size": 12, "color": soft}}, **place},
            "paper_bgcolor": paper,
            "plot_bgcolor": paper,
            "colorway": list(CATEGORIES),
            "hoverlabel": {"bgcolor": paper, "font": {"color": ink}, "align": "left"},
            "annotationdefaults": {"bgcolor": paper, "borderpad": 2},
            "legend": LEGEND_BELOW,
            "xaxis": axis,
            "yaxis": {**axis, "ticklabelstandoff": 4},
        }
    )


def titled(figure: go.Figure, title: str, subtitle: str = "", *, alt: str = "", **layout: Any) -> go.Figure:
    """Give the figure, changed in place, the lab's look, a title, and a subtitle in several lines if it is long.

    Parameters
    ----------
    alt
        What a reader who cannot see the figure should know, in a sentence or two. ``alt_text`` returns it.
    layout
        Further properties of plotly's layout.
    """
    # For readers who cannot see the figure.
    if alt:
        figure.update_layout(meta={"alt": alt})
    lines, title_lines = wrapped(subtitle, SUBTITLE_LETTERS), wrapped(title, TITLE_LETTERS)
    # Titles of several lines need room above the panels.
    top = 64 + TITLE_LINE_PX * max(0, len(title_lines) - 1)
    # plotly centres a title and its lines in the margin, so that further lines need half of one more each.
    top += 20 + SUBTITLE_LINE_PX * (len(lines) - 1) + SUBTITLE_LINE_PX // 2 * max(0, len(lines) - 2) if lines else 0
    has_axis = any(axis.title.text for axis in figure.select_xaxes())
    figure.update_layout(
        template=template(),
        title={"text": "<br>".join(title_lines), "subtitle": {"text": "<br>".join(lines)}},
        margin={"t": top, "r": 32, "b": AXIS_AND_LEGEND_PX if has_axis else BELOW_PX, "l": 32},
    )
    figure.update_layout(**layout)
    return figure


def with_headings(figure: go.Figure, spare_px: int = 0) -> go.Figure:
    """Make room in a titled figure, changed in place, for the headings of its topmost panels, and ``spare_px`` more."""
    figure.update_annotations(selector={"yref": "paper", "yanchor": "bottom"}, font_size=13, yshift=2)
    # plotly centres a title and its lines in the margin, so that each line after the first needs half of one more
    spare_px += SUBTITLE_LINE_PX * str(figure.layout.title.subtitle.text or "").count("<br>")
    return figure.update_layout(margin_t=figure.layout.margin.t + HEADING_PX + spare_px)


def literal(text: str) -> str:
    """Return text that plotly shows letter by letter. Otherwise it reads <b> as bold, two dollars as TeX, %{x} as a
    value.

    Every name that a user gives must pass through here, except for names in titles, which ``titled`` escapes itself.
    """
    return html.escape(text, quote=False).replace("$", "&#36;").replace("%{", "&#37;{")


def short(names: Iterable[str]) -> list[str]:
    """Return names of devices, and of links as "a -> b", shortened to fit next to an axis, and literal.

    If a name is long, the letters that all names have in common at their beginning or end are left out. Names that are
    still long lose their middle.
    """
    links = [name.split(LINK_SEPARATOR) for name in names]
    every = sorted({end for link in links for end in link})
    before = after = 0
    # If no name is too long, none is shortened.
    if len(every) > 1 and max(map(len, every)) > NAME_LETTERS:
        before = _in_common(every)
        after = _in_common([end[before:][::-1] for end in every])

    def shortened(end: str) -> str:
        kept = ("…" if before else "") + end[before : len(end) - after] + ("…" if after else "")
        return kept if len(kept) <= NAME_LETTERS else f"{kept[: NAME_LETTERS // 2]}…{kept[1 - NAME_LETTERS // 2 :]}"

    return [literal(" → ".join(map(shortened, link))) for link in links]


def _in_common(texts: Sequence[str]) -> int:
    """Return how many letters all texts have in common at their beginning."""
    alike = itertools.takewhile(lambda letters: len(set(letters)) == 1, zip(*texts, strict=False))
    return sum(1 for _ in alike)


def alt_text(figure: go.Figure) -> str:
    """Return what the figure shows, in a sentence or two: the given text, else its title."""
    alt = (figure.layout.meta or {}).get("alt")
    return str(alt or html.unescape(figure.layout.title.text or ""))


def quality(gap: float) -> str:
    """Return in words what the gap between a communication cost and its lower bound proves. The gap is a share of the
    cost."""
    return "communication cost proven best" if gap < PROVEN else f"at most {percent(gap)} of it could be saved"


def percent(gap: float) -> str:
    """Return a share with one digit, at least 0.1 %, so that a positive share never reads as nothing."""
    return format_share(max(gap, 0.001))


def bare(figure: go.Figure, *, square: bool = False) -> go.Figure:
    """Return the same figure without axes, for drawings whose positions have no unit. ``square`` keeps circles
    round."""
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False)
    if square:
        figure.update_yaxes(scaleanchor="x", scaleratio=1)
    return figure


def edged(color: str) -> dict[str, Any]:
    """Return a marker or bar of this colour, with a darker edge if it would be invisible on a white page."""
    edge = EDGES.get(color)
    return {"color": color, "line": {"width": 0.8 if edge else 0, "color": edge}}


def by_name(names: Sequence[str], margin: float = 0.5) -> dict[str, Any]:
    """Return a y axis of named rows, the first on top, with a ``margin`` in rows beyond the outermost two.

    By default, plotly would reorder the names, and take names that are numbers for positions.
    """
    end = len(names) - 1 + margin
    order = {"type": "category", "categoryorder": "array", "categoryarray": names}
    return {**order, "range": [end, -margin], "showgrid": False}


def numbered_rows(names: Sequence[str]) -> dict[str, Any]:
    """Return a y axis of rows 0, 1, ... from top to bottom, each with its name."""
    ticks = {"tickvals": list(range(len(names))), "ticktext": list(names)}
    return {**ticks, "range": [len(names) - 0.4, -0.6], "showgrid": False, "zeroline": False}


def row_bars(x: Sequence[float], y: Sequence[Any], hover: Sequence[str], **look: Any) -> go.Bar:
    """Return horizontal bars on rows, each with its hover text. A ``text`` is shown next to its bar."""
    beside = {"textposition": "outside", "cliponaxis": False} if "text" in look else {}
    return go.Bar(orientation="h", x=x, y=y, hovertext=hover, hoverinfo="text", **{**beside, **look})


def curve(
    x: Any, y: Any, name: Any, color: Any, width: Any, *, dash: Any = None, steps: Any = False, **look: Any
) -> go.Scatter:
    """Return a line without markers, and without hover unless it has words. With ``steps``, each value holds until the
    next."""
    line = {"color": color, "width": width, "dash": dash, "shape": "hv" if steps else None}
    silent = {} if "hovertemplate" in look else {"hoverinfo": "skip"}
    return go.Scatter(x=x, y=y, mode="lines", name=name, line=line, **{**silent, **look})


def spots(x: Any, y: Any, size: Any, color: Any, text: Any, *, edge_px: Any = 1, **look: Any) -> go.Scatter:
    """Return markers for devices or stages, each with a text in it or next to it."""
    marker = {"size": size, "color": color, "opacity": 1, "line": {"width": edge_px, "color": MARKER_EDGE}}
    marker |= look.pop("marker", {})
    return go.Scatter(x=x, y=y, text=text, marker=marker, showlegend=False, **{"mode": "markers+text", **look})


def wrapped(text: str, letters: int) -> list[str]:
    """Return a text in lines of up to ``letters`` letters, literal."""
    return [literal(line) for line in textwrap.wrap(text, letters)]


def time_axis(end_s: float) -> tuple[str, float]:
    """Return the unit of an axis that may span hours, and the seconds in that unit: s, min or h."""
    return ("h", 3600.0) if end_s >= 7200 else ("min", 60.0) if end_s >= 120 else ("s", 1.0)


def duration(seconds: float) -> str:
    """Return seconds with three digits, or as minutes or hours if they are many: ``156 s``, ``20.2 min``."""
    unit, in_s = time_axis(seconds / 2) if seconds >= 600 else ("s", 1.0)
    return f"{seconds / in_s:.3g} {unit}"


def time_unit(longest_s: float) -> tuple[str, float]:
    """Return the unit of an axis of times, and the number of units in a second. The unit is ms below one second, else
    s."""
    return ("s", 1.0) if longest_s >= 1 else ("ms", 1e3)


def log_ticks(low: float, high: float) -> list[float]:
    """Return powers of ten between two positive numbers. If these are few, also 2 and 5 times each, or every digit.
    If at most one tick lies between the numbers, return the numbers themselves."""
    powers = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    ticks: list[float] = []
    for digits in ((1,), (1, 2, 5), range(1, 10)):
        finer = [float(f"{digit}e{power}") for power in powers for digit in digits]
        finer = [tick for tick in finer if low * 0.999 <= tick <= high * 1.001]
        if len(finer) > MOST_TICKS:
            break
        ticks = finer
        if len(ticks) > 3:
            # Enough to read the axis by; finer ones only crowd it.
            break
    # One tick gives no scale, so the ends do.
    return ticks if len(ticks) > 1 else sorted({low, high})


def log_axis(low: float, high: float, room: float, text: Callable[[float], str] = "{:,.12g}".format) -> dict[str, Any]:
    """Return a logarithmic axis with round numbers, from ``low`` to ``high`` and a factor of ``room`` beyond both."""
    low, high = low / room, high * room
    ticks = log_ticks(low, high)
    texts = [text(tick) for tick in ticks]
    return {"type": "log", "range": np.log10([low, high]).tolist(), "tickvals": ticks, "ticktext": texts}


def upright(figure: go.Figure, value: float, text: str, *, y: float, log: bool = False, **line: Any) -> None:
    """Draw a vertical line at a value, dotted by default, with a text next to it. ``y`` is the place of the text as a
    share of the height. ``log`` is True on a logarithmic axis."""
    figure.add_vline(x=value, line={"color": LINE_GREY, "width": 1.4, "dash": "dot", **line})
    place = {"y": y, "yref": "paper", "yanchor": "bottom" if y < 0.5 else "top", "xanchor": "left", "xshift": 4}
    figure.add_annotation(x=float(np.log10(value)) if log else value, text=text, **place, **UNBOXED)


def stacked(heights: Sequence[float], headings: Sequence[str], *, gap_px: float, total_px: float) -> go.Figure:
    """Return an empty figure of panels under each other on one x axis, each with a heading at its left end.

    Parameters
    ----------
    heights
        Height of each panel, in any unit.
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
