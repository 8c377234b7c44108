"""The table of a race: a row for each planner, with a button that takes over its plan."""

import time
from collections.abc import Callable, Iterable, Sequence
from html import escape

import ipywidgets as w

from dtfm_lab.planning import PlanStep
from dtfm_lab.planning.step import PROVEN
from dtfm_lab.widgets.controls import button, classed
from dtfm_lab.widgets.measures import MEASURES, TIMES, ObjectiveWords, percent

SHOWN_S = 0.5
"""Seconds between two updates of the rows."""
HEAD = ("", "planner", "best", "gap", "what that means", "computed", "priced", "found at")


class Standings:
    """The table of a race, the ``newest`` step of each planner, the ``leader``, and the ``bound_s`` of all."""

    def __init__(self, take: Callable[[str], None]) -> None:
        self._take = take
        self.measure: ObjectiveWords = MEASURES["communication"]
        """What the planners make least."""
        self._found_at_s: dict[str, float] = {}
        self._due = 0.0
        self.newest: dict[str, PlanStep] = {}
        self.takes: dict[str, w.Button] = {}
        """The button of each planner that takes over its plan."""
        self._rows: dict[str, w.HTML] = {}
        self.view = classed(w.VBox([]), "dtfm-race-table")

    def begin(self, names: Sequence[str]) -> None:
        """Start new rows, in the order of the curves' colours."""
        self.newest, self._found_at_s, self._due = {}, {}, 0.0
        self._rows = {name: w.HTML() for name in names}
        self.takes = {
            name: button("Take this plan", "", f"Go on with the plan of {name}", "auto", disabled=True)
            for name in names
        }
        for name, take in self.takes.items():
            take.on_click(lambda _, name=name: self._take(name))
        head = w.HBox([w.HTML(_row(HEAD, "dtfm-race-head")), w.HTML(layout=w.Layout(width="118px", flex="0 0 auto"))])
        self.view.children = [head, *(w.HBox([self._rows[name], self.takes[name]]) for name in names)]
        self.show()

    def update(self, steps: Iterable[PlanStep]) -> None:
        """Add steps, in the order in which they came."""
        for step in steps:
            before = self.newest.get(step.planner)
            if before is None or step.best_s < before.best_s:
                self._found_at_s[step.planner] = step.seconds
            self.newest[step.planner] = step
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + SHOWN_S
            self.show()

    def show(self) -> None:
        best_s = self.leader.best_s if self.newest else 0.0
        for place, (name, row) in enumerate(self._rows.items()):
            step = self.newest.get(name)
            self.takes[name].disabled = step is None
            if step is None:
                row.value = _row((_mark(place), escape(name), *["–"] * 6))
                continue
            bound_s = self.bound_s
            first = step.best_s <= best_s * (1 + PROVEN)
            row.value = _row(
                (
                    _mark(place),
                    escape(name),
                    self.measure.words(step.best_s),
                    percent(gap) if (gap := max(0.0, (step.best_s - bound_s) / step.best_s)) > PROVEN else "0 %",
                    self._meaning(step.best_s, best_s, bound_s),
                    f"{step.seconds:.2f} s",
                    _compact(step.evaluations),
                    f"{self._found_at_s[name]:.2f} s",
                ),
                "dtfm-race-first" if first else "",
            )

    @property
    def leader(self) -> PlanStep:
        """The newest step of the best planner; of equal ones, of the first to get there."""
        return min(self.newest.values(), key=lambda step: (step.best_s, self._found_at_s[step.planner]))

    @property
    def bound_s(self) -> float:
        """The highest bound that any planner has proved, which holds for all, but at most the best cost."""
        proved_s = max((step.bound_s for step in self.newest.values()), default=0.0)
        return min(proved_s, *(step.best_s for step in self.newest.values()), float("inf"))

    def _meaning(self, own: float, best: float, bound: float) -> str:
        if own > best * (1 + PROVEN):
            times = own / best
            behind = f"{times:,.0f} times the leader's" if times >= TIMES else f"{percent(times - 1)} behind the leader"
            return behind
        if self.measure.objective != "communication":
            return self.measure.bound_line(bound) or "no bound yet"
        if bound > 0 and best - bound < PROVEN * best:
            return "communication cost proven best"
        return f"nothing below {self.measure.words(bound)} exists" if bound > 0 else "no bound yet"


def _compact(count: int) -> str:
    for power, letter in ((9, "G"), (6, "M")):
        if count >= 10**power:
            return f"{count / 10**power:.3g} {letter}"
    return f"{count:,}"


def _row(cells: Sequence[str], kind: str = "") -> str:
    return f'<div class="dtfm-race-row {kind}">' + "".join(f"<span>{cell}</span>" for cell in cells) + "</div>"


def _mark(place: int) -> str:
    """Return a mark in the colour of the planner's curve."""
    return f'<i class="dtfm-race-mark dtfm-series-{place}"></i>'
