"""A second simulator, slow and plain: it asks the very objects that hold up the messages of a real run.

Nothing of ``dtfm_lab.simulation`` is used in here, only what both interpreters stand on: programs, message sizes
and links. One thing it knows that a sender in a real run has to be told: when a message sent in turn is through the
receiver's NIC.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Mapping

from dtfm_lab.domain.job import message_bytes
from dtfm_lab.domain.network import Links, OutgoingLinks, Passage
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import COMPUTE, SENDS, Action, Kind, Programs, Step
from dtfm_lab.domain.trace.columns import BETWEEN_REPLICAS

Node = tuple[int, int, int]
"""position, replica, and place in that device's program"""


class IncomingNic:
    """Messages coming in at one device: independently (pairs), or one at a time (NICs)."""

    def __init__(self, *, queues: bool) -> None:
        self._queues = queues
        self.reset()

    def reset(self) -> None:
        self._free_s = 0.0

    def accept(self, passage: Passage) -> tuple[float, float]:
        """When this message's first and last bytes come in. Call it in the order of their first bytes."""
        first_s = max(passage.first_byte_s, self._free_s) if self._queues else passage.first_byte_s
        last_s = first_s + (passage.end_s - passage.start_s)
        self._free_s = last_s
        return first_s, last_s


def interpret(
    plan: Plan, programs: Programs, links: Links, seconds: Mapping[tuple[int, Action], float]
) -> dict[tuple[int, Action], tuple[float, float]]:
    """Start and end of every replica's actions; ``seconds`` of its computations."""
    return _Interpreter(plan, programs, links, seconds).run()


class _Interpreter:
    def __init__(
        self, plan: Plan, programs: Programs, links: Links, seconds: Mapping[tuple[int, Action], float]
    ) -> None:
        self.plan, self.programs, self.seconds = plan, programs, seconds
        devices = [(p, r) for p in range(programs.n_positions) for r in range(programs.n_replicas)]
        self.steps: dict[Node, Step] = {(p, r, i): s for p, r in devices for i, s in enumerate(programs.of(p, r))}
        self.node = {(r, step.action): (p, r, i) for (p, r, i), step in self.steps.items()}
        self.slower = links.slower(plan.placement.devices)
        self.outgoing = {device: OutgoingLinks(links, self.index(*device)) for device in devices}
        self.under_way: set[frozenset[int]] = set()
        self.waiting_turns: dict[frozenset[int], deque[Node]] = defaultdict(deque)
        self.incoming = {device: IncomingNic(queues=links.queueing == "nics") for device in devices}
        self.times: dict[tuple[int, Action], tuple[float, float]] = {}
        self.missing: dict[Node, set[Node]] = {}
        self.wanted_by: dict[Node, list[Node]] = defaultdict(list)
        for device in devices:
            self.find_out_what_waits(*device)

    def index(self, position: int, replica: int) -> int:
        return int(self.plan.placement.devices[position, replica])

    def find_out_what_waits(self, position: int, replica: int) -> None:
        computed: Node | None = None
        in_turn: Node | None = None
        for i, step in enumerate(self.programs.of(position, replica)):
            node = (position, replica, i)
            self.missing[node] = {(position, replica, need) for need in step.needs}
            if step.action.kind in COMPUTE:
                self.missing[node] |= {computed} if computed else set()
                computed = node
            elif step.action.kind in SENDS and step.in_turn:
                self.missing[node] |= {in_turn} if in_turn else set()
                in_turn = self.receive_of(node)
            self.missing[node] |= {self.receive_of((position, replica, sent)) for sent in step.arrivals}
            for other in self.missing[node]:
                self.wanted_by[other].append(node)

    def receive_of(self, send: Node) -> Node:
        action, n_replicas = self.steps[send].action, self.programs.n_replicas
        return self.node[action.other_end(send[1], n_replicas)[1], action.counterpart()]

    def run(self) -> dict[tuple[int, Action], tuple[float, float]]:
        # in one instant: ends before arrivals, then by device and place in the program
        self.events: list[tuple[float, int, Node, Passage | None]] = []
        for node, missing in self.missing.items():
            if not missing and self.steps[node].action.kind in COMPUTE:
                self.start(node, 0.0)
        while self.events:
            now_s, _, node, passage = heapq.heappop(self.events)
            if passage is None:
                self.ended(node, now_s)
            else:
                first_s, last_s = self.incoming[node[:2]].accept(passage)
                self.note(node, first_s, last_s)
        return self.times

    def ended(self, node: Node, now_s: float) -> None:
        for waiting in sorted(self.wanted_by[node]):
            self.missing[waiting].remove(node)
            if not self.missing[waiting]:
                self.start(waiting, now_s)
        if self.programs.takes_turns and self.steps[node].action.kind in (Kind.RECV_F, Kind.RECV_B):
            pair = self.pair_of(node)
            if self.waiting_turns[pair]:
                self.send(self.waiting_turns[pair].popleft(), now_s)
            else:
                self.under_way.remove(pair)

    def pair_of(self, node: Node) -> frozenset[int]:
        stage, replica = self.steps[node].action.other_end(node[1], self.programs.n_replicas)
        return frozenset({self.index(*node[:2]), self.index(stage % self.programs.n_positions, replica)})

    def start(self, node: Node, now_s: float) -> None:
        step = self.steps[node]
        if step.action.kind in COMPUTE:
            self.note(node, now_s, now_s + self.seconds[node[1], step.action])
            return
        if self.programs.takes_turns and step.action.kind in (Kind.SEND_F, Kind.SEND_B):
            pair = self.pair_of(node)
            if pair in self.under_way:
                self.waiting_turns[pair].append(node)
                return
            self.under_way.add(pair)
        self.send(node, now_s)

    def send(self, node: Node, now_s: float) -> None:
        step, (position, replica, _) = self.steps[node], node
        receive = self.receive_of(node)
        passage = self.outgoing[position, replica].carry(
            self.index(*receive[:2]),
            now_s,
            message_bytes(self.plan.job, self.programs.schedule, step),
            in_turn=step.in_turn,
            slower=self.slower[position] if step.action.kind in BETWEEN_REPLICAS else 1.0,
        )
        self.note(node, passage.start_s, passage.end_s)
        heapq.heappush(self.events, (passage.first_byte_s, 1, receive, passage))

    def note(self, node: Node, start_s: float, end_s: float) -> None:
        self.times[node[1], self.steps[node].action] = start_s, end_s
        heapq.heappush(self.events, (end_s, 0, node, None))
