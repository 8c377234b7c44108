"""Find the action that each action of a measured trace waited for, from the simulator's task graph and the measured
times."""

from dataclasses import replace

import numpy as np

from dtfm_lab.domain.errors import TraceError
from dtfm_lab.domain.network import nics_of, queues_of
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Schedule
from dtfm_lab.domain.schedule.task_graph import SEND, TaskGraph, chained, task_graph
from dtfm_lab.domain.trace import Trace
from dtfm_lab.domain.units import IntArray, counted
from dtfm_lab.simulation.engine import programs_of


def with_predecessors(trace: Trace, plan: Plan, schedule: Schedule) -> Trace:
    """Return the trace with its column ``after`` filled. It has the index of the row that each row waited for last; -1
    for none.

    A row has to wait for the actions whose results it needs. It also has to wait for the computation before it on its
    device, and for the message before it on its link or NIC. If both directions of a pair take turns, it waits until
    the pair's previous message has arrived. Of these rows, ``after`` names the one that ended last. Rows that ended
    later than the row itself do not count. Raises TraceError if the trace holds other actions than the schedule.
    """
    every = plan.job.averages_every
    after = np.full(len(trace), -1, dtype=np.int64)
    by_iteration = np.argsort(trace.iteration, kind="stable")
    iterations, firsts = np.unique(trace.iteration[by_iteration], return_index=True)
    graphs: dict[bool, TaskGraph] = {}
    for iteration, rows in zip(iterations.tolist(), np.split(by_iteration, firsts[1:]), strict=True):
        synchronise = (iteration + 1) % every == 0
        if synchronise not in graphs:
            graphs[synchronise] = task_graph(programs_of(plan, schedule, synchronise=synchronise))
        graph = graphs[synchronise]
        source, target = _dependencies(graph, trace, _row_of(graph, trace, rows))
        in_time = trace.end_s[source] <= trace.end_s[target]
        source, target = source[in_time], target[in_time]
        by_end = np.lexsort((trace.end_s[source], target))
        after[target[by_end]] = source[by_end]  # the source that ended last is written last, and so wins
    return replace(trace, after=after)


def _row_of(graph: TaskGraph, trace: Trace, rows: IntArray) -> IntArray:
    """Return (nodes,) index of each node's row in the trace. ``rows`` are the rows of one iteration."""
    known = {action: i for i, action in enumerate(trace.actions)}
    missing = [str(action) for action in graph.actions if action not in known]
    if missing or len(rows) != len(graph):
        what = f"no {missing[0]}" if missing else counted(len(rows), "row")
        raise TraceError(
            f"an iteration of the trace holds {what}; wanted the {counted(len(graph), 'action')} of its schedule"
        )
    key = trace.replica[rows] * len(known) + trace.action[rows]
    by_key = np.argsort(key)
    wanted = graph.replica * len(known) + np.array([known[action] for action in graph.actions])[graph.action]
    at = by_key[np.searchsorted(key[by_key], wanted) % len(rows)]
    if (stray := np.flatnonzero(key[at] != wanted)).size:
        action, replica = graph.actions[graph.action[stray[0]]], graph.replica[stray[0]]
        raise TraceError(
            f"an iteration of the trace holds no {action} of pipeline {replica}; wanted all of its schedule"
        )
    return np.asarray(rows[at])


def _dependencies(graph: TaskGraph, trace: Trace, row_of: IntArray) -> tuple[IntArray, IntArray]:
    """Return (source row, target row) of every dependency."""
    sends = np.flatnonzero(graph.role == SEND)
    receives, device, start_s = graph.partner[sends], graph.device, trace.start_s[row_of]
    n_devices, ends = int(device.max()) + 1, np.array([device[sends], device[receives]])
    by_time = np.argsort(start_s[sends], kind="stable")
    turns = by_time[graph.takes_turns[sends[by_time]]]
    low, high = np.sort(ends, axis=0)
    ahead, following = chained(sends[turns], (low * n_devices + high)[turns])
    # later edges win ties: a message's producer rather than the message before it
    before = chained(sends[by_time], (ends[0] * n_devices + ends[1])[by_time])
    edges = [before, (graph.partner[ahead], following), (sends, receives), (graph.sources, graph.successors)]
    if trace.context.has_nics:  # messages that used one NIC waited for each other, also of different pairs
        nic_of = nics_of([nic for nics in trace.context.nics for nic in nics])
        queues = queues_of(ends[0], ends[1], n_devices, trace.context.queueing, nic_of)
        for nodes, nic in zip((sends, receives), queues, strict=True):
            on_nic = np.flatnonzero((nic >= 0) & (nic < 2 * n_devices))
            in_turn = on_nic[np.argsort(start_s[nodes[on_nic]], kind="stable")]
            edges.insert(0, chained(nodes[in_turn], nic[in_turn]))
    if len(beside := graph.beside):  # the graph does not order these: they took turns as they became ready
        in_turns = beside[np.lexsort((trace.end_s[row_of[beside]], start_s[beside]))]
        edges.insert(0, chained(in_turns, device[in_turns]))
    source, target = (row_of[np.concatenate(nodes)] for nodes in zip(*edges, strict=True))
    return source, target
