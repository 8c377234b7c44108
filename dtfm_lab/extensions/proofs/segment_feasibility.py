"""Relaxation: can S stages be divided into m segments if no group costs more than a budget?

Given a budget and a level, the hops that cost the level or more divide the stages into segments. If m segments are
infeasible, then at least m hops cost the level or more. Within a segment all hops are below the level. So each of its D
pipelines stays in one component of the graph of links below the level. If p pipelines are in a component, every group
of the segment has p members in it. Hence the segments of every placement satisfy the following conditions, and a
violation proves that no placement exists:

- All devices of a segment of l stages or more are eligible for l stages (see below, and ``GroupBudget``).
- In segments of l stages or more, each stage has D eligible devices.

- Counts: a segment of l stages with p pipelines in a component uses l p of its devices, all of them eligible. Without
  idle devices every component is used up exactly. For its q-th partner in a component (another or its own), a
  device pays at least the q-th cheapest there.
- A component of c devices is covered by at least c minus L pieces of pipelines, where L is the number of their links.
  No device is an end of more than two of these links, so L is at most a flow in which every device has capacity two.

A device needs D - 1 partners within the budget. Two devices can be partners only if both stay within it with each other
and D - 2 more devices that can be partners of both. Hops below a level restrict devices further. In a segment of l
stages or more, each member of a group has its own l devices within l - 1 hops. So a device and its nearest partners in
its group are at most an l-th part of all devices within that distance of any of them. A device that exceeds the budget
under this cap is not eligible for l stages, and a segment of l stages has eligible devices only.

The counts are a small CP-SAT model for each way to divide S stages into m segments. The solver has a limit of
deterministic time. A model that it leaves open counts as feasible.

A component may consist of two clusters joined by a few links: one pipeline can cross there, D at once cannot. A second
model (``clusters_feasible``) counts the devices of each cluster, stage by stage. A cluster with devices in two
components counts as two:

- Every stage has D devices, and a member of a cluster pays at least the q-th cheapest of a cluster for its q-th partner
  there.
- In a hop below the level each device of one stage is paired with a device of the next over a link below the level.
  The pairs from one cluster to another share no device: they are at most the largest matching between the two
  clusters, or half the largest flow within one.
- Over all hops together a device is in at most two pairs: they are at most the largest flow with capacity two at
  every device.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import scipy

from dtfm_lab.domain.units import BoolArray, IntArray
from dtfm_lab.extensions.proofs.optima import cp_solver, solver_library
from dtfm_lab.planning.cost import PairCosts

UNITS = 1_000_000
"""Number of units in a budget. Costs are rounded down to whole units, so that every proof of infeasibility stays
valid."""
ROUNDING = 1 + 1e-12
"""A budget is multiplied by this, so that rounding errors of sums exclude nothing."""


@dataclass(frozen=True, eq=False)
class GroupBudget:
    """The maximum seconds in which each group may synchronise, and the devices and pairs that this allows."""

    pair: PairCosts
    n_stages: int
    n_replicas: int
    budget_s: float
    nearest: IntArray
    """(N, N - 1) all other devices, cheapest partner first."""

    @cached_property
    def feasible(self) -> tuple[BoolArray, BoolArray]:
        """(N,) False for devices that cannot be in any group within the budget, and (N, N) False for pairs that cannot
        share one. True is not a proof."""
        from dtfm_lab.extensions.proofs.kernels.eligibility import clear_unaffordable

        n = len(self.nearest)
        eligible, allowed = np.ones(n, dtype=np.bool_), np.ones((n, n), dtype=np.bool_)
        # A little more than the budget, so that rounding excludes nothing that is possible.
        limit_s = self.budget_s * ROUNDING
        clear_unaffordable(self.pair.group_s, self.nearest, limit_s, self.n_replicas, eligible, allowed)
        return eligible, allowed

    @cached_property
    def units(self) -> IntArray:
        """(N, N) cost of a partner in units of the budget. A pair that cannot share a group costs more than the
        budget."""
        scaled = np.floor(np.minimum(self.pair.group_s / max(self.budget_s * ROUNDING, 1e-300), 2.0) * UNITS)
        units: IntArray = np.where(self.feasible[1], scaled, 2.0 * UNITS).astype(np.int64)
        np.fill_diagonal(units, 0)
        return units

    @property
    def uses_all_devices(self) -> bool:
        """True if no device stays idle."""
        return len(self.nearest) == self.n_stages * self.n_replicas

    @property
    def possible(self) -> bool:
        """True if enough devices can be in some group."""
        return bool(self.feasible[0].sum() >= self.n_stages * self.n_replicas)

    def eligible(self, below_s: float) -> dict[int, BoolArray]:
        """Return, by segment length, (N,) True for devices that can be in a segment of at least that length.

        In the segment all hops cost less than ``below_s``. Lengths above 1 without enough such devices are left out.
        """
        from dtfm_lab.extensions.proofs.kernels.eligibility import clear_ineligible

        eligible, allowed = self.feasible
        by_length = {1: eligible}
        for length in range(2, self.n_stages + 1):
            # A longer segment is a harder demand, so only those eligible for a shorter one are checked.
            eligible = eligible.copy()
            limit_s = self.budget_s * ROUNDING
            group_s, hop_s = self.pair.group_s, self.pair.hop_s
            clear_ineligible(group_s, self.nearest, hop_s, below_s, length, limit_s, self.n_replicas, allowed, eligible)
            # Too few for one such segment, hence for longer ones.
            if eligible.sum() < length * self.n_replicas:
                break
            by_length[length] = eligible
        return by_length


def least_units(budget: GroupBudget, members: Sequence[IntArray]) -> list[list[list[int]]]:
    """Return [c][d][q]: minimum units that a device of set c pays for its q-th partner in set d.

    In its own set, the device itself counts as the first partner, and costs nothing.
    """
    units, most = budget.units, budget.n_replicas

    def table(of: IntArray, to: IntArray) -> list[int]:
        if not len(of) or not len(to):
            return []
        cheapest: list[int] = np.sort(units[np.ix_(of, to)], axis=1).min(axis=0)[:most].tolist()
        return cheapest

    return [[table(of, to) for to in members] for of in members]


CUTS_UP_TO = 40
"""Maximum number of ways to divide the stages into segments that are checked one by one. With more, the segments count
as feasible."""


def segments_feasible(
    budget: GroupBudget, below_s: float, n_segments: int, effort: float, labels: IntArray | None
) -> Generator[None, None, bool]:
    """Return False if it is proved that ``n_segments`` segments, with all hops below ``below_s``, are not possible.

    Yields after each short step.

    Parameters
    ----------
    effort
        Deterministic time of the solver for one model, about seconds. 0 skips the solver.
    labels
        (N,) number of each device's cluster, for a second check by cluster (``clusters_feasible``). None skips it.
    """
    eligible = budget.eligible(below_s)
    yield
    cuts = []
    for lengths in ways_to_cut(budget.n_stages, n_segments):
        # The segments of at least this length together need enough devices that can be in them.
        if all(
            length in eligible
            and sum(one for one in lengths if one >= length) * budget.n_replicas <= eligible[length].sum()
            for length in set(lengths)
        ):
            cuts.append(lengths)
        # Too many cuts to check each: not proved infeasible.
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
    """Yield all ways to write n as a sum of ``parts`` whole numbers from 1 to ``at_most``, each with the largest number
    first. None allows any number."""
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
    """The links that cost less than a level form a graph. These are its components and their eligible devices."""

    eligible: dict[int, BoolArray]
    members: tuple[IntArray, ...]
    """Eligible devices of each component."""
    pieces: tuple[int, ...]
    """For each component, a lower bound on the number of paths that cover all its devices. A path is a piece of a
    pipeline."""

    @classmethod
    def of(cls, budget: GroupBudget, below_s: float, eligible: dict[int, BoolArray]) -> _Level:
        devices = np.flatnonzero(eligible[1])
        near, component = _components(budget.pair, devices, below_s)
        places = [np.flatnonzero(component == c) for c in range(component.max() + 1)]
        # A path has one link fewer than devices, so the devices less the most links are the fewest pieces.
        pieces = tuple(max(1, len(at) - _most_links(near[np.ix_(at, at)], 2, within=True)) for at in places)
        return cls(eligible, tuple(devices[at] for at in places), pieces)


def _cut_feasible(budget: GroupBudget, level: _Level, lengths: tuple[int, ...], effort: float) -> bool:
    """Return False if it is proved that no segments of these lengths exist."""
    cp_model = solver_library()

    model = cp_model.CpModel()
    n_replicas, components = budget.n_replicas, range(len(level.members))
    eligible = level.eligible
    sizes = {n: [int(eligible[n][of].sum()) for of in level.members] for n in {1, *lengths}}
    tables = {n: least_units(budget, [of[eligible[n][of]] for of in level.members]) for n in set(lengths)}
    pipelines: list[list[list[Any]]] = []
    """For each segment and component, one boolean variable per pipeline that the component may hold there."""
    for length in lengths:
        most = [min(n_replicas, size // length) for size in sizes[length]]
        switches = [[model.new_bool_var("") for _ in range(k)] for k in most]
        for row in switches:
            for first, then in pairwise(row):
                # Pipeline q may be on only if pipelines 0 to q - 1 are, so that each switch can add the next term of a
                # sum.
                model.add_implication(then, first)
        model.add(sum(switch for row in switches for switch in row) == n_replicas)
        for c in components:
            if switches[c]:
                pays = sum(tables[length][c][d][q] * switch for d in components for q, switch in enumerate(switches[d]))
                # The first switch is on if the component has a device in the group.
                model.add(pays <= UNITS).only_enforce_if(switches[c][0])
        pipelines.append(switches)
    for c in components:
        used = sum(length * sum(rows[c]) for length, rows in zip(lengths, pipelines, strict=True))
        model.add(used == sizes[1][c] if budget.uses_all_devices else used <= sizes[1][c])
        # With every device in use, the paths must cover each component.
        if budget.uses_all_devices:
            model.add(sum(sum(rows[c]) for rows in pipelines) >= level.pieces[c])
        for longer in set(lengths) - {1}:
            part = zip(lengths, pipelines, strict=True)
            model.add(sum(length * sum(rows[c]) for length, rows in part if length >= longer) <= sizes[longer][c])
    for i in range(len(lengths) - 1):  # segments of equal length have no order
        if lengths[i] == lengths[i + 1]:
            one, other = (sum((c + 1) * sum(rows[c]) for c in components) for rows in pipelines[i : i + 2])
            model.add(one <= other)
    return bool(cp_solver(effort).solve(model) != cp_model.INFEASIBLE)


def clusters(pair: PairCosts, at_most: int) -> IntArray:
    """Return (N,) the number of each device's cluster, for at most ``at_most`` clusters.

    Devices are close if hops and averaging between them are cheap, relative to the means.
    """
    near = pair.hop_s / max(pair.hop_s.mean(), 1e-300) + pair.group_s / max(pair.group_s.mean(), 1e-300)
    tree = scipy.cluster.hierarchy.linkage(scipy.spatial.distance.squareform(near, checks=False), "average")
    return np.asarray(scipy.cluster.hierarchy.fcluster(tree, at_most, "maxclust").astype(np.int64))


def clusters_feasible(budget: GroupBudget, below_s: float, n_segments: int, labels: IntArray, effort: float) -> bool:
    """Return False if it is proved that ``n_segments`` segments, with all hops below ``below_s``, are not possible.

    Parameters
    ----------
    labels
        (N,) number of each device's cluster. The devices of a cluster are counted together.
    effort
        Deterministic time of the solver, about seconds.

    """
    cp_model = solver_library()

    devices = np.flatnonzero(budget.feasible[0])
    near, component = _components(budget.pair, devices, below_s)
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
    # In one hop, a device passes on to one device only.
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
        # Over all hops a device has at most two links: one in and one out.
        model.add(sum(carried_in_all) <= _most_links(links[c, d], 2, c == d))
    # A placement and its reverse cost the same: keep one of the two.
    first_stage, last_stage = (sum((c + 1) * counts[s][c] for c in parts) for s in (0, -1))
    model.add(first_stage <= last_stage)
    return bool(cp_solver(effort).solve(model) != cp_model.INFEASIBLE)


def _components(pair: PairCosts, devices: IntArray, below_s: float) -> tuple[BoolArray, IntArray]:
    """Return (A, A) True for links between these devices that cost less than ``below_s``, and the (A,) component of
    each device."""
    near = pair.hop_s[np.ix_(devices, devices)] < below_s
    np.fill_diagonal(near, False)
    _, component = scipy.sparse.csgraph.connected_components(scipy.sparse.csr_array(near), directed=False)
    return near, component


def _most_links(near: BoolArray, each: int, within: bool) -> int:
    """Return the maximum number of (A, B) links that can be chosen if each device has at most ``each`` of them.

    It is the largest flow if every device sends or receives at most ``each``. Within one cluster (``within``) the flow
    counts every link twice, and half of it is an upper bound.
    """
    a, b = near.shape
    capacity = np.zeros((a + b + 2, a + b + 2), dtype=np.int32)
    capacity[:a, a : a + b] = near
    # Links as flow from one copy of the devices to another, since degrees are limited at both ends.
    capacity[a + b, :a] = capacity[a : a + b, a + b + 1] = each
    flow = int(scipy.sparse.csgraph.maximum_flow(scipy.sparse.csr_array(capacity), a + b, a + b + 1).flow_value)
    return flow // 2 if within else flow
