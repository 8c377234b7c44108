"""What waits for what in one iteration of a trace, from its schedule alone: no clock, no network, no plan."""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass
from typing import NamedTuple

import networkx as nx
import numpy as np

from dtfm_lab.domain.errors import TraceError
from dtfm_lab.domain.schedule import COMPUTE, SENDS, Action, Kind, Programs, lower
from dtfm_lab.domain.trace import Trace
from dtfm_lab.domain.units import IntArray


class Node(NamedTuple):
    """An action of one replica."""

    replica: int
    action: Action


@dataclass(frozen=True, eq=False)
class Waits:
    """One kind of iteration: its actions, and whose end each of them waits for."""

    nodes: tuple[Node, ...]
    before: tuple[tuple[int, ...], ...]
    """by node, the nodes that must have ended: what it needs, the computation before it on its device, and the
    message before it on its link or card"""
    send_of: IntArray
    """by node, the send of a receive, which must have started a latency ago; -1 of all others"""
    order: tuple[int, ...]
    """all nodes, each after those that it waits for"""


def programs_of(trace: Trace, *, synchronise: bool) -> Programs:
    """All that the devices of a trace do in an iteration that synchronises, or in one that does not.

    Raises TraceError where the trace does not hold its schedule.
    """
    context = trace.context
    if not context.orders:
        raise TraceError("the trace does not hold its schedule; wanted one of a simulation or a run")
    kinds = {action.kind for action in trace.actions}
    return lower(
        context.recorded_schedule,
        len(context.devices[0]),
        context.synchronisation,
        _clubs(trace) if context.synchronisation == "hierarchical" else None,
        tied=Kind.SEND_E in kinds,
        compressed=Kind.PACK in kinds,
        synchronise=synchronise,
        locally=context.synchronise_every > 1,
    )


def waits_of(trace: Trace, *, synchronise: bool) -> Waits:
    """The waits of an iteration that synchronises, or of one that does not.

    Messages of one link (``pairs``) or one sender's card (``cards``) follow each other as in its program; those that
    come in at one card, as they came in the trace.
    """
    programs = programs_of(trace, synchronise=synchronise)
    every = trace.context.synchronise_every
    builder = _Builder(programs, one_card=trace.context.queueing == "cards")
    if trace.context.queueing == "cards":
        which = next(i for i in np.unique(trace.iteration) if ((i + 1) % every == 0) == synchronise)
        builder.queue_receives(trace, int(which))
    return builder.built()


def _clubs(trace: Trace) -> tuple[tuple[str, ...], ...]:
    """(stages, replicas) a name for those who gather at one replica: regions, as hierarchical averaging saw them."""
    n_stages, n_replicas = len(trace.context.devices), len(trace.context.devices[0])
    graph: nx.Graph[tuple[int, int]] = nx.Graph()
    graph.add_nodes_from((stage, replica) for stage in range(n_stages) for replica in range(n_replicas))
    for number, replica in np.unique(np.column_stack([trace.action, trace.replica]), axis=0).tolist():
        action = trace.actions[number]
        if action.kind is Kind.SEND_G and action.microbatch == 0:
            graph.add_edge((action.stage, replica), action.other_end(replica, n_replicas))
    club = {member: str(min(members)[1]) for members in nx.connected_components(graph) for member in members}
    return tuple(tuple(club[stage, replica] for replica in range(n_replicas)) for stage in range(n_stages))


class _Builder:
    def __init__(self, programs: Programs, *, one_card: bool) -> None:
        self.programs = programs
        self.n_positions, self.n_replicas = len(programs.pipeline), programs.n_replicas
        self.nodes: list[Node] = []
        self.before: list[list[int]] = []
        sends: list[tuple[tuple[int, int], int, bool]] = []
        self.receives: dict[tuple[int, int], list[int]] = defaultdict(list)
        for position in range(self.n_positions):
            for replica in range(self.n_replicas):
                first, lane = len(self.nodes), -1
                for step in programs.of(position, replica):
                    at = len(self.nodes)
                    self.nodes.append(Node(replica, step.action))
                    self.before.append([first + need for need in step.needs])
                    if step.action.kind in COMPUTE:
                        self.before[at] += [lane] if lane >= 0 else []
                        lane = at
                    elif step.action.kind in SENDS:
                        sends.append(((position, replica), at, step.in_turn))
                    else:
                        self.receives[position, replica].append(at)
        self._pair(sends, one_card=one_card)

    def _pair(self, sends: list[tuple[tuple[int, int], int, bool]], *, one_card: bool) -> None:
        """Sends with their receives, and with the sends that they wait for."""
        number = {node: i for i, node in enumerate(self.nodes)}
        self.send_of: IntArray = np.full(len(self.nodes), -1, dtype=np.int64)
        queue: dict[object, int] = {}
        in_turn: dict[tuple[int, int], int] = {}
        for sender, at, waits_its_turn in sends:
            replica, action = self.nodes[at]
            stage, other = action.other_end(replica, self.n_replicas)
            received = number[Node(other, action.counterpart())]
            self.send_of[received] = at
            link = sender if one_card else (sender, stage % self.n_positions, other)
            if link in queue:
                self.before[at].append(queue[link])
            queue[link] = at
            if waits_its_turn:
                self.before[at] += [in_turn[sender]] if sender in in_turn else []
                in_turn[sender] = received

    def queue_receives(self, trace: Trace, iteration: int) -> None:
        """At each card, one after the other as their first bytes came in that iteration."""
        rows = np.flatnonzero(trace.iteration == iteration)
        started = {
            Node(replica, trace.actions[action]): start_s
            for replica, action, start_s in zip(
                trace.replica[rows].tolist(), trace.action[rows].tolist(), trace.start_s[rows].tolist(), strict=True
            )
        }
        rank = {at: i for i, at in enumerate(nx.topological_sort(self._graph()))}
        alone = [list(each) for each in self.before]
        for received in self.receives.values():
            by_time = sorted(received, key=lambda at: (started.get(self.nodes[at], 0.0), rank[at]))
            for earlier, later in itertools.pairwise(by_time):
                self.before[later].append(earlier)
        if not nx.is_directed_acyclic_graph(self._graph()):  # clocks of several machines may contradict each other
            self.before = alone

    def built(self) -> Waits:
        order = tuple(nx.topological_sort(self._graph()))
        return Waits(tuple(self.nodes), tuple(map(tuple, self.before)), self.send_of, order)

    def _graph(self) -> nx.DiGraph[int]:
        graph: nx.DiGraph[int] = nx.DiGraph()
        graph.add_nodes_from(range(len(self.nodes)))
        graph.add_edges_from((source, at) for at, sources in enumerate(self.before) for source in sources)
        graph.add_edges_from((int(send), at) for at, send in enumerate(self.send_of) if send >= 0)
        return graph
