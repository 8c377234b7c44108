"""The communication cost of a plan in words. Stages and pipelines are counted from 0, as everywhere in the lab."""

from __future__ import annotations

from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import counted, format_s, format_share
from dtfm_lab.planning.explain.communication import ROUNDING, CostAnalysis, PairCost


def none_of(plan: Plan, no: str = "no") -> str:
    """Return ``no plan``, or ``no plan of 2 x 2`` if the bound covers only that shape: the subject of a sentence on the
    bound."""
    return plan.scope.replace("any", no, 1)


def of_plan(analysis: CostAnalysis) -> str:
    """Return one line each for the cost, the limiting group, the limiting hop, the cheapest swap and the bound."""
    lines = [_cost(analysis), _group(analysis), _hop(analysis), _swaps(analysis), _bound(analysis)]
    return "\n".join(filter(None, lines))


def of_cost_alone(analysis: CostAnalysis) -> str:
    """Return the communication cost of a plan that was made for another objective."""
    cost = analysis.plan.cost
    return (
        f"Its communication cost, which counts no computation and no overlap, is {format_s(cost.total_s)}: data "
        f"parallel {format_s(cost.data_parallel_s)} and hops {format_s(cost.pipeline_s)}."
    )


def of_device(analysis: CostAnalysis, device: int) -> str:
    """Return one line each for the device's place, its partners, its hops and its other places."""
    row, others = analysis.service.iloc[device], _other_places(analysis, device)
    if analysis.swaps.stage_of(device) is None:
        return f"{row['device']} is idle.\n{others}"
    begin = f"{row['device']} serves stage {row['stage']} in pipeline {row['replica']}."
    return "\n".join(filter(None, [begin, _partners(analysis, device), _own_hops(analysis, device), others]))


def _cost(analysis: CostAnalysis) -> str:
    plan, cost = analysis.plan, analysis.plan.cost
    job, total_s = plan.job, cost.total_s
    hops = "no hops" if job.n_stages == 1 else counted(job.n_stages - 1, "hop")
    return (
        f"{job.name} on {plan.topology.name}, {job.n_stages} x {job.n_replicas}, costs {format_s(total_s)}: "
        f"data parallel {format_s(cost.data_parallel_s)} ({_share(cost.data_parallel_s, total_s)}) and {hops} "
        f"{format_s(cost.pipeline_s)} ({_share(cost.pipeline_s, total_s)}); of the whole, latency is "
        f"{_share(analysis.latency_s, total_s)} and bandwidth {_share(total_s - analysis.latency_s, total_s)}."
    )


def _group(analysis: CostAnalysis) -> str:
    group = analysis.binding_group
    if group.dearest is None:
        return "Every group is one device: there are no gradients to exchange."
    others = [other for other in analysis.groups if other.stage != group.stage]
    alike = [other for other in others if same(other.cost_s, group.cost_s)]
    if alike:
        count = counted(len(alike), "other group").capitalize()
        follows = f" {count} {'costs' if len(alike) == 1 else 'cost'} as much."
    elif others:
        second = max(others, key=lambda other: other.cost_s)
        follows = f" The next, of stage {second.stage}, costs {format_s(second.cost_s)}."
    else:
        follows = ""
    n_partners = analysis.plan.job.n_replicas - 1
    several = f"its {n_partners} partners, {format_share(group.dearest_share, 0)} of it on "
    most = several if n_partners > 1 else "its partner "
    return (
        f"The group of stage {group.stage} sets the data-parallel cost: {group.device} spends "
        f"{format_s(group.cost_s)} on {most}{group.dearest.devices[1]} ({_parts(group.dearest)}).{follows}"
    )


def _hop(analysis: CostAnalysis) -> str:
    hop = analysis.binding_hop
    if hop is None:
        return ""
    alike = [other for other in analysis.hops if other is not hop and same(other.cost_s, hop.cost_s)]
    others = f"; {counted(len(alike), 'other')} {'costs' if len(alike) == 1 else 'cost'} as much" if alike else ""
    text = (
        f"The most expensive hop is from stage {hop.stage} to {hop.stage + 1}, {format_s(hop.cost_s)}{others}: "
        f"pipeline {hop.replica} goes from {hop.pair.devices[0]} to {hop.pair.devices[1]} ({_parts(hop.pair)})."
    )
    # Other pairs of the same groups may be better, without moving a device to another stage.
    if analysis.change_s(analysis.repaired_s) < 0:
        text += f" Pairing the same groups again would cost {_price(analysis, analysis.repaired_s)}."
    return text


def _swaps(analysis: CostAnalysis) -> str:
    swap = analysis.best_swap
    if swap is None:
        return "No two devices can be exchanged."
    a, b = (analysis.plan.topology.names[device] for device in (swap.device, swap.partner))
    costs = _price(analysis, swap.cost_s)
    if analysis.change_s(swap.cost_s) < 0:
        return f"Not a local optimum: exchanging {a} and {b} and pairing the pipelines again would cost {costs}."
    if not analysis.is_local_optimum:
        return "Not a local optimum: the pipelines are not paired as well as they could be."
    return f"No exchange of two devices costs less: a local optimum. The cheapest, of {a} and {b}, would cost {costs}."


def _bound(analysis: CostAnalysis) -> str:
    plan = analysis.plan
    # Rounding does not count as a gap.
    if plan.gap <= ROUNDING:
        return "Its communication cost is proven best: no placement of this job in this shape has a lower one."
    # A local optimum that is not proven best may still be the best.
    unknown = ", but a better placement may not exist" if analysis.is_local_optimum else ""
    return (
        f"No placement of this job in this shape has a communication cost below {format_s(plan.lower_bound_s)}: "
        f"at most {format_share(plan.gap)} could be saved{unknown}."
    )


def _partners(analysis: CostAnalysis, device: int) -> str:
    plan = analysis.plan
    group = analysis.groups[int(analysis.service["stage"].iloc[device])]
    own_s = float(analysis.service["group_s"].iloc[device])
    members = plan.placement.devices[group.stage]
    members = members[members != device]
    if not len(members):
        return ""
    costs = analysis.pair.group_s[device, members]
    dearest = plan.topology.names[members[int(costs.argmax())]]
    several = f"{len(members)} partners, most on {dearest} ({format_s(float(costs.max()))})"
    spends = f"It spends {format_s(own_s)} on its {several if len(members) > 1 else f'partner {dearest}'}"
    is_binding = group.stage == analysis.binding_group.stage
    if same(own_s, group.cost_s):
        added = ", which sets the data-parallel cost" if is_binding else ""
        return f"{spends}; no other device of the group takes longer{added}."
    return f"{spends}; the group waits for {group.device}, {format_s(group.cost_s)}."


def _own_hops(analysis: CostAnalysis, device: int) -> str:
    plan = analysis.plan
    row = analysis.service.iloc[device]
    stage, replica = int(row["stage"]), int(row["replica"])
    lines = []
    for other, own_s in ((stage - 1, row["hop_before_s"]), (stage + 1, row["hop_after_s"])):
        if not 0 <= other < plan.job.n_stages:
            continue
        neighbour = plan.topology.names[plan.placement.devices[other, replica]]
        hop_s = analysis.hops[min(stage, other)].cost_s
        waits = "which sets that hop" if same(own_s, hop_s) else f"of the {format_s(hop_s)} that the hop costs"
        lines.append(f"{format_s(own_s)} with {neighbour} of stage {other}, {waits}")
    return f"Its hops: {'; '.join(lines)}." if lines else ""


def _other_places(analysis: CostAnalysis, device: int) -> str:
    places = analysis.places(device)
    if not len(places):
        return "It has no other place to go."
    stages, partners, costs = (places[column].tolist() for column in ("stage", "partner", "cost_after_s"))
    text = f"The cheapest other place is {_place(stages[0], partners[0])}: {_price(analysis, costs[0])}"
    if len(places) > 1 and same(costs[0], costs[-1]):
        text += "; every other costs as much."
    elif len(places) > 1:
        text += f". The most expensive is {_place(stages[-1], partners[-1])}: {_price(analysis, costs[-1])}."
    else:
        text += "."
    return f"{text} (Each place is priced with its best exchange and the pipelines paired again.)"


def _place(stage: int | None, partner: str) -> str:
    import pandas as pd  # takes a while to load

    return f"idleness, with {partner} in its place" if pd.isna(stage) else f"stage {stage}, instead of {partner}"


def _price(analysis: CostAnalysis, cost_s: float) -> str:
    change_s = analysis.change_s(cost_s)
    if change_s == 0:
        return f"{format_s(cost_s)}, the same as now"
    return f"{format_s(cost_s)}, {format_s(abs(change_s))} {'more' if change_s > 0 else 'less'}"


def _parts(pair: PairCost) -> str:
    return f"{format_s(pair.latency_s)} latency, {format_s(pair.bandwidth_s)} bandwidth"


def same(a_s: float, b_s: float) -> bool:
    """True if two costs are equal up to rounding."""
    return abs(a_s - b_s) <= ROUNDING * max(abs(a_s), abs(b_s))


def _share(part_s: float, whole_s: float) -> str:
    return format_share(part_s / whole_s, 0) if whole_s > 0 else "0 %"
