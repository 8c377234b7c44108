"""The live curves of one or more searches: best cost so far, median of the population, lower bound."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import traitlets

from dtfm_lab.figures.measures import MEASURES, ObjectiveWords, measure_of
from dtfm_lab.widgets.views.view import View

N_COLUMNS = 5
"""Columns of a row: evaluations, seconds of search, best, lower bound and median, in the objective's unit."""
# Columns of a row.
BEST = 2
BOUND = 3
MEDIAN = 4
LEVELS = slice(2, N_COLUMNS)
"""Columns of best, bound and median."""
MOST_ROWS = 1500
"""Maximum rows that are kept per series. More are thinned."""
UNSEEN = 1 / 1000
"""Share of the height of the curves below which a change cannot be seen."""
COARSER = 2.0
"""Factor by which the smallest change that is kept grows from one attempt to thin a series to the next."""


class ConvergenceView(View):
    """Draws named series of rows, see ``N_COLUMNS``.

    Only new rows are sent, in one message for all that have arrived. A page that opens late sends ``hello`` and
    receives everything. However long the search, only visible changes are kept, see ``thinned``.
    """

    title = traitlets.Unicode("Convergence").tag(sync=True)
    height = traitlets.Int(260).tag(sync=True)
    """Pixels of the chart. 0 fills the parent element."""
    against = traitlets.Enum(["evaluations", "seconds"], "evaluations").tag(sync=True)
    """The quantity on the x axis."""
    clock = traitlets.Unicode("seconds of search").tag(sync=True)
    """The clock that measures the seconds, as the label of the x axis."""
    noun = traitlets.Unicode("communication cost").tag(sync=True)
    """The quantity of the curves, as the label of the y axis."""
    unit = traitlets.Enum(["s", "$"], "s").tag(sync=True)
    bound_label = traitlets.Unicode("lower bound").tag(sync=True)
    empty = traitlets.Unicode("No search yet").tag(sync=True)
    """Text of an empty chart."""
    caption = traitlets.Unicode("")
    """The line below the chart. It is sent together with the rows that it describes."""

    def __init__(self, **traits: object) -> None:
        super().__init__(**traits)
        self._measure: ObjectiveWords = MEASURES["communication"]
        self.points: dict[str, np.ndarray] = {}
        """(n, 5) rows by name of a series: those that differ visibly, and the newest."""
        self._sending = False

    def show_measure(self, objective: str) -> None:
        """Write values in the unit of this objective from now on."""
        measure = self._measure = measure_of(objective)
        with self.hold_sync():
            self.noun, self.unit, self.bound_label = measure.noun, measure.unit, measure.bound_label

    def extend(self, rows: np.ndarray, series: str = "best") -> None:
        """Add (n, 5) rows, in order of evaluations. A missing bound or median is NaN."""
        self.extend_all({series: rows})

    def extend_all(self, rows: Mapping[str, np.ndarray], caption: str | None = None) -> None:
        """Add rows to several series and set the caption, in one message."""
        parts = []
        for name, new in rows.items():
            new = np.array(new, dtype=float).reshape(-1, N_COLUMNS)
            if len(new):
                parts.append((name, *self._add(name, new)))
        # Set without its own message, as it goes along with the rows.
        self._sending = True
        self.caption = self.caption if caption is None else caption
        self._sending = False
        self._send_rows(parts)

    def reset(self) -> None:
        """Remove every series."""
        self.points = {}
        self.send({"kind": "reset"})

    def alt_text(self) -> str:
        if not self.points:
            return f"{self.title}: no search yet"
        ends = {name: rows[-1] for name, rows in self.points.items()}
        leader = min(ends, key=lambda name: ends[name][2])
        bound_s = max(end[BOUND] for end in ends.values())
        others = "".join(f", {name} {self._measure.words(end[2])}" for name, end in ends.items() if name != leader)
        best_s = ends[leader][2]
        words = self._measure.gap_words(best_s, bound_s)
        return f"{self.title}: {leader} {self._measure.words(best_s)}{others}; {leader} is {words}"

    def _add(self, name: str, new: np.ndarray) -> tuple[int, np.ndarray]:
        """Add rows. Return how many of the page's newest rows are out of date, and the rows to send instead."""
        held = self.points.get(name, np.empty((0, N_COLUMNS)))
        medians = pd.Series(
            [*held[-1:, MEDIAN], *new[:, MEDIAN]]
        ).ffill()  # between two generations, the last median still applies
        new[:, MEDIAN] = medians[len(held[-1:]) :]
        unseen_s = _height(held, new) * UNSEEN
        # the last row was kept only because it was the newest
        drop = int(len(held) > 1 and not _visible(held[-2:], unseen_s, unseen_s).any())
        kept = held[: len(held) - drop]
        added = thinned(np.concatenate([kept[-1:], new]), unseen_s)[len(kept[-1:]) :]
        self.points[name] = np.concatenate([kept, added])
        # Halved now and then, or a search of hours would fill the page.
        if len(self.points[name]) > MOST_ROWS:
            self.points[name] = few(self.points[name])
            return len(held), self.points[name]
        return drop, added

    def _send_rows(self, parts: list[tuple[str, int, np.ndarray]]) -> None:
        series = [{"name": name, "drop": drop, "count": len(rows)} for name, drop, rows in parts]
        rows = np.concatenate([np.empty((0, N_COLUMNS)), *(rows for _, _, rows in parts)])
        self.send({"kind": "points", "series": series, "caption": self.caption}, buffers=[rows.astype("f4").tobytes()])

    @traitlets.observe("caption")
    def _send_caption(self, _change: object) -> None:
        if not self._sending:
            self._send_rows([])

    def received(self, content: dict[str, Any], buffers: Sequence[Any]) -> None:
        if content.get("kind") == "hello":
            # The page may have asked before, and would draw the same rows twice.
            self.send({"kind": "reset"})
            self._send_rows([(name, 0, rows) for name, rows in self.points.items()])


def thinned(rows: np.ndarray, unseen_s: float, unseen_median_s: float | None = None) -> np.ndarray:
    """Return the first row, the newest, and every row whose levels differ visibly from the row before.

    ``unseen_s`` is the smallest visible difference. ``unseen_median_s`` is the same for medians, by default
    ``unseen_s``. With a difference of 0, any change counts.
    """
    if len(rows) < 3:
        return rows
    kept = _visible(rows, unseen_s, unseen_s if unseen_median_s is None else unseen_median_s)
    seen: np.ndarray = rows[np.concatenate([[True], kept[:-1], [True]])]
    return seen


def _visible(rows: np.ndarray, unseen_s: float, unseen_median_s: float) -> np.ndarray:
    """Return (n - 1,) True for each row whose best, bound or median differs visibly from the row before it.

    Levels are rounded down to multiples of the smallest visible difference. Because of that, comparing neighbours gives
    the same result as comparing with the last kept row, and a slow change is not lost.
    """
    # The height of flat curves is 0, by which nothing can be divided.
    least = np.maximum([unseen_s, unseen_s, unseen_median_s], np.finfo(float).tiny)
    with np.errstate(over="ignore"):
        steps = np.floor(rows[:, LEVELS] / least)
    # Infinity less infinity is NaN, which would count as a change, so both become numbers first.
    return np.asarray((np.diff(np.nan_to_num(steps, nan=-1.0, posinf=None), axis=0) != 0).any(axis=1))


def few(rows: np.ndarray) -> np.ndarray:
    """Return the rows, thinned to at most half of ``MOST_ROWS``. Small changes of the median are dropped first."""
    unseen_s = unseen_median_s = _height(rows) * UNSEEN
    while len(rows) > MOST_ROWS // 2:
        # Medians first: the best curve is what people read.
        if unseen_median_s < _height(rows):
            unseen_median_s *= COARSER
        else:
            unseen_s *= COARSER
        rows = thinned(rows, unseen_s, unseen_median_s)
    return rows


def _height(*parts: np.ndarray) -> float:
    """Return the difference between the highest and the lowest level of all rows, in the objective's unit."""
    levels = np.concatenate([part[:, LEVELS].ravel() for part in parts])
    levels = levels[np.isfinite(levels)]
    return float(np.ptp(levels)) if len(levels) else 0.0
