"""Find which action waits for which in one iteration of a trace.

This follows from the trace's schedule. If messages or buckets may overtake each other, their measured order counts.
"""

from dataclasses import dataclass

import numpy as np

from dtfm_lab.domain.errors import TraceError
from dtfm_lab.domain.network import nics_of, queues_of
from dtfm_lab.domain.schedule import Averaging, Kind, Programs, TaskGraph, lower, task_graph
from dtfm_lab.domain.schedule.task_graph import COMPUTATION, RECEIVE, SEND, Edges, chained
from dtfm_lab.domain.trace import Trace
from dtfm_lab.domain.units import IntArray


@dataclass(frozen=True, eq=False)
class Dependencies:
    """The task graph of an iteration, plus the order of messages on links and NICs."""

    graph: TaskGraph
    before: tuple[tuple[int, ...], ...]
    """For each node, the nodes that must end before it starts: its predecessors in the graph, and the previous message
    on its link or NIC."""
    send_of: IntArray
    """For a receive, the node of its send, which must have started one latency earlier; -1 for all other nodes."""
    order: tuple[int, ...]
    """All nodes in an order in which each comes after those that it waits for."""


def programs_of(trace: Trace, *, synchronise: bool) -> Programs:
    """Return the programs (steps in order) of a trace's devices for an iteration that synchronises, or for one that
    does not.

    Raises TraceError if the trace does not contain its schedule.
    """
    context = trace.context
    if not context.plan.orders:
        raise TraceError("the trace does not hold its schedule; wanted one of a simulation or a run")
    # The schedule alone does not say whether stages are tied and gradients compressed; the trace shows what ran.
    kinds = {action.kind for action in trace.actions}
    averaging = Averaging(
        context.plan.synchronisation,
        _regions(trace) if context.plan.synchronisation == "hierarchical" else None,
        compressed=Kind.PACK in kinds,
        locally=context.synchronise_every > 1 or context.plan.fragments > 1 or context.plan.fragment_delay > 0,
        sharding=context.plan.sharding,
        delayed=context.plan.fragment_delay > 0,
        buckets=context.plan.buckets,
    )
    return lower(
        context.recorded_schedule,
        len(context.devices[0]),
        averaging,
        tied=Kind.SEND_E in kinds,
        synchronise=synchronise,
        microbatch_counts=context.plan.microbatches_per_replica or None,
        transport=context.plan.transport,
        absent=context.plan.absent_at,
        whole_rings=trace.takes_rings_whole,
    )


def dependencies_of(trace: Trace, *, synchronise: bool) -> Dependencies:
    """Return the dependencies of an iteration that synchronises, or of one that does not.

    Messages on one link (``pairs``) or one sender's NIC (``nics``) are ordered as in its program. The trace decides the
    order of messages that are received at one NIC, leave through a shared NIC, or use a link whose directions take
    turns. It also decides the order of computations that synchronise buckets. If the orders in the trace contradict the
    schedule, because clocks of several machines disagree, they are not used.
    """
    graph = task_graph(programs_of(trace, synchronise=synchronise))
    sends = np.flatnonzero(graph.role == SEND)
    context = trace.context
    nic_of = nics_of([nic for row in context.nics for nic in row])
    n_devices = len(context.devices) * len(context.devices[0])
    ends = graph.device[sends], graph.device[graph.partner[sends]]
    leaving, coming = queues_of(*ends, n_devices, context.queueing, nic_of)
    shared = (leaving < n_devices) & (nic_of is not None)
    needs, computations, arrivals = _edges_of(graph)
    own = np.where(shared, ends[0], leaving)
    messages = chained(sends, own)
    edges = _by_target(needs, computations, messages, arrivals)
    order = _topological_order(graph, edges)
    assert order is not None, "a schedule that was run can finish"
    turns, beside = graph.takes_turns[sends], graph.beside
    if context.has_nics or turns.any() or len(beside):
        every = context.synchronise_every
        iteration = next(i for i in np.unique(trace.iteration) if ((i + 1) % every == 0) == synchronise)
        starts_s = _starts_s(graph, trace, int(iteration))
        rank = np.argsort(np.array(order))

        def in_time(nodes: IntArray, queue: IntArray) -> Edges:
            by_time = np.lexsort((rank[nodes], starts_s[nodes]))
            return chained(nodes[by_time], queue[by_time])

        queued_nodes = np.concatenate([sends[shared], graph.partner[sends[coming >= 0]], beside])
        of_device = graph.device[beside] + max(int(leaving.max(initial=0)), int(coming.max(initial=0))) + 1
        queue = np.concatenate([leaving[shared], coming[coming >= 0], of_device])
        low, high = np.sort(ends, axis=0)
        ahead, behind = in_time(sends[turns], (low * n_devices + high)[turns])
        queued = _by_target(edges, in_time(queued_nodes, queue), (graph.partner[ahead], behind))
        if (in_turns := _topological_order(graph, queued)) is not None:  # clocks of several machines may disagree
            edges, order = queued, in_turns
    before: list[list[int]] = [[] for _ in range(len(graph))]
    for source, target in zip(*(ends.tolist() for ends in edges), strict=True):
        before[target].append(source)
    send_of = np.where(graph.role == RECEIVE, graph.partner, -1)
    return Dependencies(graph, tuple(map(tuple, before)), send_of, tuple(order))


def _regions(trace: Trace) -> tuple[tuple[str, ...], ...]:
    """Return (stages, replicas) region names for hierarchical averaging, recovered from the trace.

    Replicas of a stage that sent their gradients to the same replica form a region.
    """
    import networkx as nx  # takes a while to load

    n_stages, n_replicas = len(trace.context.devices), len(trace.context.devices[0])
    graph: nx.Graph[tuple[int, int]] = nx.Graph()
    graph.add_nodes_from((stage, replica) for stage in range(n_stages) for replica in range(n_replicas))
    for number, replica in np.unique(np.column_stack([trace.action, trace.replica]), axis=0).tolist():
        action = trace.actions[number]
        if action.kind is Kind.SEND_G and action.microbatch == 0:
            graph.add_edge((action.stage, replica), action.other_end(replica, n_replicas))
    region = {member: str(min(members)[1]) for members in nx.connected_components(graph) for member in members}
    return tuple(tuple(region[stage, replica] for replica in range(n_replicas)) for stage in range(n_stages))


def _edges_of(graph: TaskGraph) -> tuple[Edges, Edges, Edges]:
    """Divide the graph's edges by their source: an action that the target needs on the same device, the computation
    before the target, or the arrival of a message at another device."""
    source, target = graph.sources, graph.successors
    computed = np.flatnonzero(graph.role == COMPUTATION)
    before = np.full(len(graph), -1)
    before[computed[1:]] = computed[:-1]
    elsewhere = graph.device[source] != graph.device[target]
    after_computation = (before[target] == source) & ~elsewhere
    kinds = ~elsewhere & ~after_computation, after_computation, elsewhere
    needs, computations, arrivals = ((source[kind], target[kind]) for kind in kinds)
    return needs, computations, arrivals


def _by_target(*edges: Edges) -> Edges:
    """Return all edges ordered by target. Edges with equal targets keep the order of the arguments."""
    source, target = (np.concatenate(ends) for ends in zip(*edges, strict=True))
    by_target = np.argsort(target, kind="stable")
    return source[by_target], target[by_target]


def _starts_s(graph: TaskGraph, trace: Trace, iteration: int) -> np.ndarray:
    """Return (nodes,) the time at which each action started in an iteration of the trace; 0 if the trace lacks it."""
    rows = np.flatnonzero(trace.iteration == iteration)
    started = {
        (replica, trace.actions[action]): start_s
        for replica, action, start_s in zip(
            trace.replica[rows].tolist(), trace.action[rows].tolist(), trace.start_s[rows].tolist(), strict=True
        )
    }
    nodes = zip(graph.replica.tolist(), graph.action.tolist(), strict=True)
    return np.array([started.get((replica, graph.actions[action]), 0.0) for replica, action in nodes])


def _topological_order(graph: TaskGraph, edges: Edges) -> list[int] | None:
    """Return all nodes, each after its predecessors and each receive after its send; None if there is a cycle."""
    import networkx as nx  # takes a while to load

    received = np.flatnonzero(graph.role == RECEIVE)
    ordered: nx.DiGraph[int] = nx.DiGraph()
    ordered.add_nodes_from(range(len(graph)))
    for sources, targets in (edges, (graph.partner[received], received)):
        ordered.add_edges_from(zip(sources.tolist(), targets.tolist(), strict=True))
    try:
        return list(nx.topological_sort(ordered))
    except nx.NetworkXUnfeasible:
        return None
