"""The bound for networks of few devices. Every combination of device grid, micro-batch size and checkpointing has its
own bound.

All combinations are first bounded without a cut of the model, which is quick. Those with the lowest bounds are then
tried with every cut. This ends once all remaining bounds are at least as high as the best plan's seconds or the lowest
bound with a cut. ``kernels.enumeration`` explains each bound.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dtfm_lab.costs.seconds import WAYS, travels_beside
from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.background_tasks import while_compiling
from dtfm_lab.planning.iteration.bounds.classes import Family, windows
from dtfm_lab.planning.iteration.bounds.refutation import batch_flop
from dtfm_lab.planning.iteration.problem import IterationProblem, SearchTarget
from dtfm_lab.planning.iteration.shape_searches import Nearness, tables_of

if TYPE_CHECKING:
    from dtfm_lab.planning.iteration.kernels.enumeration import Grid, Least
    from dtfm_lab.planning.iteration.kernels.tables import Tables

CHUNK = 120
"""Number of grids whose bounds are found in one step."""
MOST_NODES = 1_000_000
"""Upper limit on the nodes of a search over one grid's cuts. A grid that needs more keeps its bound without a cut."""
ROUNDING = 1 - 1e-10
"""Factor on the bound, against rounding errors. It lowers the bound by less than the gap up to which a plan counts as
proven."""
FIRST_NODES = 2000
"""Number of nodes that the first search over one grid's cuts may visit. A node gives one more stage its blocks. Each
further search begins again and may visit ten times as many, while that is at most ``MOST_NODES``."""


@dataclass(frozen=True, eq=False)
class _Grids:
    """All grids of one shape, micro-batch size and checkpointing."""

    tables: Tables
    least: Least
    shape: tuple[int, int]
    rows: IntArray
    """(K, S * R) flattened grids."""

    def bounds_of(self, which: slice, low_s: float, high_s: float) -> FloatArray:
        """Return one number per grid of ``which``: seconds that no plan on the grid beats, whatever its cut.

        It is at least ``low_s``, a bound known for all grids, and infinite if no plan takes less than ``high_s``.
        """
        from dtfm_lab.planning.iteration.kernels.enumeration import fill_bounds

        grids = self._grids(self.rows[which])
        found_s = np.empty(len(grids.devices))
        fill_bounds(self.tables, self.least, grids, low_s, high_s, found_s)
        return found_s

    def with_cuts(self, i: int, high_s: float, most_nodes: int) -> tuple[float, bool]:
        """Return the lowest bound in seconds over all cuts on grid ``i``, at most ``high_s``, and True if all cuts were
        tried.

        The search ends after ``most_nodes`` nodes.
        """
        from dtfm_lab.planning.iteration.kernels.enumeration import Grid, least_of_cuts

        row, *costs = (one[0] for one in self._grids(self.rows[i : i + 1]))
        grid = Grid(row.reshape(self.shape), *costs)
        found_s, complete = least_of_cuts(self.tables, self.least, grid, high_s, most_nodes)
        return float(found_s), bool(complete)

    def _grids(self, rows: IntArray) -> Grid:
        from dtfm_lab.planning.iteration.kernels.enumeration import Grid, fill_costs

        n, n_blocks = len(rows), self.least.window.shape[2] - 1
        costs = np.zeros((n, 4, *self.shape)), np.zeros((n, 2, *self.shape)), np.zeros((n, *self.shape, n_blocks + 1))
        grids = Grid(rows, *costs)
        fill_costs(self.tables, self.least, grids)
        return grids


def enumerated(
    problem: IterationProblem,
    families: tuple[Family, ...],
    max_price_per_hour: float | None,
    upper_s: Callable[[], float],
) -> Iterator[float]:
    """Yield rising lower bounds on the seconds of an iteration, up to the seconds of the best plan known.

    ``iteration_bound_steps`` explains the arguments.
    """
    low_s = batch_flop(problem) / float(problem.flop_per_s.sum())
    groups = list(_groups(problem, any(family.splits for family in families), max_price_per_hour))
    if not groups:
        return

    def compile_kernels() -> None:
        groups[0].bounds_of(slice(1), low_s, low_s)
        groups[0].with_cuts(0, low_s, 1)

    for _waited_s in while_compiling(enumerated, compile_kernels):
        yield low_s
    bounds: list[FloatArray] = []
    for group in groups:
        found_s = np.full(len(group.rows), np.inf)
        for at in range(0, len(found_s), CHUNK):
            found_s[at : at + CHUNK] = group.bounds_of(slice(at, at + CHUNK), low_s, upper_s())
            yield low_s
        bounds.append(found_s)
    group_of = np.repeat(np.arange(len(groups)), [len(one) for one in bounds])
    row_of = np.concatenate([np.arange(len(one)) for one in bounds])
    bound_s = np.concatenate(bounds)
    least_s = np.inf
    """Lowest bound in seconds of the grids whose cuts were tried so far."""
    for cell in np.argsort(bound_s, kind="stable"):
        high_s = min(least_s, upper_s())
        low_s = max(low_s, min(float(bound_s[cell]), high_s))
        yield low_s * ROUNDING
        if bound_s[cell] >= high_s or high_s == np.inf:
            return
        group, n_nodes, complete = groups[group_of[cell]], FIRST_NODES, False
        of_cuts_s = float(bound_s[cell])  # kept if there are too many cuts
        while not complete and n_nodes <= MOST_NODES:
            found_s, complete = group.with_cuts(row_of[cell], high_s, n_nodes)
            of_cuts_s = found_s if complete else of_cuts_s
            n_nodes *= 10
            yield low_s * ROUNDING
        least_s = min(least_s, of_cuts_s)
    yield max(low_s, min(least_s, upper_s())) * ROUNDING


def _groups(problem: IterationProblem, splits: bool, max_price_per_hour: float | None) -> Iterator[_Grids]:
    job, n, near = problem.job, problem.n_devices, Nearness(problem)
    for n_stages in [job.n_stages] if job.n_stages is not None else range(1, min(n, problem.n_blocks) + 1):
        for n_replicas in [job.n_replicas] if job.n_replicas is not None else range(1, n // n_stages + 1):
            if n_stages * n_replicas > n or n_stages > problem.most_stages:
                continue
            rows = _rows(problem, n_stages, n_replicas)
            if max_price_per_hour is not None:
                rows = rows[problem.price_per_hour[rows].sum(axis=1) <= max_price_per_hour]
            for microbatch in problem.microbatches:
                if job.global_batch // microbatch < n_replicas or not len(rows):
                    continue
                tables = tables_of(problem, microbatch, SearchTarget(), near, n_replicas)
                least = _least(problem, tables, microbatch, n_stages, n_replicas, splits)
                yield _Grids(tables, least, (n_stages, n_replicas), rows)


def _rows(problem: IterationProblem, n_stages: int, n_replicas: int) -> IntArray:
    """Return (K, S * R) grids. Grids that differ only in interchangeable devices count once.

    Grids that differ only in which pipeline comes first also count once, unless that matters for averaging.
    """
    alike = problem.alike.tolist()
    turns = problem.job.synchronisation not in ("central", "hierarchical")
    seen, rows = set(), []
    for row in itertools.permutations(range(len(alike)), n_stages * n_replicas):
        # which pipeline of a ring comes first changes nothing, so only the row with its smallest device first is kept
        if turns and row[0] > min(row[:n_replicas]):
            continue
        kind = tuple(alike[device] for device in row)
        if kind not in seen:
            seen.add(kind)
            rows.append(row)
    return np.array(rows, dtype=np.int64).reshape(len(rows), -1)


def _least(
    problem: IterationProblem, tables: Tables, microbatch: int, n_stages: int, n_replicas: int, splits: bool
) -> Least:
    from dtfm_lab.planning.iteration.kernels.enumeration import Least

    job, n_blocks = problem.job, problem.n_blocks
    passes, backward = tables.passes, job.modelled().backward
    again_flop = microbatch * problem.block_again_flop
    if passes.recompute:  # a backward repeats everything that a stage computes
        again_flop = passes.layer[0]
    layer = np.vstack([passes.layer, again_flop])
    extra = np.column_stack([passes.extra, passes.extra[:, 0] * passes.recompute])
    extra[1, 1] += problem.tied_parameters if n_stages > 1 else 0.0
    inputs = passes.least_inputs
    given = job.blocks_per_stage
    least = problem.least_blocks(n_stages)
    most = max(job.microbatches_per_replica or (passes.n_microbatches - n_replicas + 1,))
    if job.gathers_passes:  # replicas process equally many
        most = passes.n_microbatches // n_replicas
    hidden = job.overlap or travels_beside(job)
    return Least(
        speed=problem.flop_per_s_of(microbatch),
        memory=problem.memory_bytes,
        layer=layer,
        window=np.stack([windows(one) for one in layer], axis=1),
        extra=extra,
        least_blocks=least if given is None else np.array(given, dtype=np.int64),
        most_blocks=n_blocks - least.sum() + least if given is None else np.array(given, dtype=np.int64),
        # in 1F1B a stage holds at most one micro-batch for itself and one for each stage after it
        most_held=np.array([float(n_stages - s) if job.schedule == "1f1b" else np.inf for s in range(n_stages)]),
        input_bytes=inputs if passes.recompute else np.full(2, np.inf),
        backward=backward.whole,
        weight=backward.weights if splits else 0.0,
        weight_after=0.0 if job.memory_traffic else 1.0,
        averages=not hidden and n_replicas > 1 and job.synchronisation in WAYS,
        most_microbatches=float(most),
    )
