"""What a page without a kernel answers: plans of other speeds of a link and of other batches, found beforehand.

A page cannot search. Each of its answers is a plan of the lab's own live search, from the plan that the page opens
with, after one change: one pair of regions at another bandwidth, or another batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from dtfm_lab import lab
from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.planning import Cancellation
from dtfm_lab.widgets.network.document_conversion import document_of, topology_of
from dtfm_lab.widgets.network.drawing import Document
from dtfm_lab.widgets.network.links import filled
from dtfm_lab.widgets.planner.edits import BeforeEdit
from dtfm_lab.widgets.planner.short_searches import Replanned, first_plan, improved, replanned

FACTORS = (0.1, 0.3, 3.0)
"""What the bandwidth of a pair is multiplied by."""


@dataclass(frozen=True, eq=False)
class Answer:
    """A plan after one change, and the plan that was there before it; of the plan to begin with, the same plan."""

    found: Replanned
    before: BeforeEdit | None
    pair: tuple[str, str] | None = None
    gbps: float | None = None
    """Bandwidth of the pair in Gbit/s; None where it is the batch that was changed."""

    @property
    def plan(self) -> Plan:
        return self.found.plan


def answers_of(topology: Topology, job: Job, *, batches: Sequence[int] = (), seconds: float = 0.5) -> Iterator[Answer]:
    """Yield the plan to begin with, then one after each change; each search takes so many seconds, the first
    five times as many.

    A change after which nothing can be planned has no answer. Raises PlanError where the job itself fits no plan.
    """
    cancelled = Cancellation()
    first = first_plan(topology, job, cancelled, {})
    assert first is not None
    first = improved(first, job, cancelled, 5 * seconds) or first
    yield Answer(first, None)
    before = BeforeEdit(topology, job, first.plan, lab.simulate(first.plan).iteration_s)

    def after(topology: Topology, job: Job) -> Replanned | None:
        try:
            found = replanned(first.plan, topology, job, cancelled, before)
            return None if found is None else improved(found, job, cancelled, seconds) or found
        except LabError:  # as where the larger batch fits no memory
            return None

    document = document_of(topology)
    for a, b in combinations(topology.regions, 2):
        latency_ms, gbps = _conditions(document, a, b)
        for factor in FACTORS:
            changed = float(f"{gbps * factor:.2g}")
            other = topology_of(_with_pair(document, a, b, latency_ms, changed), topology)
            if (found := after(other, job)) is not None:
                yield Answer(found, before, (a, b), changed)
    for batch in batches:
        if batch != job.global_batch and (found := after(topology, job.with_fields(global_batch=batch))) is not None:
            yield Answer(found, before)


def _conditions(document: Document, a: str, b: str) -> tuple[float, float]:
    """Milliseconds and Gbit/s of a pair of regions, from a to b."""
    for line in [*document["between"], *filled(document)]:
        if line.get("regions") in ([a, b], [b, a]) or (line.get("from"), line.get("to")) == (a, b):
            return line["latency_ms"], line["bandwidth_gbps"]
    return document["default"]["latency_ms"], document["default"]["bandwidth_gbps"]


def _with_pair(document: Document, a: str, b: str, latency_ms: float, gbps: float) -> dict[str, Any]:
    """The document with one speed for both directions of a pair, where the map's label writes it, too."""
    joins = [set(line.get("regions") or (line["from"], line["to"])) == {a, b} for line in document["between"]]
    others = [line for line, is_pair in zip(document["between"], joins, strict=True) if not is_pair]
    at = joins.index(True) if True in joins else len(others)
    line = {"regions": [a, b], "latency_ms": latency_ms, "bandwidth_gbps": gbps}
    return {**document, "between": [*others[:at], line, *others[at:]]}
