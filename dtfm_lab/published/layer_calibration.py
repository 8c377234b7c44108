"""Efficiency by kind of layer, from profiles of stages that hold different mixes of blocks and head.

The seconds of a stage's forward are a sum over kinds of layers, FLOP over peak x efficiency of the kind. Least squares
of relative errors, none negative, finds the efficiencies; each stage is judged by the fit to all other stages.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from scipy.optimize import nnls

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import LayerKind
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Kind, Schedule
from dtfm_lab.domain.trace import ComputeTime, Trace
from dtfm_lab.domain.units import FloatArray
from dtfm_lab.simulation import simulate
from dtfm_lab.simulation.efficiency import peak_of

PASSES = (Kind.FORWARD, Kind.BACKWARD, Kind.BACKWARD_INPUT, Kind.BACKWARD_WEIGHT)
KINDS = tuple(LayerKind)


class StageTimes:
    """Seconds of the forwards of stages, and the seconds at the peak that each kind of layer has of them."""

    def __init__(self, measured: Sequence[tuple[Plan, Trace]]) -> None:
        rows = [row for plan, trace in measured for row in _stages(plan, trace)]
        self.names = [name for name, _, _ in rows]
        self.seconds = np.array([seconds for _, seconds, _ in rows])
        """(stages,) measured."""
        at_peak = np.array([at_peak for _, _, at_peak in rows]).reshape(-1, len(KINDS))
        self.kinds = [kind for kind, column in zip(KINDS, at_peak.T, strict=True) if column.any()]
        self.at_peak = at_peak[:, [KINDS.index(kind) for kind in self.kinds]]
        """(stages, kinds) seconds at the peak."""
        if np.linalg.matrix_rank(self.at_peak) < max(2, len(self.kinds)) or len(rows) <= len(self.kinds):
            raise LabError(
                f"{len(rows)} measured stages do not tell kinds of layers apart; wanted pairs of a plan and its "
                f"measured trace with more stages than kinds, some with the head and some without"
            )

    def efficiencies(self, without: int | None = None) -> FloatArray:
        """(kinds,) shares of the peak, fitted to all stages or to all but one."""
        kept = np.arange(len(self.seconds)) != (-1 if without is None else without)
        inverse, _ = nnls(self.at_peak[kept] / self.seconds[kept, None], np.ones(int(kept.sum())))
        return np.asarray(1 / np.maximum(inverse, 1e-9))

    def predicted(self, stage: int) -> float:
        """Seconds of a stage's forward by the fit to all other stages."""
        return float((self.at_peak[stage] / self.efficiencies(stage)).sum())


def layer_profile(plan: Plan, shares: Mapping[str, float], schedule: str | Schedule | None = None) -> list[ComputeTime]:
    """The ``profile`` of a plan for ``simulate``, from the share of its peak that each kind of layer reaches.

    Raises LabError where a kind that the plan's model has FLOP in is missing.
    """
    if missing := [kind.value for kind in KINDS if kind not in shares and _flop(plan)[:, KINDS.index(kind)].any()]:
        raise LabError(f"no efficiency of kind {missing[0]}; wanted one for each kind of layer that computes")
    inverse = np.array([1 / float(shares[kind]) if kind in shares else 0.0 for kind in KINDS])
    at_peak = simulate(plan, schedule, efficiency=1.0).context.profile
    n_stages = 1 + max(row.stage for row in at_peak if row.kind in PASSES)
    flop = _flop(plan, n_stages)
    stretch = flop @ inverse / np.maximum(flop.sum(axis=1), 1e-300)
    return [row._replace(seconds=row.seconds * stretch[row.stage]) if row.kind in PASSES else row for row in at_peak]


def _stages(plan: Plan, trace: Trace) -> list[tuple[str, float, FloatArray]]:
    """Name, mean seconds of a forward, and seconds at the peak by kind, of each stage of a measured run."""
    forwards = [row for row in trace.context.profile if row.kind is Kind.FORWARD]
    if not forwards:
        raise LabError(f"the trace of {trace.context.job} has no profile; wanted one measured before the run")
    flop = _flop(plan, 1 + max(row.stage for row in forwards))
    stages = []
    for stage, flop_of in enumerate(flop):
        own = [row for row in forwards if row.stage == stage]
        devices = [plan.placement.devices[stage % plan.job.n_stages, row.replica] for row in own]
        peaks = [peak_of(plan.topology.devices[int(device)], plan.job.dtype) for device in devices]
        at_peak = flop_of * float(np.mean([1 / peak for peak in peaks]))
        stages.append((f"{plan.job.name}, stage {stage}", float(np.mean([row.seconds for row in own])), at_peak))
    return stages


def _flop(plan: Plan, n_stages: int | None = None) -> FloatArray:
    """(stages, kinds) FLOP of a forward."""
    layers = plan.job.layers_of(n_stages or plan.job.n_stages)
    flop = [[sum(layer.forward_flop for layer in stage if layer.kind is kind) for kind in KINDS] for stage in layers]
    return plan.job.microbatch * np.array(flop, dtype=float)
