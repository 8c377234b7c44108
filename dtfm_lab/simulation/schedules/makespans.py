"""Makespans for many warm-ups, without lowering a schedule and building a task graph for each."""

from dataclasses import replace
from functools import cached_property, lru_cache

import numpy as np

from dtfm_lab.domain.network import Links
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Kind
from dtfm_lab.domain.schedule.task_graph import COMPUTATION, TaskGraph
from dtfm_lab.domain.trace import ComputeTime
from dtfm_lab.domain.units import IntArray
from dtfm_lab.simulation.engine import PlacedTasks, programs_of
from dtfm_lab.simulation.schedules.builtin import adaptive, taking_turns

Warmups = tuple[int, ...]


class Makespans:
    """Seconds of one iteration by warm-ups, each simulated once; it synchronises if every iteration does.

    Warm-ups change only the order in which devices compute, and so what waits for the arrival of a message where sends
    block. So one task graph without that order is simulated, with the edges of the order in question added.
    """

    def __init__(self, plan: Plan, profile: tuple[ComputeTime, ...], links: Links) -> None:
        self._plan, self._profile, self._links = plan, profile, links
        self._simulated: dict[Warmups, float] = {}

    def __len__(self) -> int:
        """Number of warm-ups that were simulated."""
        return len(self._simulated)

    def __call__(self, depths: IntArray) -> float:
        warmups = tuple(depths.tolist())
        if warmups not in self._simulated:
            tasks = replace(self._unordered, extra_edges=self._lanes(warmups))
            self._simulated[warmups] = tasks.simulate(self._links).makespan_s
        return self._simulated[warmups]

    def fewest(self, limit_s: float) -> IntArray:
        """Of the simulated warm-ups within the limit, those with the smallest sum."""
        within = (warmups for warmups, seconds in self._simulated.items() if seconds <= limit_s)
        return np.array(min(within, key=lambda warmups: (sum(warmups), warmups)))

    @cached_property
    def _unordered(self) -> PlacedTasks:
        job = self._plan.job
        plain = adaptive(job.n_stages, job.n_microbatches)
        # the lanes that are taken away are those of whole passes, so warm-ups are chosen without overlap
        plan = self._plan.changed(job=job.with_fields(overlap=False)) if job.overlap else self._plan
        programs = programs_of(plan, plain, synchronise=job.averages_every == 1)
        tasks = PlacedTasks.of(plan, programs, self._profile)
        return replace(tasks, graph=_without_lanes(tasks.graph))

    @cached_property
    def _passes(self) -> tuple[IntArray, ...]:
        return _passes_of(self._unordered.graph)

    def _lanes(self, warmups: Warmups) -> tuple[IntArray, IntArray]:
        """Edges from each pass, and from the arrival of what it sends where sends block, to the one after it."""
        before, after = [], []
        arrival = self._arrivals
        for passes in self._passes:
            m = passes.shape[2] // 2
            forwards, backwards = range(m), range(m, 2 * m)
            turns = np.array([taking_turns(forwards, backwards, min(warmup, m)) for warmup in warmups])
            lanes = np.take_along_axis(passes, turns[:, None, :], axis=2)
            before.append(lanes[:, :, :-1].ravel())
            after.append(lanes[:, :, 1:].ravel())
        source, target = np.concatenate(before), np.concatenate(after)
        sent = np.flatnonzero(arrival[source] >= 0)
        return np.concatenate([source, arrival[source[sent]]]), np.concatenate([target, target[sent]])

    @cached_property
    def _arrivals(self) -> IntArray:
        """(nodes,) of each pass, the receive of the message that it sends and whose arrival its device awaits."""
        graph = self._unordered.graph
        arrival = np.full(len(graph), -1, dtype=np.int64)
        sends = np.flatnonzero(graph.takes_turns)
        arrival[sends - 1] = graph.partner[sends]  # a send stands right after its producer
        return arrival


@lru_cache(maxsize=2)  # the same graph serves for other links
def _without_lanes(graph: TaskGraph) -> TaskGraph:
    """The graph without the edges to each pass from the one before it, or from an arrival elsewhere; others stay."""
    n = len(graph)
    passing = np.isin([action.kind for action in graph.actions], [Kind.FORWARD, Kind.BACKWARD])[graph.action]
    passing &= graph.role == COMPUTATION
    nodes = np.flatnonzero(passing)
    before, after = nodes[:-1], nodes[1:]
    neighbours = (graph.position[before] == graph.position[after]) & (graph.replica[before] == graph.replica[after])
    source = graph.sources
    edges = source * n + graph.successors
    by_key = np.argsort(edges, kind="stable")
    # where a pass also needs the one before it, the edge is there twice, and one stays
    lanes = by_key[np.searchsorted(edges[by_key], (before * n + after)[neighbours])]
    left = np.ones(len(edges), dtype=bool)
    left[lanes] = False
    left[passing[graph.successors] & (graph.device[source] != graph.device[graph.successors])] = False
    source, target = source[left], graph.successors[left]
    return replace(
        graph,
        n_predecessors=graph.n_predecessors - np.bincount(graph.successors[~left], minlength=n),
        successors_from=np.concatenate([[0], np.cumsum(np.bincount(source, minlength=n))]),
        successors=target,
    )


@lru_cache(maxsize=2)
def _passes_of(graph: TaskGraph) -> tuple[IntArray, ...]:
    """Of all pipelines with M micro-batches, for each such M: (devices, replicas, 2 M) nodes of all forwards, then of
    all backwards, by micro-batch."""
    programs = graph.programs
    most = programs.schedule.n_microbatches
    column = np.full(len(graph.actions), -1)
    for i, action in enumerate(graph.actions):
        if action.kind in (Kind.FORWARD, Kind.BACKWARD) and action.microbatch is not None:
            column[i] = action.microbatch + (action.kind is Kind.BACKWARD) * most
    nodes = np.empty((programs.n_positions, programs.n_replicas, 2 * most), dtype=np.int64)
    passing = np.flatnonzero(column[graph.action] >= 0)
    at = column[graph.action[passing]]
    nodes[graph.position[passing], graph.replica[passing], at] = passing
    counts = (programs.microbatch_counts[replicas[0]] for replicas in programs.replicas)
    columns = (np.concatenate([np.arange(m), np.arange(most, most + m)]) for m in counts)
    return tuple(nodes[:, replicas][:, :, which] for replicas, which in zip(programs.replicas, columns, strict=True))
