"""Adapts a plan to a changed network or job, as the start of a new search."""

import numpy as np

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.planning.cost import PairCosts, pair_costs
from dtfm_lab.planning.evaluate import evaluate
from dtfm_lab.planning.search import require_fit


def adapt_plan(plan: Plan, topology: Topology, job: Job) -> Plan:
    """The placement of ``plan`` on another network, for another job; devices are found by name.

    In the same shape every device that still exists keeps its place, and a vacant place goes to the free device
    that is nearest to its group and to its neighbours in the pipeline. In another shape the devices are listed
    stage by stage, then those without a place, and the list is cut into the new stages.

    Raises
    ------
    PlanError
        The job needs more devices than there are.
    """
    require_fit(topology, job)
    existing = set(topology.names)
    placed = [[name if name in existing else None for name in group] for group in plan.stages]
    taken = {name for group in placed for name in group if name is not None}
    free = [name for name in topology.names if name not in taken]
    if (len(placed), len(placed[0])) == (job.n_stages, job.n_replicas):
        return evaluate(topology, job, stages=_filled(placed, free, topology, pair_costs(topology, job)))
    row = [name for group in placed for name in group if name is not None] + free
    width = job.n_replicas
    return evaluate(topology, job, stages=[row[stage * width : (stage + 1) * width] for stage in range(job.n_stages)])


def _filled(placed: list[list[str | None]], free: list[str], topology: Topology, pair: PairCosts) -> list[list[int]]:
    """Device indices by stage; vacant places are filled in the order of the stages, by the nearest free device."""
    grid = [[None if name is None else topology.index(name) for name in group] for group in placed]
    left = [topology.index(name) for name in free]
    for stage, group in enumerate(grid):
        for replica, device in enumerate(group):
            if device is not None:
                continue
            partners = [one for one in group if one is not None]
            ends = [grid[s][replica] for s in (stage - 1, stage + 1) if 0 <= s < len(grid)]
            neighbours = [one for one in ends if one is not None]
            cost_s = pair.group_s[np.ix_(left, partners)].sum(axis=1)
            cost_s = cost_s + pair.hop_s[np.ix_(left, neighbours)].sum(axis=1)
            group[replica] = left.pop(int(cost_s.argmin()))
    return [[device for device in group if device is not None] for group in grid]
