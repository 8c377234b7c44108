"""Relaxation: the devices and pairs that groups can have when no group costs more than a budget.

A device needs D - 1 partners within the budget; two devices can be partners only if both stay within it with each
other and D - 2 more devices that can be partners of both. Hops below a level restrict devices further. In a segment, a
run of l or more stages with such hops, each member of a group has l devices of its own within l - 1 hops: the device
and its nearest partners in its group are at most an l-th part of all devices that near to any of these. A device that
exceeds the budget under that cap is not eligible for l stages, and a segment of l stages has eligible devices only.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.cost import PairCosts

Flags = npt.NDArray[np.bool_]
"""Array of booleans."""
UNITS = 1_000_000
"""Units of a budget. Costs are rounded down to whole units, so that every proof of infeasibility stays valid."""
ROUNDING = 1 + 1e-12
"""Factor on a budget that covers rounding errors of sums."""


@dataclass(frozen=True, eq=False)
class GroupBudget:
    """A budget for the synchronisation of each group, and the devices and pairs within it."""

    pair: PairCosts
    n_stages: int
    n_replicas: int
    budget_s: float
    nearest: IntArray
    """(N, N - 1) all other devices, cheapest partner first."""

    @cached_property
    def feasible(self) -> tuple[Flags, Flags]:
        """(N,) devices that can be in some group, (N, N) pairs that can share one."""
        from dtfm_lab.planning.kernels.eligibility import clear_unaffordable

        n = len(self.nearest)
        eligible, allowed = np.ones(n, dtype=np.bool_), np.ones((n, n), dtype=np.bool_)
        limit_s = self.budget_s * ROUNDING
        clear_unaffordable(self.pair.group_s, self.nearest, limit_s, self.n_replicas, eligible, allowed)
        return eligible, allowed

    @cached_property
    def units(self) -> IntArray:
        """(N, N) cost of a partner in units of the budget; above the budget for a pair that cannot share a group."""
        scaled = np.floor(np.minimum(self.pair.group_s / max(self.budget_s * ROUNDING, 1e-300), 2.0) * UNITS)
        units: IntArray = np.where(self.feasible[1], scaled, 2.0 * UNITS).astype(np.int64)
        np.fill_diagonal(units, 0)
        return units

    @property
    def uses_all_devices(self) -> bool:
        """Whether no device stays idle."""
        return len(self.nearest) == self.n_stages * self.n_replicas

    @property
    def possible(self) -> bool:
        """Whether enough devices can be in some group."""
        return bool(self.feasible[0].sum() >= self.n_stages * self.n_replicas)

    def eligible(self, below_s: float) -> dict[int, Flags]:
        """By segment length: (N,) devices eligible for one as long or longer, with hops below a level."""
        from dtfm_lab.planning.kernels.eligibility import clear_ineligible

        eligible, allowed = self.feasible
        by_length = {1: eligible}
        for length in range(2, self.n_stages + 1):
            eligible = eligible.copy()
            limit_s = self.budget_s * ROUNDING
            group_s, hop_s = self.pair.group_s, self.pair.hop_s
            clear_ineligible(group_s, self.nearest, hop_s, below_s, length, limit_s, self.n_replicas, allowed, eligible)
            if eligible.sum() < length * self.n_replicas:
                break
            by_length[length] = eligible
        return by_length


def nearest_partners(group_s: FloatArray) -> IntArray:
    """(N, N - 1) all other devices, cheapest partner first."""
    apart = group_s + np.diag(np.full(len(group_s), np.inf))
    order: IntArray = np.argsort(apart, axis=1, kind="stable")[:, :-1]
    return order


def least_units(budget: GroupBudget, members: Sequence[IntArray]) -> list[list[list[int]]]:
    """[c][d][q]: least units that a device of set c pays for its q-th partner in set d; in c it counts itself first."""
    units, most = budget.units, budget.n_replicas

    def table(of: IntArray, to: IntArray) -> list[int]:
        if not len(of) or not len(to):
            return []
        cheapest: list[int] = np.sort(units[np.ix_(of, to)], axis=1).min(axis=0)[:most].tolist()
        return cheapest

    return [[table(of, to) for to in members] for of in members]
