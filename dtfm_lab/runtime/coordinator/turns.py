"""The order of messages where the two directions between two devices take turns (transport ``blocking``).

Workers cannot find it while they compute: whether a message of the other end comes first depends on what that end has
yet to compute. So it is fixed before the first iteration, as the simulator has it with the profile of the run. A
prediction from that profile has the same order. Both ends of a pair see all its messages, so no coordinator is asked
in between.
"""

from collections.abc import Iterable

import numpy as np

from dtfm_lab.domain.trace import ComputeTime
from dtfm_lab.runtime.protocol.run_spec import RunSpec
from dtfm_lab.simulation.engine import PlacedTasks

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
