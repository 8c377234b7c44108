"""Arranging devices by hand against the planner: the position, its price, the score, and a hint. No widget in here."""

import time
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.cost import PairCosts, group_costs, hop_costs, pair_costs, total_costs
from dtfm_lab.planning.step import PROVEN
from dtfm_lab.planning.teaching import TIE, power_costs

CHANCES = 200
"""Placements by chance whose median is a score of 0."""
BEGINNINGS = ("chance", "even")
"""How a game may begin: by chance, or with the devices in the order of the network."""
FULL = 100.0
BATCH_ENTRIES = 2_000_000
"""Most array entries of swaps that are priced at once."""


class Hint(NamedTuple):
    """The best single exchange, and what the placement would cost after it."""

    one: int
    other: int
    """Device indices."""
    cost_s: float
    gain_s: float
    """Seconds less; 0 where the cost stays but slow members and pairs become fewer."""


@dataclass
class HandGame:
    """One game: a row of devices, and the exchanges made so far. The communication cost is the lab's."""

    topology: Topology
    job: Job
    beginning: str = "chance"
    seed: int = 0
    planner_s: float = 0.0
    """What the planner found, once that is known; 0 before."""
    moves: list[tuple[int, int]] = field(default_factory=list)
    hints: int = 0
    _began_at: float = 0.0

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        n = len(self.topology)
        self.pair: PairCosts = pair_costs(self.topology, self.job)
        chances = np.array([rng.permutation(n) for _ in range(CHANCES)])
        self.chance_s = float(np.median(total_costs(self._grids(chances), self.pair)))
        self.row: IntArray = chances[0] if self.beginning == "chance" else self._even()
        self.start: IntArray = self.row.copy()

    @property
    def shape(self) -> tuple[int, int]:
        assert self.job.n_stages is not None
        assert self.job.n_replicas is not None
        return self.job.n_stages, self.job.n_replicas

    @property
    def grid(self) -> IntArray:
        """(S, D) device indices."""
        n_stages, n_replicas = self.shape
        return self.row[: n_stages * n_replicas].reshape(n_stages, n_replicas)

    @property
    def idle(self) -> IntArray:
        """Devices without a stage."""
        return self.row[self.shape[0] * self.shape[1] :]

    @property
    def cost_s(self) -> float:
        return float(total_costs(self.grid, self.pair))

    @property
    def groups_s(self) -> FloatArray:
        """(S,) seconds of each group; the slowest one counts."""
        return group_costs(self.grid, self.pair.group_s)

    @property
    def hops_s(self) -> FloatArray:
        """(S - 1,) seconds of each hop; all count."""
        return hop_costs(self.grid, self.pair.hop_s)

    @property
    def score(self) -> float:
        """Share of the way from chance's median to the planner's cost, 0 to 100."""
        if not self.planner_s:
            return 0.0
        way_s = self.chance_s - self.planner_s
        if way_s <= PROVEN * self.planner_s:  # chance is as good as the planner
            return FULL if self.cost_s <= self.planner_s * (1 + PROVEN) else 0.0
        return float(np.clip(FULL * (self.chance_s - self.cost_s) / way_s, 0.0, FULL))

    @property
    def has_beaten(self) -> bool:
        """Whether this costs less than what the planner found, possible only where that is not proved the best."""
        return self.planner_s > 0 and self.cost_s < self.planner_s * (1 - PROVEN)

    @property
    def seconds(self) -> float:
        """Seconds since the first exchange; 0 before it."""
        return time.monotonic() - self._began_at if self._began_at else 0.0

    def swap(self, one: int, other: int) -> None:
        """Exchange two devices. Raises PlanError where they are the same, or both idle."""
        if one == other:
            raise PlanError(f"{self.topology.names[one]} cannot change places with itself; wanted two devices")
        if {one, other} <= set(self.idle.tolist()):
            raise PlanError("both devices are idle; wanted one that has a stage")
        self._began_at = self._began_at or time.monotonic()
        self._exchange(one, other)
        self.moves.append((one, other))

    def undo(self) -> None:
        """Take back the last exchange, so that it no longer counts as a move."""
        if self.moves:
            self._exchange(*self.moves.pop())

    def best_swap(self) -> Hint | None:
        """The single exchange after which the placement is cheapest; None where none makes it better.

        Of equal costs, the one with fewer slow members and pairs. Takes some 30 ms for 64 devices.
        """
        n, n_tasklets = len(self.row), self.shape[0] * self.shape[1]
        one, other = np.triu_indices(n, 1)
        one, other = one[one < n_tasklets], other[one < n_tasklets]
        batch = max(1, BATCH_ENTRIES // (n_tasklets * self.shape[1]))
        best: tuple[float, float, int] | None = None
        for first in range(0, len(one), batch):
            a, b = one[first : first + batch], other[first : first + batch]
            rows = np.tile(self.row, (len(a), 1))
            number = np.arange(len(a))
            rows[number, a], rows[number, b] = self.row[b], self.row[a]
            grids = self._grids(rows)
            cost_s, power_s = total_costs(grids, self.pair), power_costs(grids, self.pair, TIE)
            at = int(np.lexsort((power_s, np.round(cost_s / max(self.cost_s, 1e-30), 9)))[0])
            found = (float(cost_s[at]), float(power_s[at]), first + at)
            best = found if best is None else min(best, found)
        if best is None:
            return None
        now_s, smooth_s = self.cost_s, float(power_costs(self.grid, self.pair, TIE))
        gain_s = now_s - best[0]
        if gain_s <= PROVEN * now_s and (gain_s < -PROVEN * now_s or best[1] >= smooth_s * (1 - PROVEN)):
            return None
        at = best[2]
        return Hint(int(self.row[one[at]]), int(self.row[other[at]]), best[0], max(0.0, gain_s))

    def _exchange(self, one: int, other: int) -> None:
        a, b = int(np.flatnonzero(self.row == one)[0]), int(np.flatnonzero(self.row == other)[0])
        self.row[[a, b]] = self.row[[b, a]]

    def _grids(self, rows: IntArray) -> IntArray:
        n_stages, n_replicas = self.shape
        return rows[:, : n_stages * n_replicas].reshape(-1, n_stages, n_replicas)

    def _even(self) -> IntArray:
        """The devices in the network's order, dealt to the stages one by one, so that each stage has some of all."""
        n_stages, n_replicas = self.shape
        row = np.arange(len(self.topology))
        row[: n_stages * n_replicas] = row[: n_stages * n_replicas].reshape(n_replicas, n_stages).T.ravel()
        return row
