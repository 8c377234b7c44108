"""Which actions wait for each other, where a schedule cannot finish."""

from __future__ import annotations

import networkx as nx
import numpy as np

from dtfm_lab.domain.schedule import PASSES
from dtfm_lab.domain.schedule.task_graph import SEND, TaskGraph
from dtfm_lab.domain.units import IntArray

SHOWN = 12
"""Most passes that the message names."""


def describe_deadlock(graph: TaskGraph, done: IntArray) -> str:
    """One line that names the passes of one circle of waiting, each followed by what it waits for.

    ``done`` lists the nodes that could run.
    """
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
