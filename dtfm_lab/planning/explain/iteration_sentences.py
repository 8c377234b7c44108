"""The iteration time in words: what it consists of, what limits it, memory, idle time and the bound."""

from __future__ import annotations

from dtfm_lab.domain.job.options import chosen
from dtfm_lab.domain.network import set_words
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.registry import listed
from dtfm_lab.domain.units import counted, format_bytes, format_s, format_share, money
from dtfm_lab.planning.explain.iteration_analysis import WORTH_SAYING, IterationAnalysis, Part
from dtfm_lab.planning.explain.loose_bound import loose_bound_words
from dtfm_lab.planning.explain.sentences import none_of

CAUSES = {
    "compute": "computing",
    "latency": "latency",
    "bandwidth": "bandwidth",
    "queue": "messages that wait for others",
    "synchronisation": "synchronisation",
}
"""Cause on the critical path -> words for it."""
WAITS = {
    "dependency_s": "for passes of other devices",
    "latency_s": "for latency",
    "bandwidth_s": "for bandwidth",
    "queue_s": "behind other messages",
    "synchronisation_s": "in synchronisation",
    "straggler_s": "for slower devices",
}
"""Column of the table of devices -> what a device in use waits for while it does not compute."""
WORTH_NAMING = 0.05
"""A sentence names a second device only if it takes at least this share of the iteration."""
NEGLIGIBLE = 5e-4
"""Below this share of an iteration, a part is not mentioned."""


def of_iteration(analysis: IterationAnalysis) -> str:
    """Return the sentences about an iteration, one line each.

    They are about its seconds, the job's choices, what limits the iteration, shared NICs, memory, idle time, blocking
    sends, idle devices, the bound and the price.
    """
    said = (_seconds, _choices, binding, _shared_nics, _memory, _idle_time, _blocking, _left_out, _bound, _price)
    return "\n".join(filter(None, (sentence(analysis) for sentence in said)))


def of_device(analysis: IterationAnalysis, device: int) -> str:
    """Return sentences on where one device's seconds go and how much memory it holds."""
    import pandas as pd  # takes a while to load

    row = analysis.devices.iloc[device]
    if pd.isna(row["stage"]):
        return f"{row['device']} is idle."
    job, whole_s = analysis.plan.job, analysis.iteration_s
    idle = [(float(row[column]), words) for column, words in WAITS.items()]
    waits = ", ".join(f"{format_s(s)} {words}" for s, words in sorted(idle, reverse=True) if s > NEGLIGIBLE * whole_s)
    count = job.microbatch_counts[int(row["replica"])]
    lines = [
        f"{row['device']} serves stage {row['stage']} in pipeline {row['replica']}: "
        f"{count} micro-batch{'' if count == 1 else 'es'} an iteration.",
        f"It computes for {format_s(float(row['busy_s']))} of {format_s(whole_s)} "
        f"({format_share(float(row['busy_s']) / whole_s, 0)})" + (f" and waits {waits}." if waits else "."),
    ]
    on_path_s = float(row["critical_s"])
    if on_path_s > 0:
        lines.append(f"{format_s(on_path_s)} of its computing are on the critical path. Other paths may be as long.")
    else:
        lines.append("None of its computing is on the critical path: if it alone were faster, nothing would change.")
    lines.append(
        f"It holds {format_bytes(int(row['peak_bytes']))} and may use {format_bytes(int(row['limit_bytes']))}."
    )
    return "\n".join(lines)


def _seconds(analysis: IterationAnalysis) -> str:
    plan, job = analysis.plan, analysis.plan.job
    parts = ", ".join(
        f"{CAUSES.get(part.name, part.name)} {format_s(part.seconds)} ({format_share(part.share, 0)})"
        for part in analysis.parts("what")
        if part.share > NEGLIGIBLE
    )
    return (
        f"{job.name} on {plan.topology.name}, {job.n_stages} x {job.n_replicas}, takes "
        f"{format_s(analysis.iteration_s)} an iteration. Its critical path: {parts}."
    )


def _choices(analysis: IterationAnalysis) -> str:
    """Return a sentence that names the job's fields that differ from their default, such as sharding."""
    words = [name if value is True else f"{name} {value}" for name, value in chosen(analysis.plan.job).items()]
    return f"It uses {listed(words)}." if words else ""


def binding(analysis: IterationAnalysis) -> str:
    """Return a sentence on what limits the iteration: devices, links or synchronisation, with its share and name.

    A second sentence warns if making this device or link alone faster would save next to nothing.
    """
    share = analysis.by_class[analysis.binds] / analysis.iteration_s if analysis.iteration_s > 0 else 0.0
    of_path = f"{format_share(share, 0)} of the critical path"
    devices, links = analysis.parts("device"), analysis.parts("link")
    saves = analysis.alone_saves
    noun = "device" if analysis.binds == "device" else "link"
    little = f" Making this {noun} alone twice as fast would save next to nothing."
    alone = "" if saves is None or saves >= WORTH_SAYING else little
    if analysis.binds == "device":
        # The next one matters only if it is close.
        others = f", {_named(devices[1])} next" if len(devices) > 1 and devices[1].share > WORTH_NAMING else ""
        first = _on(analysis.plan, devices[0])
        return f"Computing is the bottleneck: {of_path}. {first} computes most{others}.{alone}"
    if analysis.binds == "link":
        many = f", the most of {counted(len(links), 'link')} on it" if len(links) > 1 else ""
        return f"Messages are the bottleneck: {of_path}. They travel over {_named(links[0])}{many}.{alone}"
    through = f" It goes over {_named(links[0])}." if links else ""
    return f"Averaging the gradients of replicas is the bottleneck: {of_path}.{through}{alone}"


def _shared_nics(analysis: IterationAnalysis) -> str:
    """Return a sentence on what it costs that devices of one host share a NIC; empty if none do."""
    if (alone_s := analysis.unshared_s) is None:
        return ""
    return f"Devices of one host share its NIC; with a NIC for each {_would_take(alone_s, analysis)}."


def _blocking(analysis: IterationAnalysis) -> str:
    """Return a sentence on what it costs that devices wait for their sends; empty if sends do not block."""
    if (overlapped_s := analysis.overlapped_s) is None:
        return ""
    would = _would_take(overlapped_s, analysis)
    transport = analysis.trace.context.plan.transport
    return f"Sends block (transport {transport}): devices wait for arrivals; if they continued to compute, {would}."


def _would_take(seconds: float, analysis: IterationAnalysis) -> str:
    saved = 1 - seconds / analysis.iteration_s
    less = f"{format_s(seconds)}, {format_share(saved)} less"
    return f"it would take {less if saved > NEGLIGIBLE else 'as long'}"


def _on(plan: Plan, part: Part) -> str:
    """Return words for the device of a part: its name, GPU and stage, and its seconds and share of the critical
    path."""
    index = plan.topology.index(part.name)
    stage = next(s for s, group in enumerate(plan.placement.devices) if index in group)
    gpu = plan.topology.devices[index].gpu
    return f"{part.name} ({gpu}, stage {stage}; {format_s(part.seconds)}, {format_share(part.share, 0)})"


def _named(part: Part) -> str:
    return f"{part.name.replace('->', '→')} ({format_s(part.seconds)}, {format_share(part.share, 0)})"


def _memory(analysis: IterationAnalysis) -> str:
    held, forbidden = analysis.memory, analysis.forbidden
    if not held.fits:
        return f"It does not fit: {held.sentence}."
    used = held.peak_bytes / held.limit_bytes
    at = divmod(int(used.argmax()), used.shape[1])
    peak, limit = format_bytes(int(held.peak_bytes[at])), format_bytes(int(held.limit_bytes[at]))
    fullest = f"{held.devices[at[0]][at[1]]} is fullest, with {peak} of the {limit} that it may use"
    tight = f"Memory is tight: {held.caution}." if held.caution else ""
    if forbidden is None:
        return tight or f"Memory does not limit the plan: {fullest}."
    limits = (
        f"Memory limits the plan, too: {forbidden.what} it would take {format_s(forbidden.iteration_s)}, for which "
        f"{forbidden.device} lacks {format_bytes(forbidden.over_bytes)}"
    )
    return f"{limits}. {tight}" if tight else f"{limits}; {fullest}."


def _idle_time(analysis: IterationAnalysis) -> str:
    bubble = analysis.trace.bubble
    if len(bubble) == 1:
        return ""
    waited = {words: float(bubble[column].sum()) for column, words in WAITS.items()}
    most = max(waited, key=lambda words: waited[words])
    least = bubble.iloc[int(bubble["busy_s"].to_numpy().argmin())]
    mean, its = (
        format_share(share, 0) for share in (analysis.busy_share, float(least["busy_s"]) / analysis.iteration_s)
    )
    # where all compute alike, naming one would be noise
    who = "" if its == mean else f"; {least['device']} computes least, {its}"
    return f"The devices compute {mean} of the time and wait most {most}{who}."


def _left_out(analysis: IterationAnalysis) -> str:
    plan = analysis.plan
    if not plan.idle_devices:
        return ""
    n = len(plan.topology)
    idle = set_words(plan.topology.devices, plan.idle_devices)
    return f"{n - len(plan.idle_devices):,} of {counted(n, 'device')} in use; idle: {idle}."


def _bound(analysis: IterationAnalysis) -> str:
    plan = analysis.plan
    bound_s, most = plan.iteration_lower_bound_s, plan.speed_up_left
    if bound_s is None or most is None:
        return ""
    if most <= 1 + 1e-6:
        return f"{none_of(plan, 'No')} is faster: that is its lower bound."
    least = f"{none_of(plan, 'No')} takes less than {format_s(bound_s)}"
    return loose_bound_words(plan) or f"{least}: {plan.speed_up_words}."


def _price(analysis: IterationAnalysis) -> str:
    plan = analysis.plan
    dollars = plan.price_per_billion_tokens
    if not dollars:
        return ""
    free = sum(not plan.topology.devices[int(d)].price_per_hour for d in plan.placement.devices.flat)
    count = f"; {counted(free, 'device')} without a price {'counts' if free == 1 else 'count'} as free" if free else ""
    return f"It costs ${plan.price_per_hour:,.2f} an hour and {money(dollars)} a billion {plan.job.counted}{count}."
