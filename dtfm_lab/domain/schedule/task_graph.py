"""Programs as arrays: a node for every action of every device, an edge for every dependency that the programs fix.

Edges lead to an action from those it needs, from the message before it where messages go in turn, from the arrival of
a message for which its device waits, and to each computation from the one before it on its device. The order of
messages on a link is found by the event loop.
"""

import itertools
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from dtfm_lab.domain.schedule.program import Programs
from dtfm_lab.domain.schedule.schedule import COMPUTE, SENDS, Action, Kind, Step
from dtfm_lab.domain.units import BoolArray, FloatArray, IntArray

COMPUTATION, SEND, RECEIVE = 0, 1, 2
"""Roles of nodes."""
ROLES = {kind: COMPUTATION if kind in COMPUTE else SEND if kind in SENDS else RECEIVE for kind in Kind}


@dataclass(frozen=True, eq=False)
class TaskGraph:
    """Columns by node. Nodes of one device are consecutive, in the order of its program."""

    programs: Programs
    actions: tuple[Action, ...]
    """The distinct actions."""
    computations: tuple[tuple[int, int, Kind], ...]
    """The distinct computations, as (stage, replica, kind); equal ones take equal seconds."""
    action: IntArray
    """Index into ``actions``."""
    position: IntArray
    replica: IntArray
    role: IntArray
    computation: IntArray
    """Index into ``computations``; -1 of messages."""
    partner: IntArray
    """The receive of a send, and the send of a receive; -1 of computations."""
    share: FloatArray
    """Fraction of the device's gradient that a synchronisation message carries."""
    fraction: FloatArray
    """Seconds of a computation over those of its entry in ``computations``."""
    for_bucket: BoolArray
    """Whether the action synchronises one of several buckets."""
    n_predecessors: IntArray
    """Number of edges that lead here, and one more for a receive, which follows the start of its send."""
    successors_from: IntArray
    successors: IntArray
    """Edges from node i lead to successors[successors_from[i] : successors_from[i + 1]]."""

    def __len__(self) -> int:
        return len(self.action)

    @cached_property
    def beside(self) -> IntArray:
        """Nodes of the computations that synchronise buckets: they run beside the passes of their device, one at a time
        and as they become ready."""
        return np.flatnonzero(self.for_bucket & (self.role == COMPUTATION))

    @cached_property
    def takes_turns(self) -> BoolArray:
        """(nodes,) sends that share one link with those of the opposite direction: a pipeline's, where they block."""
        turns = [self.programs.takes_turns and action.kind in (Kind.SEND_F, Kind.SEND_B) for action in self.actions]
        flags: BoolArray = np.array(turns)[self.action]
        return flags

    @property
    def sources(self) -> IntArray:
        """(edges,) the node at which each of ``successors`` begins."""
        return np.repeat(np.arange(len(self)), np.diff(self.successors_from))

    @property
    def device(self) -> IntArray:
        """Number of the node's device: position x replicas + replica."""
        return self.position * self.programs.n_replicas + self.replica


@lru_cache(maxsize=4)
def task_graph(programs: Programs) -> TaskGraph:
    """The arrays of these programs, which depend on no network and no job."""
    return _Builder(programs).built()


class _Builder:
    """Lays out the pipelines of all replicas with as many micro-batches at once, as they are alike; adds the tails,
    which differ, one by one."""

    def __init__(self, programs: Programs) -> None:
        self.programs = programs
        lengths = np.array(
            [
                [len(programs.pipeline(position, replica)) + len(tail) for replica, tail in enumerate(tails)]
                for position, tails in enumerate(programs.tails)
            ],
            dtype=np.int64,
        )
        self.first = (np.cumsum(lengths.ravel()) - lengths.ravel()).reshape(lengths.shape)
        """(positions, replicas) number of each device's first node."""
        n = int(lengths.sum())
        self.action, self.computation, self.partner = (np.full(n, -1, dtype=np.int64) for _ in range(3))
        self.role, self.share, self.fraction = np.zeros(n, dtype=np.int64), np.zeros(n), np.ones(n)
        self.for_bucket = np.zeros(n, dtype=bool)
        n_positions, n_replicas = lengths.shape
        self.position = np.repeat(np.arange(n_positions), lengths.sum(axis=1))
        self.replica = np.repeat(np.tile(np.arange(n_replicas), n_positions), lengths.ravel())
        self.actions: dict[Action, int] = {}
        self.computations: dict[tuple[int, int, Kind], int] = {}
        self.sources: list[IntArray] = []
        self.targets: list[IntArray] = []

    def built(self) -> TaskGraph:
        for pipeline, replicas in zip(self.programs.pipelines, self.programs.replicas, strict=True):
            local = [{step.action: i for i, step in enumerate(steps)} for steps in pipeline]
            for position, steps in enumerate(pipeline):
                self._lay_out_pipeline(position, steps, replicas, local)
        self._read_tails()
        source, target = np.concatenate(self.sources), np.concatenate(self.targets)
        n = len(self.action)
        n_predecessors = np.bincount(target, minlength=n) + (self.role == RECEIVE)
        columns = ("action", "position", "replica", "role", "computation", "partner", "share", "fraction", "for_bucket")
        return TaskGraph(
            programs=self.programs,
            actions=tuple(self.actions),
            computations=tuple(self.computations),
            **{name: getattr(self, name) for name in columns},
            n_predecessors=n_predecessors,
            successors_from=np.concatenate([[0], np.cumsum(np.bincount(source, minlength=n))]),
            successors=target[np.argsort(source, kind="stable")],
        )

    def _lay_out_pipeline(
        self, position: int, steps: tuple[Step, ...], replicas: tuple[int, ...], local: list[dict[Action, int]]
    ) -> None:
        if not steps:  # devices are absent, and all steps are in the tails
            return
        first = self.first[:, replicas]
        nodes = first[position][:, None] + np.arange(len(steps))
        self.action[nodes] = [self.actions.setdefault(step.action, len(self.actions)) for step in steps]
        self.role[nodes] = [ROLES[step.action.kind] for step in steps]
        self.fraction[nodes] = [step.fraction for step in steps]
        computed = [i for i, step in enumerate(steps) if step.action.kind in COMPUTE]
        for row, replica in enumerate(replicas):
            self.computation[nodes[row, computed]] = [self._computation(steps[i], replica) for i in computed]
        for i, step in enumerate(steps):
            if step.action.kind in SENDS:
                there = step.action.counterpart()
                other = there.stage % len(local)
                self._pair(nodes[:, i], first[other] + local[other][there])
        edges = [(need, i) for i, step in enumerate(steps) for need in step.needs]
        edges += itertools.pairwise(computed)
        source, target = (first[position][:, None] + np.array(ends) for ends in zip(*edges, strict=True))
        self._connect(source.ravel(), target.ravel())
        for i, step in enumerate(steps):
            for sent in step.arrivals:
                self._connect(self.partner[nodes[:, sent]], nodes[:, i])

    def _read_tails(self) -> None:
        n_replicas = self.programs.n_replicas
        receives: dict[tuple[int, int, Action], int] = {}
        sends: list[tuple[int, int, Step, int]] = []
        edges: list[tuple[int, int]] = []
        awaited: list[tuple[int, int]] = []
        """Sends for whose arrival a step waits."""
        for position, tails in enumerate(self.programs.tails):
            last_computed = [
                max((i for i, step in enumerate(pipeline[position]) if step.action.kind in COMPUTE), default=None)
                for pipeline in self.programs.pipelines
            ]
            for replica, tail in enumerate(tails):
                first = int(self.first[position, replica])
                steps = self.programs.pipeline(position, replica)
                last = last_computed[self.programs.number[replica]]
                lane = None if last is None else first + last
                for node, step in enumerate(tail, start=first + len(steps)):
                    action, role = step.action, ROLES[step.action.kind]
                    self.action[node] = self.actions.setdefault(action, len(self.actions))
                    self.role[node], self.share[node], self.fraction[node] = role, step.share, step.fraction
                    self.for_bucket[node] = step.bucket is not None
                    edges += [(first + need, node) for need in step.needs]
                    awaited += [(first + sent, node) for sent in step.arrivals]
                    if role == COMPUTATION:
                        self.computation[node] = self._computation(step, replica)
                        if step.bucket is None:
                            edges += [] if lane is None else [(lane, node)]
                            lane = node
                    elif role == SEND:
                        sends.append((position, replica, step, node))
                    else:
                        receives[position, replica, action] = node
        in_turn: dict[tuple[int, int], int] = {}
        for position, replica, step, node in sends:
            stage, other = step.action.other_end(replica, n_replicas)
            received = receives[stage % len(self.first), other, step.action.counterpart()]
            self._pair(np.array([node]), np.array([received]))
            if step.in_turn:
                if (position, replica) in in_turn:
                    edges.append((in_turn[position, replica], node))
                in_turn[position, replica] = received
        edges += [(int(self.partner[sent]), node) for sent, node in awaited]
        self._connect(*(np.array(ends) for ends in zip(*edges, strict=True)))

    def _computation(self, step: Step, replica: int) -> int:
        kind = step.action.kind if step.whole is None else step.whole
        return self.computations.setdefault((step.action.stage, replica, kind), len(self.computations))

    def _pair(self, sends: IntArray, receives: IntArray) -> None:
        self.partner[sends], self.partner[receives] = receives, sends

    def _connect(self, sources: IntArray, targets: IntArray) -> None:
        self.sources.append(sources)
        self.targets.append(targets)
