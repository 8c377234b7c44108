"""The inspector's text about the selection: a device, a link, a stage, or one pipeline if nothing is selected."""

from collections.abc import Mapping
from itertools import combinations
from typing import Any

import numpy as np

from dtfm_lab.domain.network import Topology, name_words, set_words
from dtfm_lab.domain.network.device import gpus_of
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import TERA, counted, format_bytes, format_gbps, format_s, in_figures, to_gbps, to_ms
from dtfm_lab.widgets.lab_state import LabState, planned_as
from dtfm_lab.widgets.planner.plan_words import PLANNING
from dtfm_lab.widgets.views.groups import layers_of

MOST_LISTED = 4
"""Maximum number of names that are listed in full."""

ELSEWHERE = "the numbers above are for your plan"
Facts = dict[str, Any]


def inspect(state: LabState) -> Facts:
    """Return {kind, title, hint, ...} for the page's inspector. ``kind`` determines the other keys."""
    topology, plan = state.topology, state.plan
    drawn = state.shown_stages or {name: stage for name, (stage, _) in state.shown_tasks.items()}
    if drawn or topology is None:
        plan = None  # the inspector describes what is drawn
    before = plan  # kept until there is a new plan
    planned = None if plan is None or topology is None else planned_as(plan, topology)
    if planned is None:
        plan = None  # it is for devices that have left, or lacks new ones
    if topology is None:
        return {"kind": "empty", "title": "No network yet", "hint": "double-click the canvas to add a device"}
    known = set(topology.names)
    if len(state.selected_link) == 2 and known.issuperset(state.selected_link):
        return _of_link(topology, plan, planned or {}, *state.selected_link)
    selected = [name for name in state.selected if name in known]
    # One device has more to tell than a group, so it comes first.
    if len(selected) == 1:
        return _of_device(topology, plan, selected[0], planned) | _drawn_as(drawn, selected[0])
    if selected and plan is not None and planned is not None and len({planned.get(name) for name in selected}) == 1:
        facts = _of_device(topology, plan, selected[0], planned)  # GPUs that act as one
        return facts | {"title": set_words(topology.devices, map(topology.index, selected)).removeprefix("all of ")}
    if selected:
        return _of_devices(topology, plan, selected)
    if before is not None and 0 <= state.selected_stage < before.job.n_stages:
        return _of_stage(before, state.selected_stage)
    if drawn:
        return {"kind": "empty", "title": "Showing a candidate, not your plan", "hint": ELSEWHERE}
    if before is not None and (plan is None or not state.can_be_planned):
        return _of_pipeline(before) | {"title": "One pipeline of the previous plan"}
    if plan is not None and state.is_chosen_otherwise:
        return (found := _of_pipeline(plan)) | {"hint": f"as planned, {found['hint']}"}
    if plan is not None:
        return _of_pipeline(plan)
    if state.is_planning:
        return {"kind": "empty", "title": PLANNING, "hint": ""}
    cannot = state.job is None or bool(state.not_planned)  # the headline says why
    hint = "draw at least two devices" if len(topology) < 2 else "" if cannot else "press Plan"
    return {"kind": "empty", "title": "No plan yet", "hint": hint}


def _drawn_as(drawn: Mapping[str, int], name: str) -> Facts:
    """Return the stage of a device in a displayed plan that is not the lab's. Empty if it is idle there."""
    return {"stage": drawn[name], "n_stages": 1 + max(drawn.values())} if name in drawn else {}


def _of_pipeline(plan: Plan) -> Facts:
    """Return the stages of one pipeline, with the seconds of each hop, and the parts of the communication cost."""
    layers, cost = layers_of(plan), plan.cost
    stages = [
        {"stage": s, "name": _place(plan, group.tolist()), "layers": layer or f"stage {s}", "group_s": float(group_s)}
        for s, (group, layer, group_s) in enumerate(zip(plan.placement.devices, layers, cost.group_s, strict=True))
    ]
    # One unit for all hops, so that they can be compared at a glance.
    unit, in_unit = ("ms", 1e3) if cost.hop_s.max(initial=0.0) < 1 else ("s", 1.0)
    hops = [{"seconds": float(s), "text": in_figures(float(s) * in_unit)} for s in cost.hop_s]
    total = [
        [format_s(cost.total_s), "communication cost ="],
        [format_s(cost.data_parallel_s), "slowest averaging +" if hops else "slowest averaging"],
    ]
    total += [[format_s(cost.pipeline_s), counted(len(hops), "hop")]] if hops else []
    facts = {"kind": "pipeline", "title": "One pipeline, first layer to last", "hint": f"slowest hops in {unit}"}
    return facts | {"n_stages": plan.job.n_stages, "stages": stages, "hops": hops, "total": total}


def _of_device(topology: Topology, plan: Plan | None, name: str, planned: Mapping[str, int] | None) -> Facts:
    device = topology.devices[topology.index(name)]
    memory = [] if device.memory_bytes is None else [format_bytes(device.memory_bytes)]
    hint = ", ".join(filter(None, [device.gpu, *memory, device.region]))
    speed = ["speed", f"{device.peak_flop_per_s / TERA:.4g} TFLOP/s peak, in half precision", -1]
    facts: Facts = {"kind": "device", "title": name, "hint": hint, "stage": -1, "rows": [speed]}
    if plan is None or planned is None:
        return facts
    places = np.argwhere(plan.placement.devices == (at := planned.get(name, -1)))
    if not len(places):
        return facts | {"rows": [["role", "idle: the plan is better without it", -1], speed]}
    s, r = map(int, places[0])
    cost, group, network = plan.cost, [int(d) for d in plan.placement.devices[s] if d != at], plan.topology
    rows: list[list[Any]] = []
    if plan.job.group_gpus > 1:
        rows.append(["acts as one with", f"{set_words(network.devices, [at])}, {plan.job.group_gpus} GPUs", s])
    if group:
        rows.append(["averages with", f"{_names(network, group)}: {format_s(float(cost.group_s[s]))} in total", s])
    for other, verb in ((s - 1, "receives from"), (s + 1, "sends to")):
        if 0 <= other < plan.job.n_stages:
            there = int(plan.placement.devices[other, r])
            source, target = (there, at) if other < s else (at, there)
            rows.append([verb, f"{_names(network, [there])}, {_link_words(network, source, target)}", other])
    hint = f"{', '.join(filter(None, [f'stage {s}, pipeline {r}', layers_of(plan)[s]]))} · {hint}"
    return facts | {"stage": s, "n_stages": plan.job.n_stages, "hint": hint, "rows": [*rows, speed]}


def _of_devices(topology: Topology, plan: Plan | None, names: list[str]) -> Facts:
    planned = None if plan is None else planned_as(plan, topology)
    served = {} if plan is None else {int(d): s for (s, _), d in np.ndenumerate(plan.placement.devices)}
    held = sorted({served[at] for name in names if planned is not None and (at := planned.get(name)) in served})
    chosen = [topology.index(name) for name in names]
    rows = [["devices", set_words(topology.devices, chosen, 3 * MOST_LISTED), -1]]
    rows += [["stages", name_words(list(map(str, held)), 3 * MOST_LISTED), -1]] if held else []
    hosts = {topology.devices[i].host for i in chosen}
    title = next(iter(hosts)) if len(hosts) == 1 and "" not in hosts else counted(len(names), "device")
    gpus = gpus_of(topology.devices[i] for i in chosen)
    hint = ", ".join(f"{n:,} x {gpu}" if len(names) > 1 or n > 1 else gpu for gpu, n in sorted(gpus.items()))
    return {"kind": "device", "title": title, "hint": hint, "stage": -1, "rows": rows}


def _of_stage(plan: Plan, stage: int) -> Facts:
    cost, devices = plan.cost, plan.placement.devices[stage].tolist()
    rows: list[list[Any]] = [["devices", _names(plan.topology, devices, 3 * MOST_LISTED), -1]]
    if plan.job.n_replicas > 1:
        rows.append(["averaging", f"{format_s(float(cost.group_s[stage]))}, by the communication cost", -1])
    for hop, words, other in ((stage - 1, "hop from", stage - 1), (stage, "hop to", stage + 1)):
        if 0 <= hop < len(cost.hop_s):
            rows.append([words, format_s(float(cost.hop_s[hop])), other])
    facts = {"kind": "stage", "title": f"Stage {stage}", "hint": layers_of(plan)[stage]}
    return facts | {"stage": stage, "n_stages": plan.job.n_stages, "rows": rows}


def _of_link(topology: Topology, plan: Plan | None, planned: Mapping[str, int], source: str, target: str) -> Facts:
    a, b = topology.index(source), topology.index(target)
    regions = topology.devices[a].region, topology.devices[b].region
    apart = regions[0] != regions[1] and "" not in regions
    title = " – ".join(regions) if apart else f"{source} – {target}"
    facts: Facts = {"kind": "link", "title": title, "ends": [source, target]}
    facts["hint"] = f"numbers from {source} to {target}" if apart else "both ways"
    facts["gbps"] = float(to_gbps(topology.bandwidth_bytes_per_s[a, b]))
    facts["ms"] = float(to_ms(topology.latency_s[a, b]))
    here, there = planned.get(source), planned.get(target)
    if plan is None or here is None or there is None:
        return facts | {"rows": []}
    use = "uses it inside a group of GPUs that act as one" if here == there else _use(plan, here, there)
    return facts | {"rows": [["the plan", use, -1]]}


def _use(plan: Plan, a: int, b: int) -> str:
    """Return what the plan sends over the link between two devices, or between their regions."""
    topology, devices = plan.topology, plan.placement.devices
    # A device without a region counts as its own.
    region = [device.region or device.name for device in topology.devices]
    pair = {region[a], region[b]}
    # Links between regions are drawn as one line, so the answer is about all of them.
    exact = region[a] == region[b]

    def joins(one: int, other: int) -> bool:
        return {one, other} == {a, b} if exact else {region[one], region[other]} == pair

    pairs = [(s, *pair) for s in range(len(devices) - 1) for pair in devices[s : s + 2].T.tolist()]
    hops = [s for s, one, other in pairs if joins(one, other)]
    groups = [s for s, group in enumerate(devices.tolist()) if any(joins(*pair) for pair in combinations(group, 2))]
    words = []
    if hops:
        stages = sorted(set(hops))
        between = ", ".join(f"{s} and {s + 1}" for s in stages[:MOST_LISTED])
        words.append(f"carries {counted(len(hops), 'hop')} between stages {between}")
    if groups:
        words.append(f"averages stage{'' if len(groups) == 1 else 's'} {', '.join(map(str, groups[:MOST_LISTED]))}")
    last, model = len(devices) - 1, plan.job.model
    if last and model is not None and model.tied and any(joins(*pair) for pair in devices[[0, last]].T.tolist()):
        words.append(f"adds up the gradients of the embedding that stages 0 and {last} share")
    return "; ".join(words) if words else "sends nothing over it"


def _link_words(topology: Topology, source: int, target: int) -> str:
    gbps = to_gbps(topology.bandwidth_bytes_per_s[source, target])
    return f"{format_gbps(gbps)}, {to_ms(topology.latency_s[source, target]):.3g} ms"


def _names(topology: Topology, devices: list[int], most: int = MOST_LISTED) -> str:
    several = any(topology.devices[d].gpus > 1 for d in devices)
    if len(devices) <= most and not several:
        return ", ".join(topology.names[d] for d in devices)
    regions = {topology.devices[d].region for d in devices}
    if several:
        return set_words(topology.devices, devices).removeprefix("all of ")
    many = counted(len(devices), "device")
    if len(regions) == 1 and "" not in regions and len(topology.regions) > 1:
        return f"{many} in {next(iter(regions))}"
    return f"{many}: {set_words(topology.devices, devices)}"


def _place(plan: Plan, devices: list[int]) -> str:
    """Return where a stage's devices are: their region, or ``Tokyo +1`` for several. A single device, or the first
    device without a region, is named instead."""
    found = [plan.topology.devices[d] for d in devices]
    regions = list(dict.fromkeys(device.region for device in found))
    if len(found) == 1 or regions == [""]:
        return found[0].name
    return regions[0] if len(regions) == 1 else f"{regions[0] or found[0].name} +{len(regions) - 1}"
