"""Replay of an iteration of the virtual clock, on links whose order of messages is unknown while workers compute.

Where messages queue at the receiver's network card, the arrival of one depends on all others that are sent to it. On
the virtual clock all times follow from the CPU seconds of the computations. So the workers measure these, without
regard to links, and the coordinator simulates the iteration with them, event by event.
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from dtfm_lab.domain.schedule import Action
from dtfm_lab.domain.schedule.task_graph import COMPUTATION, task_graph
from dtfm_lab.domain.trace import ComputeTime
from dtfm_lab.runtime.protocol.run_spec import RunSpec
from dtfm_lab.simulation.engine import PlacedTasks

Row = list[Any]
"""A row of a spans event: iteration, replica, [stage, kind, microbatch, peer], start_s, end_s."""


def replay(spec: RunSpec, iteration: int, rows: Iterable[Row]) -> list[Row]:
    """Return the spans of a whole iteration on the links of the run, given those that all workers reported.

    Of ``rows`` only the durations of computations count; their times, and all messages, are simulated anew.
    """
    tasks = _placed_tasks(spec, spec.synchronises(iteration))
    graph = tasks.graph
    took_s = {(replica, Action(*action)): end_s - start_s for _, replica, action, start_s, end_s in rows}
    compute_s = np.zeros(len(graph))
    for node in np.flatnonzero(graph.role == COMPUTATION).tolist():
        compute_s[node] = took_s[int(graph.replica[node]), graph.actions[graph.action[node]]]
    simulated = replace(tasks, compute_s=compute_s).simulate(spec.links)
    columns = (graph.replica, graph.action, simulated.start_s, simulated.end_s)
    return [
        [iteration, replica, list(graph.actions[action]), start_s, end_s]
        for replica, action, start_s, end_s in zip(*(column.tolist() for column in columns), strict=True)
    ]


@lru_cache(maxsize=2)
def _placed_tasks(spec: RunSpec, synchronises: bool) -> PlacedTasks:
    programs = spec.programs(synchronise=synchronises)
    return PlacedTasks.of(spec.plan, programs, [ComputeTime(*work, 0.0) for work in task_graph(programs).computations])
