"""Small plans, networks and durations, for laws that must hold on any of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from hypothesis import strategies as st

from dtfm_lab.domain.errors import ScheduleError
from dtfm_lab.domain.job import Job, gpt
from dtfm_lab.domain.job.options import TRANSPORTS
from dtfm_lab.domain.network import QUEUEING, Links, Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import COMPUTE, PASSES, Action, Kind, Schedule, synchronisations
from dtfm_lab.domain.trace import ComputeTime
from dtfm_lab.planning.evaluate import evaluate
from dtfm_lab.simulation.engine import PlacedTasks, TaskTimes, programs_of
from dtfm_lab.simulation.schedules import schedules


def plan_of(
    n_stages: int,
    n_microbatches: int,
    n_replicas: int = 1,
    topology: Topology | None = None,
    *,
    n_layers: int | None = None,
    tied: bool = False,
    d_model: int = 1,
    counts: tuple[int, ...] | None = None,
    **fields: object,
) -> Plan:
    """Device index = stage x replicas + replica, the rest idle; with d_model 1, a micro-batch is 2 bytes a hop.

    ``counts`` are micro-batches of each pipeline, where they differ.
    """
    model = gpt(n_layers=n_layers or n_stages, d_model=d_model, n_heads=1, seq_len=1, vocab_size=1, tied=tied)
    job = Job(
        model=model,
        n_stages=n_stages,
        n_replicas=n_replicas,
        global_batch=sum(counts or (n_microbatches,) * n_replicas),
        microbatch=1,
        microbatches_per_replica=counts,
        **fields,
    )
    n = n_stages * n_replicas
    topology = topology or Topology.from_matrices(np.zeros((n, n)), np.ones((n, n)))
    ranks = [(d % n_replicas) * n_stages + d // n_replicas if d < n else None for d in range(len(topology))]
    return evaluate(topology, job, rank_map=ranks)


def uneven(n: int, seed: int, regions: int = 1) -> Topology:
    """Asymmetric, of times and message sizes that matter beside computations of a second."""
    rng = np.random.default_rng(seed)
    names = [f"region {r}" for r in rng.integers(0, regions, n)]
    return Topology.from_matrices(1e3 * rng.random((n, n)), 8e-9 * rng.uniform(0.5, 50, (n, n)), regions=names)


def even(n: int, latency_s: float = 0.0, bandwidth_bytes_per_s: float = np.inf, queueing: str = "pairs") -> Links:
    """All links alike."""
    return Links(np.full((n, n), latency_s), np.full((n, n), bandwidth_bytes_per_s), queueing)


def equal(plan: Plan, forward_s: float, backward_s: float, n_stages: int | None = None) -> list[ComputeTime]:
    """The same on every device; the halves of a backward half as long; averaging and stepping take nothing."""
    half = dict.fromkeys((Kind.BACKWARD_INPUT, Kind.BACKWARD_WEIGHT), backward_s / 2)
    seconds = {Kind.FORWARD: forward_s, Kind.BACKWARD: backward_s} | half
    stages, replicas = range(n_stages or plan.job.n_stages), range(plan.job.n_replicas)
    return [ComputeTime(s, r, kind, seconds.get(kind, 0.0)) for s in stages for r in replicas for kind in COMPUTE]


def schedule_of(name: str, n_stages: int, n_microbatches: int, seed: int = 0) -> Schedule:
    """Of the registry, with random warm-ups where it takes any, and more micro-batches where it wants more."""
    rng = np.random.default_rng(seed)
    warmups = sorted(rng.integers(0, n_microbatches + 2, n_stages).tolist(), reverse=True)
    while True:
        try:
            return schedules[name](n_stages, n_microbatches, stages_per_device=2 + seed % 2, warmups=warmups)
        except ScheduleError:
            n_microbatches += 1


@dataclass(frozen=True)
class Case:
    """A plan, a schedule and a network drawn at random, every number different.

    Of odd seeds, pipelines have different numbers of micro-batches.
    """

    name: str
    n_stages: int
    n_microbatches: int
    n_replicas: int
    synchronisation: str
    queueing: str
    tied: bool
    compression: str
    seed: int
    transport: str = "overlapped"

    def tasks(self, *, synchronise: bool = True) -> PlacedTasks:
        """Every single computation has its own duration."""
        programs = programs_of(self.plan, self.schedule, synchronise=synchronise)
        drawn = PlacedTasks.of(self.plan, programs, equal(self.plan, 1, 2, programs.schedule.n_stages))
        rng = np.random.default_rng(self.seed)
        return replace(drawn, compute_s=np.where(drawn.graph.computation >= 0, rng.random(len(drawn.compute_s)), 0.0))

    def simulated(self) -> TaskTimes:
        return self.tasks().simulate(self.links)

    @property
    def schedule(self) -> Schedule:
        return schedule_of(self.name, self.n_stages, self.n_microbatches, self.seed)

    @property
    def counts(self) -> tuple[int, ...]:
        """(replicas,) micro-batches of each pipeline, the schedule's in one of them at least."""
        n_microbatches = self.schedule.n_microbatches
        if self.seed % 2 == 0:
            return (n_microbatches,) * self.n_replicas
        rng = np.random.default_rng(self.seed)
        drawn = rng.integers(1, n_microbatches, self.n_replicas, endpoint=True)
        drawn[rng.integers(self.n_replicas)] = n_microbatches
        return tuple(drawn.tolist())

    @property
    def plan(self) -> Plan:
        schedule, topology = self.schedule, self.topology
        plan = plan_of(
            self.n_stages,
            schedule.n_microbatches,
            self.n_replicas,
            topology,
            n_layers=schedule.n_stages,
            tied=self.tied,
            d_model=5,
            dtype="fp32",
            synchronisation=self.synchronisation,
            compression=self.compression,
            transport=self.transport,
            counts=self.counts,
        )
        somewhere = np.random.default_rng(self.seed).permutation(len(topology))[: self.n_stages * self.n_replicas]
        return replace(plan, placement=replace(plan.placement, devices=somewhere.reshape(plan.placement.devices.shape)))

    @property
    def topology(self) -> Topology:
        return uneven(self.n_stages * self.n_replicas + self.seed % 3, self.seed, regions=1 + self.n_replicas // 2)

    @property
    def links(self) -> Links:
        return Links.of(self.topology, self.queueing)


cases = st.builds(
    Case,
    name=st.sampled_from(sorted(schedules)),
    n_stages=st.integers(1, 4),
    n_microbatches=st.integers(1, 6),
    n_replicas=st.integers(1, 4),
    synchronisation=st.sampled_from(sorted(synchronisations)),
    queueing=st.sampled_from(QUEUEING),
    tied=st.booleans(),
    compression=st.sampled_from(["none", "fp16", "int8"]),
    seed=st.integers(0, 10_000),
    transport=st.sampled_from(TRANSPORTS),
)


def node_of(tasks: PlacedTasks) -> dict[tuple[int, Action], int]:
    """Number of the node of each replica's action."""
    graph = tasks.graph
    return {(int(graph.replica[i]), graph.actions[graph.action[i]]): i for i in range(len(graph))}


def passes_of(schedule: Schedule, n_microbatches: int) -> set[Action]:
    """What the passes of such a schedule must be: each stage's micro-batches, forward once and backward once."""
    split = any(action.kind is Kind.BACKWARD_WEIGHT for action in schedule)
    kinds = [kind for kind in PASSES if kind is Kind.FORWARD or (kind is not Kind.BACKWARD) == split]
    return {Action(s, kind, m) for s in range(schedule.n_stages) for kind in kinds for m in range(n_microbatches)}
