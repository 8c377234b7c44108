"""The live curve of a search: best cost so far, lower bound, and the gap between them."""

import numpy as np
import traitlets

from dtfm_lab.widgets.view import STATIC, View

N_COLUMNS = 4


class ConvergenceView(View):
    """Draws named series of rows (evaluations, seconds of search, best cost s, lower bound s).

    Only new rows travel. A view that is opened late says hello and is sent everything.
    """

    _esm = STATIC / "convergence.js"
    _css = STATIC / "convergence.css"

    title = traitlets.Unicode("Convergence").tag(sync=True)
    caption = traitlets.Unicode("").tag(sync=True)
    height = traitlets.Int(260).tag(sync=True)

    def __init__(self, **traits: object) -> None:
        super().__init__(**traits)
        self.points: dict[str, np.ndarray] = {}
        """series name -> (n, 4): the rows that improved best or bound, and the newest"""
        self.on_msg(self._answer)

    def extend(self, rows: np.ndarray, series: str = "best") -> None:
        """Add (n, 4) rows, in order of evaluations; a missing bound is NaN."""
        rows = np.asarray(rows, dtype=float).reshape(-1, N_COLUMNS)
        if not len(rows):
            return
        held = self.points.get(series, np.empty((0, N_COLUMNS)))
        everything = np.concatenate([held, rows])
        telling = tells_something(everything)
        self.points[series] = everything[telling]
        self._send_points(series, rows[telling[len(held) :]])

    def reset(self) -> None:
        """Forget every series."""
        self.points = {}
        self.send({"kind": "reset"})

    def _send_points(self, series: str, rows: np.ndarray) -> None:
        self.send({"kind": "points", "series": series}, buffers=[rows.astype("f4").tobytes()])

    def _answer(self, _widget: object, content: dict, _buffers: object) -> None:
        if content.get("kind") == "hello":
            self.send({"kind": "reset"})
            for series, rows in self.points.items():
                self._send_points(series, rows)


def tells_something(rows: np.ndarray) -> np.ndarray:
    """(n,) bool: the first row, every row where best or bound changed, and the newest.

    The view drops a row that did not improve by the same rule as soon as the next one arrives.
    """
    levels = rows[:, 2:]
    same = (levels[1:] == levels[:-1]) | (np.isnan(levels[1:]) & np.isnan(levels[:-1]))
    telling = np.ones(len(rows), dtype=bool)
    telling[1:-1] = ~same.all(axis=1)[:-1]
    return telling
