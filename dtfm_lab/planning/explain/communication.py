"""Analysis of a plan's communication cost.

It finds the slowest device of each group, the slowest pair of each hop, and the cost after every swap of two devices.
Every number follows from equations 1 to 4, so pricing the same placement gives the same number.

In a swap, two devices exchange their places. One of them may be idle. The pipelines are then paired again by the
bottleneck matching of neighbouring groups, in the same stage order.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.cost import PairCosts

if TYPE_CHECKING:
    import pandas as pd

ROUNDING = 1e-9
"""Costs with at most this relative difference count as equal, because it is only rounding."""


@dataclass(frozen=True)
class Swap:
    """A swap of two devices (by index), and the total cost in seconds after it."""

    device: int
    partner: int
    cost_s: float


class SwapCosts:
    """The costs after every swap of two devices of one (S, D) grid."""

    def __init__(self, grid: IntArray, pair: PairCosts) -> None:
        self._grid, self._pair = grid, pair
        self._position = np.full(len(pair.hop_s), -1)
        self._position[grid.ravel()] = np.arange(grid.size)

    @cached_property
    def costs_s(self) -> FloatArray:
        """(N, N) seconds after each swap; inf if the swap would change nothing. The diagonal is the cost with the best
        pairing of the same groups."""
        from dtfm_lab.planning.kernels.coarsened_graph import exchange_costs  # numba takes a while to load

        return exchange_costs(self._grid, self._pair.group_s, self._pair.hop_s)

    def stage_of(self, device: int) -> int | None:
        """Return the stage of the device; None if it is idle."""
        position = int(self._position[device])
        return None if position < 0 else position // self._grid.shape[1]

    def best(self, device: int, partners: IntArray | None = None) -> Swap | None:
        """Return the cheapest swap of the device, with one of ``partners`` if given. Ties go to the first; None if
        there is no swap."""
        others = np.arange(len(self.costs_s)) if partners is None else partners
        others = others[np.isfinite(self.costs_s[device, others]) & (others != device)]
        if not len(others):
            return None
        partner = int(others[self.costs_s[device, others].argmin()])
        return Swap(device, partner, float(self.costs_s[device, partner]))

    def price(self, device: int, partner: int) -> float:
        """Return the seconds after the swap of two devices, with the pipelines paired again."""
        return float(self.costs_s[device, partner])

    def exchanged(self, device: int, partner: int) -> IntArray:
        """Return the (S, D) grid after the swap of two devices, with the pipelines as they were."""
        grid = self._grid.copy()
        for leaves, comes in ((device, partner), (partner, device)):
            if (position := self._position[leaves]) >= 0:
                grid.flat[position] = comes
        return grid


@dataclass(frozen=True, kw_only=True)
class PairCost:
    """Seconds that two devices spend on a message each way."""

    devices: tuple[str, str]
    cost_s: float
    latency_s: float
    """Latency of both directions in seconds. The rest of the cost is bandwidth."""

    @property
    def bandwidth_s(self) -> float:
        return self.cost_s - self.latency_s

    def summary(self) -> dict[str, Any]:
        return {**vars(self), "devices": list(self.devices), "bandwidth_s": self.bandwidth_s}


@dataclass(frozen=True, kw_only=True)
class GroupBottleneck:
    """The bottleneck of one stage's group: its slowest device, which sets the cost of its synchronisation."""

    stage: int
    device: str
    cost_s: float
    latency_s: float
    """Latency of all of the device's messages in seconds. The rest of the cost is bandwidth."""
    dearest: PairCost | None
    """The device and its most expensive partner; None for a group of one."""

    @property
    def dearest_share(self) -> float:
        """Fraction of the group's cost that the most expensive partner causes."""
        return self.dearest.cost_s / self.cost_s if self.dearest is not None and self.cost_s > 0 else 0.0

    def summary(self) -> dict[str, Any]:
        dearest = None if self.dearest is None else {**self.dearest.summary(), "share": self.dearest_share}
        own = {"stage": self.stage, "device": self.device, "cost_s": self.cost_s, "latency_s": self.latency_s}
        return {**own, "bandwidth_s": self.cost_s - self.latency_s, "dearest": dearest}


@dataclass(frozen=True, kw_only=True)
class HopBottleneck:
    """The bottleneck of the hop from one stage to the next: its slowest pipeline."""

    stage: int
    """The earlier of the two stages."""
    replica: int
    """The pipeline with the slowest pair."""
    pair: PairCost
    best_pairing_s: float
    """Cost of this hop with the best pairing of the two groups."""

    @property
    def cost_s(self) -> float:
        return self.pair.cost_s

    def summary(self) -> dict[str, Any]:
        own = {"stages": [self.stage, self.stage + 1], "cost_s": self.cost_s, "replica": self.replica}
        return {**own, "pair": self.pair.summary(), "best_pairing_s": self.best_pairing_s}


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class CostAnalysis:
    """What limits a plan's cost, and the costs of its alternatives."""

    plan: Plan
    groups: tuple[GroupBottleneck, ...]
    """The bottleneck of each stage's group, first stage first."""
    hops: tuple[HopBottleneck, ...]
    """The bottleneck of each hop. Entry s is the hop from stage s to s + 1."""
    pair: PairCosts
    """Seconds between any two devices."""

    @property
    def binding_group(self) -> GroupBottleneck:
        """The group that sets the data-parallel cost. Ties go to the first."""
        return max(self.groups, key=lambda group: group.cost_s)

    @property
    def binding_hop(self) -> HopBottleneck | None:
        """The most expensive hop; None for one stage."""
        return max(self.hops, key=lambda hop: hop.cost_s, default=None)

    @property
    def latency_s(self) -> float:
        """Latency part of the total cost in seconds. The rest is bandwidth."""
        return self.binding_group.latency_s + sum(hop.pair.latency_s for hop in self.hops)

    @property
    def repaired_s(self) -> float:
        """The cost of the same groups in the same order with the best pairing of pipelines."""
        # every entry of the diagonal is the cost without an exchange
        return float(self.swaps.costs_s[0, 0])

    @cached_property
    def swaps(self) -> SwapCosts:
        """The costs after every swap of two devices."""
        return SwapCosts(self.plan.placement.devices, self.pair)

    @property
    def best_swap(self) -> Swap | None:
        """The cheapest swap of two devices, pipelines paired again; None if there is no swap."""
        found = [swap for device in range(len(self.plan.topology)) if (swap := self.swaps.best(device)) is not None]
        return min(found, key=lambda swap: swap.cost_s, default=None)

    @property
    def is_local_optimum(self) -> bool:
        """True if neither a swap of two devices nor another pairing of the pipelines costs less."""
        best_s = self.repaired_s if self.best_swap is None else min(self.repaired_s, self.best_swap.cost_s)
        return self.change_s(best_s) >= 0.0

    def change_s(self, cost_s: float) -> float:
        """Return another placement's cost minus the plan's, in seconds; exactly 0 if they differ only by rounding."""
        now_s = self.plan.cost.total_s
        return 0.0 if abs(cost_s - now_s) <= ROUNDING * now_s else cost_s - now_s

    def places(self, device: str | int) -> pd.DataFrame:
        """Return the cheapest swap that moves a device to each other stage or makes it idle (stage missing), cheapest
        first.

        Columns: stage, partner, cost_after_s, change_s.
        """
        import pandas as pd  # takes a while to load

        topology, stages = self.plan.topology, self._stages
        chosen = topology.at(device)
        rows = []
        # -1 stands for idle.
        for stage in [*range(self.plan.job.n_stages), -1]:
            swap = self.swaps.best(chosen, np.flatnonzero(stages == stage))
            if swap is not None:
                rows.append((stage, topology.names[swap.partner], swap.cost_s, self.change_s(swap.cost_s)))
        frame = pd.DataFrame(rows, columns=["stage", "partner", "cost_after_s", "change_s"])
        frame["stage"] = _whole_numbers(frame["stage"].to_numpy())
        return frame.sort_values("cost_after_s", kind="stable", ignore_index=True)

    @cached_property
    def service(self) -> pd.DataFrame:
        """One row per device, in the topology's order: its place and its costs in seconds.

        Columns: device; stage and replica (missing if idle); group_s, its costs to its partners; hop_before_s and
        hop_after_s, its costs to its neighbours in the pipeline.
        """
        import pandas as pd  # takes a while to load

        grid, n = self.plan.placement.devices, len(self.plan.topology)
        own = np.full((3, n), np.nan)
        own[0, grid] = self.pair.group_s[grid[:, :, None], grid[:, None, :]].sum(axis=2)
        own[1, grid[1:]] = own[2, grid[:-1]] = self.pair.hop_s[grid[:-1], grid[1:]]
        replicas = np.full(n, -1)
        replicas[grid] = np.arange(grid.shape[1])
        return pd.DataFrame(
            {
                "device": self.plan.topology.names,
                "stage": _whole_numbers(self._stages),
                "replica": _whole_numbers(replicas),
                "group_s": own[0],
                "hop_before_s": own[1],
                "hop_after_s": own[2],
            }
        )

    @cached_property
    def devices(self) -> pd.DataFrame:
        """``service`` with each device's cheapest swap: partner, partner_stage, cost_after_s, change_s."""
        names = self.plan.topology.names
        best = [self.swaps.best(device) for device in range(len(names))]
        partner = np.array([-1 if swap is None else swap.partner for swap in best])
        after = [np.nan if swap is None else swap.cost_s for swap in best]
        return self.service.assign(
            partner=np.array([*names, None], dtype=object)[partner],
            partner_stage=_whole_numbers(np.where(partner < 0, -1, self._stages[partner])),
            cost_after_s=after,
            change_s=[self.change_s(cost_s) for cost_s in after],
        )

    @cached_property
    def _stages(self) -> IntArray:
        """(N,) stage of each device; -1 if idle."""
        stages = np.full(len(self.plan.topology), -1)
        stages[self.plan.placement.devices] = np.arange(self.plan.job.n_stages)[:, None]
        return stages


def group_bottlenecks(plan: Plan, pair: PairCosts) -> tuple[GroupBottleneck, ...]:
    """Return the bottleneck of each stage's group."""
    names, both_ways_s, found = plan.topology.names, plan.topology.round_trip_s(0.0), []
    for stage, group in enumerate(plan.placement.devices):
        within = pair.group_s[np.ix_(group, group)]
        slowest = int(within.sum(axis=1).argmax())
        to_others = within[slowest].copy()
        to_others[slowest] = -1.0  # if messages cost nothing, all costs are 0 and the device would be its own partner
        device, partner = int(group[slowest]), int(group[to_others.argmax()])
        found.append(
            GroupBottleneck(
                stage=stage,
                device=names[device],
                cost_s=float(within[slowest].sum()),
                # Without a partner the group exchanges nothing.
                latency_s=float(both_ways_s[device, group].sum()),
                dearest=_pair_cost(plan, device, partner, pair.group_s) if partner != device else None,
            )
        )
    return tuple(found)


def hop_bottlenecks(plan: Plan, pair: PairCosts) -> tuple[HopBottleneck, ...]:
    """Return the bottleneck of each hop. Entry s is the hop from stage s to s + 1."""
    found = []
    for stage, (here, there) in enumerate(pairwise(plan.placement.devices)):
        replica = int(pair.hop_s[here, there].argmax())
        slowest = _pair_cost(plan, int(here[replica]), int(there[replica]), pair.hop_s)
        best_s = float(plan.cost.weights_s[stage, stage + 1])
        found.append(HopBottleneck(stage=stage, replica=replica, pair=slowest, best_pairing_s=best_s))
    return tuple(found)


def _pair_cost(plan: Plan, a: int, b: int, cost_s: FloatArray) -> PairCost:
    names, latency_s = plan.topology.names, plan.topology.round_trip_s(0.0)
    return PairCost(devices=(names[a], names[b]), cost_s=float(cost_s[a, b]), latency_s=float(latency_s[a, b]))


def _whole_numbers(numbers: IntArray) -> pd.arrays.IntegerArray:
    """Return a column of integers in which negative numbers, such as the stage -1 of an idle device, become missing
    values."""
    import pandas as pd  # takes a while to load

    return pd.arrays.IntegerArray(numbers.astype(np.int64), numbers < 0)
