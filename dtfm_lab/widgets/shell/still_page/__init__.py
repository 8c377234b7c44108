"""A still page of a plan: one HTML file with the lab's map, Gantt chart and player. It needs neither Python nor a
network.

The views are the lab's own: their built scripts, with the traits that a notebook would receive. ``page.js``
replaces the kernel. Names of networks, jobs and devices are packed as data and never become markup. With
precomputed answers, the labels of links can be dragged as well: ``tools/website/answers.py`` makes such pages.
"""

from __future__ import annotations

import base64
import json
import os
import zlib
from collections.abc import Mapping
from datetime import date
from hashlib import sha256
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dtfm_lab import lab
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.trace import Trace
from dtfm_lab.domain.units import format_s
from dtfm_lab.files.reading import write_text
from dtfm_lab.widgets import markup
from dtfm_lab.widgets.lab_state import LabState, roles_of
from dtfm_lab.widgets.network.document_conversion import document_of
from dtfm_lab.widgets.network.drawn_hosts import DrawnHosts
from dtfm_lab.widgets.network.links import filled
from dtfm_lab.widgets.network.network_panel import highlight_of
from dtfm_lab.widgets.planner.edits import BeforeEdit
from dtfm_lab.widgets.planner.short_searches import Replanned
from dtfm_lab.widgets.quiet import untold
from dtfm_lab.widgets.running.playback import device_names, rows_of_trace
from dtfm_lab.widgets.schedule.predictions import AS_SPECIFIED, ChartedPrediction, PredictionChart
from dtfm_lab.widgets.shell.bar import bar_numbers, consists_of, shape_of
from dtfm_lab.widgets.shell.headline import headline, reason_of
from dtfm_lab.widgets.views.frame import Glossary, Legend, TopBar
from dtfm_lab.widgets.views.map import MapView
from dtfm_lab.widgets.views.player import PlayerView
from dtfm_lab.widgets.views.view import STATIC, View

HERE = Path(__file__).parent
VIEWS = ("top_bar", "map", "player", "gantt", "legend", "glossary")
"""The views on the page, by the names of their built scripts."""
POLICY = "default-src 'none'; script-src 'sha256-{}' blob:; style-src 'unsafe-inline'; img-src data: blob:"
"""The page's content security policy. It allows the page's own script, by its hash, and scripts that this one makes. It
allows no requests."""


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
    return html_of(title_of(plan, predicted), made_of(plan, predicted, measured), models)


def title_of(plan: Plan, predicted: Trace | None) -> str:
    title = f"{plan.job.name} on {plan.topology.name}"
    return f"{title}, {format_s(predicted.iteration_s)} per iteration" if predicted is not None else title


def html_of(
    title: str, foot: str, models: Mapping[str, Any], asked: Mapping[str, Any] | None = None, reader: str = ""
) -> str:
    """Return the HTML of a page of ``VIEWS`` with these traits.

    ``models`` has the traits of each view. ``asked`` are the edits of links whose answers the page holds. ``reader`` is
    a script that reads the traits from the page's address.
    """
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
    plan: Plan,
    predicted: Trace | None,
    before: BeforeEdit | None = None,
    found: Replanned | None = None,
    was: ChartedPrediction | None = None,
) -> dict[str, View]:
    """Return the views by name, showing a plan and its predicted iteration.

    If the plan was ``found`` after an edit, they also show what changed since ``before``. ``was`` is the iteration that
    was predicted before the edit.
    """
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
