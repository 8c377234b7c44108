"""How sure a prediction's computations and links are: what the interval of its iteration follows from."""

import math
from collections.abc import Sequence
from typing import TypedDict

import numpy as np

from dtfm_lab.domain.network import Device
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.trace import RunContext
from dtfm_lab.domain.trace.run_context import SWING
from dtfm_lab.simulation.efficiency import GivenEfficiency, efficiency_of
from dtfm_lab.simulation.engine import TaskTimes


class Spreads(TypedDict):
    """The fields of a RunContext."""

    compute_spread: tuple[tuple[float, ...], ...]
    link_spread: float


def spreads_of(
    plan: Plan, efficiency: GivenEfficiency = None, *, ran: RunContext | None = None, profiled: bool = False
) -> Spreads:
    """The spreads of a prediction from an efficiency, or from a profile, which may be that of a run.

    An efficiency or a profile that is given and states no spread counts as exact: what is left is the noise of every
    repeated measurement. So do emulated links of a run.
    """
    link_spread = plan.topology.link_spread if ran is None else ran.link_spread
    if profiled and ran is not None and ran.compute_spread:
        return Spreads(compute_spread=ran.compute_spread, link_spread=link_spread)
    of_kind: dict[tuple[str, float, int], float] = {}

    def spread(device: Device) -> float:
        if profiled or efficiency is not None:
            return 0.0 if profiled else getattr(efficiency, "spread", 0.0)
        kind = device.gpu, device.peak_flop_per_s, device.gpus
        if kind not in of_kind:
            of_kind[kind] = efficiency_of(plan.job, device).spread
        return of_kind[kind]

    devices, rows = plan.topology.devices, plan.placement.devices.tolist()
    return Spreads(
        compute_spread=tuple(tuple(spread(devices[d]) for d in row) for row in rows), link_spread=link_spread
    )


def swings_of(
    times: Sequence[TaskTimes], every: int, compute_spread: tuple[tuple[float, ...], ...], link_spread: float
) -> tuple[tuple[float, float], ...]:
    """``RunContext.swings`` of the iterations that were simulated: one, or one that does not synchronise and one that
    does, of ``every``."""

    def seconds(deviations: float, *, of_links: bool) -> float:
        ends_s = []
        for one in times:
            graph = one.tasks.graph
            factors = 1.0 if of_links else np.exp(deviations * spread)[graph.position, graph.replica]
            ends_s.append(one.changed_s(factors, math.exp(deviations * link_spread) if of_links else 1.0))
        return ends_s[0] if len(ends_s) == 1 else ((every - 1) * ends_s[0] + ends_s[1]) / every

    spread = np.array(compute_spread)
    return tuple((seconds(-SWING, of_links=one), seconds(SWING, of_links=one)) for one in (False, True))
