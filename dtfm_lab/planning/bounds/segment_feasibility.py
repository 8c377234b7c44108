"""Relaxation: whether S stages can be cut into m segments when no group costs more than a budget.

Given a budget and a level, the hops of that level or more cut the stages into segments. If m segments are
infeasible, then at least m hops cost the level or more. Within a segment all hops are below the level, so each of its
D pipelines stays in one component of the graph of the links below it, and every group of the segment has as many
members of that component as pipelines are in it. Hence the segments of every placement satisfy the following, and a
violation proves that there is none:

- All devices of a segment of l stages or more are eligible for l stages (``budget``).
- The stages in segments of l or more have D eligible devices each.
- Counts: a segment of l stages with p pipelines in a component uses l p of its devices, all of them eligible. Without
  idle devices every component is used up exactly. For its q-th partner in a component (another or its own), a
  device pays at least the q-th cheapest there.
- A component of c devices is covered by at least c pieces of pipelines less their links; as no device is an end of
  more than two of these links, their number is at most a flow in which every device has capacity two.

The counts are a small CP-SAT model for each way to cut S stages into m segments. The solver has a limit of
deterministic time; a model that it leaves open counts as feasible.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from dtfm_lab.domain.units import IntArray
from dtfm_lab.planning.bounds.budget import UNITS, Budget, Flags, least_units
from dtfm_lab.planning.bounds.cluster_feasibility import clusters_feasible, most_flow
from dtfm_lab.planning.bounds.constraint_solver import cp_solver

CUTS_UP_TO = 40
"""Most ways to cut the stages that are tried one by one; with more, the segments count as feasible."""


def segments_feasible(
    budget: Budget, below_s: float, n_segments: int, effort: float, labels: IntArray | None
) -> Generator[None, None, bool]:
    """Whether so many segments with all hops below a level cannot be excluded; returned after some short steps.

    Parameters
    ----------
    effort
        Deterministic time of the solver for one model; with 0 it is not used.
    labels
        (N,) clusters to count devices in where components alone exclude nothing (``cluster_feasibility``), or None.
    """
    eligible = budget.eligible(below_s)
    yield
    cuts = []
    for lengths in ways_to_cut(budget.n_stages, n_segments):
        if all(
            length in eligible
            and sum(one for one in lengths if one >= length) * budget.n_replicas <= eligible[length].sum()
            for length in set(lengths)
        ):
            cuts.append(lengths)
        if cuts and (not effort or len(cuts) > CUTS_UP_TO):
            return True
    if not cuts:
        return False
    level = _Level.of(budget, below_s, eligible)
    for lengths in cuts:
        feasible = _cut_feasible(budget, level, lengths, effort)
        yield
        if feasible:
            return labels is None or clusters_feasible(budget, below_s, n_segments, labels, effort)
    return False


def ways_to_cut(n: int, parts: int, at_most: int | None = None) -> Iterator[tuple[int, ...]]:
    """All ways to write n as a sum of so many whole numbers, in descending order."""
    at_most = n if at_most is None else at_most
    if parts == 1:
        if n <= at_most:
            yield (n,)
        return
    for first in range(min(at_most, n - parts + 1), (n - 1) // parts, -1):
        for rest in ways_to_cut(n - first, parts - 1, first):
            yield (first, *rest)


@dataclass(frozen=True, eq=False)
class _Level:
    """The components of the links below a level and their eligible devices."""

    eligible: dict[int, Flags]
    members: tuple[IntArray, ...]
    """Eligible devices of each component."""
    pieces: tuple[int, ...]
    """Least number of pieces of pipelines that cover each component."""

    @classmethod
    def of(cls, budget: Budget, below_s: float, eligible: dict[int, Flags]) -> _Level:
        devices = np.flatnonzero(eligible[1])
        near = budget.pair.hop_s[np.ix_(devices, devices)] < below_s
        np.fill_diagonal(near, False)
        n, labels = connected_components(csr_array(near), directed=False)
        places = [np.flatnonzero(labels == c) for c in range(n)]
        pieces = tuple(max(1, len(at) - _most_links(near[np.ix_(at, at)])) for at in places)
        return cls(eligible, tuple(devices[at] for at in places), pieces)


def _most_links(near: Flags) -> int:
    """Upper bound on the number of links that can be chosen with at most two at each device."""
    return len(near) - 1 if len(near) < 3 else most_flow(near, 2) // 2


def _cut_feasible(budget: Budget, level: _Level, lengths: tuple[int, ...], effort: float) -> bool:
    """False where segments of these lengths are proved infeasible."""
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    n_replicas, components = budget.n_replicas, range(len(level.members))
    sizes = {length: [int(level.eligible[length][of].sum()) for of in level.members] for length in {1, *lengths}}
    tables = {
        length: least_units(budget, [of[level.eligible[length][of]] for of in level.members]) for length in set(lengths)
    }
    pipelines: list[list[list[Any]]] = []
    """For each segment and component, one switch for its first pipeline, one for its second, ..."""
    for length in lengths:
        most = [min(n_replicas, size // length) for size in sizes[length]]
        switches = [[model.new_bool_var("") for _ in range(k)] for k in most]
        for row in switches:
            for first, then in pairwise(row):
                model.add_implication(then, first)
        model.add(sum(switch for row in switches for switch in row) == n_replicas)
        for c in components:
            if switches[c]:
                pays = sum(tables[length][c][d][q] * switch for d in components for q, switch in enumerate(switches[d]))
                model.add(pays <= UNITS).only_enforce_if(switches[c][0])
        pipelines.append(switches)
    for c in components:
        used = sum(length * sum(rows[c]) for length, rows in zip(lengths, pipelines, strict=True))
        model.add(used == sizes[1][c] if budget.uses_all_devices else used <= sizes[1][c])
        if budget.uses_all_devices:
            model.add(sum(sum(rows[c]) for rows in pipelines) >= level.pieces[c])
        for longer in set(lengths) - {1}:
            part = zip(lengths, pipelines, strict=True)
            model.add(sum(length * sum(rows[c]) for length, rows in part if length >= longer) <= sizes[longer][c])
    for i in range(len(lengths) - 1):  # segments of equal length have no order
        if lengths[i] == lengths[i + 1]:
            one, other = (sum((c + 1) * sum(rows[c]) for c in components) for rows in pipelines[i : i + 2])
            model.add(one <= other)
    solver = cp_solver(effort)
    return bool(solver.solve(model) != cp_model.INFEASIBLE)
