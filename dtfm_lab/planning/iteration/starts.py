"""Placements to begin with (by speed, by nearness, by both, or random), and the cut that goes with each.

The distance of two devices is the seconds of one micro-batch's message there and back. Some grids have each stage
within one cluster of near devices, along cheap chains of clusters. A beam search finds the chains, because the best
chain is a travelling salesman problem. Such grids matter on networks of regions with slow links between them. There the
best plan of many shapes has each stage's replicas in one region, so synchronisation is cheap. Neighbouring stages are
in regions near each other. Annealing seldom finds such a plan from other placements, because all devices of a stage
have to move together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cached_property
from itertools import product

import numpy as np

from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.iteration.fitting import room_of
from dtfm_lab.planning.iteration.problem import IterationProblem
from dtfm_lab.planning.iteration.shape_searches import (
    MOST_STAGES,
    FittingPlan,
    KernelPlan,
    Nearness,
    ShapeSearch,
    ShapeSearches,
)
from dtfm_lab.planning.iteration.structured.candidates import Candidate
from dtfm_lab.planning.iteration.structured.estimates import evened_blocks

MOST_CLUSTERS = 16
"""Chains are searched for up to this number of clusters. With more, the search takes longer than it saves."""
WIDTH = 12
"""Number of chains kept at each length of the beam search."""
MOST_CHAINS = 4
"""Maximum number of grids of one shape along open chains, and along closed ones. Half of them minimise the slowest hop,
half the sum of hops."""
MOST_KINDS = 8
"""A one-stage shape is tried on each kind of device alone, for at most this many kinds."""
N_WHOLE = 4
"""Number of rows that come first, made from the fastest devices. Then come rows along chains, then rows on parts of the
network."""
MOST_WINDOWS = 6
"""Maximum number of parts of the network, consecutive in the order by nearness, that are tried for one shape."""


class Starts:
    """Makes the rows of devices that annealing begins with. A row is (N,) devices. The first S x R form a grid of S
    stages, and the others are idle."""

    def __init__(self, problem: IterationProblem, nearness: Nearness) -> None:
        self._problem, self._nearness, self.by_nearness = problem, nearness, nearness.order
        self._rows: dict[tuple[int, int, bool], list[tuple[str, IntArray]]] = {}
        self._block_flop = float(np.diff(problem.block_flop).mean())

    @cached_property
    def by_speed(self) -> IntArray:
        """(N,) devices, the fastest first, equal ones by nearness."""
        near = self.by_nearness
        return near[np.argsort(-self._problem.flop_per_s[near], kind="stable")]

    @cached_property
    def kinds(self) -> list[IntArray]:
        """At most ``MOST_KINDS`` groups of devices of equal speed, the group with the highest total speed first.
        Devices near each other are adjacent."""
        near, speeds = self.by_nearness, self._problem.flop_per_s
        found = [near[speeds[near] == speed] for speed in np.unique(speeds)]
        return sorted(found, key=lambda kind: -float(speeds[kind].sum()))[:MOST_KINDS]

    most_rows = 2 * (2 + MOST_WINDOWS) + 2 * MOST_CHAINS + MOST_KINDS
    """Maximum number of rows of one shape."""

    def rows(self, n_stages: int, n_replicas: int, *, chains: bool = False) -> list[tuple[str, IntArray]]:
        """Return rows for one shape, each with its name: all of them, or only those along ``chains``.

        They are cached, because callers ask for them one by one.
        """
        key = n_stages, n_replicas, chains
        if key not in self._rows:
            self._rows[key] = (self._chains if chains else self._made)(n_stages, n_replicas)
        return self._rows[key]

    def _made(self, n_stages: int, n_replicas: int) -> list[tuple[str, IntArray]]:
        n, row = n_stages * n_replicas, self._problem.row
        near, fast = self.by_nearness, self.by_speed
        keep = np.zeros(len(near), dtype=bool)
        keep[fast[:n]] = True
        fastest_near = near[keep[near]]
        orders = [("fastest, near", fastest_near), ("fastest", fast[:n])]
        if n < len(near):
            speeds = np.cumsum(np.concatenate([[0.0], self._problem.flop_per_s[near]]))
            windows = np.argsort(-(speeds[n:] - speeds[:-n]), kind="stable")
            # neighbouring windows share nearly all their devices, so the chosen ones lie apart
            apart = max(1, len(windows) // MOST_WINDOWS)
            chosen: list[int] = []
            for at in windows.tolist():
                if all(abs(at - other) >= apart for other in chosen):
                    chosen.append(at)
            orders += [(f"region {at}", near[at : at + n]) for at in chosen[:MOST_WINDOWS]]
        rows = []
        for name, order in orders:
            rows.append((f"{name}, pipelines", row(order.reshape(n_replicas, n_stages).T)))
            rows.append((f"{name}, groups", row(order.reshape(n_stages, n_replicas))))
        if n_stages == 1 and len(self.kinds) > 1:
            rows += [("equal, groups", row(kind[:n].reshape(1, n))) for kind in self.kinds if len(kind) >= n]
        return rows[:N_WHOLE] + self._chains(n_stages, n_replicas) + rows[N_WHOLE:]

    def _chains(self, n_stages: int, n_replicas: int) -> list[tuple[str, IntArray]]:
        """Return named rows for one shape with each stage within a cluster."""
        problem, shape, closed = self._problem, (n_stages, n_replicas), self._problem.tied_parameters > 0
        near_by = self._nearness.clusters, self._nearness.distance_s
        chains = cluster_chains(*near_by, problem.flop_per_s, shape, closed=closed)
        return [(f"chain {i}, groups", self._problem.row(grid)) for i, grid in enumerate(chains)]

    def cut(self, grid: IntArray, room: IntArray | None = None) -> IntArray:
        """Return (S,) blocks that make the slowest stage as fast as possible. A stage has the average speed of its
        devices.

        No stage gets more than ``room``, (S,) blocks, as long as others have room.
        """
        problem, n_stages = self._problem, len(grid)
        speed: FloatArray = problem.flop_per_s[grid].mean(axis=1)
        extra = np.zeros(n_stages)
        extra[0] += problem.first_extra[0]
        extra[-1] += problem.last_extra[0]
        least = problem.least_blocks(n_stages)
        next_s = (extra + (1 + least) * self._block_flop) / speed
        return evened_blocks(next_s, self._block_flop / speed, problem.n_blocks, least, room)


def cluster_chains(
    clusters: IntArray, distance_s: FloatArray, flop_per_s: FloatArray, shape: tuple[int, int], *, closed: bool
) -> list[IntArray]:
    """Return (S, R) grids along cheap chains of clusters, with each stage inside one cluster. Empty if the clusters are
    too small for the shape, for a single cluster, and with more than ``MOST_CLUSTERS`` clusters or ``MOST_STAGES``
    stages.

    Parameters
    ----------
    clusters
        (N,) number of each device's cluster, from 0.
    distance_s
        (N, N) seconds of a message there and one back.
    flop_per_s
        (N,) speeds of the devices in FLOP/s. The fastest devices of a cluster are used first.
    closed
        True if the last stage sends to the first, as with a tied embedding. It does so only once per iteration, so open
        chains can still be better and are also tried.
    """
    n_stages, n_replicas = shape
    n_clusters = int(clusters.max()) + 1
    if not 1 < n_clusters <= MOST_CLUSTERS or n_stages > MOST_STAGES:
        return []
    members = [np.flatnonzero(clusters == c) for c in range(n_clusters)]
    members = [each[np.argsort(-flop_per_s[each], kind="stable")] for each in members]
    capacity = [len(each) // n_replicas for each in members]
    if sum(capacity) < n_stages:
        return []
    between_s = np.array([[float(np.mean(distance_s[np.ix_(a, b)])) for b in members] for a in members]).tolist()
    found: dict[tuple[int, ...], IntArray] = {}
    for closes, slowest_first in product({False, closed}, (True, False)):
        chains = _cheapest(between_s, capacity, n_stages, slowest_first=slowest_first, closed=closes)
        for chain in chains[: MOST_CHAINS // 2]:
            found.setdefault(chain, _grid(chain, members, n_replicas))
    return list(found.values())


def _cheapest(
    between_s: list[list[float]], capacity: list[int], n_stages: int, *, slowest_first: bool, closed: bool
) -> list[tuple[int, ...]]:
    """Return chains of clusters from a beam search, each with one cluster per stage. Of chains over the same clusters
    only the cheapest is kept.

    With ``slowest_first``, the slowest hop is minimised and the sum of hops breaks ties, otherwise the other way round.
    ``between_s`` are the seconds of a message there and back between clusters. ``capacity`` is the number of stages
    that each cluster has room for.
    """

    usable = [c for c, n in enumerate(capacity) if n]
    chains: list[tuple[float, float, tuple[int, ...]]] = [(0.0, 0.0, (c,)) for c in usable]
    for length in range(2, n_stages + 1):
        longer = []
        for first, second, chain in chains:
            for c in usable:
                # a cluster's stages are consecutive: a chain that returned would cross slow links twice
                if chain.count(c) >= capacity[c] or (c != chain[-1] and c in chain):
                    continue
                slowest_s, sum_s = (first, second) if slowest_first else (second, first)
                hops = [between_s[chain[-1]][c]]
                hops += [between_s[c][chain[0]]] if closed and length == n_stages else []
                slowest_s, sum_s = max(slowest_s, *hops), sum_s + sum(hops)
                # the number that decides comes first, so that the tuples sort by it
                longer.append((*((slowest_s, sum_s) if slowest_first else (sum_s, slowest_s)), (*chain, c)))
        chains = sorted(longer)[:WIDTH]
    best: dict[tuple[int, ...], tuple[int, ...]] = {}
    for _, _, chain in chains:
        best.setdefault(tuple(sorted(chain)), chain)
    return list(best.values())


def _grid(chain: tuple[int, ...], members: list[IntArray], n_replicas: int) -> IntArray:
    taken = dict.fromkeys(chain, 0)
    rows = []
    for c in chain:
        rows.append(members[c][taken[c] : taken[c] + n_replicas])
        taken[c] += n_replicas
    return np.array(rows, dtype=np.int64)


# ---------------------------------------------------------------------------------------------------------------------
# What annealing of a shape begins with: a structured, reshaped or random placement, or the shape's best plan.


STEADY = 1.5
"""Warm-up forwards of new plans, as a multiple of those that a steady pipeline needs (``kernels.state.warm_up``)."""
HOT = 0.006
"""First temperature for a plan that does not come from annealing, as a share of the objective."""
REHEATED = (0.001, 0.01)
SLOWED = 0.95
"""A plan counts as slowed by memory if with unlimited memory it would take less than this share of its seconds."""
P_AGAIN = 0.45
"""Probability that annealing begins with one of the cheapest structured placements, used before or not."""
P_STRUCTURED = 0.7
"""Total probability that annealing begins with a structured placement, while some are unused: ``P_AGAIN`` for the
cheapest ones, the other 0.25 for unused ones. A shape's first annealing always begins with an unused one."""
P_RESHAPED = 0.15
"""Probability that annealing begins with a neighbouring shape's best plan, fitted to this shape, if it does not begin
with a structured placement."""
P_CHANCE = 0.1
"""Probability that annealing begins with a random placement, if it does not begin with a structured one. In all other
cases it begins with the shape's best plan."""
CHEAPEST = 6
"""Number of the cheapest structured placements of a shape with which annealing begins again."""


class StartingPlans:
    """Plans to begin annealing with. Their randomness comes only from ``rng``, so equal searches begin equally."""

    def __init__(self, problem: IterationProblem, shape_searches: ShapeSearches, rng: np.random.Generator) -> None:
        self._problem, self._shape_searches, self._rng = problem, shape_searches, rng
        self._parts = {part.job.checkpoints: part for part in problem.parts}
        self._starts = Starts(problem, shape_searches.nearness)

    def structured(self, shape_search: ShapeSearch, i: int, *, chains: bool = False) -> tuple[str, KernelPlan] | None:
        """Return the i-th structured placement of a shape, priced, and add it to the shape's placements. None if there
        are fewer.

        With ``chains``, only placements along chains of clusters count.
        """
        rows = self._starts.rows(*shape_search.shape, chains=chains)
        if i >= len(rows):
            return None
        name, row = rows[i]
        found = shape_search.assessed(row, self._blocks(shape_search, row), STEADY)
        # the fastest cut does not fit, but one that heeds memory may
        if found.lacks > 0 and self._problem.job.blocks_per_stage is None:
            grid = shape_search.grid(found)
            cut = self._starts.cut(
                grid, room_of(self._parts[shape_search.checkpointing], grid, shape_search.microbatch)
            )
            found = min(found, shape_search.assessed(row, cut, STEADY), key=lambda one: (one.lacks > 0, one.price))
        for kept in (shape_search.rows, shape_search.unused):
            kept.append((name.endswith("groups"), found))
        return name, found

    def tight(self, shape_searches: Iterable[ShapeSearch], most: float) -> list[ShapeSearch]:
        """Return the searches whose best plan would be better with more memory, sorted by its value with unlimited
        memory.

        Such a plan does not fit, or has so few micro-batches in flight that stages wait. A search is left out if its
        value with unlimited memory is ``most`` or more.
        """
        found: list[tuple[float, ShapeSearch]] = []
        for shape_search in shape_searches:
            if (best := shape_search.best) is not None:
                # the fastest cut, because memory is unlimited here
                unlimited = shape_search.of_boundless_memory(best.row, self._blocks(shape_search, best.row), STEADY)
                if unlimited < min(most, math.inf if best.lacks > 0 else SLOWED * best.value):
                    found.append((unlimited, shape_search))
        return [shape_search for _, shape_search in sorted(found, key=lambda one: one[0])]

    def fits(self, shape_search: ShapeSearch, checkpointing: str) -> bool:
        """Return True if the devices of the shape's best plan hold the model with this ``checkpointing``."""
        assert shape_search.best is not None
        room = room_of(
            self._parts[checkpointing], shape_search.grid(shape_search.best), shape_search.microbatch, waiting=True
        )
        least = self._problem.least_blocks(len(room))
        return bool((room >= least).all() and room.sum() >= self._problem.n_blocks)

    def of_annealing(self, shape_search: ShapeSearch) -> tuple[KernelPlan, str, float]:
        """Return the plan that annealing begins with, its name, and the first temperature."""
        assert shape_search.best is not None
        u = self._rng.random()
        if shape_search.rows and shape_search.slices and u < P_AGAIN:
            # annealing is random: from one good structure it may find 15 s per iteration once, and 17 s another time
            cheapest = sorted(shape_search.rows, key=lambda row: row[1].price)[:CHEAPEST]
            return cheapest[int(self._rng.integers(len(cheapest)))][1], "structure", HOT
        if shape_search.unused and (u < P_STRUCTURED or shape_search.slices == 0):
            # alternate between near groups and near pipelines: only annealing shows which is better
            turn = shape_search.slices % 2 == 0
            at = min(
                range(len(shape_search.unused)),
                key=lambda i: (shape_search.unused[i][0] != turn, shape_search.unused[i][1].price),
            )
            return shape_search.unused.pop(at)[1], "structure", HOT
        u = self._rng.random()
        if u < P_RESHAPED and (neighbour := self._shape_searches.neighbour_of(shape_search, self._rng)) is not None:
            reshaped = self.reshaped(shape_search, neighbour)
            if reshaped is not None:
                return reshaped, "reshaped", HOT
        if u > 1 - P_CHANCE:
            row = self._rng.permutation(self._problem.n_devices)
            return shape_search.assessed(row, self._blocks(shape_search, row), STEADY), "chance", HOT
        return shape_search.best, "reheated", float(np.exp(self._rng.uniform(*np.log(REHEATED))))

    def of_plan(self, plan: Plan | None) -> tuple[ShapeSearch, KernelPlan] | None:
        """Return the search of a plan's shape, and the plan as priced there. None without a plan, or if
        the job does not allow its shape, micro-batch size, checkpointing or number of blocks."""
        if plan is None or plan.job.model is None or plan.job.microbatch is None:
            return None
        topology, job = self._problem.topology, plan.job
        grid = np.array([[topology.index(name) for name in group] for group in plan.stages])
        shape_search = self._shape_searches.of(grid, job.microbatch, job.checkpoints)
        if shape_search is None or job.model is None or job.model.n_blocks != self._problem.n_blocks:
            return None
        row = self._problem.row(grid)
        fixed = self._problem.job.blocks_per_stage is not None
        blocks = self._blocks(shape_search, row) if fixed else np.array(plan.blocks_per_stage, dtype=np.int64)
        microbatch_counts = np.array(job.microbatch_counts, dtype=np.int64)
        if (
            microbatch_counts.sum() != shape_search.tables.passes.n_microbatches
            or self._problem.job.microbatches_per_replica is not None
        ):
            microbatch_counts = shape_search.even_counts()
        if job.warmups is None or shape_search.fixed_fields.fixed_warmups:
            return shape_search, shape_search.assessed(row, blocks, STEADY, microbatch_counts=microbatch_counts)
        warmups = np.array(job.warmups, dtype=np.int64)
        return shape_search, shape_search.assessed(
            row, blocks, 0.0, microbatch_counts=microbatch_counts, warmups=warmups, exact=True
        )

    def of_candidate(self, candidate: Candidate) -> tuple[ShapeSearch, KernelPlan] | None:
        """Return this search's ``ShapeSearch`` for a plan of another search, and the plan as priced there. None if this
        job does not allow the plan's shape."""
        job, row = candidate.job, self._problem.row(candidate.best)
        shape_search = self._shape_searches.of(candidate.best, job.microbatch, job.checkpoints)
        blocks, microbatch_counts = (np.array(given) for given in (job.blocks_per_stage, job.microbatches_per_replica))
        if shape_search is None:
            return None
        return shape_search, shape_search.assessed(row, blocks, 1.0, microbatch_counts=microbatch_counts)

    def of_fitting(self, fitting: FittingPlan) -> tuple[ShapeSearch, KernelPlan] | None:
        """Return the search of the fitting plan's shape, and the plan as priced there.

        None if the plan is incomplete or the job does not allow its shape.
        """
        if fitting.grid is None or fitting.blocks is None:
            return None
        shape_search = self._shape_searches.of(fitting.grid, fitting.microbatch, fitting.problem.job.checkpoints)
        return (
            None
            if shape_search is None
            else (shape_search, shape_search.assessed(self._problem.row(fitting.grid), fitting.blocks, 1.0))
        )

    def reshaped(self, shape_search: ShapeSearch, neighbour: ShapeSearch) -> KernelPlan | None:
        """Return another shape's best plan, fitted to this shape by adding or dropping pipelines and stages.

        None if there is no such plan, or too few devices.
        """
        if neighbour.best is None:
            return None
        (s, r), (s_there, r_there) = shape_search.shape, neighbour.shape
        grid = neighbour.best.row[: s_there * r_there].reshape(s_there, r_there)
        idle = neighbour.best.row[s_there * r_there :]
        kept = np.full((s, r), -1, dtype=np.int64)
        stages = np.sort(self._rng.permutation(max(s, s_there))[: min(s, s_there)])
        pipelines = np.sort(self._rng.permutation(r_there)[: min(r, r_there)])
        source = grid[stages] if s_there > s else grid
        target = stages if s > s_there else np.arange(s)
        kept[np.ix_(target, np.arange(len(pipelines)))] = source[:, pipelines]
        spare = np.concatenate([np.setdiff1d(grid, kept), idle])
        missing = np.argwhere(kept < 0)
        if len(missing) > len(spare):
            return None
        for s_at, r_at in missing:
            beside = kept[s_at][kept[s_at] >= 0]
            best = 0
            if len(beside):
                away_s = self._shape_searches.nearness.distance_s[np.ix_(spare, beside)].mean(axis=1)
                best = int(np.argmin(away_s))
            kept[s_at, r_at] = spare[best]
            spare = np.delete(spare, best)
        row = self._problem.row(kept)
        blocks = neighbour.best.blocks if s == s_there else self._blocks(shape_search, row)
        return shape_search.assessed(row, blocks, STEADY)

    def _blocks(self, shape_search: ShapeSearch, row: IntArray) -> IntArray:
        s, r = shape_search.shape
        if (given := self._problem.job.blocks_per_stage) is not None:
            return np.array(given, dtype=np.int64)
        return self._starts.cut(row[: s * r].reshape(s, r))
