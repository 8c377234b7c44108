"""The link or device that limits a plan most, in a sentence that names what a better one would save.

It contains no widget. The candidates come from the critical path, and the saving of each is simulated, as in Worth.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import format_gbps, format_share, to_gbps, to_ms
from dtfm_lab.planning.explain.iteration_analysis import (
    FACTOR,
    WORTH_SAYING,
    IterationAnalysis,
    analysed,
    ends_of,
)
from dtfm_lab.simulation.sensitivity import LEAST_REPORTED
from dtfm_lab.simulation.simulate import simulated_iterations
from dtfm_lab.widgets.what_if.worth import improved_shares, joined

MOST_TRIED = 8
"""Maximum candidates that are simulated for one sentence."""
MOST_DEVICES = 128
"""Maximum devices of a plan for which candidates are simulated."""
CLASSES = {
    "device": "Computing takes",
    "link": "Messages between stages take",
    "synchronisation": "Averaging gradients takes",
}
"""What takes most of the critical path, as the beginning of a sentence."""
BETTER = {"bandwidth": "Twice the bandwidth on", "latency": "Half the latency on"}


class Binding(NamedTuple):
    """What limits a plan: words, and in them a handle on the link or device."""

    words: str
    """A sentence or two."""
    handle: str = ""
    """The part of the words that names the link or device. Empty for none."""
    devices: tuple[str, ...] = ()
    """The device, or the two at the ends of the link. Empty for none."""
    saves: float = 0.0
    """Share of the iteration that the improvement saves. 0 if it saves nothing or was not simulated."""
    helps: bool = True
    """False if no single link or device that was tried would save ``WORTH_SAYING`` of the iteration."""


class Limiter(NamedTuple):
    """A link or device on the critical path."""

    devices: tuple[str, ...]
    seconds: float
    """Seconds of the critical path that it takes. A better one saves less than that."""


def binding_of(plan: Plan) -> Binding:
    """Return the link or device that limits a plan, and what one twice as good would save. Call it on a thread.

    Raises PlanError for a job without a model, and LabError if the plan cannot be simulated.
    """
    analysis = analysed(plan)
    links, devices = candidates(analysis, "link"), candidates(analysis, "device")
    share = analysis.by_class[analysis.binds] / analysis.iteration_s if analysis.iteration_s > 0 else 0.0
    bind = f"{CLASSES[analysis.binds]} {format_share(share, 0)} of the critical path"
    tried = list(_tried(plan, [*links, *devices])) if plan.job.n_tasklets <= MOST_DEVICES else []
    (ends, _), what, saves = max(tried, key=lambda one: one[2], default=(Limiter((), 0.0), "", 0.0))
    if len(ends) == 2 and saves >= WORTH_SAYING:
        handle = link_words(plan.topology, ends, what)
        words = f"{BETTER[what]} {handle} would save {_of_iteration(saves)}."
        return Binding(f"{words} Pull it faster: {between(plan.topology, ends)}. {bind}.", handle, ends, saves)
    if len(ends) == 1 and saves >= WORTH_SAYING:
        handle = device_words(plan, ends[0])
        if analysis.binds == "device" and ends == devices[0].devices:
            words = f"{bind}, most of it on {handle}. Twice as fast, it would save {_of_iteration(saves)}."
        else:
            words = f"{bind}. Twice as fast, {handle} would save {_of_iteration(saves)}."
        return Binding(words, handle, ends, saves)
    first = (devices if analysis.binds == "device" else links)[:1]
    simulated = bool(first) and first[0] in [one for one, *_ in tried]
    found = _no_single(plan, bind, first, "Faster alone, it would save next to nothing." if simulated else "")
    return found._replace(helps=plan.job.n_tasklets > MOST_DEVICES)  # where nothing is simulated, it may help


def _no_single(plan: Plan, bind: str, first: list[Limiter], alone: str) -> Binding:
    """Return what limits a plan if no single improvement helps, or if none was simulated.

    ``first`` has the link or device with the most seconds on the critical path among its kind, or nothing. ``alone``
    is the sentence that improving it alone would not help. Empty if that was not simulated.
    """
    if not first:
        return Binding(f"{bind}.")
    ends = first[0].devices
    if len(ends) == 1:
        handle = device_words(plan, ends[0])
        return Binding(f"{bind}, most of it on {handle}. {alone}".rstrip(), handle, ends)
    handle = link_words(plan.topology, ends, "bandwidth")
    return Binding(
        f"{bind}, most of it over {handle}. It joins {between(plan.topology, ends)}. {alone}".rstrip(), handle, ends
    )


def candidates(analysis: IterationAnalysis, of: str) -> list[Limiter]:
    """Return the devices or the links on the critical path, longest first. ``of`` is "device" or "link".

    All links between two regions count as one, because they are edited together.
    """
    topology, found = analysis.plan.topology, dict[object, Limiter]()
    for part in analysis.parts(of):
        ends = (part.name,) if of == "device" else ends_of(part.name, topology)
        if len(ends) == 0:
            continue
        key: object = ends
        if len(ends) == 2:
            a, b = sorted(map(topology.index, ends))
            pairs = joined(topology, a, b)
            key = frozenset(topology.devices[i].region for i in (a, b)) if len(pairs) > 1 else (a, b)
        before = found.get(key, Limiter(ends, 0.0))
        found[key] = before._replace(seconds=before.seconds + part.seconds)
    return sorted(found.values(), key=lambda one: -one.seconds)


def _tried(plan: Plan, some: list[Limiter]) -> Iterator[tuple[Limiter, str, float]]:
    """Yield (candidate, what was improved, share that it saves) for up to ``MOST_TRIED`` candidates, longest first.

    Stop once no candidate can save more than the best, or than ``LEAST_REPORTED``.

    With a candidate twice as fast, the critical path gets shorter by at most half of the candidate's seconds. So no
    candidate saves more than that.
    """
    base = simulated_iterations(plan, plan.job.schedule_name, queueing=plan.queueing)
    most = 0.0
    for one in sorted(some, key=lambda each: -each.seconds)[:MOST_TRIED]:
        if one.seconds * (1 - 1 / FACTOR) <= max(most, LEAST_REPORTED) * base.iteration_s:
            return
        for what, share in improved_shares(base, one.devices).items():
            most = max(most, share)
            yield one, what, share


def link_words(topology: Topology, ends: tuple[str, ...], what: str) -> str:
    """Return ``this 0.1 Gbit/s link``, or ``this 120 ms link`` if its latency matters. The slower way counts."""
    a, b = map(topology.index, ends)
    if what == "latency":
        return f"this {float(to_ms(np.max([topology.latency_s[a, b], topology.latency_s[b, a]]))):.3g} ms link"
    gbps = np.min([topology.bandwidth_bytes_per_s[a, b], topology.bandwidth_bytes_per_s[b, a]])
    return f"this {format_gbps(float(to_gbps(gbps)))} link"


def between(topology: Topology, ends: tuple[str, ...]) -> str:
    """Return the names that the picture shows at the ends of a link: regions, or devices within one region."""
    a, b = (topology.devices[topology.index(name)] for name in ends)
    apart = a.region != b.region and "" not in (a.region, b.region)
    return f"{a.region} – {b.region}" if apart else f"{a.name} – {b.name}"


def device_words(plan: Plan, name: str) -> str:
    """Return a device's name with its GPU: ``mac (Apple M2 Max)``."""
    return f"{name} ({plan.topology.devices[plan.topology.index(name)].gpu})"


def _of_iteration(share: float) -> str:
    return f"{format_share(share)} of the iteration"
