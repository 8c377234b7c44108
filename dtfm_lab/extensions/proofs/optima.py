"""Proven optima: for few devices by enumeration, for few classes of devices by a constraint solver.

With few devices, all groups are enumerated, and their chains are searched by branch and bound.

If devices fall into few interchangeable classes (a region, an instance), a placement is a matrix of counts, stages x
classes. Each class in a group pays for averaging with the other devices of the group. A hop is a flow between the
counts of two neighbouring groups, and its bottleneck is the most expensive pair of classes that the flow uses. Integer
flows split into pairs of devices, so counts lose nothing: CP-SAT's optimum is the optimum.

Costs are in small units, rounded down. What the solver proves infeasible in units is infeasible in seconds.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from itertools import combinations, pairwise
from math import comb
from typing import Any

import numpy as np

from dtfm_lab.domain.errors import MissingExtra
from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.background_tasks import BackgroundTasks
from dtfm_lab.planning.cost import PairCosts, align, group_costs

GROUPS_UP_TO = 1500
"""Maximum number of groups whose chains are enumerated. Memory and time grow with its square, for the hops between
groups."""
COMBINATIONS_UP_TO = 50_000
"""Maximum number of possible groups. With more, not even their costs are computed."""
STEPS = 300_000
"""Number of chain extensions between two yields. These take some milliseconds."""


@dataclass(frozen=True, eq=False)
class Enumeration:
    """State of an enumeration: the best placement so far, and whether all chains were tried."""

    grid: IntArray | None
    """(S, D) devices of the cheapest placement below the limit so far; None if none was found."""
    cost_s: float
    """Cost of ``grid`` in seconds; the limit if there is no ``grid``."""
    done: bool
    """True if the enumeration is complete: nothing cheaper exists."""


def candidate_groups(pair: PairCosts, n_replicas: int, below_s: float) -> tuple[IntArray, FloatArray] | None:
    """Return all groups that synchronise in less than ``below_s``, cheapest first: (G, D) devices and (G,) costs in
    seconds.

    None if there are too many groups, or more than 62 devices.
    """
    n = len(pair.group_s)
    # A group is a bit mask of 64 bits, with one for the sign.
    if comb(n, n_replicas) > COMBINATIONS_UP_TO or n > 62:
        return None
    groups = np.array(list(combinations(range(n), n_replicas)), dtype=np.int64)
    cost_s = group_costs(groups, pair.group_s)
    order = np.argsort(cost_s, kind="stable")
    order = order[cost_s[order] < below_s]
    return (groups[order], cost_s[order]) if len(order) <= GROUPS_UP_TO else None


def exhaustive(
    pair: PairCosts, n_stages: int, groups: IntArray, cost_s: FloatArray, below_s: float = np.inf
) -> Iterator[Enumeration]:
    """Search for the cheapest chain of S groups that costs less than ``below_s``, in short steps.

    A partial chain is abandoned if it cannot become cheaper than the best so far. Its lower bound is its slowest group,
    its hops, and the cheapest hop for each missing stage.
    """
    from dtfm_lab.extensions.proofs.kernels.chains import search_chains, weigh_disjoint

    masks = (np.int64(1) << groups).sum(axis=1)
    # Every pair's matching is needed again and again, so all are computed once.
    weights_s = np.empty((len(groups), len(groups)))
    # A hop beyond this leaves nothing for the cheapest group.
    enough_s = below_s - (cost_s.min() if len(cost_s) else 0.0)
    weigh_disjoint(pair.hop_s, groups, masks, enough_s, weights_s)
    # Cheapest next group first, so that a chain that is too expensive ends the row.
    dearer = np.argsort(weights_s, axis=1, kind="stable")
    at, chain, best = (np.zeros(n_stages, dtype=np.int64) for _ in range(3))
    best_s, found_s = np.array([below_s]), below_s
    grid: IntArray | None = None
    depth = 0 if len(groups) else -1
    while depth >= 0:
        depth = search_chains(cost_s, masks, weights_s, dearer, at, chain, best, best_s, depth, STEPS)
        if best_s[0] < found_s:
            found_s = float(best_s[0])
            grid = align(groups[best], np.arange(n_stages), pair.hop_s)
        yield Enumeration(grid, found_s, depth < 0)
    if not len(groups):
        yield Enumeration(None, below_s, True)


UNITS = 2e9
"""The cost limit is divided into this number of units for each rounded term that a placement's cost adds up (see
``_n_units``). That is enough for a proof to nine digits, and sums still fit in 64 bits."""


@dataclass(frozen=True, eq=False)
class ClassProblem:
    """Classes of interchangeable devices, the costs between any two classes, and the shape of the placement."""

    members: tuple[IntArray, ...]
    """The devices of each class."""
    pair: PairCosts
    """(T, T) costs between a device of one class and a device of another. The diagonal is for two devices of one class;
    0 if the class has only one."""
    n_stages: int
    n_replicas: int

    @property
    def sizes(self) -> IntArray:
        """(T,) number of devices of each class."""
        return np.array([len(devices) for devices in self.members])

    def placement(self, counts: IntArray) -> IntArray:
        """Return a (S, D) placement with these (S, T) counts."""
        pools = [list(devices) for devices in self.members]
        return np.array(
            [[pool.pop(0) for pool, n in zip(pools, row, strict=True) for _ in range(n)] for row in counts.tolist()]
        )

    def counts(self, grid: IntArray) -> IntArray:
        """Return the (S, T) counts of a (S, D) placement."""
        of = np.empty(sum(self.sizes), dtype=np.int64)
        of[np.concatenate(self.members)] = np.repeat(np.arange(len(self.members)), self.sizes)
        return np.array([np.bincount(of[group], minlength=len(self.members)) for group in grid])


def class_problem(pair: PairCosts, classes: IntArray, n_stages: int, n_replicas: int) -> ClassProblem:
    """Return the problem in which devices of the same class are interchangeable. ``classes`` is (N,), as in
    ``Problem.classes``."""
    members = tuple(np.flatnonzero(classes == one) for one in np.unique(classes))
    first = [devices[0] for devices in members]

    def between(matrix: FloatArray) -> FloatArray:
        out: FloatArray = matrix[np.ix_(first, first)].copy()
        for t, devices in enumerate(members):
            # Two different devices of the class; with one there is no such link.
            out[t, t] = matrix[devices[0], devices[1]] if len(devices) > 1 else 0.0
        return out

    return ClassProblem(members, PairCosts(between(pair.group_s), between(pair.hop_s)), n_stages, n_replicas)


@dataclass(frozen=True, eq=False)
class SolverResult:
    """Result of the solver for the placements with a data-parallel cost within a range."""

    bound_s: float
    """Lower bound on the cost of these placements in seconds. It is never above the limit."""
    counts: IntArray | None
    """(S, T) counts of the cheapest placement found below the limit; None if none was found."""
    done: bool
    """True if the bound is the optimum, or if it is proved that nothing is below the limit."""


class ClassSolver:
    """Finds the cheapest placement below ``limit_s`` whose data-parallel cost is at most ``high_s``. A cost below
    ``low_s`` counts as ``low_s``.

    ``hops_s`` are known lower bounds of the hops' costs, from the most expensive hop down. The solver runs as a
    background task for up to ``effort`` units of its deterministic time, about seconds.
    """

    def __init__(
        self,
        problem: ClassProblem,
        low_s: float,
        high_s: float,
        limit_s: float,
        hint: IntArray,
        effort: float,
        seed: int,
        hops_s: tuple[float, ...],
        background_tasks: BackgroundTasks,
    ) -> None:
        self._unit_s = limit_s / _n_units(problem)
        self._limit_s = limit_s
        model, self._counts = _model(problem, low_s, high_s, limit_s, hint, hops_s)
        self._solver = cp_solver(effort, seed)
        self._solving = background_tasks.run(lambda: self._solver.solve(model), "constraint solver")

    def wait(self, seconds: float) -> bool:
        """Wait up to this many seconds. Return True if the result is available."""
        return self._solving.wait(seconds)

    def close(self) -> None:
        """Stop at once and wait until the thread has ended."""
        while not self._solving.wait(0.01):
            self._solver.stop_search()  # has no effect before the search proper begins
        self._solving.join()

    @property
    def result(self) -> SolverResult:
        """The result, available once ``wait`` has returned True, or after ``close``."""
        cp_model = solver_library()

        status = self._solving.result
        if status == cp_model.INFEASIBLE:
            return SolverResult(self._limit_s, None, True)
        bound_s = min(max(0.0, self._solver.best_objective_bound * self._unit_s), self._limit_s)
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return SolverResult(bound_s, None, False)
        counts = np.array([[self._solver.value(n) for n in row] for row in self._counts])
        return SolverResult(bound_s, counts, status == cp_model.OPTIMAL)


def _model(
    problem: ClassProblem, low_s: float, high_s: float, limit_s: float, hint: IntArray, hops_s: tuple[float, ...]
) -> tuple[Any, list[Any]]:
    """Return the solver's model and its (S, T) variables, the counts of devices."""
    cp_model = solver_library()

    n_stages, n_replicas, sizes = problem.n_stages, problem.n_replicas, problem.sizes.tolist()
    limit = _n_units(problem)
    low = int(low_s / limit_s * limit)
    # Rounded outwards, so that no placement of the range is lost.
    high = max(low, int(np.ceil(high_s / limit_s * limit)))
    group = _units(problem.pair.group_s / limit_s, limit)
    hop = _units(problem.pair.hop_s / limit_s, limit)
    classes, stages = range(len(sizes)), range(n_stages)
    model = cp_model.CpModel()
    counts = [[model.new_int_var(0, min(n_replicas, sizes[t]), "") for t in classes] for _ in stages]
    present = [[model.new_bool_var("") for _ in classes] for _ in stages]
    slowest = model.new_int_var(low, high, "")
    for t in classes:
        placed = sum(counts[s][t] for s in stages)
        # With every device in use, the equation is the tighter one.
        uses_all = sum(sizes) == n_stages * n_replicas
        model.add(placed == sizes[t] if uses_all else placed <= sizes[t])
    for s in stages:
        model.add(sum(counts[s]) == n_replicas)
        for t in classes:
            model.add(counts[s][t] >= present[s][t])
            model.add(counts[s][t] <= min(n_replicas, sizes[t]) * present[s][t])
            # Averaging costs a group what its slowest device pays, and only classes that are there pay.
            pays = sum(group[t][u] * counts[s][u] for u in classes) - group[t][t]
            model.add(pays <= slowest).only_enforce_if(present[s][t])
            for u in range(t):
                # Even with the cheapest other partners these two classes together exceed the range.
                if group[t][u] + (n_replicas - 2) * min(group[t]) > high and n_replicas > 1:
                    model.add_bool_or([~present[s][t], ~present[s][u]])
    hops = [_hop(model, counts[s], counts[s + 1], hop, sizes, limit - low) for s in stages[:-1]]
    # A placement and its reverse cost the same: keep one of the two.
    ends = (sum((t + 1) * counts[s][t] for t in classes) for s in (0, n_stages - 1))
    model.add(next(ends) <= next(ends))
    for k, least_s in enumerate(hops_s, start=1):
        # Levels are rounded down. Of the switches from this level on, the first is on if any is on.
        as_dear = [on for _, switches in hops for on in _first_from(switches, int(least_s / limit_s * limit) - 1)]
        model.add(sum(as_dear) >= k)
    total = slowest + sum(cost for cost, _ in hops)
    model.add(total <= limit)
    model.minimize(total)
    # The reverse is excluded above, so the hint must be the one that is kept.
    if sum((t + 1) * (hint[0][t] - hint[-1][t]) for t in classes) > 0:
        hint = hint[::-1]
    for s in stages:
        for t in classes:
            model.add_hint(counts[s][t], int(hint[s][t]))
    return model, counts


def _n_units(problem: ClassProblem) -> int:
    """Return the number of units that make up the limit, enough that rounding hardly matters.

    A cost sums D - 1 rounded costs of partners and S - 1 rounded costs of hops.
    """
    return int(UNITS) * (problem.n_stages + problem.n_replicas)


def _units(share: FloatArray, limit: int) -> list[list[int]]:
    """Convert shares of the limit to units, rounded down. Anything above the limit becomes ``limit`` + 1."""
    units: list[list[int]] = np.floor(np.minimum(share * limit, limit + 1)).astype(np.int64).tolist()
    return units


def _hop(
    model: Any, left: list[Any], right: list[Any], hop: list[list[int]], sizes: list[int], most: int
) -> tuple[Any, dict[int, Any]]:
    """Return the cost of a hop between two stages with the counts ``left`` and ``right``, and its switches.

    Each level of cost except the lowest has a switch. While it is off, classes whose hop costs that level are not
    paired.
    """
    n = range(len(sizes))
    # A hop within a class needs at least two devices in the class.
    pairs = [(t, u) for t in n for u in n if (t != u or sizes[t] > 1) and hop[t][u] <= most]
    levels = sorted({hop[t][u] for t, u in pairs})
    if not levels:
        model.add_bool_or([])
        return 0, {}
    reached = {level: model.new_bool_var("") if level > levels[0] else 1 for level in levels}
    # A level includes those below it, since the cost adds up their steps.
    for below, above in pairwise(levels[1:]):
        model.add_implication(reached[above], reached[below])
    flow = {}
    for t, u in pairs:
        flow[t, u] = model.new_int_var(0, min(sizes[t], sizes[u]), "")
        if hop[t][u] > levels[0]:
            model.add(flow[t, u] <= min(sizes[t], sizes[u]) * reached[hop[t][u]])
    for t in n:
        model.add(sum(flow[t, u] for u in n if (t, u) in flow) == left[t])
        # A hop costs the bottleneck of its matching: the highest level that any of its pairs needs.
        model.add(sum(flow[u, t] for u in n if (u, t) in flow) == right[t])
    cost = levels[0] + sum((above - below) * reached[above] for below, above in pairwise(levels))
    return cost, reached


def _first_from(switches: dict[int, Any], least: int) -> list[Any]:
    return [on for level, on in sorted(switches.items()) if level >= least][:1]


def has_solver() -> bool:
    """Return True if OR-tools is installed."""
    return find_spec("ortools") is not None


def require_solver() -> None:
    """Raise MissingExtra if OR-tools is not installed."""
    if not has_solver():
        raise MissingExtra("a proof needs ortools, which is not installed: pip install 'dtfm_lab[proofs]'")


def solver_library() -> Any:
    """Return OR-tools' CP-SAT, imported on first use, which takes some tenths of a second. Raises MissingExtra."""
    require_solver()
    return import_module("ortools.sat.python.cp_model")


def cp_solver(effort: float, seed: int = 0) -> Any:
    """Return a CP-SAT solver with a limit of deterministic time, about seconds.

    In OR-Tools 9.15 presolve merges at-most-one constraints into linear ones incorrectly (its issue 5293). Half of our
    small models with large coefficients were declared infeasible, although they are feasible. Without that step, no
    feasible model was declared infeasible, so it is switched off here.
    """
    cp_model = solver_library()

    solver = cp_model.CpSolver()
    # Several workers would make results depend on timing, and the limit is of deterministic time.
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = seed
    solver.parameters.max_deterministic_time = effort
    solver.parameters.presolve_inclusion_work_limit = 0
    solver.parameters.catch_sigint_signal = False  # its handler would stay, and Ctrl-C would end the process
    return solver
