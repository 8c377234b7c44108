"""In how few segments can the stages go? What a budget for synchronisation means for the hops.

Take a budget, so that no group costs more, and a level: the hops of that level or more cut the stages into segments.
If m segments cannot be, then at least m hops cost the level or more. Within a segment all hops are below the level,
so each of its D pipelines stays in one component of the graph of the links below it, and every group of the segment
has as many members of that component as pipelines are in it. Hence, if there is a placement, the following hold
for its segments, and what makes any of them fail proves it impossible:

- All devices of a segment of l stages or more are able to serve in l stages (``budget``).
- The stages in segments of l or more take D able devices each.
- Counts: a segment of l stages with p pipelines in a component uses l p of its devices, all of them able. Without
  idle devices every component is used up exactly. A member of a component pays at least, for each of its
  partners in another (or its own), the q-th cheapest of the component for the q-th.
- Pieces of pipelines that cover a component of c devices number c less their links at least; those links
  make no device an end of more than two, so they are no more than a flow that grants every device two.

Counts are put to CP-SAT, one small question for each way to cut S stages into m segments. It is given a limit of
deterministic time; a question left open counts as "may be".
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from dtfm_lab.domain.units import IntArray
from dtfm_lab.planning.bounds.budget import UNITS, Budget, least_units
from dtfm_lab.planning.bounds.cluster_feasibility import crosses, most_flow
from dtfm_lab.planning.bounds.constraint_solver import cp_solver

Flags = npt.NDArray[np.bool_]

CUTS_UP_TO = 40
"""ways to cut the stages that are looked at one by one"""


def may_be(
    budget: Budget, below_s: float, n_segments: int, effort: float, labels: IntArray | None
) -> Generator[None, None, bool]:
    """Returns, after some short steps, whether so many segments with all hops below a level cannot be ruled out.

    Parameters
    ----------
    effort
        The solver's deterministic time for one question; with 0 it is not asked at all.
    labels
        (N,) clusters to count devices in where components alone rule nothing out (``crossing``), or None.
    """
    able = budget.able(below_s)
    yield
    cuts = []
    for lengths in ways_to_cut(budget.n_stages, n_segments):
        if all(
            length in able and sum(one for one in lengths if one >= length) * budget.n_replicas <= able[length].sum()
            for length in set(lengths)
        ):
            cuts.append(lengths)
        if cuts and (not effort or len(cuts) > CUTS_UP_TO):
            return True
    if not cuts:
        return False
    level = _Level.of(budget, below_s, able)
    for lengths in cuts:
        packs = _packs(budget, level, lengths, effort)
        yield
        if packs:
            return labels is None or crosses(budget, below_s, n_segments, labels, effort)
    return False


def ways_to_cut(n: int, parts: int, at_most: int | None = None) -> Iterator[tuple[int, ...]]:
    """All sums of so many whole numbers, falling."""
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
    """The components below a level and who in them is able."""

    able: dict[int, Flags]
    members: tuple[IntArray, ...]
    """able devices of each component"""
    pieces: tuple[int, ...]
    """of pipelines that cover each component, at least"""

    @classmethod
    def of(cls, budget: Budget, below_s: float, able: dict[int, Flags]) -> _Level:
        devices = np.flatnonzero(able[1])
        near = budget.pair.hop_s[np.ix_(devices, devices)] < below_s
        np.fill_diagonal(near, False)
        n, labels = connected_components(csr_array(near), directed=False)
        places = [np.flatnonzero(labels == c) for c in range(n)]
        pieces = tuple(max(1, len(at) - _most_links(near[np.ix_(at, at)])) for at in places)
        return cls(able, tuple(devices[at] for at in places), pieces)


def _most_links(near: Flags) -> int:
    """No more links can be chosen with two at each device at most."""
    return len(near) - 1 if len(near) < 3 else most_flow(near, 2) // 2


def _packs(budget: Budget, level: _Level, lengths: tuple[int, ...], effort: float) -> bool:
    """False where segments of these lengths cannot be."""
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    n_replicas, components = budget.n_replicas, range(len(level.members))
    sizes = {length: [int(level.able[length][of].sum()) for of in level.members] for length in {1, *lengths}}
    tables = {
        length: least_units(budget, [of[level.able[length][of]] for of in level.members]) for length in set(lengths)
    }
    pipelines: list[list[list[Any]]] = []
    """for each segment and component: one switch for its first pipeline, one for its second, ..."""
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
        model.add(used == sizes[1][c] if budget.everyone else used <= sizes[1][c])
        if budget.everyone:
            model.add(sum(sum(rows[c]) for rows in pipelines) >= level.pieces[c])
        for longer in set(lengths) - {1}:
            part = zip(lengths, pipelines, strict=True)
            model.add(sum(length * sum(rows[c]) for length, rows in part if length >= longer) <= sizes[longer][c])
    for i in range(len(lengths) - 1):  # segments of one length have no order
        if lengths[i] == lengths[i + 1]:
            one, other = (sum((c + 1) * sum(rows[c]) for c in components) for rows in pipelines[i : i + 2])
            model.add(one <= other)
    solver = cp_solver(effort)
    return bool(solver.solve(model) != cp_model.INFEASIBLE)
