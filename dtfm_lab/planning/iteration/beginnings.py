"""What annealing of a shape begins with: structured placements, its own best, a neighbouring shape's, or chance."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import IntArray
from dtfm_lab.planning.iteration.arms import Arm, Arms, KernelPlan
from dtfm_lab.planning.iteration.candidate import Candidate
from dtfm_lab.planning.iteration.fitting import Fitting, room_of
from dtfm_lab.planning.iteration.problem import IterationProblem
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


class Beginnings:
    """Begins annealing; counts nothing, so that equal searches begin equally."""

    def __init__(self, problem: IterationProblem, arms: Arms, rng: np.random.Generator) -> None:
        self._problem, self._arms, self._rng = problem, arms, rng
        self._parts = {part.job.checkpoints: part for part in problem.parts}
        self._starts = Starts(problem, arms.nearness)

    def structured(self, arm: Arm, i: int, factor: float, *, chains: bool = False) -> tuple[str, KernelPlan] | None:
        """The i-th structured placement of a shape, of ``chains`` alone or of all, priced; None where it has fewer."""
        rows = self._starts.rows(*arm.shape, chains=chains)
        if i >= len(rows):
            return None
        name, row = rows[i]
        found = arm.assessed(row, self._blocks(arm, row), factor)
        if found.lacks > 0 and self._problem.job.blocks_per_stage is None:
            grid = arm.grid(found)
            cut = self._starts.cut(grid, room_of(self._parts[arm.checkpointing], grid, arm.microbatch))
            found = min(found, arm.assessed(row, cut, factor), key=lambda one: (one.lacks > 0, one.price))
        for kept in (arm.rows, arm.unused):
            kept.append((name.endswith("groups"), found))
        return name, found

    def tight(self, arms: Iterable[Arm], most: float, factor: float) -> list[Arm]:
        """The arms of whose best plan memory makes more, by the objective that it would have with memory without end,
        where that is below ``most``: it does not fit, or it has few micro-batches under way, and stages wait."""
        found: list[tuple[float, Arm]] = []
        for arm in arms:
            if (best := arm.best) is not None:
                unlimited = arm.of_boundless_memory(best.row, self._blocks(arm, best.row), factor)
                if unlimited < min(most, math.inf if best.lacks > 0 else SLOWED * best.value):
                    found.append((unlimited, arm))
        return [arm for _, arm in sorted(found, key=lambda one: one[0])]

    def fits(self, arm: Arm, checkpointing: str) -> bool:
        """Whether the devices of the arm's best plan hold the model with another checkpointing."""
        assert arm.best is not None
        room = room_of(self._parts[checkpointing], arm.grid(arm.best), arm.microbatch, waiting=True)
        return bool(room.min() > 0 and room.sum() >= self._problem.n_blocks)

    def of_annealing(self, arm: Arm, factor: float) -> tuple[KernelPlan, str, float]:
        """What an annealing begins with, its name, and the first temperature."""
        assert arm.best is not None
        u = self._rng.random()
        if arm.rows and arm.slices and u < P_AGAIN:
            # of two annealings from one good structure one may find 15 s an iteration and the other 17
            cheapest = sorted(arm.rows, key=lambda row: row[1].price)[:CHEAPEST]
            return cheapest[int(self._rng.integers(len(cheapest)))][1], "structure", HOT
        if arm.unused and (u < P_STRUCTURED or arm.slices == 0):
            # those with near groups and those with near pipelines in turn: which is better shows only when annealed
            turn = arm.slices % 2 == 0
            at = min(range(len(arm.unused)), key=lambda i: (arm.unused[i][0] != turn, arm.unused[i][1].price))
            return arm.unused.pop(at)[1], "structure", HOT
        u = self._rng.random()
        if u < P_RESHAPED and (neighbour := self._arms.neighbour_of(arm, self._rng)) is not None:
            reshaped = self.reshaped(arm, neighbour, factor)
            if reshaped is not None:
                return reshaped, "reshaped", HOT
        if u > 1 - P_CHANCE:
            row = self._rng.permutation(self._problem.n_devices)
            return arm.assessed(row, self._blocks(arm, row), factor), "chance", HOT
        return arm.best, "reheated", float(np.exp(self._rng.uniform(*np.log(REHEATED))))

    def of_plan(self, plan: Plan | None) -> tuple[Arm, KernelPlan] | None:
        """The plan that a search starts with, in its shape's arm; None where the job does not allow that one."""
        if plan is None or plan.job.model is None or plan.job.microbatch is None:
            return None
        topology, job = self._problem.topology, plan.job
        grid = np.array([[topology.index(name) for name in group] for group in plan.stages])
        arm = self._arms.of(grid, job.microbatch, job.checkpoints)
        if arm is None or job.model is None or job.model.n_blocks != self._problem.n_blocks:
            return None
        row = self._problem.row(grid)
        fixed = self._problem.job.blocks_per_stage is not None
        blocks = self._blocks(arm, row) if fixed else np.array(plan.blocks_per_stage, dtype=np.int64)
        shares = np.array(job.microbatch_counts, dtype=np.int64)
        if shares.sum() != arm.tables.passes.n_microbatches or self._problem.job.microbatches_per_replica is not None:
            shares = arm.even_shares()
        if job.warmups is None or arm.freedom.fixed_ahead:
            return arm, arm.assessed(row, blocks, factor=1.5, shares=shares)
        ahead = np.array(job.warmups, dtype=np.int64)
        return arm, arm.assessed(row, blocks, 0.0, shares=shares, ahead=ahead, exact=True)

    def of_candidate(self, candidate: Candidate) -> tuple[Arm, KernelPlan] | None:
        """Another search's plan, in its shape's arm; None where this one has none."""
        job, row = candidate.job, self._problem.row(candidate.best)
        arm = self._arms.of(candidate.best, job.microbatch, job.checkpoints)
        blocks, shares = (np.array(given) for given in (job.blocks_per_stage, job.microbatches_per_replica))
        return None if arm is None else (arm, arm.assessed(row, blocks, 1.0, shares=shares))

    def of_fitting(self, fitting: Fitting) -> tuple[Arm, KernelPlan] | None:
        """The plan that fits memory."""
        if fitting.grid is None or fitting.blocks is None:
            return None
        arm = self._arms.of(fitting.grid, fitting.microbatch, fitting.problem.job.checkpoints)
        return None if arm is None else (arm, arm.assessed(self._problem.row(fitting.grid), fitting.blocks, 1.0))

    def reshaped(self, arm: Arm, neighbour: Arm, factor: float) -> KernelPlan | None:
        """Another shape's best plan, made to fit this shape by adding or dropping pipelines and stages; None where it
        has none, or too few devices."""
        if neighbour.best is None:
            return None
        (s, r), (s_there, r_there) = arm.shape, neighbour.shape
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
                away_s = self._arms.nearness.distance_s[np.ix_(spare, beside)].mean(axis=1)
                best = int(np.argmin(away_s))
            kept[s_at, r_at] = spare[best]
            spare = np.delete(spare, best)
        row = self._problem.row(kept)
        blocks = neighbour.best.blocks if s == s_there else self._blocks(arm, row)
        return arm.assessed(row, blocks, factor)

    def _blocks(self, arm: Arm, row: IntArray) -> IntArray:
        s, r = arm.shape
        if (given := self._problem.job.blocks_per_stage) is not None:
            return np.array(given, dtype=np.int64)
        return self._starts.cut(row[: s * r].reshape(s, r))
