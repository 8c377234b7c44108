"""Figures as files for a paper: SVG, PDF, PNG or a page, as wide as a column or the text, in 8 pt type."""

import importlib.util
import os
from pathlib import Path

import plotly.graph_objects as go

from dtfm_lab.domain.errors import FileError, LabError, MissingExtra
from dtfm_lab.figures.theme import figure_of, theme

WIDTHS_IN = {"column": 3.33, "text": 7.0}
"""Inches of a column, and of the text, in the usual two-column formats of conferences."""
PX_PER_IN = 96
TYPE_PX = 8 / 72 * PX_PER_IN
"""8 points in pixels."""
HEIGHT_SHARES = {"column": 0.95, "text": 0.62}
"""Default height relative to the width. A legend takes more lines in a column than in the text."""
PAGE = ".html"
ENDINGS = (".svg", ".pdf", ".png", PAGE)
DOTS_PER_IN = 300


@figure_of(go.Figure)
def save(
    figure: go.Figure, path: str | os.PathLike[str], *, width: str = "text", height_in: float | None = None
) -> Path:
    """Write the figure without its title, which a paper's caption replaces, and return the file.

    Parameters
    ----------
    path
        It ends in .svg, .pdf, .png or .html. The first three need the extra ``figures`` (kaleido, and a Chrome or
        Chromium on this machine). An .html page needs nothing else installed and loads nothing from a network.
    width
        ``column`` (3.33 inches) or ``text`` (7 inches).
    height_in
        Inches; by default in proportion to the width.

    Raises LabError for another ending or width, or without a browser; MissingExtra without kaleido; FileError if the
    file cannot be written.
    """
    file = Path(path)
    if file.suffix.lower() not in ENDINGS:
        raise LabError(f"{file.name} ends in {file.suffix or 'nothing'}; wanted one of {', '.join(ENDINGS)}")
    sized = for_paper(figure, width, height_in)
    try:
        if file.suffix.lower() == PAGE:
            # The page carries plotly, so that it opens without a network.
            sized.write_html(file, include_plotlyjs=True)
        else:
            _write_by_browser(sized, file)
    except OSError as error:
        raise FileError(f"{file} cannot be written: {error.strerror or error}") from None
    return file


def for_paper(figure: go.Figure, width: str = "text", height_in: float | None = None) -> go.Figure:
    """Return a copy in the size and type of a paper, on white and without its title. Raises LabError for an unknown
    width."""
    if width not in WIDTHS_IN:
        raise LabError(f"width is {width!r}; wanted one of {', '.join(WIDTHS_IN)}")
    width_px = round(WIDTHS_IN[width] * PX_PER_IN)
    copy = theme(figure, dark=False)
    # Headings above the panels need room, which the title has left.
    headings = [note.text for note in copy.layout.annotations if note.yref == "paper" and (note.y or 0) >= 1]
    n_lines = max((1 + text.count("<br>") for text in headings), default=0)
    copy.update_layout(
        width=width_px,
        height=round(HEIGHT_SHARES[width] * width_px if height_in is None else height_in * PX_PER_IN),
        title=None,
        margin={"l": 8, "r": 8, "t": 8 + (TYPE_PX + 6) * n_lines, "b": 8},
        font_size=TYPE_PX,
        legend_font_size=TYPE_PX,
    )
    copy.update_annotations(font_size=TYPE_PX)
    for axes in (copy.update_xaxes, copy.update_yaxes):
        axes(title_font_size=TYPE_PX, tickfont_size=TYPE_PX, title_standoff=4, automargin=True)
    copy.update_traces(textfont_size=TYPE_PX, selector=lambda trace: "textfont" in trace)
    return copy


def _write_by_browser(figure: go.Figure, file: Path) -> None:
    """Let kaleido's browser draw the figure into a file. Raises MissingExtra without kaleido, LabError without a
    browser."""
    if importlib.util.find_spec("kaleido") is None:
        raise MissingExtra(
            f"{file.name} needs kaleido, which is not installed (.html does not): pip install 'dtfm_lab[figures]'"
        )
    try:
        figure.write_image(file, scale=DOTS_PER_IN / PX_PER_IN if file.suffix.lower() == ".png" else 1)
    except (RuntimeError, ValueError) as error:  # kaleido found no browser
        reason = " ".join(str(error).split())[:160]
        raise LabError(f"{file.name} was not drawn: {reason}; wanted a Chrome or Chromium on this machine") from None
