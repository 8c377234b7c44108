"""Relaxation: whether m segments are feasible, given clusters of devices with few links between them.

A component of the links below a level may be two clusters joined by a few links: one pipeline can cross there, D at
once cannot. So the devices are put into clusters, none of them in two components, and counted stage by stage. Every
placement whose groups keep to the budget and of whose hops fewer than m cost the level or more satisfies:

- every stage has D devices, and a member of a cluster pays at least the q-th cheapest of a cluster for its q-th partner
  there;
- in a hop below the level each device of one stage is paired with a device of the next over a link below the level.
  The pairs from one cluster to another share no device: they are at most the largest matching between the two
  clusters, or half the largest flow within one;
- over all hops together a device is in at most two pairs: they are at most the largest flow with capacity two at
  every device.

A violation proves that m segments are infeasible.
"""

from typing import Any

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, maximum_flow
from scipy.spatial.distance import squareform

from dtfm_lab.domain.units import IntArray
from dtfm_lab.planning.bounds.budget import UNITS, Budget, Flags, least_units
from dtfm_lab.planning.bounds.constraint_solver import cp_solver
from dtfm_lab.planning.cost import PairCosts


def clusters(pair: PairCosts, at_most: int) -> IntArray:
    """(N,) cluster of each device, by the relative costs of hops and partners."""
    near = pair.hop_s / max(pair.hop_s.mean(), 1e-300) + pair.group_s / max(pair.group_s.mean(), 1e-300)
    tree = linkage(squareform(near, checks=False), "average")
    labels: IntArray = fcluster(tree, at_most, "maxclust").astype(np.int64)
    return labels


def clusters_feasible(budget: Budget, below_s: float, n_segments: int, labels: IntArray, effort: float) -> bool:
    """False where ``n_segments`` with all hops below a level are proved infeasible.

    Parameters
    ----------
    labels
        (N,) clusters to count devices in.
    effort
        Deterministic time of the solver.
    """
    from ortools.sat.python import cp_model

    eligible = budget.feasible[0]
    devices = np.flatnonzero(eligible)
    near = (budget.pair.hop_s < below_s)[np.ix_(devices, devices)]
    np.fill_diagonal(near, False)
    _, component = connected_components(csr_array(near), directed=False)
    _, part = np.unique(np.stack([component, labels[devices]]), axis=1, return_inverse=True)
    part = part.ravel()
    places = [np.flatnonzero(part == c) for c in range(part.max() + 1)]
    members = [devices[at] for at in places]
    tables = least_units(budget, members)
    model = cp_model.CpModel()
    n_replicas, stages, parts = budget.n_replicas, range(budget.n_stages), range(len(members))
    switches = [[[model.new_bool_var("") for _ in range(min(n_replicas, len(of)))] for of in members] for _ in stages]
    counts = [[sum(row) for row in rows] for rows in switches]
    for s in stages:
        model.add(sum(counts[s]) == n_replicas)
        for c in parts:
            for first, then in zip(switches[s][c], switches[s][c][1:], strict=False):
                model.add_implication(then, first)
            pays = sum(tables[c][d][q] * switch for d in parts for q, switch in enumerate(switches[s][d]))
            model.add(pays <= UNITS).only_enforce_if(switches[s][c][0])
    for c in parts:
        used = sum(counts[s][c] for s in stages)
        model.add(used == len(members[c]) if budget.uses_all_devices else used <= len(members[c]))
    cut = [model.new_bool_var("") for _ in stages[:-1]]
    model.add(sum(cut) < n_segments)
    links = {(c, d): near[np.ix_(places[c], places[d])] for c in parts for d in parts}
    once = {key: _most_links(link, 1, key[0] == key[1]) for key, link in links.items() if link.any()}
    through: dict[tuple[int, int], list[Any]] = {}
    for s in stages[:-1]:
        flow = {key: model.new_int_var(0, min(most, n_replicas), "") for key, most in once.items() if most}
        for (c, d), carried in flow.items():
            model.add(carried == 0).only_enforce_if(cut[s])
            through.setdefault((min(c, d), max(c, d)), []).append(carried)
        for c in parts:
            out, into = (sum(flow[key] for key in flow if key[side] == c) for side in (0, 1))
            model.add(out == counts[s][c]).only_enforce_if(~cut[s])
            model.add(into == counts[s + 1][c]).only_enforce_if(~cut[s])
    for (c, d), carried_in_all in through.items():
        model.add(sum(carried_in_all) <= _most_links(links[c, d], 2, c == d))
    # A placement and its reverse cost the same: keep one of the two.
    first_stage, last_stage = (sum((c + 1) * counts[s][c] for c in parts) for s in (0, -1))
    model.add(first_stage <= last_stage)
    solver = cp_solver(effort)
    return bool(solver.solve(model) != cp_model.INFEASIBLE)


def _most_links(near: Flags, each: int, within: bool) -> int:
    """Most links that can be chosen with at most ``each`` at a device; within a cluster a link counts both ways."""
    flow = most_flow(near, each)
    return flow // 2 if within else flow


def most_flow(near: Flags, each: int) -> int:
    """The largest flow over (A, B) links of capacity 1 when every device sends or receives at most ``each``."""
    a, b = near.shape
    capacity = np.zeros((a + b + 2, a + b + 2), dtype=np.int32)
    capacity[:a, a : a + b] = near
    capacity[a + b, :a] = capacity[a : a + b, a + b + 1] = each
    return int(maximum_flow(csr_array(capacity), a + b, a + b + 1).flow_value)
