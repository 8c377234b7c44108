"""A plan's cost taken apart, and the cost of the plan with any device in any other place.

Every number is one of equations 2 to 4 or a difference of two: pricing the same placement gives it back.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import IntArray
from dtfm_lab.planning.cost import PairCosts
from dtfm_lab.planning.explain.binding import GroupBottleneck, HopBottleneck
from dtfm_lab.planning.explain.exchange_costs import ROUNDING, Swap, SwapCosts


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class CostAnalysis:
    """What binds a plan's cost, and the costs of its alternatives."""

    plan: Plan
    groups: tuple[GroupBottleneck, ...]
    """By stage."""
    hops: tuple[HopBottleneck, ...]
    """By the earlier of the two stages."""
    pair: PairCosts
    """Seconds between any two devices."""

    @property
    def binding_group(self) -> GroupBottleneck:
        """The group that sets the data-parallel cost; of equally slow ones, the first."""
        return max(self.groups, key=lambda group: group.cost_s)

    @property
    def binding_hop(self) -> HopBottleneck | None:
        """The dearest hop; None for one stage."""
        return max(self.hops, key=lambda hop: hop.cost_s, default=None)

    @property
    def latency_s(self) -> float:
        """Latency part of the whole cost in seconds; the rest is bandwidth."""
        return self.binding_group.latency_s + sum(hop.pair.latency_s for hop in self.hops)

    @property
    def repaired_s(self) -> float:
        """The cost of the same groups in the same order, their pipelines paired at least cost."""
        return self.swaps.repaired_s

    @cached_property
    def swaps(self) -> SwapCosts:
        """The costs of all swaps of two devices."""
        return SwapCosts(self.plan.placement.devices, self.pair)

    @property
    def best_swap(self) -> Swap | None:
        """The cheapest swap of two devices, pipelines paired anew; None where there is none."""
        return self.swaps.cheapest

    @property
    def is_local_optimum(self) -> bool:
        """Whether neither a swap of two devices nor pairing the pipelines anew costs less."""
        best_s = self.repaired_s if self.best_swap is None else min(self.repaired_s, self.best_swap.cost_s)
        return self.change_s(best_s) >= 0.0

    def change_s(self, cost_s: float) -> float:
        """Another placement's cost less the plan's in seconds; exactly 0 where they differ by rounding."""
        now_s = self.plan.cost.total_s
        return 0.0 if abs(cost_s - now_s) <= ROUNDING * now_s else cost_s - now_s

    def places(self, device: str | int) -> pd.DataFrame:
        """The cheapest swap into each other stage and into idleness (stage missing), cheapest first.

        Columns: stage, partner, cost_after_s, change_s.
        """
        topology, stages = self.plan.topology, self._stages
        chosen = topology.at(device)
        rows = []
        for stage in [*range(self.plan.job.n_stages), -1]:
            swap = self.swaps.best(chosen, np.flatnonzero(stages == stage))
            if swap is not None:
                rows.append((stage, topology.names[swap.partner], swap.cost_s, self.change_s(swap.cost_s)))
        frame = pd.DataFrame(rows, columns=["stage", "partner", "cost_after_s", "change_s"])
        frame["stage"] = _whole_numbers(frame["stage"].to_numpy())
        return frame.sort_values("cost_after_s", kind="stable", ignore_index=True)

    @cached_property
    def service(self) -> pd.DataFrame:
        """One row for each device, in the topology's order: its place and its costs.

        Columns: device; stage and replica (missing where idle); group_s, its costs to its partners; hop_before_s and
        hop_after_s, its costs to its neighbours in the pipeline.
        """
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
        """``service`` and each device's cheapest swap: partner, partner_stage, cost_after_s, change_s."""
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
        """(N,) stage of each device; -1 where it is idle."""
        stages = np.full(len(self.plan.topology), -1)
        stages[self.plan.placement.devices] = np.arange(self.plan.job.n_stages)[:, None]
        return stages


def _whole_numbers(numbers: IntArray) -> pd.arrays.IntegerArray:
    """A column of whole numbers, missing where negative, such as the stage of an idle device."""
    return pd.arrays.IntegerArray(numbers.astype(np.int64), numbers < 0)
