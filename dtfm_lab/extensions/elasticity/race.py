"""Compare policies at several values of one quantity: which value is best, and at which values another policy becomes
best.

The quantity is a numeric argument of a replay, such as the seconds between two checkpoints, or the ``rate``. At
``rate`` r, the same changes happen r times as fast.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import pandas as pd

from dtfm_lab.extensions.elasticity.history import History
from dtfm_lab.extensions.elasticity.policies.restart import daly_s, young_s

RATE = "rate"
"""Name of the quantity that speeds up the changes of the availability. All other quantities are arguments of the replay
or options of the policy."""


class RacePoint(NamedTuple):
    """One value of the quantity, and the history of each policy at it."""

    value: float
    histories: tuple[History, ...]

    @property
    def leader(self) -> int:
        """Index of the policy with most samples; the first of them if several have equally many."""
        return max(range(len(self.histories)), key=lambda at: (self.histories[at].samples, -at))


class Lead(NamedTuple):
    """A change of the best policy between two values: ``before`` trains most at ``low``, ``after`` at ``high``."""

    low: float
    high: float
    before: str
    after: str

    @property
    def value(self) -> float:
        """The value between ``low`` and ``high`` that stands for the change: their geometric mean, or their average if
        ``low`` is 0."""
        return middle(self.low, self.high)


@dataclass(frozen=True, eq=False, kw_only=True)
class Race:
    """Policies compared at several values of one quantity."""

    over: str
    points: tuple[RacePoint, ...]
    """Points by ascending value. They are close together where the best policy changes."""
    checkpoint_s: float | None = None
    """Seconds to write a checkpoint. None if Young's and Daly's formulas do not apply.

    They apply if the quantity is the seconds between two checkpoints, and the only compared policy goes back to the
    newest checkpoint after every loss.
    """

    def __repr__(self) -> str:
        return f"<Race over {self.over}: {self.sentence}>"

    @property
    def policies(self) -> tuple[str, ...]:
        """Names of the compared policies."""
        return tuple(one.policy for one in self.points[0].histories)

    @property
    def best(self) -> RacePoint:
        """The point whose best policy trains most samples per second. If several are equal, it is the one with the
        smallest value."""
        return max(self.points, key=lambda point: (point.histories[point.leader].goodput, -point.value))

    @cached_property
    def leads(self) -> tuple[Lead, ...]:
        """Changes of the best policy, by ascending value."""
        return tuple(
            Lead(a.value, b.value, self.policies[a.leader], self.policies[b.leader])
            for a, b in pairwise(self.points)
            if a.leader != b.leader
        )

    @property
    def between_losses_s(self) -> float:
        """Mean seconds between two losses of devices in use, at the best point. Infinite without a loss."""
        best = self.best.histories[self.best.leader]
        lost = sum(loss.serving > 0 for loss in best.losses)
        return best.availability.end_s / lost if lost else math.inf

    @property
    def formulas(self) -> dict[str, float]:
        """Seconds between two checkpoints by Young's and by Daly's formula. Empty if they do not apply, if a checkpoint
        takes no time, or without a loss."""
        if not self.checkpoint_s or math.isinf(self.between_losses_s):
            return {}
        given = self.checkpoint_s, self.between_losses_s
        return {"Young": young_s(*given), "Daly": daly_s(*given)}

    @property
    def sentence(self) -> str:
        """A sentence that says which value is best, or which policy trains most at which values."""
        low, high = self.points[0].value, self.points[-1].value
        if len(self.policies) == 1:
            best = self.best.histories[0]
            beside = ", ".join(f"{name} {value:.3g}" for name, value in self.formulas.items())
            beside = f" ({beside})" if beside else ""
            where = f"{self.over} = {self.best.value:.3g}{beside}"
            return f"{best.policy} trains most at {where}, {best.goodput:.4g} per second"
        words = f"{self.policies[self.points[0].leader]} trains most"
        if not self.leads:
            return f"{words} at every {self.over} from {low:.3g} to {high:.3g}"
        return words + "".join(f", then {lead.after} from {self.over} {lead.value:.3g} on" for lead in self.leads)

    def to_frame(self) -> pd.DataFrame:
        """Return one row per value and policy: the value, under the quantity's name, and ``History.to_dict``."""
        return pd.DataFrame(
            [{self.over: point.value, **one.to_dict()} for point in self.points for one in point.histories]
        )


def middle(low: float, high: float) -> float:
    """Return the geometric mean of two values, or their average if one is 0."""
    return math.sqrt(low * high) if low > 0 else (low + high) / 2


def race_over(
    play: Callable[[float], tuple[History, ...]], values: Sequence[float], precision: float
) -> tuple[RacePoint, ...]:
    """Return points at these values, and at further ones where the best policy changes, found by bisection.

    Bisection stops when the place of a change is known to ``precision``, as a share of its value.
    """

    def refined(a: RacePoint, b: RacePoint) -> list[RacePoint]:
        # The lead may still change twice in between, which only more values would show.
        if a.leader == b.leader or b.value - a.value <= precision * b.value:
            return []
        at = middle(a.value, b.value)
        between = RacePoint(at, play(at))
        return [*refined(a, between), between, *refined(between, b)]

    asked = [RacePoint(value, play(value)) for value in values]
    found = asked[:1]
    for a, b in pairwise(asked):
        found += [*refined(a, b), b]
    return tuple(found)
