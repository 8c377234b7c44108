"""What the commands print about plans: the plan, its explanation, two of them, the worth of its devices."""

from __future__ import annotations

from typing import Any

from pandas import DataFrame
from rich.table import Table

from dtfm_lab import files
from dtfm_lab.cli.terminal import out, print_json, print_table
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import format_s
from dtfm_lab.planning import Difference, Explanation
from dtfm_lab.planning.explain.sentences import counted
from dtfm_lab.planning.explain.tables import plain_rows


def report_plan(plan: Plan, output: str | None, as_json: bool) -> None:
    if output is not None:
        files.save_plan(plan, output)
    if as_json:
        return print_json(plan.summary())
    cost = plan.cost
    out.print(
        f"{plan.job.name} on {plan.topology.name}, {plan.job.n_stages} stages x {plan.job.n_replicas} replicas: "
        f"{format_s(cost.total_s)} (data parallel {format_s(cost.data_parallel_s)} + pipeline "
        f"{format_s(cost.pipeline_s)}), bound {format_s(plan.lower_bound_s)}, gap {plan.gap:.1%}, by {plan.planner}"
    )
    table = Table("stage", "devices", "synchronisation", "hop to the next", box=None)
    hops = [*(format_s(float(h)) for h in cost.hop_s), ""]
    for s, (names, hop) in enumerate(zip(plan.stages, hops, strict=True)):
        table.add_row(str(s), " ".join(names), format_s(float(cost.group_s[s])), hop)
    out.print(table)
    if plan.idle_devices:
        out.print("idle: " + " ".join(plan.topology.names[i] for i in plan.idle_devices))


def report_explanation(explanation: Explanation, device: str | None, as_json: bool) -> None:
    """Sentences and the table of devices; of one device, sentences and its other places."""
    if as_json:
        return print_json(explanation.summary(device))
    out.print(explanation.text if device is None else explanation.why(device))
    exchanges = ["device", "stage", "replica", "partner", "partner_stage", "cost_after_s", "change_s"]
    print_table(explanation.to_frame()[exchanges] if device is None else explanation.places(device))


def report_difference(difference: Difference, as_json: bool) -> None:
    """Sentences, the cost by part, the devices to which something happened."""
    if as_json:
        return print_json(difference.summary())
    out.print(difference.text)
    print_table(difference.parts.reset_index())
    devices = difference.to_frame()
    if len(changed := devices[~devices["change"].isin(["stays", "idle"])]):
        print_table(changed)


def report_worth(table: DataFrame, as_json: bool) -> None:
    """The devices, the most needed first."""
    if as_json:
        return print_json({"devices": plain_rows(table)})
    n_stages, n_replicas = table["n_stages"].iloc[0], table["n_replicas"].iloc[0]
    out.print(
        f"{counted(n_stages, 'stage')} x {counted(n_replicas, 'replica')}: "
        "worth is the cost without a device less the cost with it serving"
    )
    print_table(table.drop(columns=["n_stages", "n_replicas"]))


def report_topology(topology: Topology, as_json: bool) -> None:
    if as_json:
        return print_json(files.topology_to_mapping(topology))
    out.print(f"{topology.name}: {len(topology)} devices. {topology.description}")
    links = topology.to_frame()
    region = {d.name: d.region or d.name for d in topology.devices}
    links["from"], links["to"] = links["source"].map(region), links["target"].map(region)
    table = Table("from", "to", "links", "latency ms", "bandwidth Gbit/s", box=None)
    for (a, b), group in links.groupby(["from", "to"], sort=False):
        spans = (_span(group["latency_ms"]), _span(group["bandwidth_gbps"]))
        table.add_row(str(a), str(b), str(len(group)), *spans)
    out.print(table)


def _span(values: Any) -> str:
    low, high = float(values.min()), float(values.max())
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"
