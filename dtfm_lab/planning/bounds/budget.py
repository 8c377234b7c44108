"""Who can serve, and with whom, when no group may cost more than a budget.

A device pays for D - 1 partners within the budget; two may be partners only if both can pay for each other and
for D - 2 more whom both may have. Hops below a level bind devices further. In a segment, a run of l stages or more with
such hops, each member of a group has l devices to itself, l - 1 hops away at most: the device and the partners nearest
to it that are in its group are at most an l-th part of all devices so near to any of these. Who cannot pay under
that cap is not able to serve in l stages, and all devices of the segment are able.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.cost import PairCosts

Flags = npt.NDArray[np.bool_]

UNITS = 1_000_000
"""of the budget; costs are rounded down to whole units, which keeps every "cannot be" true"""
ROUNDING = 1 + 1e-12


@dataclass(frozen=True, eq=False)
class Budget:
    """The devices and pairs that a budget for synchronisation leaves."""

    pair: PairCosts
    n_stages: int
    n_replicas: int
    budget_s: float
    nearest: IntArray
    """(N, N - 1) everyone else, cheapest partner first"""

    @cached_property
    def left(self) -> tuple[Flags, Flags]:
        """(N,) who can pay, (N, N) who may share a group."""
        from dtfm_lab.planning.kernels.service import drop_unaffordable

        n = len(self.nearest)
        able, allowed = np.ones(n, dtype=np.bool_), np.ones((n, n), dtype=np.bool_)
        limit_s = self.budget_s * ROUNDING
        drop_unaffordable(self.pair.group_s, self.nearest, limit_s, self.n_replicas, able, allowed)
        return able, allowed

    @cached_property
    def units(self) -> IntArray:
        """(N, N) cost of a partner in units of the budget, beyond it where the pair may not be."""
        scaled = np.floor(np.minimum(self.pair.group_s / max(self.budget_s * ROUNDING, 1e-300), 2.0) * UNITS)
        units: IntArray = np.where(self.left[1], scaled, 2.0 * UNITS).astype(np.int64)
        np.fill_diagonal(units, 0)
        return units

    @property
    def everyone(self) -> bool:
        """No device stays idle."""
        return len(self.nearest) == self.n_stages * self.n_replicas

    @property
    def possible(self) -> bool:
        return bool(self.left[0].sum() >= self.n_stages * self.n_replicas)

    def able(self, below_s: float) -> dict[int, Flags]:
        """By segment length: who can serve in one as long or longer, with hops below a level."""
        from dtfm_lab.planning.kernels.service import keep_able

        able, allowed = self.left
        by_length = {1: able}
        for length in range(2, self.n_stages + 1):
            able = able.copy()
            limit_s = self.budget_s * ROUNDING
            group_s, hop_s = self.pair.group_s, self.pair.hop_s
            keep_able(group_s, self.nearest, hop_s, below_s, length, limit_s, self.n_replicas, allowed, able)
            if able.sum() < length * self.n_replicas:
                break
            by_length[length] = able
        return by_length


def nearest_partners(group_s: FloatArray) -> IntArray:
    """(N, N - 1) everyone else, cheapest partner first."""
    apart = group_s + np.diag(np.full(len(group_s), np.inf))
    order: IntArray = np.argsort(apart, axis=1, kind="stable")[:, :-1]
    return order


def least_units(budget: Budget, members: Sequence[IntArray]) -> list[list[list[int]]]:
    """[c][d][q]: what a device of set c pays at least for its q-th partner in set d, counting itself first in c."""
    units, most = budget.units, budget.n_replicas

    def table(of: IntArray, to: IntArray) -> list[int]:
        if not len(of) or not len(to):
            return []
        cheapest: list[int] = np.sort(units[np.ix_(of, to)], axis=1).min(axis=0)[:most].tolist()
        return cheapest

    return [[table(of, to) for to in members] for of in members]
