"""The systems' real runs on one network side by side: predicted and measured order, and time to a loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.network import Topology, as_number, shortened
from dtfm_lab.domain.registry import unknown
from dtfm_lab.domain.units import format_s, plain_rows
from dtfm_lab.systems import strategy_runs_html as html
from dtfm_lab.systems.strategy_run import StrategyRun

CLEAR = 0.05
"""Relative difference of two predictions above which the measured order must be the predicted one."""
COLUMNS = {
    **dict.fromkeys(("system", "title"), "object"),
    **dict.fromkeys(("model_s", "predicted_s", "measured_s", "error"), "float64"),
    **dict.fromkeys(("predicted_rank", "measured_rank", "iterations"), "Int64"),
    **dict.fromkeys(("final_loss", "time_to_loss_s"), "float64"),
    **dict.fromkeys(("mathematics", "ran", "stand_in"), "object"),
    **dict.fromkeys(("stretched", "late", "overran"), "Int64"),
    "reason": "object",
}
"""Columns of the table and their types."""
PREDICTIONS: dict[str, Callable[[StrategyRun], float | None]] = {
    "predicted": lambda run: run.predicted_s,
    "model": lambda run: None if run.is_part else run.outcome.iteration_s,
}
"""What ``out_of_order`` may compare measurements with; the link model predicts whole plans only."""


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class StrategyRuns:
    """Every system's run beside its prediction, in the order in which they ran."""

    topology: Topology
    clock: str
    runs: tuple[StrategyRun, ...]
    wanted: int = 0
    """Systems asked for; fewer runs where it was stopped."""

    def __repr__(self) -> str:
        return f"<StrategyRuns on {self.topology.name}: {self.sentence}>"

    def _repr_html_(self) -> str:
        """In a notebook: the table of those that ran, and the reasons of the others."""
        idle = [one for one in self.runs if one.reason]
        return html.fragment(self.sentence, html.headings(self.common_loss), self.rows, idle)

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """What a table tells of those that ran, the fastest first, as text."""
        reached = {str(name): float(s) for name, s in self.time_to_loss().dropna().items()}
        return [html.cells(one, reached.get(one.name)) for one in self.measured]

    def __len__(self) -> int:
        return len(self.runs)

    def __iter__(self) -> Iterator[StrategyRun]:
        return iter(self.runs)

    def __getitem__(self, name: str) -> StrategyRun:
        for one in self.runs:
            if one.name == name:
                return one
        raise unknown("system", name, [one.name for one in self.runs])

    @property
    def measured(self) -> tuple[StrategyRun, ...]:
        """Those that ran, the fastest measured iteration first."""
        return tuple(sorted((one for one in self.runs if one.measured), key=lambda one: one.measured_s or 0.0))

    @property
    def common_loss(self) -> float | None:
        """The lowest smoothed loss that every run reached; one whose losses are no numbers does not count."""
        finite = [one.losses[np.isfinite(one.losses)] for one in self.measured]
        return max((float(losses.min()) for losses in finite if len(losses)), default=None)

    def time_to_loss(self, loss: float | None = None) -> pd.Series:
        """Seconds of the clock until each system's smoothed training loss is first below a value, by system.

        That is iterations to it times measured seconds an iteration: for systems that change the training itself, by
        rounding messages or averaging seldom, a fairer comparison than seconds an iteration. Missing where the run did
        not get there; ``common_loss``, which all reached, where no loss is given.
        """
        if loss is not None and as_number(loss) is None:
            raise LabError(f"loss is {shortened(loss)}; wanted a number")
        common = self.common_loss
        below = loss if loss is not None else None if common is None else common * (1 + 1e-9)
        seconds = {one.name: None if below is None else one.time_to_loss(below) for one in self.runs}
        return pd.Series(seconds, dtype="float64", name="time_to_loss_s")

    def out_of_order(self, clear: float = CLEAR, *, by: str = "predicted") -> list[tuple[str, str]]:
        """Pairs of systems, the one that was predicted faster first, that were measured the other way round, although
        their predictions differ by more than ``clear`` of the faster one's.

        ``by="predicted"`` takes the prediction like the run, ``by="model"`` that of the link model before anything ran.
        Raises UnknownName for another.
        """
        if by not in PREDICTIONS:
            raise unknown("prediction", by, PREDICTIONS)
        pairs = []
        for one, other in combinations(self.measured, 2):  # one was measured faster
            one_s, other_s = (PREDICTIONS[by](each) for each in (one, other))
            if one_s and other_s and one_s > (1 + clear) * other_s:
                pairs.append((other.name, one.name))
        return pairs

    @property
    def headline(self) -> str:
        """The fastest measured, seconds of its iteration, and the next behind it."""
        if not (ran := self.measured):
            return "no system was run"
        unlike = [" and changes the training" * bool(one.outcome.strategy.mathematics) for one in ran[:2]]
        text = f"{ran[0].name} was fastest{unlike[0]}, {format_s(ran[0].measured_s or 0.0)} on the {self.clock} clock"
        if len(ran) > 1:
            times = (ran[1].measured_s or 0.0) / (ran[0].measured_s or 1.0)
            text += f"; {ran[1].name} took {times:.2f} times as long{unlike[1]}"
        return text

    @property
    def sentence(self) -> str:
        """The headline, whether the order is the predicted one, what trains otherwise, and what was not run."""
        parts, ran = [self.headline], self.measured
        if len(ran) > 1:
            differ = f"where predictions differ by more than {CLEAR:.0%}"
            swapped = self.out_of_order()
            said = f"{' and '.join(swapped[0])} changed places" if swapped else "the order is the predicted one"
            parts.append(f"{said} {differ}")
        if unlike := [one.name for one in ran if one.outcome.strategy.mathematics]:
            parts.append(f"{_listed(unlike)} change{'s' * (len(unlike) == 1)} the training: compare the time to a loss")
        if parts_only := [one.name for one in ran if one.is_part]:
            parts.append(f"of {_listed(parts_only)} a part ran: seconds of different parts do not compare")
        if ran and (idle := [one.name for one in self.runs if one.measured is None]):
            parts.append(f"not run: {_listed(idle)}")
        if len(self) < self.wanted:
            parts.append(f"stopped after {len(self)} of {self.wanted} systems")
        return "; ".join(parts)

    def to_frame(self, loss: float | None = None) -> pd.DataFrame:
        """One row a system, in the order in which they ran.

        ``model_s`` is the iteration by the link model, before anything ran; ``predicted_s`` that of ``simulate(plan,
        like=measured)``. Ranks count those that ran from 1, the fastest; ``time_to_loss_s`` is ``time_to_loss(loss)``.
        """
        frame = pd.DataFrame([one.to_dict() for one in self.runs], columns=list(COLUMNS))
        frame["time_to_loss_s"] = self.time_to_loss(loss).to_numpy()
        frame = frame.astype(COLUMNS)
        for what in ("predicted", "measured"):
            frame[f"{what}_rank"] = frame[f"{what}_s"].rank(method="min").astype("Int64")
        return frame

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "topology": self.topology.name,
            "clock": self.clock,
            "sentence": self.sentence,
            "common_loss": self.common_loss,
            "systems": plain_rows(self.to_frame()),
        }


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
