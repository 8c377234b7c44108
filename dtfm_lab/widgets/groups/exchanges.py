"""Exchanging two devices by hand: the cost of every exchange, and the plan after it. It contains no widget."""

from dataclasses import replace
from typing import Any

from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import format_s
from dtfm_lab.planning import Explanation, evaluate, simulated

IDLE = -1
"""Stage of a device that the plan leaves idle."""


def offers(explanation: Explanation, device: str) -> dict[str, Any]:
    """Return the cost of every exchange of a device: the cheapest into each group, and with each device.

    ``{"device", "stage", "now_s", "groups": [{"stage", "partner", "cost_s", "change_s"}], "devices": {name: [cost_s,
    change_s]}}``. Groups come cheapest first; group -1 are the idle devices. The costs are exact: those of
    ``Explanation.places``, and of the plan after the move.

    Raises UnknownName for a device that the plan's network does not have.
    """
    plan, swaps = explanation.plan, explanation.swaps
    names, chosen = plan.topology.names, plan.topology.at(device)
    own = swaps.stage_of(chosen)
    best: dict[int, tuple[float, int]] = {}
    devices = {}
    for partner in range(len(names)):
        theirs = swaps.stage_of(partner)
        if theirs == own:
            continue
        cost_s = swaps.price(chosen, partner)
        devices[names[partner]] = [cost_s, explanation.change_s(cost_s)]
        stage = IDLE if theirs is None else theirs
        best[stage] = min(best.get(stage, (cost_s, partner)), (cost_s, partner))
    groups = [
        {"stage": stage, "partner": names[partner], "cost_s": cost_s, "change_s": explanation.change_s(cost_s)}
        for stage, (cost_s, partner) in sorted(best.items(), key=lambda item: item[1])
    ]
    return {
        "device": device,
        "stage": IDLE if own is None else own,
        "now_s": plan.cost.total_s,
        "groups": groups,
        "devices": devices,
    }


def exchanged(plan: Plan, device: str, partner: str) -> Plan:
    """Return the plan with two devices exchanged; in a plan for the communication cost, pipelines are paired again in
    the same stage order.

    Network and job are the same, so the bound of either plan holds for both, and the larger one is kept.

    Raises PlanError where the two have the same group, UnknownName for a device that is not there.
    """
    for name in (device, partner):
        plan.topology.index(name)
    places = {name: stage for stage, group in enumerate(plan.stages) for name in group}
    if places.get(device) == places.get(partner):
        where = "idle" if device not in places else f"of stage {places[device]}"
        raise PlanError(f"{device} and {partner} are both {where}; wanted devices of two groups")
    other = {device: partner, partner: device}
    if plan.objective == "communication":
        stages = [[other.get(name, name) for name in group] for group in plan.stages]
        made = evaluate(plan.topology, plan.job, stages=stages)
    else:
        names = plan.topology.names
        rank_of = dict(zip(names, plan.rank_map, strict=True))
        made = evaluate(plan.topology, plan.job, rank_map=[rank_of[other.get(name, name)] for name in names])
    bound_s = min(max(made.lower_bound_s, plan.lower_bound_s), made.cost.total_s)
    made = simulated(replace(made, lower_bound_s=bound_s, objective=plan.objective, queueing=plan.queueing))
    iteration_bound_s = plan.iteration_lower_bound_s
    if made.iteration_s is None or iteration_bound_s is None:
        return made
    return replace(made, iteration_lower_bound_s=min(iteration_bound_s, made.iteration_s))


def change(difference_s: float, of_s: float) -> str:
    """Return a difference with its sign, as precise as the cost beside it: ``+0.51 s``, ``−3 ms``, ``no change``."""
    if abs(difference_s) <= 1e-9 * of_s:
        return "no change"
    size = abs(difference_s)
    text = f"{size:.2f} s" if of_s >= 1 and size >= 0.005 else format_s(size)
    return f"{'+' if difference_s > 0 else '−'}{text}"


def from_to(before: Plan, after: Plan) -> str:
    """Return ``13.41 s → 13.92 s, +0.51 s``: the communication cost, after the iteration where both are known."""
    cost = _from_to(before.cost.total_s, after.cost.total_s)
    if before.iteration_s is None or after.iteration_s is None:
        return cost
    return f"iteration {_from_to(before.iteration_s, after.iteration_s)}; communication cost {cost}"


def _from_to(now_s: float, then_s: float) -> str:
    return f"{format_s(now_s)} → {format_s(then_s)}, {change(then_s - now_s, now_s)}"
