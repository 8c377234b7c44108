"""Exact costs of all swaps of two devices, without pricing each in full.

A swap exchanges the places of two devices (one of them may be idle); then the pipelines are paired anew by the
bottleneck matching of neighbouring groups, in the same stage order. A swap within one group changes nothing.

The data-parallel costs of all swaps come from a few array sums. A bottleneck matching costs at least the
dearest of the cheapest entries of its rows and columns, which gives a lower bound for every swap. Only
swaps whose bound is below the cheapest found so far are priced in full: a handful for each device.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.cost import PairCosts, align, bottleneck_matching, group_costs

ROUNDING = 1e-9
"""Relative difference of two costs that is rounding."""


@dataclass(frozen=True)
class Swap:
    """A swap of two devices, and the whole cost in seconds after it."""

    device: int
    partner: int
    cost_s: float


class SwapCosts:
    """The costs of all swaps of two devices of one (S, D) grid."""

    def __init__(self, grid: IntArray, pair: PairCosts) -> None:
        self._grid, self._pair = grid, pair
        self._position = np.full(len(pair.hop_s), -1)
        self._position[grid.ravel()] = np.arange(grid.size)
        self._group_s = group_costs(grid, pair.group_s)
        self._hop_s = np.array([self._matching_s(a, b) for a, b in pairwise(grid)])
        self._priced: dict[tuple[int, int], float] = {}

    @property
    def repaired_s(self) -> float:
        """The cost of the same groups with their pipelines paired at least cost."""
        return float(self._group_s.max() + self._hop_s.sum())

    def stage_of(self, device: int) -> int | None:
        """Stage of the device; None where it is idle."""
        position = int(self._position[device])
        return None if position < 0 else position // self._grid.shape[1]

    @cached_property
    def cheapest(self) -> Swap | None:
        """The cheapest of all swaps; None where there is none."""
        first, second = np.triu_indices(len(self._position), 1)
        bounds = self.bound_s[first, second]
        order = np.argsort(bounds, kind="stable")
        return self._first_best(first[order], second[order])

    def best(self, device: int, partners: IntArray | None = None) -> Swap | None:
        """The cheapest swap of the device, with one of ``partners`` if given; None where there is none.

        Of equally cheap ones, the one with the lowest bound, then the first by number.
        """
        row = self.bound_s[device]
        candidates = np.arange(len(row)) if partners is None else np.asarray(partners, dtype=np.int64)
        candidates = candidates[np.argsort(row[candidates], kind="stable")]
        return self._first_best(np.full(len(candidates), device), candidates)

    def _first_best(self, devices: IntArray, partners: IntArray) -> Swap | None:
        """Price pairs, lowest bound first, until no bound is below the cheapest price."""
        best: Swap | None = None
        for device, partner in zip(devices.tolist(), partners.tolist(), strict=True):
            bound_s = self.bound_s[device, partner]
            if not np.isfinite(bound_s) or (best is not None and bound_s >= best.cost_s * (1 - ROUNDING)):
                break
            cost_s = self.price(device, partner)
            if best is None or cost_s < best.cost_s:
                best = Swap(device, partner, cost_s)
        return best

    def price(self, device: int, partner: int) -> float:
        """Seconds after the swap of the two, the pipelines paired anew."""
        key = (min(device, partner), max(device, partner))
        if key not in self._priced:
            grid = self.exchanged(device, partner)
            hop_s = self._hop_s.copy()
            touched = {stage for d in key if (stage := self.stage_of(d)) is not None}
            for hop in {hop for stage in touched for hop in (stage - 1, stage) if 0 <= hop < len(hop_s)}:
                hop_s[hop] = self._matching_s(grid[hop], grid[hop + 1])
            self._priced[key] = float(group_costs(grid, self._pair.group_s).max() + hop_s.sum())
        return self._priced[key]

    def exchanged(self, device: int, partner: int) -> IntArray:
        """(S, D) grid after the swap of the two, the pipelines not paired anew."""
        grid = self._grid.copy()
        for leaves, comes in ((device, partner), (partner, device)):
            if (position := self._position[leaves]) >= 0:
                grid.flat[position] = comes
        return grid

    @cached_property
    def bound_s(self) -> FloatArray:
        """(N, N) symmetric lower bounds of all swaps; infinite where a swap would change nothing."""
        grid, n = self._grid, len(self._position)
        n_stages, n_replicas = grid.shape
        placed, stage = grid.ravel(), np.repeat(np.arange(n_stages), n_replicas)
        group_s = np.concatenate([self._group_after(s) for s in range(n_stages)])
        before_s, after_s = (np.concatenate([self._hop_after(s, s + way) for s in range(n_stages)]) for way in (-1, 1))
        base = np.concatenate([[0.0], self._hop_s, [0.0]])
        before_s -= base[stage][:, None]
        after_s -= base[stage + 1][:, None]
        rest = _largest_except(self._group_s)

        bound = np.full((n, n), np.inf)
        idle = np.flatnonzero(self._position < 0)
        with_idle = np.maximum(rest[stage, stage][:, None], group_s[:, idle])
        bound[np.ix_(placed, idle)] = with_idle + (before_s + after_s)[:, idle]

        group_s, before_s, after_s = (each[:, placed] for each in (group_s, before_s, after_s))
        hops_s = before_s + after_s
        hops_s = hops_s + hops_s.T
        for s in range(n_stages - 1):
            here, there = (slice((s + k) * n_replicas, (s + k + 1) * n_replicas) for k in (0, 1))
            shared = self._shared_after(s) - self._hop_s[s]
            hops_s[here, there] = before_s[here, there] + shared + after_s[there, here].T
            hops_s[there, here] = hops_s[here, there].T
        among = np.maximum(np.maximum(group_s, group_s.T), rest[stage[:, None], stage]) + hops_s
        among[stage[:, None] == stage] = np.inf
        bound[np.ix_(placed, placed)] = among
        bound[np.ix_(idle, placed)] = bound[np.ix_(placed, idle)].T
        return np.asarray(bound + self._hop_s.sum())

    def _matching_s(self, a: IntArray, b: IntArray) -> float:
        return bottleneck_matching(self._pair.hop_s[np.ix_(a, b)])[0]

    def _group_after(self, s: int) -> FloatArray:
        """(D, N) cost of the group of stage s with each device in the place of its member i."""
        cost_s, group = self._pair.group_s, self._grid[s]
        within = cost_s[np.ix_(group, group)]
        stay = within.sum(axis=1)[:, None] - within  # member k without member i
        np.fill_diagonal(stay, -np.inf)
        arriving = cost_s[group].sum(axis=0) - cost_s[group]
        others = (stay[:, :, None] + cost_s[group][:, None, :]).max(axis=0)
        return np.asarray(np.maximum(arriving, others))

    def _hop_after(self, s: int, neighbour: int) -> FloatArray:
        """(D, N) lower bound of the hop between stage s and its neighbour with each device in the place of member i."""
        n_stages, n_replicas = self._grid.shape
        n = len(self._position)
        if not 0 <= neighbour < n_stages:
            return np.zeros((n_replicas, n))
        to_neighbour = self._pair.hop_s[:, self._grid[neighbour]]  # (N, D)
        links = to_neighbour[self._grid[s]]
        without = ~np.eye(n_replicas, dtype=bool)
        rows = np.where(without, links.min(axis=1), -np.inf).max(axis=1)
        rows_after = np.maximum(rows[:, None], to_neighbour.min(axis=1))
        columns = np.where(without[:, :, None], links, np.inf).min(axis=1)
        columns_after = np.minimum(columns[:, None, :], to_neighbour).max(axis=2)
        return np.asarray(np.maximum(rows_after, columns_after))

    def _shared_after(self, s: int) -> FloatArray:
        """(D, D) lower bound of the hop between stages s and s + 1 after the swap of their members i and j."""
        a, b = self._grid[s], self._grid[s + 1]
        hop_s, n_replicas = self._pair.hop_s, len(a)
        links, each = hop_s[np.ix_(a, b)], np.arange(n_replicas)
        bounds = np.empty((n_replicas, n_replicas))
        for i in each:
            changed = np.broadcast_to(links, (n_replicas, n_replicas, n_replicas)).copy()
            changed[:, i, :] = hop_s[np.ix_(b, b)]
            changed[each, :, each] = hop_s[a, a[i]]
            changed[each, i, each] = links[i]
            bounds[i] = np.maximum(changed.min(axis=2).max(axis=1), changed.min(axis=1).max(axis=1))
        return bounds


def local_optimum(grid: IntArray, pair: PairCosts) -> IntArray:
    """(S, D) grid after the cheapest swap, repeated until none is cheaper: a local optimum."""
    as_is = np.arange(len(grid))
    grid = align(grid, as_is, pair.hop_s)
    while True:
        swaps = SwapCosts(grid, pair)
        best = swaps.cheapest
        if best is None or best.cost_s >= swaps.repaired_s * (1 - ROUNDING):
            return grid
        grid = align(swaps.exchanged(best.device, best.partner), as_is, pair.hop_s)


def _largest_except(values: FloatArray) -> FloatArray:
    """(S, S) the largest of S values other than those of row and column; 0 where there is none."""
    top = np.argsort(-values, kind="stable")[:3]
    at = np.arange(len(values))
    left = np.zeros((len(values), len(values)))
    for k in top[::-1]:
        left[np.ix_(at != k, at != k)] = values[k]
    return left
