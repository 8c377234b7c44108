"""The bottlenecks of a plan: the slowest device of each group, the slowest pair of each hop, and the alternatives."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.cost import PairCosts, bottleneck_matching
from dtfm_lab.planning.path import EXACT_UP_TO, path_cost, shortest_path


@dataclass(frozen=True, kw_only=True)
class PairCost:
    """Cost of two devices to each other: a message each way."""

    devices: tuple[str, str]
    cost_s: float
    latency_s: float
    """Latency of both ways in seconds; the rest of the cost is bandwidth."""

    @property
    def bandwidth_s(self) -> float:
        return self.cost_s - self.latency_s

    def summary(self) -> dict[str, Any]:
        return {**vars(self), "devices": list(self.devices), "bandwidth_s": self.bandwidth_s}


@dataclass(frozen=True, kw_only=True)
class GroupBottleneck:
    """The bottleneck of one stage's group: its slowest device, which sets the cost of the synchronisation."""

    stage: int
    device: str
    cost_s: float
    latency_s: float
    """Latency of all of the device's messages in seconds; the rest of the cost is bandwidth."""
    dearest: PairCost | None
    """The device with its dearest partner; None for a group of one."""

    @property
    def dearest_share(self) -> float:
        """Share of the dearest partner in the group's cost."""
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
    """The pipeline whose pair is slowest."""
    pair: PairCost
    best_pairing_s: float
    """Cost of this hop with the two groups paired at least cost."""
    other_pairing_s: float | None
    """Cost of this hop with the best pairing that separates the slowest pair; None where there is none."""
    other_order: tuple[int, ...] | None
    """The best stage order in which the two groups are not neighbours; None for fewer than three stages."""
    other_order_s: float | None
    """The whole cost in that order, the pipelines paired at least cost."""

    @property
    def cost_s(self) -> float:
        return self.pair.cost_s

    def summary(self) -> dict[str, Any]:
        order = None if self.other_order is None else list(self.other_order)
        hop = {"stages": [self.stage, self.stage + 1], "cost_s": self.cost_s, **vars(self)}
        del hop["stage"]
        return {**hop, "pair": self.pair.summary(), "other_order": order}


def group_bottlenecks(plan: Plan, pair: PairCosts) -> tuple[GroupBottleneck, ...]:
    """The bottleneck of each stage's group."""
    both_ways_s = plan.topology.round_trip_s(0.0)
    groups = plan.placement.devices
    return tuple(
        _group_bottleneck(plan.topology, s, group, pair.group_s, both_ways_s) for s, group in enumerate(groups)
    )


def hop_bottlenecks(plan: Plan, pair: PairCosts) -> tuple[HopBottleneck, ...]:
    """The bottleneck of each hop, by its earlier stage."""
    both_ways_s = plan.topology.round_trip_s(0.0)
    return tuple(_hop_bottleneck(plan, s, pair.hop_s, both_ways_s) for s in range(plan.job.n_stages - 1))


def _group_bottleneck(
    topology: Topology, stage: int, group: IntArray, group_s: FloatArray, both_ways_s: FloatArray
) -> GroupBottleneck:
    within = group_s[np.ix_(group, group)]
    slowest = int(within.sum(axis=1).argmax())
    to_others = within[slowest].copy()
    to_others[slowest] = -1.0  # so that the device is not its own partner where messages cost nothing
    device, partner = int(group[slowest]), int(group[to_others.argmax()])
    return GroupBottleneck(
        stage=stage,
        device=topology.names[device],
        cost_s=float(within[slowest].sum()),
        latency_s=float(both_ways_s[device, group].sum()),
        dearest=_pair_cost(topology, device, partner, group_s, both_ways_s) if partner != device else None,
    )


def _hop_bottleneck(plan: Plan, stage: int, hop_s: FloatArray, both_ways_s: FloatArray) -> HopBottleneck:
    here, there = plan.placement.devices[stage], plan.placement.devices[stage + 1]
    replica = int(hop_s[here, there].argmax())
    apart = hop_s[np.ix_(here, there)]
    forbidden = float(apart.sum()) + 1.0
    apart[replica, replica] = forbidden
    other_s, _ = bottleneck_matching(apart)
    order = _order_without(plan.cost.weights_s, stage)
    order_s = None if order is None else plan.cost.data_parallel_s + path_cost(plan.cost.weights_s, np.array(order))
    return HopBottleneck(
        stage=stage,
        replica=replica,
        pair=_pair_cost(plan.topology, int(here[replica]), int(there[replica]), hop_s, both_ways_s),
        best_pairing_s=float(plan.cost.weights_s[stage, stage + 1]),
        other_pairing_s=other_s if other_s < forbidden else None,
        other_order=order,
        other_order_s=order_s,
    )


def _pair_cost(topology: Topology, a: int, b: int, cost_s: FloatArray, both_ways_s: FloatArray) -> PairCost:
    names = (topology.names[a], topology.names[b])
    return PairCost(devices=names, cost_s=float(cost_s[a, b]), latency_s=float(both_ways_s[a, b]))


def _order_without(weights: FloatArray, stage: int) -> tuple[int, ...] | None:
    """The cheapest stage order in which ``stage`` and the next are not neighbours; None for fewer than three stages.

    Exact up to 14 stages; with more, the cheapest order that reverses one run of stages.
    """
    n = len(weights)
    if n < 3:
        return None
    if n > EXACT_UP_TO:
        as_is = np.arange(n)
        runs = [*((i, stage) for i in range(stage)), *((stage + 1, j) for j in range(stage + 2, n))]
        orders = [np.concatenate([as_is[:i], as_is[i : j + 1][::-1], as_is[j + 1 :]]) for i, j in runs]
        order = min(orders, key=lambda order: path_cost(weights, order))
    else:
        barred = weights.copy()
        barred[stage, stage + 1] = barred[stage + 1, stage] = weights.sum() + 1.0
        order = shortest_path(barred)
    return tuple(int(s) for s in order)
