"""What the coordinator simulates of a run because workers cannot know it while they compute: arrivals, or their order.

Where messages queue at the receiver's network card, the arrival of one depends on all others that are sent to it. On
the virtual clock all times follow from the CPU seconds of the computations. So the workers measure these, without
regard to links, and the coordinator simulates the iteration with them, event by event (``replay``).

Where the two directions between two devices take turns (transport ``blocking``), whether a message of the other end
comes first depends on what that end has yet to compute. So the order is fixed before the first iteration, as the
simulator has it with the profile of the run (``turns_of``). A prediction from that profile has the same order. Both
ends of a pair see all its messages, so no coordinator is asked in between.
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


Turns = list[list[int]]
"""Of one worker's program, pairs of positions: a send, and the receive of the message that goes before it."""


def turns_of(spec: RunSpec, profile: Iterable[ComputeTime]) -> dict[int, list[Turns]]:
    """By rank, the turns in an iteration that does not synchronise, and in one that does.

    A send that follows one of its own device's is left out, as it waits for that one's arrival in any case. Empty
    where messages take no turns, or the coordinator replays them.
    """
    turns: dict[int, list[Turns]] = {rank: [[], []] for rank in range(len(spec.workers))}
    if spec.plan.job.transport != "blocking" or spec.replays:
        return turns
    rows = tuple(profile)
    for synchronise in (False, True):
        tasks = PlacedTasks.of(spec.plan, spec.programs(synchronise=synchronise), rows)
        device, ahead = tasks.graph.device, tasks.simulate(spec.links).ahead
        first = np.searchsorted(device, np.arange(device.max() + 1))
        sends = np.flatnonzero(ahead >= 0)
        for send in sends[device[sends] == device[ahead[sends]]].tolist():
            rank = spec.rank(int(tasks.graph.position[send]), int(tasks.graph.replica[send]))
            turns[rank][synchronise].append([send - int(first[device[send]]), int(ahead[send] - first[device[send]])])
    return turns
