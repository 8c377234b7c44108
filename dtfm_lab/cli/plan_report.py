"""Prints plans and networks. A plan is shown with its time, its cost, the fields that were chosen, and its stages."""

from collections.abc import Iterator
from itertools import product

import numpy as np
import pandas as pd
from pandas import DataFrame

from dtfm_lab import files, lab, planning
from dtfm_lab.cli.options import AUTO
from dtfm_lab.cli.terminal import out, print_host_notes, print_json, print_rows, print_table, waiting
from dtfm_lab.cli.traces import interval_of, worth_of
from dtfm_lab.domain.network import Topology, set_words
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.plan.choices import words_of
from dtfm_lab.domain.units import (
    FloatArray,
    by_key,
    counted,
    format_s,
    format_share,
    money,
    to_gbps,
    to_ms,
)
from dtfm_lab.planning.explain.loose_bound import loose_bound_words
from dtfm_lab.simulation.memory import held_memory, memory_summary, memory_words

MOST_PLACED = 24
"""Up to this many placed devices, the table of stages names each. Up to this many devices in a network, those without a
region are listed one by one. ``explain`` lists at most this many devices."""


def report_plan(plan: Plan, output: str | None, as_json: bool, *, explained: bool = False) -> None:
    """Print a plan, and write it to ``output`` if given.

    ``explained`` is True if the caller prints an explanation next. The explanation also says if a lower bound is
    loose, so this report does not.
    """
    if output is not None:
        files.save_plan(plan, output)
    with waiting("plan", "simulating the plan"):
        # A plan too large to simulate, or without a model, still has a cost to report.
        trace = None if plan.iteration_s is None else lab.simulate(plan)
        held = held_memory(plan)
    if as_json:
        memory = None if held is None else memory_summary(held) | {"advice": held.advice}
        return print_json(
            plan.summary()
            | {"memory": memory, "interval_s": None if trace is None else interval_of(trace)}
            | {"basis": None if trace is None else trace.context.basis._asdict()}
            | {"not_simulated": planning.why_not_simulated(plan) or None}
        )
    for line in _headlines(plan, says_bound=not explained):
        out.print(line)
    if held is not None and not held.fits:
        out.print(f"it fits on {int((held.over_bytes == 0).sum())} of {counted(held.over_bytes.size, 'device')}")
    if trace is not None:
        out.print(worth_of(trace))
    cost, blocks = plan.cost, plan.blocks_per_stage
    stages = DataFrame({"stage": range(len(plan.stages))})
    if blocks:
        stages["blocks"] = blocks
    stages["devices"] = _stage_devices(plan)
    stages["synchronisation_s"] = cost.group_s
    stages["hop to the next_s"] = [*cost.hop_s, None]
    print_table(stages)
    if plan.idle_devices:
        out.print(plan.idle_words)
    if held is not None:
        out.print(memory_words(held))


def _stage_devices(plan: Plan) -> list[str]:
    """Return the devices of each stage as text: names, or above ``MOST_PLACED`` devices their number and hosts."""
    if plan.placement.devices.size <= MOST_PLACED:
        return [" ".join(names) for names in plan.stages]
    devices, gpus = plan.topology.devices, plan.job.group_gpus
    size = f" x TP {gpus}" if gpus == plan.job.tensor_parallel != 1 else f" x {gpus} GPUs" if gpus > 1 else ""
    where = [set_words(devices, group.tolist()).removeprefix("all of ") for group in plan.placement.devices]
    return [f"{plan.job.n_replicas}{size} on {words}" for words in where]


def seconds_by_stage(plan: Plan, devices: DataFrame) -> DataFrame:
    """Return a table with one row per stage and one for idle devices, for plans with too many devices to list.

    ``devices`` has one row per device of the network, in the network's order. In a stage's row, busy seconds are
    averaged over its devices, and seconds on the critical path are added up. Memory is shown for the device with the
    least left.
    """
    rows = []
    for stage, members in devices.groupby("stage", dropna=False):
        is_idle = pd.isna(stage)
        words = set_words(plan.topology.devices, members.index).removeprefix("all of ")
        row = {
            "stage": None if is_idle else stage,
            "devices": f"{len(members)} {'idle: ' if is_idle else 'on '}{words}",
        }
        if not is_idle:
            fullest = members.iloc[int((members["limit_bytes"] - members["peak_bytes"]).to_numpy().argmin())]
            row |= {"mean busy_s": members["busy_s"].mean(), "critical_s": members["critical_s"].sum()}
            row |= {"peak_bytes": fullest["peak_bytes"], "limit_bytes": fullest["limit_bytes"]}
        rows.append(row)
    return DataFrame(rows)


def _headlines(plan: Plan, *, says_bound: bool) -> Iterator[str]:
    """Yield lines with the plan's shape, its iteration time and price, and its communication cost."""
    job, cost = plan.job, plan.cost
    shape = f"{job.name} on {plan.topology.name}, "
    shape += f"{counted(job.n_stages, 'stage')} x {counted(job.n_replicas, 'replica')}"
    if job.model is not None:
        counts = sorted(set(job.microbatch_counts), reverse=True)
        shares = str(counts[0]) if len(counts) == 1 else ", ".join(map(str, job.microbatch_counts))
        ahead = "" if job.warmups is None else f" ({', '.join(map(str, job.warmups))} warm-up passes)"
        shape += f", {job.schedule_name}{ahead}, batch of {job.batch_words}"
        shape += f" in micro-batches of {job.microbatch}: {shares} per pipeline"
        shape += {"none": "", "stage": ", recomputed"}.get(job.checkpoints, f", checkpoints {job.checkpoints}")
    yield f"{shape}; by {plan.planner}"
    yield from () if job.model is None else job.model.notes
    yield from _choices(plan)
    if plan.iteration_s is not None:
        loose = loose_bound_words(plan)
        left = f", {plan.speed_up_words}" if plan.speed_up_words and not loose else ""
        price = plan.price_per_billion_tokens
        dollars = f"; {money(price)} a billion {job.counted}" if price else ""
        rate = f", {plan.throughput_words}" if plan.throughput_words else ""
        yield f"iteration {format_s(plan.iteration_s)}{rate}{left}{dollars}"
        yield from [loose] if loose and says_bound else []
    elif why := planning.why_not_simulated(plan):
        yield f"iteration not simulated: {why}"
    yield (
        f"communication cost {format_s(cost.total_s)} (data parallel {format_s(cost.data_parallel_s)} + pipeline "
        f"{format_s(cost.pipeline_s)}), bound in this shape {format_s(plan.lower_bound_s)}, gap "
        f"{format_share(plan.gap)}"
    )


def _choices(plan: Plan) -> Iterator[str]:
    """Yield one line on the fields that the search chose, and one on those that the job pins and how to unpin them."""
    if plan.chosen:
        yield f"chosen: {words_of(plan.job, plan.chosen)}"
    if pinned := plan.given:
        only = next(iter(pinned)) if len(pinned) == 1 else ""
        opens = f"--set {only}={AUTO} opens it" if only else f"--set FIELD={AUTO} opens one of {', '.join(pinned)}"
        yield f"pinned: {words_of(plan.job, pinned)}; {opens}"


def report_topology(topology: Topology, as_json: bool) -> None:
    print_host_notes(topology)
    if as_json:
        return print_json(files.topology_to_mapping(topology))
    out.print(f"{topology.name}: {counted(len(topology), 'device')}. {topology.description}")
    print_rows(("from", "to", "links", "latency ms", "bandwidth Gbit/s"), _link_rows(topology))


def _link_rows(topology: Topology) -> Iterator[tuple[object, ...]]:
    """Yield one row per ordered pair of regions. Links inside a host have separate rows, because they are faster.

    In a network with many devices, all devices without a region form one group.
    """
    few = len(topology) <= MOST_PLACED
    groups = by_key((d.region or (d.name if few else "no region"), i) for i, d in enumerate(topology.devices))
    # Without regions, a small network is listed device by device; a large one would take a row for each pair.
    # Without hosts, each device counts as a host.
    nic_of = topology.nic_of
    hosts = np.arange(len(topology)) if nic_of is None else nic_of
    latency_ms, gbps = to_ms(topology.latency_s), to_gbps(topology.bandwidth_bytes_per_s)
    for a, b in product(groups, groups):
        grid = np.ix_(groups[a], groups[b])
        apart = hosts[grid[0]] != hosts[grid[1]]
        # A device has no link to itself.
        inside = ~apart & (np.array(groups[a])[:, None] != np.array(groups[b])[None, :])
        for to, chosen in ((b, apart), (f"{b}, same host", inside)):
            if chosen.any():
                yield a, to, int(chosen.sum()), _span(latency_ms[grid][chosen]), _span(gbps[grid][chosen])


def _span(values: FloatArray) -> str:
    low, high = float(values.min()), float(values.max())
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"
