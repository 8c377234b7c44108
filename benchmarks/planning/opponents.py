"""What plans for seconds are compared with: the communication cost's plan, random placements, every equal shape.

Opponents share the batch out evenly and cut the model evenly, as a person would who turns nothing. Where the job leaves
the schedule open, each of them runs 1F1B, GPipe, and 1F1B with forwards ahead that are multiples of its own, and
the best that fits memory counts; the communication plan and the best equal shape also run adaptive-1f1b with the
forwards ahead that the lab chooses for them. Thousands of placements are ranked by the compiled replay of an iteration;
the seconds that are printed are always the simulator's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dtfm_lab import planning, simulation
from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.iteration.kernels.annealing import FixedFields
from dtfm_lab.planning.iteration.problem import IterationProblem, SearchTarget
from dtfm_lab.planning.iteration.shape_searches import Nearness, ShapeSearch, tables_of

FACTORS = (1, 2, 3, 4, 8, math.inf)
"""Forwards ahead as multiples of 1F1B's; infinitely many are GPipe's."""
COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
"""Stages and replicas of the shapes that are tried, besides all that use every device."""
MICROBATCHES = (1, 2, 4)
"""Sequences of a micro-batch that opponents try where the job leaves them open."""
DRAWS_PER_FIT = 20
"""Random placements drawn for each that is wanted to fit memory, at most."""


@dataclass(frozen=True, eq=False)
class Opponent:
    """The best plan of one kind."""

    name: str
    iteration_s: float
    """Infinite where none fits the memory."""
    what: str
    """Its shape and schedule, or why there is none."""
    plan: Plan | None = None


@dataclass(frozen=True, eq=False)
class Ranked:
    """A placement with the fastest of the orders of passes that fit memory, by the replay."""

    iteration_s: float
    grid: IntArray
    factor: float
    microbatch: int


class PlanPricer:
    """Seconds of placements of one job on one network, even cuts and even shares."""

    def __init__(self, topology: Topology, job: Job) -> None:
        self.topology, self.job = topology, job
        self.problem = IterationProblem.of(topology, job).parts[0]
        self.microbatches = [m for m in MICROBATCHES if m in self.problem.microbatches] or [job.microbatch]
        self.tables = {m: tables_of(self.problem, m, SearchTarget(), Nearness(self.problem)) for m in self.microbatches}
        self._shape_searches: dict[tuple[int, int, int], ShapeSearch] = {}

    @property
    def factors(self) -> tuple[float, ...]:
        """Multiples of 1F1B's forwards ahead that the job's schedule allows."""
        return {"1f1b": (1,), "gpipe": (math.inf,)}.get(self.job.schedule or "", FACTORS)

    def shapes(self) -> list[tuple[int, int]]:
        """Every shape of ``COUNTS``, and every one that uses all devices."""
        n, n_microbatches = len(self.topology), self.job.global_batch // min(self.microbatches)
        most = self.problem.n_blocks
        return [
            (s, r)
            for s in range(1, min(n, most) + 1)
            for r in range(1, min(n // s, n_microbatches) + 1)
            if s * r == n or (s in COUNTS and r in COUNTS)
        ]

    def ranked(self, grid: IntArray, microbatch: int) -> Ranked | None:
        """The fastest order of passes that fits memory; None where none does."""
        n, r = grid.shape
        if self.job.global_batch // microbatch < r:
            return None
        shape_search = self.shape_search(n, r, microbatch)
        shares = shape_search.even_counts()
        row = np.concatenate([grid.ravel(), np.setdiff1d(np.arange(len(self.topology)), grid)])
        blocks = np.array(self.even_blocks(n), dtype=np.int64)
        best: Ranked | None = None
        for factor in self.factors:
            ahead = self.ahead(n, int(shares[0]), factor)
            found = shape_search.assessed(row, blocks, 0.0, microbatch_counts=shares, warmups=ahead, exact=True)
            if found.lacks == 0 and (best is None or found.value < best.iteration_s):
                best = Ranked(found.value, grid, factor, microbatch)
        return best

    def shape_search(self, n_stages: int, n_replicas: int, microbatch: int) -> ShapeSearch:
        """The compiled prices of one shape, made when first used."""
        key = n_stages, n_replicas, microbatch
        if key not in self._shape_searches:
            found = ShapeSearch(self.tables[microbatch], (n_stages, n_replicas), microbatch, self.problem.job)
            found.fixed_fields = FixedFields(fixed_counts=True, fixed_blocks=True, fixed_warmups=True)
            self._shape_searches[key] = found
        return self._shape_searches[key]

    def even_blocks(self, n_stages: int) -> list[int]:
        """Blocks of each stage of the even cut."""
        job = self.job.with_fields(n_stages=n_stages, n_replicas=1, microbatch=min(self.microbatches))
        counts = list(job.cut(n_stages))
        counts[0] -= bool(self.problem.first_extra.any())
        counts[-1] -= bool(self.problem.last_extra.any())
        return counts

    @staticmethod
    def ahead(n_stages: int, n_microbatches: int, factor: float) -> IntArray:
        """(S,) forwards ahead, so many times those of 1F1B, and for more than once one more everywhere."""
        plain = np.arange(n_stages)[::-1]
        if math.isinf(factor):
            return np.full(n_stages, n_microbatches - 1, dtype=np.int64)
        return np.minimum(plain * int(factor) + int(factor) - 1, n_microbatches - 1).astype(np.int64)

    def plan(self, ranked: Ranked) -> Plan:
        """The plan of a placement, its seconds simulated."""
        n, r = ranked.grid.shape
        job = self.job.with_fields(n_stages=n, n_replicas=r, microbatch=ranked.microbatch)
        names = {1: "1f1b", math.inf: "gpipe"}
        if ranked.factor in names:
            job = job.with_fields(schedule=names[ranked.factor])
        else:
            ahead = self.ahead(n, job.n_microbatches, ranked.factor)
            job = job.with_fields(schedule="adaptive-1f1b", warmups=tuple(ahead.tolist()))
        return simulated(placed(self.topology, job, ranked.grid))


def placed(topology: Topology, job: Job, grid: IntArray) -> Plan:
    """The plan of a grid of devices, pipelines as they stand in it."""
    ranks: list[int | None] = [None] * len(topology)
    for (stage, replica), device in np.ndenumerate(grid):
        ranks[int(device)] = replica * len(grid) + stage
    return planning.evaluate(topology, job, rank_map=ranks)


def simulated(plan: Plan) -> Plan:
    """The plan with the simulator's seconds, or an error where it does not fit memory."""
    assert simulation.memory(plan).fits, f"{plan} does not fit, though the compiled estimate of its memory does"
    return plan.changed(iteration_s=simulation.simulate(plan).iteration_s)


def as_opponent(name: str, plan: Plan) -> Opponent:
    assert plan.iteration_s is not None
    return Opponent(name, plan.iteration_s, described(plan), plan)


def described(plan: Plan) -> str:
    """Shape, schedule and micro-batch."""
    job = plan.job
    return f"{job.n_stages}x{job.n_replicas} {job.schedule_name}" + (
        f" mb{job.microbatch}" if job.microbatch > 1 else ""
    )


def by_lab_warmups(plan: Plan) -> Plan | None:
    """The plan with adaptive-1f1b and the forwards ahead that the lab chooses; None where that does not fit."""
    changed = plan.changed(job=plan.job.with_fields(schedule="adaptive-1f1b", warmups=None))
    if not simulation.memory(changed).fits:
        return None
    return simulated(changed)


def communication_plan(judge: PlanPricer, *, seed: int = 0, seconds: float = 2.0) -> Opponent:
    """The communication cost's plan in the most square shape that uses all devices."""
    name = "communication"
    found = planning.plan(judge.topology, judge.job, objective="communication", seed=seed, seconds=seconds)
    grid = found.placement.devices
    ranked = judge.ranked(grid, found.job.microbatch)
    if ranked is None:
        return Opponent(name, math.inf, f"{grid.shape[0]}x{grid.shape[1]} does not fit memory")
    return as_opponent(name, _with_lab_warmups(judge, judge.plan(ranked)))


def _with_lab_warmups(judge: PlanPricer, plan: Plan) -> Plan:
    chosen = by_lab_warmups(plan) if judge.job.schedule is None else None
    assert plan.iteration_s is not None
    if chosen is not None and chosen.iteration_s is not None and chosen.iteration_s < plan.iteration_s:
        return chosen
    return plan


def random_placements(judge: PlanPricer, n: int = 1000, *, seed: int = 0) -> Opponent:
    """The best of so many random placements that fit memory, each of a random shape."""
    rng = np.random.default_rng(seed)
    shapes = judge.shapes()
    best: Ranked | None = None
    fit = 0
    for _ in range(n * DRAWS_PER_FIT):
        s, r = shapes[int(rng.integers(len(shapes)))]
        grid = rng.permutation(len(judge.topology))[: s * r].reshape(s, r)
        ranked = judge.ranked(np.ascontiguousarray(grid), int(rng.choice(judge.microbatches)))
        if ranked is None:
            continue
        fit += 1
        if best is None or ranked.iteration_s < best.iteration_s:
            best = ranked
        if fit == n:
            break
    name = f"best of {fit} random"
    return Opponent(name, math.inf, "none fits memory") if best is None else as_opponent(name, judge.plan(best))


def equal_shapes(judge: PlanPricer, *, seed: int = 0, seconds: float = 0.1) -> Opponent:
    """The best of the communication planner's placements of every shape."""
    found: list[Ranked] = []
    n_shapes = 0
    for grid in _placements_of_shapes(judge, seed, seconds):
        n_shapes += 1
        found += [one for m in judge.microbatches if (one := judge.ranked(grid, m)) is not None]
    name = f"best of {n_shapes} equal shapes"
    if not found:
        return Opponent(name, math.inf, "none fits memory")
    found.sort(key=lambda one: one.iteration_s)
    plans = [judge.plan(one) for one in found[:3]]
    best = min((_with_lab_warmups(judge, plan) for plan in plans), key=seconds_of)
    return as_opponent(name, best)


def seconds_of(plan: Plan) -> float:
    return math.inf if plan.iteration_s is None else plan.iteration_s


def _placements_of_shapes(judge: PlanPricer, seed: int, seconds: float) -> Iterator[IntArray]:
    """A placement of each shape, by the communication planner; R = 1 and S = 1 too."""
    for s, r in judge.shapes():
        job = judge.job.with_fields(n_stages=s, n_replicas=r, microbatch=min(judge.microbatches))
        try:
            *_, last = planning.search(
                judge.topology, job, objective="communication", seed=seed, seconds=seconds, improve_bound=False
            )
        except LabError:
            continue  # the batch has no micro-batch for each replica
        yield np.ascontiguousarray(last.best)


def estimates(topology: Topology, job: Job, schedule: str, n: int, *, seed: int = 0) -> Iterator[tuple[float, float]]:
    """Seconds of so many random plans, estimated and simulated: random shapes, devices, cuts and shares.

    With adaptive-1f1b, forwards ahead are one to three times those of 1F1B.
    """
    rng = np.random.default_rng(seed)
    judge = PlanPricer(topology, job.with_fields(schedule=schedule))
    microbatch = judge.microbatches[0]
    n_microbatches = job.global_batch // microbatch
    shapes = judge.shapes()
    for _ in range(n):
        s, r = shapes[int(rng.integers(len(shapes)))]
        row = rng.permutation(len(topology))
        blocks = 1 + rng.multinomial(judge.problem.n_blocks - s, np.full(s, 1 / s))
        shares = 1 + rng.multinomial(n_microbatches - r, np.full(r, 1 / r))
        factor = {"1f1b": 1, "gpipe": math.inf}.get(schedule, int(rng.integers(1, 4)))
        ahead = judge.ahead(s, int(shares.max()), factor)
        estimated = judge.shape_search(s, r, microbatch).assessed(
            row, blocks, 0.0, microbatch_counts=shares, warmups=ahead
        )
        fields = {"n_stages": s, "n_replicas": r, "microbatch": microbatch, "schedule": schedule}
        cut = {"blocks_per_stage": tuple(blocks.tolist()), "microbatches_per_replica": tuple(shares.tolist())}
        cut |= {"warmups": tuple(ahead.tolist())} if schedule == "adaptive-1f1b" else {}
        plan = placed(topology, job.with_fields(**fields).with_fields(**cut), row[: s * r].reshape(s, r))
        yield estimated.value, simulation.simulate(plan).iteration_s


def spearman(a: FloatArray, b: FloatArray) -> float:
    """Rank correlation of two rows of numbers."""
    ranks = [np.argsort(np.argsort(x)).astype(float) for x in (a, b)]
    return float(np.corrcoef(*ranks)[0, 1])
