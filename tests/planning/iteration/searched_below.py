"""Searches for plans below the bound: small networks and jobs of every kind drawn from a seed, and plans that get ever
faster by random changes, each simulated by the engine.

The bound is that of the open job, asked for up to twice the seconds of the plan that the search finds. Changes begin
with that plan and with plans of jobs of which more is given, and are of whatever the open job leaves open.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.job.model import gpt, llama
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Placement, Plan
from dtfm_lab.planning import search
from dtfm_lab.planning.iteration.bounds.iteration_bound import SCHEDULES
from dtfm_lab.planning.iteration.problem import IterationProblem, SearchTarget, open_microbatches
from dtfm_lab.planning.iteration.rising_bounds import rising_bounds
from dtfm_lab.planning.iteration.shape_searches import ShapeSearches
from dtfm_lab.planning.iteration.structured.candidates import PlanPricer
from dtfm_lab.simulation import memory, simulate

MODELS = (
    gpt(name="gpt-6", n_layers=6, d_model=1024, n_heads=16, seq_len=512, vocab_size=8192),
    gpt(name="gpt-4-untied", n_layers=4, d_model=512, n_heads=8, seq_len=256, vocab_size=50257, tied=False),
    llama(name="llama-5", n_layers=5, d_model=768, n_heads=12, n_kv_heads=4, d_ff=2048, seq_len=512, vocab_size=32000),
)
GPUS = ("A100", "V100", "RTX 4090", "T4", "H100")
BATCHES = (6, 8, 9, 12, 15, 16, 24, 27, 32)
CHOICES: dict[str, tuple[Any, ...]] = {
    "transport": ("overlapped", "overlapped", "batched", "blocking"),
    "synchronisation": ("sharded", "sharded", "sharded-at-once", "ring", "central", "hierarchical"),
    "sharding": ("none", "none", None, "zero-1", "zero-2", "zero-3"),
    "gradient_dtype": (None, None, "fp32"),
    "checkpointing": (None, "none", "selective", "block", "stage"),
    "compression": ("none", "none", "none", "int8", "fp16"),
    "synchronise_every": (1, 1, 1, 1, 4),
    "overlap": (False, False, False, True),
    "memory_traffic": (False, False, False, True),
    "attention": ("fused", "fused", "unfused"),
    "dtype": ("fp16", "fp16", "fp32"),
    "fragments": (1, 1, 1, 2),
    "schedule": (None, None, None, None, "gpipe", "1f1b", "adaptive-1f1b", "zb-h1", "interleaved-1f1b"),
    "flush_every": (None, None, None, None, 3),
    "n_stages": (None, None, None, None, 1, 2, 3),
    "n_replicas": (None, None, None, None, 1, 2),
    "microbatch": (None, None, 1, 3),
}
"""Values of a job's fields, as often as they are drawn."""
MOVES = ("swap", "idle", "block", "shares", "ahead", "grid", "microbatch", "schedule", "checkpointing", "sharding")
SAME = 1e-9


@dataclass(frozen=True)
class Case:
    """A network and a job with much left open."""

    topology: Topology
    job: Job
    queueing: str


@dataclass(frozen=True)
class Report:
    """What was found for one case."""

    case: Case
    bound_s: float
    best: Plan
    best_s: float
    n_plans: int
    mispriced: tuple[str, ...]
    """Plans that the search or its replay prices otherwise than the engine."""

    @property
    def below(self) -> bool:
        """Whether a plan is faster than the bound."""
        return self.best_s < self.bound_s * (1 - SAME)


def case_of(seed: int) -> Case:
    """One of endlessly many, some on hosts of several GPUs that leave tensor parallelism open."""
    rng = np.random.default_rng([26, seed])
    grouped = rng.random() < 0.25
    n = int(rng.choice([2, 4, 6, 8])) if grouped else int(rng.choice([2, 3, 4, 5, 6, 7, 9]))
    group = np.arange(n) // 2 if grouped else rng.integers(0, int(rng.integers(1, 4)), n)
    apart = group[:, None] != group
    alike = rng.random() < 0.4  # links of groups, and fewer kinds of devices
    square = (1, 1) if alike else (n, n)
    near, far = (10.0, 2000.0) if grouped else (1.0, 100.0), (0.03, 10.0)
    gbps = np.where(apart, rng.uniform(*np.log(far), square), rng.uniform(*np.log(near), square))
    ms = np.where(apart, rng.uniform(1, 60, square), rng.uniform(0.01, 1, square))
    gpu = rng.choice(rng.choice(GPUS, 2) if alike else GPUS, n)
    gib = rng.choice(rng.choice([0.6, 1.0, 2.0, 16.0], 1 if alike else 4), n)
    if grouped:
        gpu, gib = np.repeat(gpu[::2], 2), np.repeat(gib[::2], 2)
    topology = Topology.from_matrices(
        ms,
        np.exp(gbps),
        regions=[f"region-{one}" for one in group],
        hosts=[f"host-{one}" for one in group] if grouped else None,
        gpu=[str(one) for one in gpu],
        memory_gib=gib.tolist(),
        name=f"searched-{seed}",
    )
    if rng.random() < 0.15:
        sizes = np.array([1e3, 1e6, 1e8])
        message_s = topology.latency_s[:, :, None] + sizes / topology.bandwidth_bytes_per_s[:, :, None]
        message_s = np.maximum.accumulate(message_s * rng.uniform(1, 1.5, (*square, 3)), axis=2)
        topology = replace(topology, message_bytes=sizes, message_s=message_s)
    while True:
        fields = {name: values[int(rng.integers(len(values)))] for name, values in CHOICES.items()}
        fields |= {"model": MODELS[int(rng.integers(len(MODELS)))], "global_batch": int(rng.choice(BATCHES))}
        try:
            job = Job(name=f"searched-{seed}", tensor_parallel=None if grouped else 1, **fields)
        except LabError:  # choices that contradict each other
            continue
        return Case(topology, job, str(rng.choice(["pairs", "pairs", "nics"])))


def searched(seed: int, n_plans: int, *, steps: int = 2) -> Report | None:
    """The fastest of so many plans that changes find, beside the bound; None where the case has none."""
    case = case_of(seed)
    rng = np.random.default_rng([27, seed])
    starts = [
        plan for job in (case.job, *_given_more(case, rng)) if (plan := _plan(case, job, steps, seed)) is not None
    ]
    if not starts:
        return None
    mispriced: list[str] = []
    best, best_s, n = starts[0], np.inf, 0
    first_s = simulate(starts[0], queueing=case.queueing).iteration_s
    bound_s = max(rising_bounds(case.topology, case.job, 2 * first_s, queueing=case.queueing), default=0.0)
    for start in starts:
        start_s = simulate(start, queueing=case.queueing).iteration_s
        if start.iteration_s is None or abs(start.iteration_s / start_s - 1) > SAME:
            mispriced.append(f"plan of {start.iteration_s} s, engine {start_s}: {start.job}")
        for plan, seconds in _faster(case, start, start_s, rng, n_plans // len(starts)):
            n += 1
            if (priced_s := replayed_s(case, plan)) is not None and abs(priced_s / seconds - 1) > SAME:
                mispriced.append(f"replay {priced_s} s, engine {seconds}: {plan.job}")
            if seconds < best_s:
                best, best_s = plan, seconds
    return Report(case, bound_s, best, best_s, n, tuple(mispriced))


def replayed_s(case: Case, plan: Plan) -> float | None:
    """Seconds by the replay that the search goes by; None where it leaves such jobs to the simulator."""
    problem = IterationProblem.of(plan.topology, plan.job, case.queueing)
    if not PlanPricer(problem, SearchTarget()).replays:
        return None
    grid, job = plan.placement.devices, plan.job
    shape_search = ShapeSearches(problem, SearchTarget()).of(grid, job.microbatch, job.checkpoints)
    if shape_search is None or (job.schedule == "adaptive-1f1b" and job.warmups is None):
        return None
    row = np.array([*grid.ravel(), *(d for d in range(len(plan.topology)) if d not in grid)], dtype=np.int64)
    n = grid.shape[0]
    ahead = {"gpipe": np.full(n, job.global_batch), "1f1b": np.arange(n)[::-1]}.get(job.schedule_name, job.warmups)
    counts = np.array(job.microbatch_counts), np.array(ahead)
    found = shape_search.assessed(
        row, np.array(plan.blocks_per_stage), 0.0, microbatch_counts=counts[0], warmups=counts[1], exact=True
    )
    return found.value


def _plan(case: Case, job: Job, steps: int, seed: int) -> Plan | None:
    try:
        limits = {"steps": steps, "seed": seed, "queueing": case.queueing, "improve_bound": False}
        *_, last = search(case.topology, job, objective="iteration", **limits)
    except LabError:
        return None
    return last.plan


def _given_more(case: Case, rng: np.random.Generator) -> Iterator[Job]:
    """Jobs of which more is given: no plan of theirs is faster than the bound of the open one."""
    for name in rng.permutation(["n_stages", "n_replicas", "microbatch", "schedule", "checkpointing", "sharding"])[:3]:
        if getattr(case.job, name) is not None:
            continue
        values = open_microbatches(case.job) if name == "microbatch" else [v for v in CHOICES[name] if v is not None]
        values = SCHEDULES if name == "schedule" else values
        try:
            yield case.job.with_fields(**{name: values[int(rng.integers(len(values)))]})
        except LabError:
            continue


def _faster(
    case: Case, plan: Plan, seconds: float, rng: np.random.Generator, n_plans: int
) -> Iterator[tuple[Plan, float]]:
    """Plans that fit and their seconds: each a random change of the fastest so far, or of one a little slower."""
    now_s, tries = seconds, 0
    while tries < n_plans:
        tries += 1
        try:
            changed = plan
            for _ in range(int(rng.choice([1, 1, 2, 3]))):
                changed = _changed(case, changed, str(rng.choice(MOVES)), rng)
            if changed is plan or not memory(changed).fits:
                continue
            seconds = simulate(changed, queueing=case.queueing).iteration_s
        except LabError:  # such as a schedule that these counts cannot have
            continue
        yield changed, seconds
        if seconds <= now_s * (1 + 0.05 * rng.random() ** 4):
            plan, now_s = changed, seconds


def _changed(case: Case, plan: Plan, move: str, rng: np.random.Generator) -> Plan:
    """The plan with one change, of what the open job leaves open; itself where there is nothing of the kind."""
    job, grid, open_ = plan.job, plan.placement.devices.copy(), case.job
    idle = [d for d in range(len(plan.topology)) if d not in grid]
    if move == "swap" and grid.size > 1:
        a, b = rng.choice(grid.size, 2, replace=False)
        grid.flat[[a, b]] = grid.flat[[b, a]]
    elif move == "idle" and idle:
        grid.flat[int(rng.integers(grid.size))] = rng.choice(idle)
    elif move == "block" and job.n_stages > 1 and open_.blocks_per_stage is None:
        job = job.with_fields(blocks_per_stage=_moved(plan.blocks_per_stage, rng))
    elif move == "shares" and job.n_replicas > 1 and not job.gathers_passes:
        job = job.with_fields(microbatches_per_replica=_moved(job.microbatch_counts, rng))
    elif move == "ahead" and job.schedule == "adaptive-1f1b":
        job = job.with_fields(warmups=_ahead(job, rng))
    elif move == "schedule" and open_.schedule is None:
        job = job.with_fields(schedule=str(rng.choice(SCHEDULES)))
        job = job.with_fields(warmups=_ahead(job, rng)) if job.schedule == "adaptive-1f1b" else job
    elif move == "checkpointing" and open_.checkpointing is None and not open_.recompute:
        job = job.with_fields(recompute=False, checkpointing=str(rng.choice(["none", "block", "stage"])))
    elif move == "sharding" and open_.sharding is None:
        job = job.with_fields(sharding=str(rng.choice(["none", "zero-1", "zero-2", "zero-3"])))
    elif move == "microbatch" and open_.microbatch is None:
        job = job.with_fields(microbatch=int(rng.choice(open_microbatches(job.with_fields(microbatch=None)))))
    elif move == "grid":
        n, most = len(plan.topology), job.modelled().n_blocks
        s = open_.n_stages or int(rng.integers(1, min(n, most) + 1))
        r = open_.n_replicas or int(rng.integers(1, n // s + 1))
        if s * r <= n:
            grid = rng.permutation(n)[: s * r].reshape(s, r)
            job = job.with_fields(n_stages=s, n_replicas=r)
            if job.schedule == "adaptive-1f1b":
                job = job.with_fields(warmups=_ahead(job, rng))
    if job is plan.job and (grid.shape == plan.placement.devices.shape and (grid == plan.placement.devices).all()):
        return plan
    cost = plan.cost if grid.shape == plan.placement.devices.shape else _cost_of(plan, job, grid)
    return plan.changed(job=job, placement=Placement(grid), cost=cost)


def _cost_of(plan: Plan, job: Job, grid: np.ndarray) -> Any:
    from dtfm_lab.planning.cost import price_placement

    return price_placement(plan.topology, job, grid)


def _moved(counts: tuple[int, ...], rng: np.random.Generator) -> tuple[int, ...]:
    """One or more of one part to another."""
    a, b = rng.choice(len(counts), 2, replace=False)
    new = list(counts)
    many = int(rng.integers(1, new[a])) if new[a] > 1 else 0
    many = min(many, 1) if rng.random() < 0.7 else many
    new[a], new[b] = new[a] - many, new[b] + many
    return tuple(new)


def _ahead(job: Job, rng: np.random.Generator) -> tuple[int, ...]:
    most = max(job.microbatch_counts)
    drawn = rng.integers(0, min(most, 2 * job.n_stages + 2), job.n_stages)
    return tuple(sorted((int(one) for one in drawn), reverse=True))
