"""The door: what a visitor sees first, with networks to open and a picture of each.

It shows three cards with pictures of real plans, a card for a blank canvas, and a small picture and a sentence for each
bundled network.
"""

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import traitlets

from dtfm_lab import lab, planning
from dtfm_lab.domain.plan import Plan
from dtfm_lab.figures.maps.network import HEIGHT, WIDTH, thumbnail_svg
from dtfm_lab.files import topology_names, topology_suffixes
from dtfm_lab.lab.plans import opening_job
from dtfm_lab.widgets.network.network_row import NamedBytes
from dtfm_lab.widgets.tasks import begin, has_event_loop
from dtfm_lab.widgets.views.view import View

PLANS = Path(__file__).parent / "plans.json"
"""File of {network: names of the devices of each stage}. Each plan is for the job with which the lab opens the network.

Stored because a search would take seconds. The test of this folder searches again.
"""
TITLES = {
    "lecture-hall": ("8 laptops in a lecture hall", "Train it for real on this machine, in a minute."),
    "worldwide": ("64 GPUs in 8 cities", "The paper's worldwide case, with a batch of 64."),
    "volunteers": ("Volunteers at home", "Slow uplinks, and a price per hour for each."),
}
BLANK = (
    f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" fill="none" stroke="currentColor">'
    f'<rect x="{WIDTH / 2 - 56}" y="{HEIGHT / 2 - 34}" width="112" height="68" rx="8" stroke-dasharray="5 4" '
    f'opacity="0.45"/><path d="M{WIDTH / 2 - 11} {HEIGHT / 2}h22m-11 -11v22" stroke-width="2"/></svg>'
)


def nothing(*_: object) -> None:
    """Do nothing. The default of callbacks."""


class Door(View):
    """Covers its lab while ``is_open``. Alone in a cell, it opens in place.

    Parameters
    ----------
    chosen
        Called with the name of the chosen network, empty for a blank canvas, after the door has closed.
    take_files
        Called with the names and contents of dropped or uploaded files, after the door has closed.
    """

    cards = traitlets.List(traitlets.Dict()).tag(sync=True)
    """{"name", "title", "words", "picture", "picture_dark"} of each card. The name of a blank canvas is empty."""
    networks = traitlets.List(traitlets.Dict()).tag(sync=True)
    """{"name", "devices", "words", "picture"} of each bundled network."""
    suffixes = traitlets.Unicode(",".join(topology_suffixes())).tag(sync=True)
    """Endings of files that can be opened, as a page's file dialog wants them."""
    is_open = traitlets.Bool(False).tag(sync=True)
    offered = traitlets.Bool(False).tag(sync=True)
    """True if the page should open the door in a browser that has never closed one."""

    def __init__(
        self,
        chosen: Callable[[str], None] = nothing,
        take_files: Callable[[Sequence[NamedBytes]], None] = nothing,
        **traits: Any,
    ) -> None:
        super().__init__(**traits)
        self._chosen, self._take_files = chosen, take_files
        self.observe(lambda change: self._fill() if change["new"] else self.set_trait("offered", False), "is_open")

    def offer(self) -> None:
        """Open the door for anyone whose browser has never closed one. The browser remembers that."""
        self._fill()
        self.offered = True

    def _fill(self) -> None:
        """Read the networks and draw their pictures, once. On a thread, because it takes a tenth of a second."""
        if self.cards:
            return
        if has_event_loop():
            begin(self._fill_later(), nothing)
        else:
            self.cards, self.networks = cards(), networks()

    async def _fill_later(self) -> None:
        self.cards = await asyncio.to_thread(cards)
        self.networks = await asyncio.to_thread(networks)

    def received(self, content: dict[str, Any], buffers: Sequence[Any]) -> None:
        kind = content.get("kind")
        if kind in ("choose", "files"):
            self.is_open = False
        if kind == "choose":
            self._chosen(content["name"])
        elif kind == "files":
            self._take_files(list(zip(content["names"], map(bytes, buffers), strict=True)))


def cards() -> list[dict[str, str]]:
    """Return the cards in order. The last one, with an empty name, is a blank canvas."""
    made = [{"name": name, "title": title, "words": words} for name, (title, words) in TITLES.items()]
    for card in made:
        plan = plan_of(card["name"])
        card["picture"] = thumbnail_svg(plan.topology, plan)
        # Colours of stages are part of the picture, and a dark page needs brighter ones.
        card["picture_dark"] = thumbnail_svg(plan.topology, plan, dark=True)
    blank = {"name": "", "title": "Blank", "words": "Draw your own, or drop a file here."}
    return [*made, {**blank, "picture": BLANK, "picture_dark": BLANK}]


def plan_of(name: str) -> Plan:
    """Return the stored plan of a network, with its communication cost but not simulated."""
    topology = lab.load_topology(name)
    stages = json.loads(PLANS.read_text("utf-8"))[name]
    job = opening_job(topology).with_fields(n_stages=len(stages), n_replicas=len(stages[0]))
    return planning.evaluate(topology, job, stages=stages)


def networks() -> list[dict[str, str | int]]:
    """Return every bundled network with its picture, number of devices and the first sentence of its description.

    The pictures have the colour of the text, light or dark.
    """
    return [
        {
            "name": each.name,
            "devices": len(each),
            "words": first_sentence(each.description),
            "picture": thumbnail_svg(each),
        }
        for each in map(lab.load_topology, topology_names())
    ]


def first_sentence(text: str) -> str:
    """Return the text up to the first full stop, colon or semicolon that ends a clause, with a full stop."""
    # A dot within a number has no space after it, and one after a capital belongs to an abbreviation.
    return re.split(r"(?<=[a-z\d)])[.:;](?:\s|$)", text, maxsplit=1)[0].rstrip(".") + "."
