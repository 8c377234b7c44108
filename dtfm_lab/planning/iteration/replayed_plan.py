"""Price a whole plan with the compiled replay, in less than a millisecond: the seconds of an iteration, and whether the
plan fits memory."""

from __future__ import annotations

from typing import Self

import numpy as np

from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import FloatArray
from dtfm_lab.planning.iteration.problem import IterationProblem, SearchTarget
from dtfm_lab.planning.iteration.shape_searches import ShapeSearch, tables_of
from dtfm_lab.planning.iteration.structured.candidates import PlanPricer


class ReplayedPlan:
    """A plan with its replayed seconds, which equal the seconds of ``simulate`` up to rounding."""

    def __init__(self, plan: Plan, problem: IterationProblem) -> None:
        job, grid = plan.job, plan.placement.devices
        assert job.microbatch is not None
        assert plan.blocks_per_stage is not None
        n_stages, n_replicas = grid.shape
        sharing = 1 if job.sharding in (None, "none") else n_replicas
        self._tables = tables_of(problem, job.microbatch, SearchTarget(), None, sharing)
        self._shape_search = ShapeSearch(self._tables, (n_stages, n_replicas), job.microbatch, job)
        self.codes = problem.codes_gradients or self._tables.passes.coding_s.max() > 0
        """True if messages are compressed. Encoding and decoding take equally long on every device, whatever its
        speed."""
        self._found = self._shape_search.assessed(
            problem.row(grid),
            np.array(plan.blocks_per_stage, dtype=np.int64),
            0.0,
            microbatch_counts=np.array(job.microbatch_counts, dtype=np.int64),
            warmups=None if job.warmups is None else np.array(job.warmups, dtype=np.int64),
            exact=True,
        )
        self.iteration_s, self.fits = self._found.value, self._found.lacks == 0

    @classmethod
    def of(cls, plan: Plan) -> Self | None:
        """Return the replayed plan; None if the replay does not cover it, for example because message arrivals decide
        the order of its passes."""
        if plan.job.schedule not in ("1f1b", "gpipe") and plan.job.warmups is None:
            return None
        problem = IterationProblem.of(plan.topology, plan.job, plan.queueing, efficiency=plan.efficiency)
        return cls(plan, problem) if PlanPricer(problem, SearchTarget()).replays else None

    def seconds(self, bandwidth: FloatArray, latency: FloatArray, speed: FloatArray) -> float:
        """Return the seconds of an iteration on changed links and devices.

        The arguments are factors: on every link's bandwidth and latency, (N, N), and on every device's speed, (N,).
        """
        link, device = self._tables.link.copy(), self._tables.device.copy()
        link[0] *= latency
        link[1:] /= bandwidth
        device[0] *= speed
        return self._shape_search.replayed(self._found, self._tables._replace(link=link, device=device)).value
