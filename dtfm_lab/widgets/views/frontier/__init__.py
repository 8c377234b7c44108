"""Seconds against dollars: a point for each plan of a frontier, and the lower bound. A click chooses a plan."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import traitlets

from dtfm_lab.planning import Frontier
from dtfm_lab.widgets.views.view import View

NOTHING = -1


class FrontierView(View):
    """Draws ``points``. A click, Enter or Space on one calls ``choose`` with its number."""

    points = traitlets.List(traitlets.Dict()).tag(sync=True)
    """{"seconds", "dollars", "by_token", "words", "pays"} of each plan, with the fastest first.

    ``dollars`` are per hour, ``by_token`` per billion tokens. ``pays`` is True if every faster plan costs more per
    token.
    """
    bounds = traitlets.List(traitlets.List()).tag(sync=True)
    """[dollars per hour, lower bound on the iteration in seconds for plans of at most this price], by dollars."""
    counted = traitlets.Unicode("tokens").tag(sync=True)
    """What dollars are counted per: tokens, or samples."""
    chosen = traitlets.Int(NOTHING).tag(sync=True)
    """Number of the point whose plan is the lab's, or ``NOTHING``."""
    title = traitlets.Unicode("Seconds against dollars").tag(sync=True)
    caption = traitlets.Unicode("").tag(sync=True)
    height = traitlets.Int(250).tag(sync=True)
    """Pixels of the chart. 0 fills the parent element."""

    def __init__(self, choose: Callable[[int], None] | None = None, **traits: Any) -> None:
        super().__init__(**traits)
        self._choose = choose
        self._frontier: Frontier | None = None

    def show(self, frontier: Frontier | None) -> None:
        """Draw another frontier. None clears the chart."""
        self._frontier = frontier
        with self.hold_sync():
            self.counted = "tokens" if frontier is None else frontier.job.counted
            self.points, self.bounds = ([], []) if frontier is None else (points_of(frontier), bounds_of(frontier))

    def alt_text(self) -> str:
        return f"{self.title}: {'no plans yet' if self._frontier is None else self._frontier.sentence}"

    def received(self, content: dict[str, Any], buffers: Sequence[Any]) -> None:
        match content:
            case {"kind": "choose", "point": int(point)} if self._choose is not None and 0 <= point < len(self.points):
                self._choose(point)


def points_of(frontier: Frontier) -> list[dict[str, Any]]:
    """Return ``FrontierView.points``: one for each plan of the frontier."""
    rows: Iterator[Any] = frontier.to_frame().itertuples()
    points = []
    for row in rows:
        words = f"{row.n_stages} x {row.n_replicas}, {row.gpus}" + (f", {row.idle} idle" if row.idle else "")
        point = {"seconds": float(row.iteration_s), "dollars": float(row.price_per_hour), "words": words}
        by_token, pays = float(row.price_per_billion_tokens), bool(row.cheaper_by_token)
        points.append(point | {"by_token": by_token, "pays": pays})
    return points


N_BOUNDS = 40
"""Number of points of the line of lower bounds."""


def bounds_of(frontier: Frontier) -> list[list[float]]:
    """Return ``FrontierView.bounds``: the lower bound on an iteration's seconds at several prices per hour. Empty if no
    plan has a price."""
    # A logarithmic range of prices cannot begin at 0, so free plans have no place on the line.
    spent = [plan.price_per_hour for plan in frontier.plans if plan.price_per_hour > 0]
    if not spent:
        return []
    prices = np.geomspace(min(spent), max(spent), N_BOUNDS).tolist() if min(spent) < max(spent) else spent[:1]
    return [[price, frontier.lower_bound_s(price)] for price in prices]
