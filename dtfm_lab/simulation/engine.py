"""Simulate the programs of a plan's devices on a network.

The inputs are a task graph, the seconds of computations and the links. The outputs are the times of all tasks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from dtfm_lab.costs.seconds import compute_seconds
from dtfm_lab.domain.errors import JobError, ScheduleError
from dtfm_lab.domain.job import (
    Job,
    boundary_bytes,
    boundary_of,
    buckets_of,
    device_average_bytes,
    device_gradient_bytes,
)
from dtfm_lab.domain.network import Links
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import ACROSS_STAGES, PASSES, Averaging, Kind, Programs, Schedule, lower
from dtfm_lab.domain.schedule.task_graph import RECEIVE, SEND, TaskGraph, task_graph
from dtfm_lab.domain.trace import ComputeTime
from dtfm_lab.domain.trace.columns import BETWEEN_REPLICAS
from dtfm_lab.domain.units import BoolArray, FloatArray, IntArray
from dtfm_lab.simulation.kernels.events import Edges, Nodes, NodeTimes, Queues, event_loop, longest_paths
from dtfm_lab.simulation.kernels.rings import ring_times, shared_ring_times
from dtfm_lab.simulation.rings import RingInputs, play_rings

SHOWN = 12
"""Maximum number of passes named in the message about a deadlock."""
MOST_UNUSED = 16
"""If there are more queues per node than this, the queues in use are renumbered. With fewer, renumbering takes longer
than clearing the unused queues."""


MOST_RING_MESSAGES = 20_000
"""Maximum number of an iteration's ring messages to simulate one by one. Up to this number, a trace shows every round
of a ring, and the simulation of an iteration takes some tens of milliseconds."""


def takes_rings_whole(job: Job, schedule: Schedule) -> bool:
    """Return True if a simulation takes all rounds of a ring together, because there would be too many messages."""
    n = job.n_replicas
    n_buckets = sum(map(len, buckets_of(job, schedule))) or job.n_stages
    return job.synchronisation == "ring" and 2 * n * (n - 1) * n_buckets > MOST_RING_MESSAGES


def programs_of(
    plan: Plan,
    schedule: Schedule,
    *,
    synchronise: bool = True,
    whole_rings: bool = False,
    period: int | None = None,
) -> Programs:
    """Return the programs of a plan's devices in one iteration under a schedule: of all replicas, or of the first
    ``period``.

    With ``whole_rings``, all rounds of a ring are taken together, which only a simulation can do. Without
    ``synchronise``, the iteration does not average. Raises JobError if devices are absent whose work others cannot
    share.
    """
    job, devices = plan.job, plan.topology.devices
    if plan.absent:
        check_shared(job)
    regions = None
    if job.synchronisation == "hierarchical":  # no other way of averaging depends on them
        regions = tuple(tuple(devices[int(d)].region for d in row) for row in plan.placement.devices)
    averaging = Averaging(
        job.synchronisation,
        regions,
        compressed=job.codes_gradients,
        locally=job.synchronise_every > 1,
        sharding=job.sharding,
        averaged=job.averaged_share,
        delayed=job.fragment_delay > 0,
        buckets=buckets_of(job, schedule),
    )
    return lower(
        schedule,
        job.n_replicas,
        averaging,
        tied=job.ties_stages,
        synchronise=synchronise,
        microbatch_counts=job.microbatch_counts,
        transport=job.transport,
        absent=plan.absent_at,
        whole_rings=whole_rings,
        period=period,
    )


def check_shared(job: Job) -> None:
    """Raise JobError if other devices of a stage cannot share the work of a device that is gone."""
    wanted: dict[str, object] = {"sharding": "none", "synchronise_every": 1, "overlap": False, "ties_stages": False}
    for what, value in wanted.items():
        if (found := getattr(job, what) or value) != value:
            raise JobError(f"job {job.name}: {what} is {found} where peers share a lost device's work; wanted {value}")


@dataclass(frozen=True, eq=False)
class PlacedTasks:
    """A task graph on the devices of a plan, to be simulated on any links. Arrays have one entry per node unless
    stated."""

    graph: TaskGraph
    here: IntArray
    """Index of the node's device in the topology."""
    there: IntArray
    """Index of the device at the other end of a message; equal to ``here`` for computations."""
    n_bytes: FloatArray
    """Bytes of a message, at both ends; 0 for computations."""
    compute_s: FloatArray
    """Seconds of a computation; 0 for messages."""
    groups: IntArray | None = None
    """(stages, replicas) device indices. The devices of a row average together. None if nothing averages."""
    extra_edges: tuple[IntArray, IntArray] | None = None
    """Sources and targets of edges in addition to the graph's own."""

    @classmethod
    def of(cls, plan: Plan, programs: Programs, profile: Iterable[ComputeTime]) -> PlacedTasks:
        """Return the tasks of these programs on the devices of a plan, with computations as long as in ``profile``.
        Raises TraceError if the profile lacks a time."""
        graph, job = task_graph(programs), plan.job
        here = plan.placement.devices[graph.position, graph.replica]
        there = np.where(graph.partner >= 0, here[graph.partner], here)
        if programs.n_replicas < job.n_replicas:  # only the first replicas are simulated, but their peers are real
            between = np.flatnonzero(np.array([one.kind in BETWEEN_REPLICAS for one in graph.actions])[graph.action])
            peers = np.array([one.peer or 0 for one in graph.actions])[graph.action[between]]
            other = graph.replica[between] + np.where(graph.role[between] == SEND, peers, -peers)
            there[between] = plan.placement.devices[graph.position[between], other % job.n_replicas]
        kinds, boundaries = _sizing(graph)
        hop_bytes = np.array(boundary_bytes(job, programs.schedule.n_stages))[boundaries]
        gradient_bytes = np.array(device_gradient_bytes(job, programs.schedule.n_stages))[graph.position]
        average_bytes = np.array(device_average_bytes(job, programs.schedule.n_stages))[graph.position]
        messages = (
            graph.share * gradient_bytes,
            hop_bytes,
            np.full(len(graph), job.embedding_bytes),
            graph.share * average_bytes,
        )
        sizes: FloatArray = np.choose(kinds, messages)
        n_bytes = np.where(graph.role == SEND, sizes, 0.0)
        received = graph.role == RECEIVE
        n_bytes[received] = n_bytes[graph.partner[received]]
        # messages have -1 as the index of their computation, which selects this 0
        seconds = np.append(compute_seconds(graph.computations, profile), 0.0)
        compute_s = seconds[graph.computation] * graph.fraction * graph.rounds
        return cls(graph, here, there, n_bytes, compute_s, plan.placement.devices)

    def simulate(self, links: Links) -> TaskTimes:
        """Return the times of all tasks on these links.

        Raises ScheduleError if actions wait for each other in a cycle. The error names the actions.
        """
        graph = self.graph
        sends, receives = graph.role == SEND, graph.role == RECEIVE
        sender, receiver = np.where(receives, self.there, self.here), np.where(receives, self.here, self.there)
        latency_s = np.where(sends, links.latency_s[sender, receiver], 0.0)
        moving_s = np.where(graph.partner >= 0, links.moving_s(sender, receiver, self.n_bytes), 0.0)
        if links.slowdowns is not None and self.groups is not None:
            averages = np.array([one.kind in BETWEEN_REPLICAS for one in graph.actions])[graph.action]
            moving_s = np.where(averages, links.slower(self.groups)[graph.position], 1.0) * moving_s
        return self.played(links, self._queues(links, sender, receiver), self.compute_s + moving_s, latency_s)

    def played(self, links: Links, queues: Queues, duration_s: FloatArray, latency_s: FloatArray) -> TaskTimes:
        """Return the times of the tasks if nodes take ``duration_s`` and sends have a latency of ``latency_s``.

        If a ring's rounds are combined (``graph.rings``), ``duration_s`` is one message for a message node, and all
        sums together for a sum node. Raises ScheduleError as ``simulate``.
        """
        graph, n = self.graph, len(self.graph)
        nodes, edges, times = Nodes(graph.role, duration_s, latency_s, graph.partner), self._edges, _unfilled(n)
        if rings := graph.rings:
            n_predecessors = edges.n_predecessors.copy()
            n_predecessors[np.concatenate([ring.send.ravel() for ring in rings])] += 1  # so they never run in this loop
            edges = edges._replace(n_predecessors=n_predecessors)
        n_done = kernel("event_loop", n)(nodes, queues, self._turns, edges, np.zeros(n), times)
        found = TaskTimes(self, links, queues, duration_s, latency_s, *times)
        if rings:
            n_done = _rings_played(found, n_done)
        if n_done < n:
            raise ScheduleError(describe_deadlock(graph, times.order[:n_done]))
        return found

    def _queues(self, links: Links, sender: IntArray, receiver: IntArray) -> Queues:
        """Return the queue of each node: the link or NIC that a message occupies.

        Computations that synchronise buckets take turns on their device, so they have one queue per device. The numbers
        of these queues follow the numbers of the links.
        """
        queue, n_queues = self._link_queues(links, sender, receiver)
        beside, programs = self.graph.beside, self.graph.programs
        if not len(beside):
            return Queues(queue, n_queues)
        queue[beside] = n_queues + self.graph.device[beside]
        return Queues(queue, n_queues + programs.n_positions * programs.n_replicas)

    def _link_queues(self, links: Links, sender: IntArray, receiver: IntArray) -> tuple[IntArray, int]:
        """Return the number of the link or NIC that each message occupies, and how many links or NICs there are. The
        number is -1 for computations."""
        role = self.graph.role
        leaving, coming = links.queues(sender, receiver)
        queue = np.where(role == SEND, leaving, np.where(role == RECEIVE, coming, -1))
        n_queues = int(queue.max(initial=-1)) + 1
        if n_queues <= MOST_UNUSED * len(queue):
            return queue, n_queues
        used, dense = np.unique(queue, return_inverse=True)
        return np.where(queue < 0, -1, dense - int(used[0] < 0)), len(used)

    @property
    def _turns(self) -> Queues:
        """The queues of messages that take turns: one queue for each pair of devices."""
        takes_turns, n = self.graph.takes_turns, int(self.here.max(initial=0)) + 1
        turn = np.full(len(self.graph), -1, dtype=np.int64)
        pair = np.minimum(self.here, self.there) * n + np.maximum(self.here, self.there)
        used, turn[takes_turns] = np.unique(pair[takes_turns], return_inverse=True)
        return Queues(turn, len(used))

    @property
    def _edges(self) -> Edges:
        """The graph's edges, including the extra ones."""
        graph = self.graph
        if self.extra_edges is None:
            return Edges(graph.n_predecessors, graph.successors_from, graph.successors)
        n, (source, target) = len(graph), self.extra_edges
        sources = np.concatenate([graph.sources, source])
        targets = np.concatenate([graph.successors, target])
        successors_from = np.concatenate([[0], np.cumsum(np.bincount(sources, minlength=n))])
        n_predecessors = graph.n_predecessors + np.bincount(target, minlength=n)
        return Edges(n_predecessors, successors_from, targets[np.argsort(sources, kind="stable")])


@lru_cache(maxsize=4)
def _sizing(graph: TaskGraph) -> tuple[IntArray, IntArray]:
    """Return how to find the size of each node's message: (nodes,) the kind of size, a value of ``_SIZES`` or 0 for a
    share of the gradient, and (nodes,) the stage boundary that the message crosses."""
    kinds = np.array([_SIZES.get(action.kind, 0) for action in graph.actions])
    crossed = [boundary_of(one.kind, one.stage) if one.kind in ACROSS_STAGES else 0 for one in graph.actions]
    return kinds[graph.action], np.array(crossed)[graph.action]


_SIZES = {**dict.fromkeys(ACROSS_STAGES, 1), Kind.SEND_E: 2, Kind.RECV_E: 2, Kind.SEND_P: 3, Kind.RECV_P: 3}


@dataclass(frozen=True, eq=False)
class TaskTimes:
    """When each task started and ended, in seconds since the iteration began. Arrays have one entry per node."""

    tasks: PlacedTasks
    links: Links
    queues: Queues
    """The queue of each node: the link or NIC that a message occupies, or the device of a computation that synchronises
    a bucket."""
    duration_s: FloatArray
    latency_s: FloatArray
    """Latency of a send; 0 for all other nodes."""
    start_s: FloatArray
    end_s: FloatArray
    after: IntArray
    """The node that each node waited for last; -1 if it waited for none. A receive may wait for the first byte from its
    send. All other waits are for the end of a node."""
    before: IntArray
    """The previous node in the node's queue, such as its link or NIC; -1 for none."""
    ahead: IntArray
    """If both directions of a pair take turns, the receive of the pair's previous message; -1 for none."""
    order: IntArray
    """The nodes in the order in which they started."""

    @property
    def makespan_s(self) -> float:
        return float(self.end_s.max())

    @cached_property
    def slack_s(self) -> FloatArray:
        """Seconds by which each node could start later without delaying the end of the iteration. Queues keep their
        order. Wrong if the rounds of rings are taken together, because rings then have no edges."""
        return np.asarray(self.makespan_s - self.start_s - self._left_s(self.duration_s, self.latency_s))

    def changed_s(self, computing: FloatArray | float = 1.0, sending: float = 1.0) -> float:
        """Return the seconds of the iteration if computations take ``computing`` times as long, and messages
        ``sending`` times. Queues keep their order, unless the rounds of rings are taken together.

        ``computing`` may have one factor per node.
        """
        messages_s = self.duration_s - self.tasks.compute_s
        duration_s = self.tasks.compute_s * computing + messages_s * sending
        if self.tasks.graph.rings:  # rings have no edges between rounds, so longest paths do not cover them
            return self.tasks.played(self.links, self.queues, duration_s, self.latency_s * sending).makespan_s
        return float(self._left_s(duration_s, self.latency_s * sending).max())

    def _left_s(self, duration_s: FloatArray, latency_s: FloatArray) -> FloatArray:
        """Return the seconds from each node's start to the end of the iteration, along the longest path of nodes that
        wait for it."""
        graph = self.tasks.graph
        left_s = np.empty(len(graph))
        nodes = Nodes(graph.role, duration_s, latency_s, graph.partner)
        kernel("longest_paths", len(graph))(nodes, self.tasks._edges, self.before, self.ahead, self.order, left_s)
        return left_s


def _unfilled(n: int) -> NodeTimes:
    """Return uninitialised columns for n nodes, to be filled by the event loop."""
    return NodeTimes(np.empty(n), np.empty(n), *(np.empty(n, dtype=np.int64) for _ in range(4)))


def _rings_played(times: TaskTimes, n_done: int) -> int:
    """Fill the times of the rings and of the nodes that wait for them. Return the number of all nodes that ran."""
    tasks, graph = times.tasks, times.tasks.graph
    n, order = len(graph), times.order
    is_done = np.zeros(n, dtype=bool)
    is_done[order[:n_done]] = True
    _, successors_from, target = tasks._edges
    source = np.repeat(np.arange(n), np.diff(successors_from))
    in_rings = np.concatenate([ring.nodes for ring in graph.rings])
    sends = np.zeros(n, dtype=bool)
    sends[np.concatenate([ring.send.ravel() for ring in graph.rings])] = True
    # a ring's first sends wait for a node that cannot run
    if not is_done[source[sends[target]]].all():
        return n_done
    ready_s, made_by = _latest(n, source, target, sends[target], times.end_s)
    times.after[sends] = made_by[sends]
    given = RingInputs(graph, times.links, tasks.here, tasks.there, times.duration_s, times.latency_s, ready_s, kernel)
    times.before[in_rings] = times.ahead[in_rings] = -1
    play_rings(given, times.start_s, times.end_s, times.after)
    order[n_done : n_done + len(in_rings)] = in_rings
    is_done[in_rings] = True
    n_done += len(in_rings)
    # what waited for the rings runs now, in a second event loop
    left = np.flatnonzero(~is_done)
    if not len(left):
        return n_done
    released_s, made_by = _latest(n, source, target, is_done[source] & ~is_done[target], times.end_s)
    place = np.full(n, -1)
    place[left] = np.arange(len(left))
    inner = ~is_done[source]
    source, target = place[source[inner]], place[target[inner]]
    role, n_left = graph.role[left], len(left)
    nodes = Nodes(role, times.duration_s[left], times.latency_s[left], place[graph.partner[left]])
    edges = Edges(
        np.bincount(target, minlength=n_left) + (role == RECEIVE),
        np.concatenate([[0], np.cumsum(np.bincount(source, minlength=n_left))]),
        target[np.argsort(source, kind="stable")],
    )
    queues, no_turns = times.queues._replace(of_node=times.queues.of_node[left]), Queues(np.full(n_left, -1), 0)
    found = _unfilled(n_left)
    n_found: int = kernel("event_loop", n_left)(nodes, queues, no_turns, edges, released_s[left], found)
    times.start_s[left], times.end_s[left] = found.start_s, found.end_s
    from_before = (found.after < 0) | (found.start_s <= released_s[left])
    times.after[left] = np.where(from_before, made_by[left], left[found.after])
    times.before[left], times.ahead[left] = np.where(found.before < 0, -1, left[found.before]), -1
    order[n_done : n_done + n_found] = left[found.order[:n_found]]
    return n_done + n_found


def _latest(
    n: int, source: IntArray, target: IntArray, chosen: BoolArray, end_s: FloatArray
) -> tuple[FloatArray, IntArray]:
    """Return, for each of n nodes, the latest end among the sources of its chosen edges, and that source. Without such
    an edge they are 0 and -1."""
    source, target = source[chosen], target[chosen]
    last = np.lexsort((end_s[source], target))
    latest_s, made_by = np.zeros(n), np.full(n, -1)
    latest_s[target[last]], made_by[target[last]] = end_s[source[last]], source[last]
    return latest_s, made_by


def simulate_iteration(
    plan: Plan, schedule: Schedule, profile: Iterable[ComputeTime], links: Links, *, synchronise: bool = True
) -> TaskTimes:
    """Simulate one iteration of a plan under a schedule. ``profile`` has the seconds of computations."""
    return PlacedTasks.of(plan, programs_of(plan, schedule, synchronise=synchronise), profile).simulate(links)


def without_edges(graph: TaskGraph, gone: BoolArray) -> TaskGraph:
    """Return the graph without the edges for which ``gone`` is True."""
    n, target = len(graph), graph.successors
    return replace(
        graph,
        n_predecessors=graph.n_predecessors - np.bincount(target[gone], minlength=n),
        successors_from=np.concatenate([[0], np.cumsum(np.bincount(graph.sources[~gone], minlength=n))]),
        successors=target[~gone],
    )


def describe_deadlock(graph: TaskGraph, done: IntArray) -> str:
    """Return one line that names the passes of one cycle of waiting nodes, each followed by the pass that it waits for.

    ``done`` lists the nodes that ran.
    """
    import networkx as nx  # takes a while to load

    left = np.ones(len(graph), dtype=bool)
    left[done] = False
    sends = np.flatnonzero(graph.role == SEND)
    source = np.concatenate([graph.sources, sends])
    target = np.concatenate([graph.successors, graph.partner[sends]])
    both = left[source] & left[target]
    waits = nx.DiGraph(zip(target[both].tolist(), source[both].tolist(), strict=True))
    circle = [graph.actions[graph.action[waiting]] for waiting, _ in nx.find_cycle(waits)]
    passes = [str(action) for action in circle if action.kind in PASSES] or [str(action) for action in circle]
    more = f" and {len(passes) - SHOWN} more" if len(passes) > SHOWN else ""
    chain = " waits for ".join([*passes[:SHOWN], *([] if more else passes[:1])])
    return f"schedule {graph.programs.schedule.name} cannot finish: {chain}{more}, in a circle"


# ---------------------------------------------------------------------------------------------------------------------
# The inner loops in two forms: plain Python, and the same code compiled by numba on a thread. This part chooses one.
#
# Compiling takes seconds, once per machine. Loading it from disk takes most of a second. A small simulation takes less
# than that uncompiled. Both forms give the same bits.


SMALL = 3_000
"""Up to this number of nodes, a simulation does not trigger compiling. It uses compiled kernels if they are ready."""
LARGE = 60_000
"""Above this number of nodes, a simulation waits until the kernels are compiled."""

PLAIN: dict[str, Callable[..., Any]] = {
    "event_loop": event_loop,
    "longest_paths": longest_paths,
    "ring_times": ring_times,
    "shared_ring_times": shared_ring_times,
}
compiled_kernels: dict[str, Callable[..., Any]] = {}
"""The compiled form of each kernel, by name; empty until all are compiled, and if that failed."""
_starting = threading.Lock()
_started = threading.Event()
_finished = threading.Event()


def kernel(name: str, n_nodes: int) -> Callable[..., Any]:
    """Return the kernel of this name, compiled if that is ready. ``n_nodes`` is the number of nodes or messages that it
    will process.

    More than ``SMALL`` nodes start compiling, and more than ``LARGE`` wait for it.
    """
    if not _finished.is_set() and n_nodes > SMALL:
        start_compiling()
        if n_nodes > LARGE:
            _finished.wait()
    return compiled_kernels.get(name, PLAIN[name])


def start_compiling() -> threading.Event:
    """Start to compile on a thread, unless that was done before. Return the event that is set once compiling ends."""
    with _starting:
        if not _started.is_set():
            _started.set()
            threading.Thread(target=_compile, daemon=True, name="dtfm-lab compiles the simulator").start()
    return _finished


def _compile() -> None:
    """Compile all kernels. Without numba, or if compiling fails, the plain kernels stay in use. They are slower but
    give the same results."""
    try:
        from dtfm_lab.domain.compiling import compiled  # numba takes half a second to load

        made = {name: compiled(plain) for name, plain in PLAIN.items()}
        whole, number = np.zeros(1, np.int64), np.zeros(1)
        nodes, edges = Nodes(whole, number, number, whole), Edges(whole, np.zeros(2, np.int64), whole[:0])
        made["event_loop"](nodes, Queues(whole, 1), Queues(whole - 1, 1), edges, number, _unfilled(1))
        made["longest_paths"](nodes, edges, whole - 1, whole - 1, whole, number)
        parts, none = np.zeros((6, 1, 1)), np.zeros((1, 1), np.int64)
        made["ring_times"](parts, none, whole, 1, np.zeros((8, 1, 1)))
        made["shared_ring_times"](parts, none, none, none, True, 1, np.zeros((8, 1, 1)))
        compiled_kernels.update(made)
    finally:
        _finished.set()
