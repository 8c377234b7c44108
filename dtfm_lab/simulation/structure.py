"""Programs as arrays: a node for every action of every device, an edge for every wait that no clock decides.

Edges lead from what a computation, a message or the next message in turn needs, and from each computation to
the next one of its device. Which message waits for which on a link is not in here: the event loop finds out.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dtfm_lab.domain.schedule import COMPUTE, SENDS, Action, Kind, Programs, Step
from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.simulation.kernels.events import COMPUTATION, RECEIVE, SEND

ROLES = {kind: COMPUTATION if kind in COMPUTE else SEND if kind in SENDS else RECEIVE for kind in Kind}


@dataclass(frozen=True, eq=False)
class Structure:
    """Columns by node. Nodes of one device are consecutive, in the order of its program."""

    programs: Programs
    actions: tuple[Action, ...]
    """the distinct ones"""
    works: tuple[tuple[int, int, Kind], ...]
    """the distinct computations, each as stage, replica and kind, which take equal seconds"""
    action: IntArray
    """of ``actions``"""
    position: IntArray
    replica: IntArray
    role: IntArray
    work: IntArray
    """of ``works``; -1 of messages"""
    partner: IntArray
    """of sends the receive, of receives the send; -1 of computations"""
    share: FloatArray
    """of the device's gradient, that a synchronisation message carries"""
    waits_for: IntArray
    """how many edges lead here, and one more from a receive's send"""
    next_from: IntArray
    next_node: IntArray
    """edges from node i: next_node[next_from[i] : next_from[i + 1]]"""

    def __len__(self) -> int:
        return len(self.action)


@lru_cache(maxsize=4)
def structure(programs: Programs) -> Structure:
    """The arrays of these programs, and of no particular network or job."""
    return _Builder(programs).built()


class _Builder:
    """Pipelines are alike in all replicas and are laid out at once; tails differ and are read one by one."""

    def __init__(self, programs: Programs) -> None:
        self.programs = programs
        blocks = zip(programs.pipeline, programs.tails, strict=True)
        lengths = np.array([[len(steps) + len(tail) for tail in tails] for steps, tails in blocks], dtype=np.int64)
        self.first = (np.cumsum(lengths.ravel()) - lengths.ravel()).reshape(lengths.shape)
        """(positions, replicas) number of each device's first node"""
        n = int(lengths.sum())
        self.action, self.work, self.partner = (np.full(n, -1, dtype=np.int64) for _ in range(3))
        self.role, self.share = np.zeros(n, dtype=np.int64), np.zeros(n)
        n_positions, n_replicas = lengths.shape
        self.position = np.repeat(np.arange(n_positions), lengths.sum(axis=1))
        self.replica = np.repeat(np.tile(np.arange(n_replicas), n_positions), lengths.ravel())
        self.actions: dict[Action, int] = {}
        self.works: dict[tuple[int, int, Kind], int] = {}
        self.sources: list[IntArray] = []
        self.targets: list[IntArray] = []

    def built(self) -> Structure:
        local = [{step.action: i for i, step in enumerate(steps)} for steps in self.programs.pipeline]
        for position in range(len(local)):
            self._lay_out_pipeline(position, local)
        self._read_tails()
        source, target = np.concatenate(self.sources), np.concatenate(self.targets)
        n = len(self.action)
        waits_for = np.bincount(target, minlength=n) + (self.role == RECEIVE)
        return Structure(
            programs=self.programs,
            actions=tuple(self.actions),
            works=tuple(self.works),
            action=self.action,
            position=self.position,
            replica=self.replica,
            role=self.role,
            work=self.work,
            partner=self.partner,
            share=self.share,
            waits_for=waits_for,
            next_from=np.concatenate([[0], np.cumsum(np.bincount(source, minlength=n))]),
            next_node=target[np.argsort(source, kind="stable")],
        )

    def _lay_out_pipeline(self, position: int, local: list[dict[Action, int]]) -> None:
        steps, first = self.programs.pipeline[position], self.first[position]
        nodes = first[:, None] + np.arange(len(steps))
        self.action[nodes] = [self.actions.setdefault(step.action, len(self.actions)) for step in steps]
        self.role[nodes] = [ROLES[step.action.kind] for step in steps]
        computed = [i for i, step in enumerate(steps) if step.action.kind in COMPUTE]
        for replica in range(self.programs.n_replicas):
            self.work[nodes[replica, computed]] = [self._work(steps[i].action, replica) for i in computed]
        for i, step in enumerate(steps):
            if step.action.kind in SENDS:
                there = step.action.counterpart()
                other = there.stage % len(local)
                self._pair(nodes[:, i], self.first[other] + local[other][there])
        edges = [(need, i) for i, step in enumerate(steps) for need in step.needs]
        edges += itertools.pairwise(computed)
        source, target = (first[:, None] + np.array(ends) for ends in zip(*edges, strict=True))
        self._connect(source.ravel(), target.ravel())

    def _read_tails(self) -> None:
        n_replicas = self.programs.n_replicas
        receives: dict[tuple[int, int, Action], int] = {}
        sends: list[tuple[int, int, Step, int]] = []
        edges: list[tuple[int, int]] = []
        for position, tails in enumerate(self.programs.tails):
            steps = self.programs.pipeline[position]
            last_computed = max(i for i, step in enumerate(steps) if step.action.kind in COMPUTE)
            for replica, tail in enumerate(tails):
                first = int(self.first[position, replica])
                lane = first + last_computed
                for node, step in enumerate(tail, start=first + len(steps)):
                    action, role = step.action, ROLES[step.action.kind]
                    self.action[node] = self.actions.setdefault(action, len(self.actions))
                    self.role[node], self.share[node] = role, step.share
                    edges += [(first + need, node) for need in step.needs]
                    if role == COMPUTATION:
                        self.work[node] = self._work(action, replica)
                        edges.append((lane, node))
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
        self._connect(*(np.array(ends) for ends in zip(*edges, strict=True)))

    def _work(self, action: Action, replica: int) -> int:
        return self.works.setdefault((action.stage, replica, action.kind), len(self.works))

    def _pair(self, sends: IntArray, receives: IntArray) -> None:
        self.partner[sends], self.partner[receives] = receives, sends

    def _connect(self, sources: IntArray, targets: IntArray) -> None:
        self.sources.append(sources)
        self.targets.append(targets)
