"""The paper's five steps from a network to a plan in words."""

from typing import NamedTuple

import numpy as np

from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import FloatArray, counted, format_s, format_share, to_gbps, to_ms
from dtfm_lab.planning.cost import EXACT_UP_TO, path_cost, shortest_path
from dtfm_lab.planning.step import PROVEN
from dtfm_lab.widgets.views.groups import Lettered, lettered

STEPS = {"a": "graph", "b": "groups", "c": "nodes", "d": "weights", "e": "path"}
"""{letter: word} of each step, as on its button."""
SHOWN_IN_PATH = 12
"""Most groups of a path that are listed; of a longer path only the ends are."""


class StepText(NamedTuple):
    """A step in words."""

    title: str
    happens: str
    """What the step does, for any plan."""
    numbers: str
    """What it gives for this plan."""
    source: str
    """Section or equation of the paper."""


def describe_step(plan: Plan, letter: str) -> StepText:
    """Return one of the five steps in words; raises KeyError for a letter other than a to e.

    Source: DT-FM section 3, its communication graph, equations 1 to 4.
    """
    return {"a": _graph, "b": _groups, "c": _nodes, "d": _weights, "e": _path}[letter](plan, lettered(plan))


def _graph(plan: Plan, _groups: Lettered) -> StepText:
    topology, n = plan.topology, len(plan.topology)
    apart = ~np.eye(n, dtype=bool)
    numbers = f"{counted(n, 'device')}, no link."
    if n > 1:
        latency, speed = to_ms(topology.latency_s[apart]), to_gbps(topology.bandwidth_bytes_per_s[apart])
        ranges = f"{_range(latency, 'ms')} and {_range(speed, 'Gbit/s')}"
        numbers = f"{counted(n, 'device')} and {n * (n - 1):,} directed links: {ranges}."
    return StepText(
        "Communication graph",
        "Every pair of devices has a latency and a bandwidth in each direction: all that the planner knows.",
        numbers,
        "section 3, matrices A and B",
    )


def _groups(plan: Plan, groups: Lettered) -> StepText:
    s, d = plan.placement.devices.shape
    cost = plan.cost
    if d == 1:
        numbers = f"{counted(s, 'group')} of one device: there are no gradients to average."
    else:
        slowest = int(cost.group_s.argmax())
        alike = int((cost.group_s >= cost.group_s[slowest] * (1 - 1e-9)).sum()) - 1
        others = f" ({counted(alike, 'other')} {'takes' if alike == 1 else 'take'} as long)" if alike else ""
        sync = f"Group {groups.letter(slowest)} synchronises in {format_s(cost.data_parallel_s)}, the slowest{others}"
        numbers = f"{counted(s, 'group')} of {counted(d, 'device')}. {sync}: it sets the data-parallel cost."
    if idle := len(plan.idle_devices):
        numbers += f" {counted(idle, 'device')} {'stays' if idle == 1 else 'stay'} idle."
    return StepText(
        "Balanced groups",
        "Devices gather into groups of one size. All of a group will hold the same layers and average their gradients; "
        "a group waits for its slowest device.",
        numbers,
        "equation 2",
    )


def _nodes(plan: Plan, _groups: Lettered) -> StepText:
    s, d = plan.placement.devices.shape
    n = s * d
    return StepText(
        "Coarsened graph",
        "Each group becomes one node, and between two nodes there is one edge.",
        f"{counted(n, 'device')} and {counted(n * (n - 1) // 2, 'pair')} of them become {counted(s, 'node')} and "
        f"{counted(s * (s - 1) // 2, 'edge')}.",
        "equation 3",
    )


def _weights(plan: Plan, groups: Lettered) -> StepText:
    s = plan.job.n_stages
    if s == 1:
        numbers = "One group, so no edge to weigh."
    else:
        a, b = np.triu_indices(s, 1)
        weights = plan.cost.weights_s[a, b]
        low, high = (
            f"{format_s(float(weights[k]))} ({_joined(groups, int(a[k]), int(b[k]))})"
            for k in (int(weights.argmin()), int(weights.argmax()))
        )
        numbers = f"The lightest edge weighs {low}, the heaviest {high}."
        if len(weights) == 1 or weights.max() <= weights.min() * (1 + 1e-9):
            numbers = f"{'The edge' if len(weights) == 1 else 'Every edge'} weighs {format_s(float(weights[0]))}."
    return StepText(
        "Weights",
        "Devices of two groups are matched so that the slowest pair is as fast as can be. "
        "That pair, activations there and gradients back, is the edge's weight.",
        numbers,
        "equation 3",
    )


def _path(plan: Plan, groups: Lettered) -> StepText:
    cost, s = plan.cost, plan.job.n_stages
    left = f"at most {format_share(max(plan.gap, 0.001))} of it could be saved"
    proof = "which is proven best in this shape" if plan.gap < PROVEN else left
    whole = f"{format_s(cost.total_s)} of communication cost, {proof}."
    if s == 1:
        numbers = f"A single stage needs no path: the plan has its synchronisation, {whole}"
    else:
        letters = [groups.letter(stage) for stage in range(s)]
        shown = " ".join(letters if s <= SHOWN_IN_PATH else [*letters[: SHOWN_IN_PATH - 2], "…", letters[-1]])
        path_s = format_s(cost.pipeline_s)
        numbers = f"{shown}: {path_s} in {counted(s - 1, 'hop')}"
        if s <= EXACT_UP_TO:
            shortest_s = path_cost(cost.weights_s, shortest_path(cost.weights_s))
            if cost.pipeline_s > shortest_s * (1 + 1e-9):
                numbers += f" (the shortest would take {format_s(shortest_s)})"
        numbers += f" + {format_s(cost.data_parallel_s)} of the slowest group = {whole}"
    return StepText(
        "Path",
        "The cheapest path through all nodes puts the groups in order: the first holds the first layers.",
        numbers,
        "equations 4 and 1",
    )


def _joined(groups: Lettered, a: int, b: int) -> str:
    return "–".join(sorted((groups.letter(a), groups.letter(b)), key=lambda letter: (len(letter), letter)))


def _range(values: FloatArray, unit: str) -> str:
    low, high = f"{values.min():.3g}", f"{values.max():.3g}"
    return f"{low} {unit}" if low == high else f"{low} to {high} {unit}"


def named(plan: Plan, stage: int) -> str:
    """Return ``stage 2 (C)``; ``idle`` for -1."""
    return "idle" if stage < 0 else f"stage {stage} ({lettered(plan).letter(stage)})"
