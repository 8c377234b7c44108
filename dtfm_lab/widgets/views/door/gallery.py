"""What the door shows: four cards with pictures of real plans, and a line for each bundled network."""

import json
import re
from pathlib import Path

from dtfm_lab import lab, planning
from dtfm_lab.domain.plan import Plan
from dtfm_lab.figures.maps.thumbnail import HEIGHT, WIDTH, thumbnail_svg
from dtfm_lab.files import topology_names

PLANS = Path(__file__).parent / "plans.json"
"""{network: names of the devices of each stage}: what the planner finds for the job that the lab opens the network
with, kept because a search would take seconds. The test of this folder searches again."""
TITLES = {
    "lecture-hall": ("8 laptops in a lecture hall", "Trains for real on this machine, in a minute."),
    "worldwide": ("64 GPUs in 8 cities", "The paper's worldwide case, 1.3 billion parameters."),
    "volunteers": ("Volunteers at home", "Slow uplinks, and an hour of each has a price."),
}
BLANK = (
    f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" fill="none" stroke="currentColor">'
    f'<rect x="{WIDTH / 2 - 56}" y="{HEIGHT / 2 - 34}" width="112" height="68" rx="8" stroke-dasharray="5 4" '
    f'opacity="0.45"/><path d="M{WIDTH / 2 - 11} {HEIGHT / 2}h22m-11 -11v22" stroke-width="2"/></svg>'
)


def cards() -> list[dict[str, str]]:
    """Return the cards in order; the last one, of the empty name, is a blank canvas."""
    made = []
    for name, (title, words) in TITLES.items():
        plan = plan_of(name)
        pictures = {"picture": thumbnail_svg(plan.topology, plan)}
        pictures["picture_dark"] = thumbnail_svg(plan.topology, plan, dark=True)
        made.append({"name": name, "title": title, "words": words, **pictures})
    blank = {"name": "", "title": "Blank", "words": "Draw your own, or drop a file here."}
    return [*made, {**blank, "picture": BLANK, "picture_dark": BLANK}]


def plan_of(name: str) -> Plan:
    """Return the plan that is kept of a network, priced but not simulated."""
    topology = lab.load_topology(name)
    stages = json.loads(PLANS.read_text("utf-8"))[name]
    job = lab.default_job(topology).with_fields(n_stages=len(stages), n_replicas=len(stages[0]))
    return planning.evaluate(topology, job, stages=stages)


def networks() -> list[dict[str, str | int]]:
    """Return every bundled network with its number of devices and the first sentence of its description."""
    topologies = [lab.load_topology(name) for name in topology_names()]
    return [
        {"name": topology.name, "devices": len(topology), "words": first_sentence(topology.description)}
        for topology in topologies
    ]


def first_sentence(text: str) -> str:
    """Return the text up to the first full stop, colon or semicolon that ends something, with a full stop."""
    return re.split(r"(?<=[a-z\d)])[.:;](?:\s|$)", text, maxsplit=1)[0].rstrip(".") + "."
