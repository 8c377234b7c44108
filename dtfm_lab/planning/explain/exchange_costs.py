"""The costs of all exchanges of two devices of a placement.

An exchange puts each of two devices (one of them may be idle) in the place of the other; then the pipelines are paired
anew by the bottleneck matching of neighbouring groups, in the same stage order.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.cost import PairCosts

ROUNDING = 1e-9
"""Relative difference of two costs that is rounding."""


@dataclass(frozen=True)
class Swap:
    """An exchange of two devices, and the whole cost in seconds after it."""

    device: int
    partner: int
    cost_s: float


class SwapCosts:
    """The costs of all exchanges of two devices of one (S, D) grid."""

    def __init__(self, grid: IntArray, pair: PairCosts) -> None:
        self._grid, self._pair = grid, pair
        self._position = np.full(len(pair.hop_s), -1)
        self._position[grid.ravel()] = np.arange(grid.size)

    @cached_property
    def costs_s(self) -> FloatArray:
        """(N, N) seconds after each exchange; infinite where it would change nothing."""
        from dtfm_lab.planning.kernels.exchanges import exchange_costs  # numba takes a while to load

        return exchange_costs(self._grid, self._pair.group_s, self._pair.hop_s)

    @property
    def repaired_s(self) -> float:
        """The cost of the same groups with their pipelines paired at least cost."""
        return float(self.costs_s[0, 0])

    def stage_of(self, device: int) -> int | None:
        """Stage of the device; None where it is idle."""
        position = int(self._position[device])
        return None if position < 0 else position // self._grid.shape[1]

    @property
    def cheapest(self) -> Swap | None:
        """The cheapest of all exchanges; None where there is none."""
        found = [swap for device in range(len(self.costs_s)) if (swap := self.best(device)) is not None]
        return min(found, key=lambda swap: swap.cost_s, default=None)

    def best(self, device: int, partners: IntArray | None = None) -> Swap | None:
        """The cheapest exchange of the device, with one of ``partners`` if given, the first of equally cheap ones; None
        where there is none."""
        others = np.arange(len(self.costs_s)) if partners is None else partners
        others = others[np.isfinite(self.costs_s[device, others]) & (others != device)]
        if not len(others):
            return None
        partner = int(others[self.costs_s[device, others].argmin()])
        return Swap(device, partner, float(self.costs_s[device, partner]))

    def price(self, device: int, partner: int) -> float:
        """Seconds after the exchange of the two, the pipelines paired anew."""
        return float(self.costs_s[device, partner])

    def exchanged(self, device: int, partner: int) -> IntArray:
        """(S, D) grid after the exchange of the two, the pipelines not paired anew."""
        grid = self._grid.copy()
        for leaves, comes in ((device, partner), (partner, device)):
            if (position := self._position[leaves]) >= 0:
                grid.flat[position] = comes
        return grid
