"""Names of devices, regions, networks and searches are shown letter by letter, whatever plotly would make of them."""

import html
import json
import re
from dataclasses import replace

import numpy as np
import pytest

from dtfm_lab import figures
from dtfm_lab.compare import compare
from dtfm_lab.domain.network import Topology
from dtfm_lab.files import load_job
from dtfm_lab.lab import explain
from dtfm_lab.planning import search
from dtfm_lab.simulation.memory import memory
from dtfm_lab.simulation.simulate import simulate

NAMES = ["<u>x</u>", "a&b", "$x$", "%{y}", "&lt;", "it's", '"q"', "\\frac"]
OURS = re.compile(r"</?b>|<br>|</?span[^>]*>|<extra></extra>|%\{\w+(\[\d+\])?(:[^}]*)?\}")
"""The markup that figures themselves use."""


@pytest.fixture(scope="module")
def steps():
    apart = 1.0 + np.abs(np.subtract.outer(np.arange(8.0), np.arange(8.0)))
    regions = ["<i>r</i>", "$1 & $2"] * 4
    network = Topology.from_matrices(apart, 1 / apart, names=NAMES, regions=regions, name="<u>net</u> $n$")
    return list(search(network, load_job("tiny"), steps=2))


def slowed(plan):
    trace = simulate(plan)
    return compare(trace, replace(trace, start_s=2 * trace.start_s, end_s=2 * trace.end_s))


FIGURES = {
    "network": lambda plan, steps: figures.network(plan.topology, plan),
    "map": lambda plan, steps: figures.plan_map(plan),
    "coarse graph": lambda plan, steps: figures.coarse_graph(plan),
    "matching": lambda plan, steps: figures.matching(plan, 0),
    "link matrix": lambda plan, steps: figures.link_matrix(plan.topology),
    "costs": lambda plan, steps: figures.cost_breakdown(plan),
    "convergence": lambda plan, steps: figures.convergence({"<b>mine</b> $1$ %{y}": steps}),
    "gantt": lambda plan, steps: figures.gantt(simulate(plan), critical=True, messages=True),
    "bubble": lambda plan, steps: figures.bubble(simulate(plan)),
    "memory": lambda plan, steps: figures.memory_over_time(memory(plan)),
    "sensitivity": lambda plan, steps: figures.sensitivity(explain(plan).sensitivity()),
    "comparison": lambda plan, steps: figures.comparison(slowed(plan)),
    "blame": lambda plan, steps: figures.blame(slowed(plan)),
}


@pytest.mark.parametrize("name", FIGURES)
def test_a_name_is_shown_as_it_is_written(steps, name):
    shows_names_as_written(FIGURES[name](steps[-1].plan, steps))


def shows_names_as_written(figure):
    """Hold a figure to names without markup of their own."""
    for text in texts(json.loads(figure.to_json())["data"]) | words_of(figure.layout):
        left = OURS.sub("", text)
        assert not re.search(r"<|\$|%\{|&(?!lt;|gt;|amp;|#36;|#37;)", left), text


@pytest.mark.parametrize("name", ["network", "map", "matching", "link matrix"])
def test_every_name_can_be_read_back(steps, name):
    plan = steps[-1].plan
    shown = html.unescape("\n".join(texts(json.loads(FIGURES[name](plan, steps).to_json())["data"])))
    assert all(device in shown for device in (plan.stages[0] + plan.stages[1]))


def test_words_for_who_cannot_see_are_plain_text(steps):
    plan = steps[-1].plan
    assert "<u>net</u> $n$" in figures.alt_text(figures.network(plan.topology))
    assert "on <u>net</u> $n$ " in figures.alt_text(figures.cost_breakdown(plan))
    assert "<b>mine</b> $1$" in figures.alt_text(figures.convergence({"<b>mine</b> $1$": steps}))


def texts(data):
    """What traces show: their text, hover text, names and categories, not the groups of their legends."""
    found = set()
    for trace in data:
        for key in ("text", "hovertext", "meta", "name", "x", "y", "hovertemplate"):
            found |= flat(trace.get(key))
    return found


def words_of(layout):
    plain = layout.to_plotly_json()
    found = {plain["title"]["text"], plain["title"].get("subtitle", {}).get("text", "")}
    found |= {note["text"] for note in plain.get("annotations", ())}
    for axis in (plain.get("xaxis", {}), plain.get("yaxis", {})):
        found |= flat(list(axis.get("ticktext", ())))
    return found


def flat(value):
    if isinstance(value, str):
        return {value}
    return set().union(*map(flat, value)) if isinstance(value, list) else set()
