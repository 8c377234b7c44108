"""A still page that also answers changes: the plans after each change are found while the site is built.

A visitor drags the label of a link, or presses another batch. The still page's ``page.js`` then shows the answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from dtfm_lab.widgets.schedule.predictions import AS_SPECIFIED, ChartedPrediction
from dtfm_lab.widgets.shell.still_page import html_of, made_of, title_of, views_of

FACTORS = (0.1, 0.3, 3.0)
"""Factors by which the bandwidth of a pair is multiplied."""
KEPT = ("own_id", "drags")
"""Traits that no answer changes."""


@dataclass(frozen=True, eq=False)
class AnsweredEdit:
    """A plan after one change, and the plan before it. For the first plan, both are the same."""

    found: Replanned
    before: BeforeEdit | None
    pair: tuple[str, str] | None = None
    gbps: float | None = None
    """Bandwidth of the pair in Gbit/s. None if the batch was changed."""

    @property
    def plan(self) -> Plan:
        return self.found.plan


def answers_of(
    topology: Topology, job: Job, *, batches: Sequence[int] = (), seconds: float = 0.5
) -> Iterator[AnsweredEdit]:
    """Yield the first plan, then one per change. Each search takes ``seconds``, the first five times as long.

    A change after which nothing can be planned has no answer. Raises PlanError if the job itself fits no plan.
    """
    cancelled = Cancellation()
    first = first_plan(topology, job, cancelled, {})
    assert first is not None
    first = improved(first, job, cancelled, 5 * seconds) or first
    yield AnsweredEdit(first, None)
    before = BeforeEdit(topology, job, first.plan, lab.simulate(first.plan).iteration_s)

    def after(topology: Topology, job: Job) -> Replanned | None:
        try:
            found = replanned(first.plan, topology, job, cancelled, before)
            return None if found is None else improved(found, job, cancelled, seconds) or found
        except LabError:  # for example if the larger batch does not fit in memory
            return None

    document = document_of(topology)
    for a, b in combinations(topology.regions, 2):
        latency_ms, gbps = _conditions(document, a, b)
        for factor in FACTORS:
            changed = float(f"{gbps * factor:.2g}")
            other = topology_of(_with_pair(document, a, b, latency_ms, changed), topology)
            if (found := after(other, job)) is not None:
                yield AnsweredEdit(found, before, (a, b), changed)
    for batch in batches:
        if batch != job.global_batch and (found := after(topology, job.with_fields(global_batch=batch))) is not None:
            yield AnsweredEdit(found, before)


def _conditions(document: Document, a: str, b: str) -> tuple[float, float]:
    """Return milliseconds and Gbit/s of a pair of regions, from a to b."""
    for line in [*document["between"], *filled(document)]:
        if line.get("regions") in ([a, b], [b, a]) or (line.get("from"), line.get("to")) == (a, b):
            return line["latency_ms"], line["bandwidth_gbps"]
    return document["default"]["latency_ms"], document["default"]["bandwidth_gbps"]


def _with_pair(document: Document, a: str, b: str, latency_ms: float, gbps: float) -> dict[str, Any]:
    """Return the document with one speed for both directions of a pair, in the line that the map's label edits."""
    joins = [set(line.get("regions") or (line["from"], line["to"])) == {a, b} for line in document["between"]]
    others = [line for line, is_pair in zip(document["between"], joins, strict=True) if not is_pair]
    at = joins.index(True) if True in joins else len(others)
    line = {"regions": [a, b], "latency_ms": latency_ms, "bandwidth_gbps": gbps}
    return {**document, "between": [*others[:at], line, *others[at:]]}


def answering_page(answers: Iterable[AnsweredEdit], others: Mapping[str, str], note: str) -> str:
    """Return the HTML of a page that also answers changes; of a job with a model.

    The first of ``answers`` is the plan to start with. ``others`` are titles and addresses of related pages. ``note``
    says how the answers were found.
    """
    first, *rest = answers
    predicted = lab.simulate(first.plan)
    now = ChartedPrediction.of(first.plan, predicted, AS_SPECIFIED)
    models = {name: view.own_traits() for name, view in views_of(first.plan, predicted).items()}
    models["map"]["drags"] = True
    pairs: dict[str, list[Any]] = {}
    batches: list[Any] = [[first.plan.job.global_batch, {}]]
    for one in rest:
        views = views_of(one.plan, lab.simulate(one.plan), one.before, one.found, now)
        changed = {name: _changed(models[name], view.own_traits()) for name, view in views.items()}
        if one.pair is None:
            batches.append([one.plan.job.global_batch, changed])
        else:
            pairs.setdefault(_as_page_writes(sorted(one.pair)), []).append([one.gbps, changed])
    batches.sort(key=lambda batch: batch[0])
    asked = {"pairs": pairs, "batches": batches, "others": dict(others), "note": note}
    return html_of(title_of(first.plan, predicted), made_of(first.plan, predicted), models, asked)


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the traits of a view that have changed."""
    return {what: value for what, value in after.items() if what not in KEPT and _plain(value) != _plain(before[what])}


def _as_page_writes(pair: Sequence[str]) -> str:
    """Return a pair as JSON.stringify writes it."""
    return json.dumps(pair, ensure_ascii=False, separators=(",", ":"))


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, memoryview | bytearray) else value
