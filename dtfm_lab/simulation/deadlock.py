"""Who waits for whom, where a schedule cannot go on."""

from __future__ import annotations

import networkx as nx
import numpy as np

from dtfm_lab.domain.schedule import PASSES
from dtfm_lab.domain.units import IntArray
from dtfm_lab.simulation.kernels.events import SEND
from dtfm_lab.simulation.structure import Structure

SHOWN = 12


def waiting_in_a_circle(whole: Structure, played: IntArray) -> str:
    """One line that names the passes of one circle of waiting, each followed by what it waits for."""
    left = np.ones(len(whole), dtype=bool)
    left[played] = False
    source = np.repeat(np.arange(len(whole)), np.diff(whole.next_from))
    sends = np.flatnonzero(whole.role == SEND)
    source, target = np.concatenate([source, sends]), np.concatenate([whole.next_node, whole.partner[sends]])
    both = left[source] & left[target]
    graph = nx.DiGraph(zip(target[both].tolist(), source[both].tolist(), strict=True))
    circle = [whole.actions[whole.action[waiting]] for waiting, _ in nx.find_cycle(graph)]
    passes = [str(action) for action in circle if action.kind in PASSES] or [str(action) for action in circle]
    more = f" and {len(passes) - SHOWN} more" if len(passes) > SHOWN else ""
    chain = " waits for ".join([*passes[:SHOWN], *([] if more else passes[:1])])
    return f"schedule {whole.programs.schedule.name} cannot finish: {chain}{more}, in a circle"
