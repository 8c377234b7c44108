"""How long computations take: from FLOP and a device's peak, or from a profile taken before a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dtfm_lab.domain.errors import TraceError
from dtfm_lab.domain.model import BACKWARD_PER_FORWARD
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Action, Kind
from dtfm_lab.domain.trace import ComputeTime

Durations = Callable[[int, Action], float]
"""(replica, a compute action) -> seconds"""

EFFICIENCY = 0.4
"""Share of its peak that a device reaches. Megatron-LM reports 44 to 52 % on A100s (Narayanan et al. 2021,
table 1); smaller models and older GPUs reach less. A guess to be replaced by a profile."""


def analytic(plan: Plan, efficiency: float = EFFICIENCY) -> tuple[ComputeTime, ...]:
    """FLOP of a stage's layers over its device's peak x efficiency; backward twice the forward.

    Averaging shards and the optimiser's step are bound by memory, not FLOP, and count as 0 here.
    """
    rows = []
    for stage, layers in enumerate(plan.job.stage_layers):
        flop = plan.job.microbatch * sum(layer.forward_flop for layer in layers)
        for replica in range(plan.job.n_replicas):
            device = plan.topology.devices[int(plan.placement.devices[stage, replica])]
            forward_s = flop / (device.peak_flop_per_s * efficiency)
            rows += [
                ComputeTime(stage, replica, Kind.FORWARD, forward_s),
                ComputeTime(stage, replica, Kind.BACKWARD, BACKWARD_PER_FORWARD * forward_s),
                ComputeTime(stage, replica, Kind.REDUCE, 0.0),
                ComputeTime(stage, replica, Kind.STEP, 0.0),
            ]
    return tuple(rows)


def from_profile(profile: Iterable[ComputeTime]) -> Durations:
    """Look each action up by stage, replica and kind; raises TraceError where the profile has no row."""
    table = {(row.stage, row.replica, row.kind): row.seconds for row in profile}

    def seconds(replica: int, action: Action) -> float:
        try:
            return table[action.stage, replica, action.kind]
        except KeyError:
            raise TraceError(
                f"profile has no time for {action.kind} on stage {action.stage}, replica {replica}; "
                f"wanted one for every stage, replica and kind"
            ) from None

    return seconds
