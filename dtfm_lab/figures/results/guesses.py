"""A class's guesses: for each question a histogram, and the answer as a line."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from dtfm_lab.course.guessing import DECADES, NEAR, factor, with_unit
from dtfm_lab.course.progress import Guess, Progress, read_class
from dtfm_lab.domain.errors import LabError
from dtfm_lab.figures.palette import BLUE, CRIMSON
from dtfm_lab.figures.theme import bare, count, literal, log_ticks, titled

COLUMNS = ("name", "question", "guess", "answer", "unit")
SAME = 1e-6
"""Share up to which the answers of two readers are the same one."""
PANEL_PX = 170
GAP_PX = 88
QUESTION_LETTERS = 72
MOST_BINS = 16

Guesses = str | os.PathLike[str] | pd.DataFrame | Iterable[Guess] | Iterable[Progress]


def guesses(given: Guesses) -> go.Figure:
    """A panel a question, in the order in which they were asked first: how many guessed what, and the answer.

    Where readers had numbers of their own, so that their answers differ, guesses are drawn as shares of the answer.
    An axis of positive numbers that are a hundredfold apart is logarithmic. The heading of a panel says the median and
    how many were within a factor of 2.

    Parameters
    ----------
    given
        A folder of files that ``lab.missions.export`` wrote, or one; the table of ``lab.guesses``; readers' Progress;
        or guesses.

    Raises FileError for a folder without such files, LabError for a table of other columns.
    """
    asked: dict[str, list[Guess]] = {}
    for each in _all_of(given):
        asked.setdefault(each.name, []).append(each)
    if not asked:
        return titled(bare(go.Figure()), "No guesses yet", alt="No guesses yet.", height=300)
    n, drawn_px = len(asked), len(asked) * PANEL_PX + (len(asked) - 1) * GAP_PX
    panels = [QuestionPanel(each) for each in asked.values()]
    figure = make_subplots(
        rows=n,
        cols=1,
        vertical_spacing=GAP_PX / drawn_px if n > 1 else 0,
        subplot_titles=[panel.heading for panel in panels],
    )
    figure.update_annotations(x=0, xanchor="left", align="left", font_size=13)
    for row, panel in enumerate(panels, start=1):
        panel.draw(figure, row)
    every = [guess for some in asked.values() for guess in some]
    near = sum(factor(guess) <= NEAR for guess in every)
    alt = f"{count(n, 'question')}. " + " ".join(f"{panel.name}: {panel.words}." for panel in panels)
    title = f"{near} of {len(every):,} {'guess' if len(every) == 1 else 'guesses'} within a factor of {NEAR:.0f}"
    subtitle = f"{count(n, 'question')}; the line is the answer; near is within a factor of {NEAR:.0f} of it, shaded"
    titled(figure, title, subtitle, alt=alt, height=drawn_px + 210, showlegend=False)
    return figure.update_layout(margin_t=figure.layout.margin.t + 50)


class QuestionPanel:
    """The guesses at one question, on the axis that suits them."""

    def __init__(self, guesses: Sequence[Guess]) -> None:
        first = guesses[0]
        self.name = first.name
        answers = np.array([each.answer for each in guesses])
        values = np.array([each.guess for each in guesses])
        self.is_relative = bool(np.ptp(answers) > SAME * np.abs(answers).max()) and bool((answers != 0).all())
        if self.is_relative:
            values, answers = values / answers, np.ones_like(answers)
        self.values, self.answer = values, float(np.median(answers))
        self.unit = "× the answer" if self.is_relative else first.unit
        known = [*values, self.answer]
        self.is_log = min(known) > 0 and max(known) / min(known) >= DECADES
        near = sum(factor(each) <= NEAR for each in guesses)
        median = with_unit(float(np.median(values)), self.unit)
        answer = "answers differ" if self.is_relative else f"answer {with_unit(self.answer, self.unit)}"
        self.words = f"{answer}; median guess {median}; {near} of {len(guesses)} near"
        asked = (
            first.question
            if len(first.question) <= QUESTION_LETTERS
            else f"{first.question[: QUESTION_LETTERS - 1].rstrip()}…"
        )
        self.heading = f"<b>{literal(asked)}</b><br>{literal(self.words)}"

    def draw(self, figure: go.Figure, row: int) -> None:
        """Add the bars, the answer and the axis to a row of the figure."""
        edges, counts = self.histogram()
        middles, half = (edges[:-1] + edges[1:]) / 2, 0.47 * float(edges[1] - edges[0])
        x = np.stack([middles - half, middles - half, middles + half, middles + half, np.full(len(counts), np.nan)])
        y = np.stack([np.zeros(len(counts)), counts, counts, np.zeros(len(counts)), np.full(len(counts), np.nan)])
        bars = {"fill": "toself", "fillcolor": BLUE, "line": {"width": 0}, "mode": "lines", "hoverinfo": "skip"}
        figure.add_trace(go.Scatter(x=x.T.ravel().tolist(), y=y.T.ravel().tolist(), **bars), row=row, col=1)
        said = [with_unit(float(each), self.unit) for each in self._back(edges)]
        ranges = zip(said[:-1], said[1:], counts, strict=True)
        hover = [literal(f"{low} to {high}: {count(int(n), 'reader')}") for low, high, n in ranges]
        tops = {"mode": "markers", "marker": {"opacity": 0}, "hovertext": hover, "hoverinfo": "text"}
        figure.add_trace(go.Scatter(x=middles.tolist(), y=counts.tolist(), **tops), row=row, col=1)
        if self.answer != 0:
            ends = self._at(np.array(sorted((self.answer / NEAR, self.answer * NEAR))))
            figure.add_vrect(
                *ends.tolist(), fillcolor=CRIMSON, opacity=0.12, line_width=0, layer="below", row=row, col=1
            )
        at = float(self._at(np.array([self.answer]))[0])
        figure.add_vline(at, line={"color": CRIMSON, "width": 3}, row=row, col=1)
        if self.is_log:
            ticks = log_ticks(*self._back(edges[[0, -1]]).tolist())
            figure.update_xaxes(
                tickvals=np.log10(ticks).tolist(), ticktext=[with_unit(each, "") for each in ticks], row=row, col=1
            )
        figure.update_xaxes(range=edges[[0, -1]].tolist(), title_text=literal(self.unit), row=row, col=1)
        figure.update_yaxes(title_text="readers", range=[0, 1.08 * max(1, counts.max())], row=row, col=1)
        figure.update_yaxes(dtick=1 if counts.max() <= 6 else None, row=row, col=1)

    def histogram(self) -> tuple[np.ndarray, np.ndarray]:
        """Edges of bins of equal width on the axis, which hold every guess and the answer, and the counts."""
        at = self._at(self.values)
        known = np.append(at, self._at(np.array([self.answer])))
        low, high = float(known.min()), float(known.max())
        if low == high:
            low, high = low - 0.5 * (abs(low) or 1), high + 0.5 * (abs(high) or 1)
        room = 0.04 * (high - low)
        n_bins = min(MOST_BINS, max(6, 2 * math.ceil(math.sqrt(len(at)))))
        edges = np.linspace(low - room, high + room, n_bins + 1)
        return edges, np.histogram(at, edges)[0]

    def _at(self, values: np.ndarray) -> np.ndarray:
        return np.log10(values) if self.is_log else values

    def _back(self, positions: np.ndarray) -> np.ndarray:
        return np.power(10.0, positions) if self.is_log else positions


def _all_of(given: Guesses) -> list[Guess]:
    if isinstance(given, pd.DataFrame):
        if missing := [column for column in COLUMNS if column not in given.columns]:
            raise LabError(f"table has no column {', '.join(missing)}; wanted the table of lab.guesses")
        return [Guess(**{column: row[column] for column in COLUMNS}) for row in given.to_dict("records")]
    found: list[Guess] = []
    for each in read_class(given) if isinstance(given, (str, os.PathLike)) else given:
        if not isinstance(each, (Guess, Progress)):
            raise LabError(f"found {type(each).__name__} {each!r:.60}; wanted guesses, or readers' progress")
        found += [each] if isinstance(each, Guess) else each.guesses
    return found
