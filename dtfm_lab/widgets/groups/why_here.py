"""Why a device, a group or a hop is where it is: the plan's explanation in a few lines."""

from typing import NamedTuple

from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import format_s
from dtfm_lab.figures.plan.graph_steps import lettered
from dtfm_lab.planning import Explanation


class Subject(NamedTuple):
    """What is asked about: a device by name, a group by stage, a hop by its earlier stage; none asks about the plan."""

    device: str = ""
    group: int = -1
    hop: int = -1


class Why(NamedTuple):
    """An explanation: a heading and a line for each reason."""

    title: str
    lines: tuple[str, ...]


def why(explanation: Explanation, subject: Subject) -> Why:
    """Return the explanation; of the whole plan where it does not have the subject."""
    plan = explanation.plan
    if subject.device in plan.topology.names:
        return Why(f"Why here? {subject.device}", tuple(explanation.why(subject.device).splitlines()))
    if 0 <= subject.group < plan.job.n_stages:
        title = f"Why so? Group {lettered(plan).letter(subject.group)}, stage {subject.group}"
        return Why(title, tuple(_group(explanation, subject.group)))
    if 0 <= subject.hop < plan.job.n_stages - 1:
        title = f"Why so? The hop from stage {subject.hop} to {subject.hop + 1}"
        return Why(title, tuple(_hop(explanation, subject.hop)))
    return Why("Why so? The plan", tuple(explanation.text.splitlines()))


def _group(explanation: Explanation, stage: int) -> list[str]:
    group, slowest = explanation.groups[stage], explanation.binding_group
    if group.dearest is None:
        return ["A group of one device: it has nobody to average gradients with."]
    dearest = group.dearest
    lines = [
        f"It synchronises in {format_s(group.cost_s)}: so long does {group.device}, its slowest device, take, "
        f"{group.dearest_share:.0%} of it with {dearest.devices[1]} "
        f"({format_s(dearest.latency_s)} latency, {format_s(dearest.bandwidth_s)} bandwidth).",
        f"Of the whole {format_s(group.cost_s)}, latency is {_share(group.latency_s, group.cost_s)}.",
    ]
    if explanation.change_s(explanation.plan.cost.total_s + group.cost_s - slowest.cost_s) == 0:
        lines.append("No group takes longer: it sets the data-parallel cost.")
    else:
        lines.append(
            f"All groups synchronise at once; the one of stage {slowest.stage} takes longer, "
            f"{format_s(slowest.cost_s)}, so this one is not what the plan waits for."
        )
    return lines


def _hop(explanation: Explanation, stage: int) -> list[str]:
    hop, plan = explanation.hops[stage], explanation.plan
    pair = hop.pair
    lines = [
        f"It costs {format_s(hop.cost_s)}, {_share(hop.cost_s, plan.cost.total_s)} of the plan: it waits for pipeline "
        f"{hop.replica}, from {pair.devices[0]} to {pair.devices[1]} ({format_s(pair.latency_s)} latency, "
        f"{format_s(pair.bandwidth_s)} bandwidth, both ways)."
    ]
    if hop.cost_s > hop.best_pairing_s * (1 + 1e-9):
        lines.append(f"Pairing the two groups anew, it would cost {format_s(hop.best_pairing_s)}.")
    if hop.other_pairing_s is not None:
        lines.append(f"Without that pair it costs {format_s(hop.other_pairing_s)} at best.")
    if hop.other_order is not None and hop.other_order_s is not None:
        order = " ".join(lettered(plan).letter(s) for s in hop.other_order)
        change_s = explanation.change_s(hop.other_order_s)
        price = f"{format_s(abs(change_s))} {'more' if change_s > 0 else 'less'}" if change_s else "the same as now"
        lines.append(
            f"The best order that keeps the two groups apart, {order}, costs {format_s(hop.other_order_s)}, {price} "
            "(pipelines paired anew)."
        )
    return lines


def _share(part_s: float, whole_s: float) -> str:
    return f"{part_s / whole_s:.0%}" if whole_s > 0 else "0%"


def named(plan: Plan, stage: int) -> str:
    """Return ``stage 2 (C)``; ``idle`` for -1."""
    return "idle" if stage < 0 else f"stage {stage} ({lettered(plan).letter(stage)})"
