"""What annealing of a shape begins with: structured placements, its own best, a neighbouring shape's, or chance."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import IntArray
from dtfm_lab.planning.iteration.candidate import Candidate
from dtfm_lab.planning.iteration.fitting import FittingPlan, room_of
from dtfm_lab.planning.iteration.problem import IterationProblem
from dtfm_lab.planning.iteration.shape_searches import KernelPlan, ShapeSearch, ShapeSearches
from dtfm_lab.planning.iteration.starts import Starts

HOT = 0.006
"""First temperature of what did not come from annealing, as a share of the objective."""
REHEATED = (0.001, 0.01)
SLOWED = 0.95
"""A plan that would take less than this share of its seconds with memory without end is slowed by memory."""
P_AGAIN, P_STRUCTURED, P_RESHAPED, P_CHANCE = 0.45, 0.7, 0.15, 0.1
"""Probabilities of one of the cheapest structured placements, used before or not; of that or of one not used yet, while
there are some; of a neighbouring shape's best; of chance."""
CHEAPEST = 6
"""Structured placements of a shape, by their price, with which annealing begins again."""


class StartingPlans:
    """Begins annealing; counts nothing, so that equal searches begin equally."""

    def __init__(self, problem: IterationProblem, shape_searches: ShapeSearches, rng: np.random.Generator) -> None:
        self._problem, self._shape_searches, self._rng = problem, shape_searches, rng
        self._parts = {part.job.checkpoints: part for part in problem.parts}
        self._starts = Starts(problem, shape_searches.nearness)

    def structured(
        self, shape_search: ShapeSearch, i: int, factor: float, *, chains: bool = False
    ) -> tuple[str, KernelPlan] | None:
        """The i-th structured placement of a shape, of ``chains`` alone or of all, priced; None where it has fewer."""
        rows = self._starts.rows(*shape_search.shape, chains=chains)
        if i >= len(rows):
            return None
        name, row = rows[i]
        found = shape_search.assessed(row, self._blocks(shape_search, row), factor)
        if found.lacks > 0 and self._problem.job.blocks_per_stage is None:
            grid = shape_search.grid(found)
            cut = self._starts.cut(
                grid, room_of(self._parts[shape_search.checkpointing], grid, shape_search.microbatch)
            )
            found = min(found, shape_search.assessed(row, cut, factor), key=lambda one: (one.lacks > 0, one.price))
        for kept in (shape_search.rows, shape_search.unused):
            kept.append((name.endswith("groups"), found))
        return name, found

    def tight(self, shape_searches: Iterable[ShapeSearch], most: float, factor: float) -> list[ShapeSearch]:
        """The searches whose best plan would be better with more memory: it does not fit, or few micro-batches are
        under way and stages wait. They are sorted by what the plan would take with boundless memory; only those below
        ``most`` are returned."""
        found: list[tuple[float, ShapeSearch]] = []
        for shape_search in shape_searches:
            if (best := shape_search.best) is not None:
                unlimited = shape_search.of_boundless_memory(best.row, self._blocks(shape_search, best.row), factor)
                if unlimited < min(most, math.inf if best.lacks > 0 else SLOWED * best.value):
                    found.append((unlimited, shape_search))
        return [shape_search for _, shape_search in sorted(found, key=lambda one: one[0])]

    def fits(self, shape_search: ShapeSearch, checkpointing: str) -> bool:
        """Whether the devices of the shape's best plan hold the model with another checkpointing."""
        assert shape_search.best is not None
        room = room_of(
            self._parts[checkpointing], shape_search.grid(shape_search.best), shape_search.microbatch, waiting=True
        )
        return bool(room.min() > 0 and room.sum() >= self._problem.n_blocks)

    def of_annealing(self, shape_search: ShapeSearch, factor: float) -> tuple[KernelPlan, str, float]:
        """What an annealing begins with, its name, and the first temperature."""
        assert shape_search.best is not None
        u = self._rng.random()
        if shape_search.rows and shape_search.slices and u < P_AGAIN:
            # of two annealings from one good structure one may find 15 s an iteration and the other 17
            cheapest = sorted(shape_search.rows, key=lambda row: row[1].price)[:CHEAPEST]
            return cheapest[int(self._rng.integers(len(cheapest)))][1], "structure", HOT
        if shape_search.unused and (u < P_STRUCTURED or shape_search.slices == 0):
            # those with near groups and those with near pipelines in turn: which is better shows only when annealed
            turn = shape_search.slices % 2 == 0
            at = min(
                range(len(shape_search.unused)),
                key=lambda i: (shape_search.unused[i][0] != turn, shape_search.unused[i][1].price),
            )
            return shape_search.unused.pop(at)[1], "structure", HOT
        u = self._rng.random()
        if u < P_RESHAPED and (neighbour := self._shape_searches.neighbour_of(shape_search, self._rng)) is not None:
            reshaped = self.reshaped(shape_search, neighbour, factor)
            if reshaped is not None:
                return reshaped, "reshaped", HOT
        if u > 1 - P_CHANCE:
            row = self._rng.permutation(self._problem.n_devices)
            return shape_search.assessed(row, self._blocks(shape_search, row), factor), "chance", HOT
        return shape_search.best, "reheated", float(np.exp(self._rng.uniform(*np.log(REHEATED))))

    def of_plan(self, plan: Plan | None) -> tuple[ShapeSearch, KernelPlan] | None:
        """The plan that a search starts with, and the search of its shape; None where the job allows no such plan."""
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
        shares = np.array(job.microbatch_counts, dtype=np.int64)
        if (
            shares.sum() != shape_search.tables.passes.n_microbatches
            or self._problem.job.microbatches_per_replica is not None
        ):
            shares = shape_search.even_shares()
        if job.warmups is None or shape_search.fixed_fields.fixed_ahead:
            return shape_search, shape_search.assessed(row, blocks, factor=1.5, shares=shares)
        ahead = np.array(job.warmups, dtype=np.int64)
        return shape_search, shape_search.assessed(row, blocks, 0.0, shares=shares, ahead=ahead, exact=True)

    def of_candidate(self, candidate: Candidate) -> tuple[ShapeSearch, KernelPlan] | None:
        """Another search's plan, and the search of its shape; None where this one has none."""
        job, row = candidate.job, self._problem.row(candidate.best)
        shape_search = self._shape_searches.of(candidate.best, job.microbatch, job.checkpoints)
        blocks, shares = (np.array(given) for given in (job.blocks_per_stage, job.microbatches_per_replica))
        return None if shape_search is None else (shape_search, shape_search.assessed(row, blocks, 1.0, shares=shares))

    def of_fitting(self, fitting: FittingPlan) -> tuple[ShapeSearch, KernelPlan] | None:
        """The plan that fits memory."""
        if fitting.grid is None or fitting.blocks is None:
            return None
        shape_search = self._shape_searches.of(fitting.grid, fitting.microbatch, fitting.problem.job.checkpoints)
        return (
            None
            if shape_search is None
            else (shape_search, shape_search.assessed(self._problem.row(fitting.grid), fitting.blocks, 1.0))
        )

    def reshaped(self, shape_search: ShapeSearch, neighbour: ShapeSearch, factor: float) -> KernelPlan | None:
        """Another shape's best plan, made to fit this shape by adding or dropping pipelines and stages; None where it
        has none, or too few devices."""
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
        return shape_search.assessed(row, blocks, factor)

    def _blocks(self, shape_search: ShapeSearch, row: IntArray) -> IntArray:
        s, r = shape_search.shape
        if (given := self._problem.job.blocks_per_stage) is not None:
            return np.array(given, dtype=np.int64)
        return self._starts.cut(row[: s * r].reshape(s, r))
