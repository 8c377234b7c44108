"""Placements to begin with: by speed, by nearness, by both, and by chance; and the cut that goes with one."""

from functools import cached_property

import numpy as np

from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.iteration.cluster_chains import MOST_CHAINS, cluster_chains
from dtfm_lab.planning.iteration.nearness import Nearness
from dtfm_lab.planning.iteration.problem import IterationProblem

MOST_KINDS = 8
"""Most kinds of equal devices of which a shape without hops is made."""
MOST_WINDOWS = 6
"""Most parts of the order by nearness that are tried for one shape."""


class Starts:
    """Rows of devices, (N,), of which the first S x R are a grid of S stages and the others idle."""

    def __init__(self, problem: IterationProblem, nearness: Nearness) -> None:
        self._problem, self._nearness, self.by_nearness = problem, nearness, nearness.order
        self._rows: dict[tuple[int, int], list[tuple[str, IntArray]]] = {}
        self._block_flop = float(np.diff(problem.block_flop).mean())

    @cached_property
    def by_speed(self) -> IntArray:
        """(N,) devices, the fastest first, equal ones by nearness."""
        near = self.by_nearness
        return near[np.argsort(-self._problem.flop_per_s[near], kind="stable")]

    @cached_property
    def kinds(self) -> list[IntArray]:
        """Devices of equal speed, the most of all together first, those near each other beside each other."""
        near, speeds = self.by_nearness, self._problem.flop_per_s
        found = [near[speeds[near] == speed] for speed in np.unique(speeds)]
        return sorted(found, key=lambda kind: -float(speeds[kind].sum()))[:MOST_KINDS]

    most_rows = 2 * (2 + MOST_WINDOWS) + MOST_CHAINS + MOST_KINDS
    """Most rows of one shape."""

    def rows(self, n_stages: int, n_replicas: int) -> list[tuple[str, IntArray]]:
        """Named rows for one shape, the most promising first; kept, as they are asked for one by one."""
        if (n_stages, n_replicas) not in self._rows:
            self._rows[n_stages, n_replicas] = self._made(n_stages, n_replicas)
        return self._rows[n_stages, n_replicas]

    def _made(self, n_stages: int, n_replicas: int) -> list[tuple[str, IntArray]]:
        n = n_stages * n_replicas
        near, fast = self.by_nearness, self.by_speed
        keep = np.zeros(len(near), dtype=bool)
        keep[fast[:n]] = True
        fastest_near = near[keep[near]]
        orders = [("fastest, near", fastest_near), ("fastest", fast[:n])]
        if n < len(near):
            speeds = np.cumsum(np.concatenate([[0.0], self._problem.flop_per_s[near]]))
            windows = np.argsort(-(speeds[n:] - speeds[:-n]), kind="stable")
            apart = max(1, len(windows) // MOST_WINDOWS)
            chosen: list[int] = []
            for at in windows.tolist():
                if all(abs(at - other) >= apart for other in chosen):
                    chosen.append(at)
            orders += [(f"region {at}", near[at : at + n]) for at in chosen[:MOST_WINDOWS]]
        rows = []
        for name, order in orders:
            rows.append((f"{name}, pipelines", self._row(order.reshape(n_replicas, n_stages).T)))
            rows.append((f"{name}, groups", self._row(order.reshape(n_stages, n_replicas))))
        near_by, problem = self._nearness, self._problem
        chains = cluster_chains(
            near_by.clusters,
            near_by.distance_s,
            problem.flop_per_s,
            (n_stages, n_replicas),
            closed=problem.tied_parameters > 0,
        )
        if n_stages == 1 and len(self.kinds) > 1:
            rows += [("equal, groups", self._row(kind[:n].reshape(1, n))) for kind in self.kinds if len(kind) >= n]
        return rows + [(f"chain {i}, groups", self._row(grid)) for i, grid in enumerate(chains)]

    def random(self, rng: np.random.Generator) -> IntArray:
        return rng.permutation(self._problem.n_devices)

    def _row(self, grid: IntArray) -> IntArray:
        flat = grid.ravel()
        return np.concatenate([flat, np.setdiff1d(self.by_nearness, flat)]).astype(np.int64)

    def cut(self, grid: IntArray, room: IntArray | None = None) -> IntArray:
        """(S,) blocks so that the slowest stage is fastest, stages as fast as their devices in the mean; no stage more
        than the (S,) blocks that it has room for, as long as others have."""
        problem, n_stages = self._problem, len(grid)
        speed: FloatArray = problem.flop_per_s[grid].mean(axis=1)
        extra = np.zeros(n_stages)
        extra[0] += problem.first_extra[0]
        extra[-1] += problem.last_extra[0]
        blocks = np.ones(n_stages, dtype=np.int64)
        takes = (extra + 2 * self._block_flop) / speed
        each = self._block_flop / speed
        for _ in range(problem.n_blocks - n_stages):
            full = False if room is None or (blocks >= room).all() else blocks >= room
            s = int(np.where(full, np.inf, takes).argmin())
            blocks[s] += 1
            takes[s] += each[s]
        return blocks
