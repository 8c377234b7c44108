"""Programs as arrays: a node for every action of every device, an edge for every dependency that the programs fix.

Edges lead to an action from each action that it needs, from the previous message if messages take turns, and from each
message whose arrival its device waits for. To a computation, an edge also leads from the previous one on its device.
The order of messages on a link is not in the graph: the event loop decides it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Self

import numpy as np

from dtfm_lab.domain.schedule.program import Programs
from dtfm_lab.domain.schedule.schedule import COMPUTE, SENDS, Action, Kind, Step
from dtfm_lab.domain.units import BoolArray, FloatArray, IntArray, by_key

COMPUTATION = 0
"""Role of a node that computes."""
SEND = 1
"""Role of a node that sends a message."""
RECEIVE = 2
"""Role of a node that receives a message."""
ROLES = {kind: COMPUTATION if kind in COMPUTE else SEND if kind in SENDS else RECEIVE for kind in Kind}


@dataclass(frozen=True, eq=False)
class TaskGraph:
    """All actions of an iteration, as a graph. Each array has one entry per node, and a node is one action of one
    device.

    The nodes of one device are consecutive, in the order of its program.
    """

    programs: Programs
    actions: tuple[Action, ...]
    """The distinct actions."""
    computations: tuple[tuple[int, int, Kind], ...]
    """The distinct computations as (stage, replica, kind). Equal ones take equal time."""
    action: IntArray
    """Index into ``actions``."""
    position: IntArray
    replica: IntArray
    role: IntArray
    computation: IntArray
    """Index into ``computations``; -1 for messages."""
    partner: IntArray
    """The receive for a send, and the send for a receive; -1 for computations."""
    share: FloatArray
    """Fraction of the device's gradient that a synchronisation message carries."""
    fraction: FloatArray
    """Duration relative to its entry in ``computations``."""
    for_bucket: BoolArray
    """True if the action synchronises one of several buckets, or a delayed average (``Step.bucket``)."""
    rounds: IntArray
    """Number of messages or sums that the action stands for (``Step.rounds``)."""
    n_predecessors: IntArray
    """Number of incoming edges. A receive has one more, because it waits for the start of its send."""
    successors_from: IntArray
    successors: IntArray
    """Edges from node i lead to successors[successors_from[i] : successors_from[i + 1]]."""

    def __len__(self) -> int:
        return len(self.action)

    @cached_property
    def beside(self) -> IntArray:
        """Nodes of computations with ``for_bucket``. They run during the passes of their device, one at a time, in the
        order in which they become ready."""
        return np.flatnonzero(self.for_bucket & (self.role == COMPUTATION))

    @cached_property
    def rings(self) -> tuple[Ring, ...]:
        """The rings whose rounds are combined, by position."""
        sends = np.flatnonzero((self.rounds > 1) & (self.role == SEND))
        # the node two after SEND_G, behind its receive, sums; the node two after SEND_P is the first one after the ring
        first = sends[(self.rounds[sends + 2] > 1) & (self.role[sends + 2] == COMPUTATION)]
        return tuple(Ring.of(self, first[self.position[first] == at]) for at in np.unique(self.position[first]))

    @cached_property
    def takes_turns(self) -> BoolArray:
        """(nodes,) True for a blocking pipeline's sends, which share one link with the opposite direction."""
        if not self.programs.takes_turns:
            return np.zeros(len(self), dtype=bool)
        turns = [action.kind in (Kind.SEND_F, Kind.SEND_B) for action in self.actions]
        flags: BoolArray = np.array(turns)[self.action]
        return flags

    @property
    def sources(self) -> IntArray:
        """(edges,) the node from which each edge starts, in the order of ``successors``."""
        return np.repeat(np.arange(len(self)), np.diff(self.successors_from))

    @property
    def device(self) -> IntArray:
        """Number of each node's device: position x replicas + replica."""
        return self.position * self.programs.n_replicas + self.replica


@dataclass(frozen=True, eq=False)
class Ring:
    """Nodes of a ring whose rounds are combined. Each array is (replicas, buckets), replicas in ring order."""

    n_rounds: int
    """Number of rounds of summing. Distributing takes as many."""
    send: IntArray
    """SEND_G nodes. All other nodes of the ring come after them."""
    receive: IntArray
    sum: IntArray
    step: IntArray
    """The STEP of the replica's shard if replicas split the optimizer states, else -1."""
    send_back: IntArray
    receive_back: IntArray

    @classmethod
    def of(cls, graph: TaskGraph, first: IntArray) -> Self:
        """Return the ring of one position whose SEND_G nodes are ``first``."""
        send = first.reshape(len(np.unique(graph.replica[first])), -1)
        steps = graph.role[send + 3] == COMPUTATION
        send_back = send + 3 + steps
        return cls(
            int(graph.rounds[first[0]]),
            send,
            send + 1,
            send + 2,
            np.where(steps, send + 3, -1),
            send_back,
            send_back + 1,
        )

    @cached_property
    def nodes(self) -> IntArray:
        """All nodes of the ring."""
        every = [self.send, self.receive, self.sum, self.step, self.send_back, self.receive_back]
        nodes = np.concatenate([one.ravel() for one in every])
        return nodes[nodes >= 0]


Edges = tuple[IntArray, IntArray]
"""Source and target nodes. A target starts after the end of its source."""


def chained(nodes: IntArray, queue: IntArray) -> Edges:
    """Return edges from each node to the next one in the same queue, in the given order."""
    by_queue = np.argsort(queue, kind="stable")
    same = np.diff(queue[by_queue]) == 0
    return nodes[by_queue][:-1][same], nodes[by_queue][1:][same]


@lru_cache(maxsize=4)
def task_graph(programs: Programs) -> TaskGraph:
    """Return the arrays of these programs. They depend on no network and no job."""
    return _Builder(programs).built()


@dataclass(frozen=True, eq=False)
class _Stretch:
    """Consecutive steps that all devices of one position have in common: their passes, or what follows them."""

    position: int
    replicas: IntArray
    steps: tuple[Step, ...]
    nodes: IntArray
    """(replicas, steps) nodes, consecutive in each row."""
    first: IntArray
    """(replicas, 1) the first node of each device."""

    @cached_property
    def roles(self) -> IntArray:
        return np.array([ROLES[step.action.kind] for step in self.steps])

    @cached_property
    def received(self) -> dict[Action, int]:
        """Each receive of these devices -> the index of its step in their program."""
        start = int(self.nodes[0, 0] - self.first[0, 0])
        return {self.steps[i].action: start + i for i in np.flatnonzero(self.roles == RECEIVE).tolist()}

    def edges(self, sources: list[tuple[int, ...]]) -> tuple[IntArray, IntArray]:
        """Return edges between steps of the same program: their sources and their targets, both (replicas, edges).

        ``sources`` has, for each step, the indices of the steps from which edges lead to it.
        """
        flat = np.fromiter(itertools.chain(*sources), dtype=np.int64)
        return self.first + flat, np.repeat(self.nodes, [len(one) for one in sources], axis=1)


class _Builder:
    """Builds the arrays. Replicas that do the same are handled together: first their passes, then their tails."""

    def __init__(self, programs: Programs) -> None:
        self.programs = programs
        n_steps = [
            [len(programs.pipeline(position, replica)) + len(tail) for replica, tail in enumerate(tails)]
            for position, tails in enumerate(programs.tails)
        ]
        lengths = np.array(n_steps, dtype=np.int64)
        self.first = (np.cumsum(lengths.ravel()) - lengths.ravel()).reshape(lengths.shape)
        """(positions, replicas) number of each device's first node."""
        n = int(lengths.sum())
        self.action, self.computation, self.partner = (np.full(n, -1, dtype=np.int64) for _ in range(3))
        self.role, self.share, self.fraction = np.zeros(n, dtype=np.int64), np.zeros(n), np.ones(n)
        self.for_bucket, self.rounds = np.zeros(n, dtype=bool), np.ones(n, dtype=np.int64)
        n_positions, n_replicas = lengths.shape
        self.position = np.repeat(np.arange(n_positions), lengths.sum(axis=1))
        self.replica = np.repeat(np.tile(np.arange(n_replicas), n_positions), lengths.ravel())
        self.last = np.full(lengths.shape, -1)
        """(positions, replicas) each device's last computation so far that follows the program's order."""
        self.actions: dict[Action, int] = {}
        self.computations: dict[tuple[int, int, Kind], int] = {}
        self.sources: list[IntArray] = []
        self.targets: list[IntArray] = []

    def built(self) -> TaskGraph:
        passes, tails = self._passes(), self._tails()
        for stretch in passes + tails:
            self._lay_out(stretch)
        for stretches in (passes, tails):  # a message of passes has both ends among them
            self._pair(stretches)
        source, target = np.concatenate(self.sources), np.concatenate(self.targets)
        n = len(self.action)
        n_predecessors = np.bincount(target, minlength=n) + (self.role == RECEIVE)
        columns = "action", "position", "replica", "role", "computation", "partner", "share", "fraction"
        return TaskGraph(
            programs=self.programs,
            actions=tuple(self.actions),
            computations=tuple(self.computations),
            **{name: getattr(self, name) for name in (*columns, "for_bucket", "rounds")},
            n_predecessors=n_predecessors,
            successors_from=np.concatenate([[0], np.cumsum(np.bincount(source, minlength=n))]),
            successors=target[np.argsort(source, kind="stable")],
        )

    # Absent devices have no steps. If any device is absent, all steps of the others are in `tails`.

    def _passes(self) -> list[_Stretch]:
        return [
            self._stretch(position, replicas, steps, 0)
            for pipeline, replicas in zip(self.programs.pipelines, self.programs.replicas, strict=True)
            for position, steps in enumerate(pipeline)
            if steps
        ]

    def _tails(self) -> list[_Stretch]:
        stretches = []
        for position, tails in enumerate(self.programs.tails):
            # `lower` gives replicas that do the same work the same tail object, so its identity shows which are alike
            alike = by_key(((self.programs.number[r], id(tail)), r) for r, tail in enumerate(tails) if tail)
            for (number, _), replicas in alike.items():
                start = len(self.programs.pipelines[number][position])
                stretches.append(self._stretch(position, replicas, tails[replicas[0]], start))
        return stretches

    def _stretch(self, position: int, replicas: Sequence[int], steps: tuple[Step, ...], start: int) -> _Stretch:
        first = self.first[position, replicas][:, None]
        return _Stretch(position, np.array(replicas), steps, first + np.arange(start, start + len(steps)), first)

    def _lay_out(self, stretch: _Stretch) -> None:
        """Fill the columns of these steps, and add the edges to them from steps of the same device."""
        steps, nodes, roles = stretch.steps, stretch.nodes, stretch.roles
        self.action[nodes] = [self.actions.setdefault(step.action, len(self.actions)) for step in steps]
        self.role[nodes] = roles
        self.share[nodes] = [step.share for step in steps]
        self.fraction[nodes] = [step.fraction for step in steps]
        self.rounds[nodes] = [step.rounds for step in steps]
        self.for_bucket[nodes] = beside = np.array([step.bucket is not None for step in steps])
        self._connect(*stretch.edges([step.needs for step in steps]))
        # computations for buckets run at the same time as the passes, so they are not in the chain
        in_turn = nodes[:, np.flatnonzero((roles == COMPUTATION) & ~beside)]
        chain = np.hstack([self.last[stretch.position, stretch.replicas][:, None], in_turn])
        follows = chain[:, :-1] >= 0
        self._connect(chain[:, :-1][follows], chain[:, 1:][follows])
        self.last[stretch.position, stretch.replicas] = chain[:, -1]
        computed = np.flatnonzero(roles == COMPUTATION)
        kinds: dict[tuple[int, Kind], int] = {}
        of_step = [kinds.setdefault(_computed(steps[i]), len(kinds)) for i in computed]
        every = itertools.product(stretch.replicas.tolist(), kinds)
        numbers = [self.computations.setdefault((stage, r, kind), len(self.computations)) for r, (stage, kind) in every]
        self.computation[nodes[:, computed]] = np.reshape(numbers, (-1, len(kinds)))[:, of_step]

    def _pair(self, stretches: list[_Stretch]) -> None:
        """Connect both ends of each message that these steps send, and add edges to steps that wait for arrivals."""
        at = {(one.position, replica): one for one in stretches for replica in one.replicas.tolist()}
        for stretch in stretches:
            messages: dict[tuple[int, int], tuple[list[int], list[Action]]] = {}
            """(position of the other end, offset of its replica) -> the indices of the sends, and the receives
            there."""
            for i in np.flatnonzero(stretch.roles == SEND).tolist():
                received = (sent := stretch.steps[i].action).counterpart()
                # SEND_E counts its peer in stages, not in replicas
                away = 0 if sent.kind is Kind.SEND_E else sent.peer or 0
                of_pair = messages.setdefault((received.stage % len(self.first), away), ([], []))
                of_pair[0].append(i)
                of_pair[1].append(received)
            for (position, away), (sends, actions) in messages.items():
                others = (stretch.replicas + away) % self.programs.n_replicas
                there = [at[position, other] for other in others.tolist()]
                # replicas of one stretch receive in the same steps, so offsets are looked up once
                offsets = {one: [one.received[action] for action in actions] for one in dict.fromkeys(there)}
                receives = self.first[position, others][:, None] + np.array([offsets[one] for one in there])
                self.partner[stretch.nodes[:, sends]], self.partner[receives] = receives, stretch.nodes[:, sends]
        for stretch in stretches:
            sends = np.flatnonzero(stretch.roles == SEND).tolist()
            in_turn = stretch.nodes[:, [i for i in sends if stretch.steps[i].in_turn]]
            self._connect(self.partner[in_turn[:, :-1]], in_turn[:, 1:])
            sent_at, waiting = stretch.edges([step.arrivals for step in stretch.steps])
            self._connect(self.partner[sent_at], waiting)

    def _connect(self, sources: IntArray, targets: IntArray) -> None:
        self.sources.append(sources.ravel())
        self.targets.append(targets.ravel())


def _computed(step: Step) -> tuple[int, Kind]:
    """Return the stage and kind of a computation, which determine its seconds."""
    return step.action.stage, step.action.kind if step.whole is None else step.whole
