"""A still page of a plan: one HTML file with the lab's map, Gantt chart and player. It needs neither Python nor a
network.

The views are the lab's own: their built scripts, with the traits that a notebook would receive. ``page.js``
replaces the kernel. Names of networks, jobs and devices are packed as data and never become markup. With
precomputed answers, the labels of links can be dragged as well.
"""

from __future__ import annotations

import base64
import json
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from hashlib import sha256
from html import escape
from importlib.metadata import version
from itertools import combinations
from pathlib import Path
from typing import Any

from dtfm_lab import lab
from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.trace import Trace
from dtfm_lab.domain.units import format_s
from dtfm_lab.files.reading import write_text
from dtfm_lab.planning import Cancellation
from dtfm_lab.widgets import markup
from dtfm_lab.widgets.lab_state import LabState, roles_of
from dtfm_lab.widgets.network.document_conversion import document_of, topology_of
from dtfm_lab.widgets.network.drawing import Document
from dtfm_lab.widgets.network.drawn_hosts import DrawnHosts
from dtfm_lab.widgets.network.links import filled
from dtfm_lab.widgets.network.network_panel import highlight_of
from dtfm_lab.widgets.planner.edits import BeforeEdit
from dtfm_lab.widgets.planner.short_searches import Replanned, first_plan, improved, replanned
from dtfm_lab.widgets.quiet import untold
from dtfm_lab.widgets.running.playback import device_names, rows_of_trace
from dtfm_lab.widgets.schedule.predictions import AS_SPECIFIED, ChartedPrediction, PredictionChart
from dtfm_lab.widgets.shell.bar import bar_numbers, consists_of, shape_of
from dtfm_lab.widgets.shell.headline import headline, reason_of
from dtfm_lab.widgets.views.frame import Glossary, Legend, TopBar
from dtfm_lab.widgets.views.map import MapView
from dtfm_lab.widgets.views.player import PlayerView
from dtfm_lab.widgets.views.view import STATIC, View

FACTORS = (0.1, 0.3, 3.0)
"""Factors by which the bandwidth of a pair is multiplied."""


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


HERE = Path(__file__).parent
VIEWS = ("top_bar", "map", "player", "gantt", "legend", "glossary")
"""The views on the page, by the names of their built scripts."""
POLICY = "default-src 'none'; script-src 'sha256-{}' blob:; style-src 'unsafe-inline'; img-src data: blob:"
"""The page's content security policy: it allows the page's own script, by its hash, scripts that this one makes, and no
requests."""
KEPT = ("own_id", "drags")
"""Traits that no answer changes."""


def save_page(plan: Plan, path: str | os.PathLike[str]) -> Path:
    """Write the still page of a plan, all or nothing. Return the path."""
    return write_text(path, still_page(plan))


def still_page(plan: Plan, predicted: Trace | None = None, measured: Trace | None = None) -> str:
    """Return the page's HTML. ``predicted`` is a trace of the plan from FLOP. None simulates it.

    It is the page's only prediction. The last line reports what a run has ``measured``. The plan of a job without a
    model has no iteration, so its page has neither bars nor Play.
    """
    if predicted is None and plan.job.model is not None:
        predicted = lab.simulate(plan)
    models = {name: view.own_traits() for name, view in views_of(plan, predicted).items()}
    return _page(plan, predicted, models, measured=measured)


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
        views = views_of(one.plan, lab.simulate(one.plan), one, now)
        changed = {name: _changed(models[name], view.own_traits()) for name, view in views.items()}
        if one.pair is None:
            batches.append([one.plan.job.global_batch, changed])
        else:
            pairs.setdefault(_as_page_writes(sorted(one.pair)), []).append([one.gbps, changed])
    batches.sort(key=lambda batch: batch[0])
    asked = {"pairs": pairs, "batches": batches, "others": dict(others), "note": note}
    return _page(first.plan, predicted, models, asked)


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the traits of a view that have changed."""
    return {what: value for what, value in after.items() if what not in KEPT and _plain(value) != _plain(before[what])}


def _as_page_writes(pair: Sequence[str]) -> str:
    """Return a pair as JSON.stringify writes it."""
    return json.dumps(pair, ensure_ascii=False, separators=(",", ":"))


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, memoryview | bytearray) else value


def _page(
    plan: Plan,
    predicted: Trace | None,
    models: Mapping[str, Any],
    asked: Mapping[str, Any] | None = None,
    measured: Trace | None = None,
) -> str:
    return html_of(title_of(plan, predicted), made_of(plan, predicted, measured), models, asked)


def title_of(plan: Plan, predicted: Trace | None) -> str:
    title = f"{plan.job.name} on {plan.topology.name}"
    return f"{title}, {format_s(predicted.iteration_s)} per iteration" if predicted is not None else title


def html_of(
    title: str, foot: str, models: Mapping[str, Any], asked: Mapping[str, Any] | None = None, reader: str = ""
) -> str:
    """Return the HTML of a page of ``VIEWS``. ``reader`` is a script that takes their traits from the address."""
    packed = _packed({
        "styles": [markup.CSS, *(built(name, ".css") for name in VIEWS)],
        "scripts": {name: built(name, ".js") for name in VIEWS},
        "models": models,
        "asked": asked,
        "reader": reader,
    })  # fmt: skip
    look, script = ((HERE / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    policy = POLICY.format(base64.b64encode(sha256(script.encode()).digest()).decode())
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}"><title>{escape(title)}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">\n'
        f"<style>{look}</style></head>\n<body>\n"
        f"<noscript>{escape(title)}: the picture needs JavaScript, which is turned off in this browser.</noscript>\n"
        f'<div class="dtfm-lab dtfm-still"></div>\n<footer>{escape(foot)}</footer>\n'
        f'<script id="dtfm-packed" type="text/plain">{packed}</script>\n'
        f'<script type="module">{script}</script>\n</body></html>\n'
    )


@untold()
def views_of(
    plan: Plan, predicted: Trace | None, answer: AnsweredEdit | None = None, was: ChartedPrediction | None = None
) -> dict[str, View]:
    """Return the views by name, showing a plan and its predicted iteration. With an answer, they also show what
    changed."""
    before, found = (None, None) if answer is None else (answer.before, answer.found)
    state = LabState(topology=plan.topology, job=plan.job, plan=plan, predicted=predicted, queueing=plan.queueing)
    document = document_of(plan.topology)
    marks = DrawnHosts.of(document).marks(highlight_of(roles_of(plan)))
    network = MapView(document=document, height=0, still=True, filled=filled(document), highlight=marks)
    player, chart = PlayerView(), PredictionChart(bare=False, overview=True)
    if predicted is not None:
        state.schedule = predicted.context.schedule
        rows = rows_of_trace(predicted)
        network.playback, network.playback_devices = rows.tobytes(), device_names(predicted.context)
        player.source = "predicted"
        player.length_s = player.known_s = float(rows[:, 1].max(initial=0.0))
        chart.show(ChartedPrediction.of(plan, predicted, AS_SPECIFIED), was)
    bar = TopBar(
        lambda _: None,
        still=True,
        network=[plan.topology.name, consists_of(state)],
        job=[plan.job.name, shape_of(state)],
        numbers=[number for number in bar_numbers(state, before) if number["value"] != "–"],
        headline=headline(state, before, found, reason_of(plan))._asdict(),
    )
    legend = Legend(n_stages=plan.job.n_stages or 0, shortcuts="Space plays · ? words")
    return dict(zip(VIEWS, (bar, network, player, chart, legend, Glossary()), strict=True))


def made_of(plan: Plan, predicted: Trace | None, measured: Trace | None = None) -> str:
    """Return which planner found the plan, and whether its iteration is predicted or measured."""
    seed = "" if plan.seed is None else f", seed {plan.seed}"
    worth = "" if predicted is None else predicted.context.basis.sentence or "predicted"
    what = "" if predicted is None else f", its iteration not measured but {worth}"
    if measured is not None:
        part = f" for {measured.context.part}" if measured.context.part else ""
        clock = f"{measured.context.clock} clock of the machine that ran it"
        what = f", its iteration {worth}; {format_s(measured.iteration_s)} measured{part} on the {clock}"
    by = "A placement that was given" if plan.planner == "given" else f"A plan by {plan.planner}{seed}"
    return f"{by}{what}. dtfm_lab {version('dtfm_lab')}, {date.today().isoformat()}"


def built(name: str, ending: str) -> str:
    return (STATIC / f"{name}{ending}").read_text(encoding="utf-8")


def _packed(page: dict[str, Any]) -> str:
    """Return a page as base64 of zlib of: the length of its JSON in 4 bytes, its JSON, all its binary values.

    In the JSON, a binary value is {"buffer": [offset, length]}.
    """
    buffers = bytearray()

    def place_of(value: Any) -> dict[str, list[int]]:
        data = bytes(value)
        buffers.extend(data)
        return {"buffer": [len(buffers) - len(data), len(data)]}

    text = json.dumps(page, default=place_of).encode()
    return base64.b64encode(zlib.compress(len(text).to_bytes(4, "little") + text + buffers, 9)).decode()
