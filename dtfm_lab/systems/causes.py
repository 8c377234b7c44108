"""What an iteration's critical path consists of, with the messages inside passes told apart from computing."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.trace import Trace
from dtfm_lab.domain.trace.causes import COMPUTE
from dtfm_lab.simulation.durations import pass_times
from dtfm_lab.simulation.efficiency import GivenEfficiency

GATHERING = "gathering"
"""Messages inside a pass: parameters gathered and gradients scattered layer by layer, sums of GPUs that share one."""


def causes_of(plan: Plan, trace: Trace, iteration_s: float, efficiency: GivenEfficiency) -> dict[str, float]:
    """Seconds of the iteration's critical path by cause, the longest first; they add up to ``iteration_s``.

    Where only some iterations synchronise, the typical one's path in the proportions of all.
    """
    path = trace.critical_path()
    seconds = (path["end_s"] - path["start_s"]).to_numpy()
    computing = _computing_share(plan, trace, efficiency)
    found: dict[str, float] = defaultdict(float)
    rows = zip(path["what"], path["stage"], path["replica"], path["kind"], seconds, strict=True)
    for what, stage, replica, kind, part_s in rows:
        share = computing.get((stage, replica, str(kind)), 1.0) if what == COMPUTE else 1.0
        found[what] += share * part_s
        if share < 1.0:
            found[GATHERING] += (1 - share) * part_s
    whole_s = float(seconds.sum())
    scale = iteration_s / whole_s if whole_s > 0 else 0.0
    return {cause: scale * float(part_s) for cause, part_s in sorted(found.items(), key=lambda item: -item[1])}


def _computing_share(plan: Plan, trace: Trace, efficiency: GivenEfficiency) -> dict[tuple[int, int, str], float]:
    """Of each pass with messages inside, the share that it would take without them."""
    job = plan.job
    if not job.gathers_passes and (job.tensor_parallel or 1) == 1:
        return {}
    n_stages = trace.context.recorded_schedule.n_stages
    passes = pass_times(_alone(plan), n_stages, efficiency)
    alone = {(one.stage, one.replica, one.kind): one.seconds for one in passes}
    return {
        (one.stage, one.replica, str(one.kind)): alone[one.stage, one.replica, one.kind] / one.seconds
        for one in trace.context.profile
        if (one.stage, one.replica, one.kind) in alone and one.seconds > 0
    }


def _alone(plan: Plan) -> Plan:
    """The plan with nothing sharded, and with free links among the GPUs of a device."""
    free = {"inner_latency_s": 0.0, "inner_bandwidth_bytes_per_s": float("inf")}
    devices = tuple(replace(device, **free) for device in plan.topology.devices)  # type: ignore[arg-type]
    return plan.changed(topology=replace(plan.topology, devices=devices), job=plan.job.with_fields(sharding="none"))
