"""The door: what a visitor sees first, networks to open with a picture of each, and the way into the tour."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import traitlets
from platformdirs import user_state_path

from dtfm_lab.files import topology_suffixes
from dtfm_lab.widgets.network.network_row import NamedBytes
from dtfm_lab.widgets.tasks import begin, has_event_loop
from dtfm_lab.widgets.views.door.gallery import cards, networks
from dtfm_lab.widgets.views.view import View


def nothing(*_: object) -> None:
    """Do nothing: what is called while nobody has asked to be told."""


class Door(View):
    """Lies over the lab it is part of while ``is_open``; alone in a cell it opens where it is.

    Parameters
    ----------
    chosen
        Called with the name of the network that is chosen, empty for a blank canvas; the door has closed itself.
    take_files
        Called with the names and contents of files that are dropped or uploaded; the door has closed itself.
    tour
        Called when the tour is asked for; the door has closed itself.
    remember
        Whether the user's own state folder keeps that the door was closed once. The visitor's browser keeps it in any
        case.
    """

    cards = traitlets.List(traitlets.Dict()).tag(sync=True)
    """{"name", "title", "words", "picture"} of each card; the name of a blank canvas is empty."""
    networks = traitlets.List(traitlets.Dict()).tag(sync=True)
    """{"name", "devices", "words"} of each bundled network."""
    suffixes = traitlets.Unicode(",".join(topology_suffixes())).tag(sync=True)
    """Endings of files that can be opened, as a page's file dialog wants them."""
    is_open = traitlets.Bool(False).tag(sync=True)
    offered = traitlets.Bool(False).tag(sync=True)
    """Whether the page is to open the door if this browser has never closed one."""

    def __init__(
        self,
        chosen: Callable[[str], None] = nothing,
        take_files: Callable[[Sequence[NamedBytes]], None] = nothing,
        tour: Callable[[], None] = nothing,
        *,
        remember: bool = True,
        **traits: Any,
    ) -> None:
        super().__init__(**traits)
        self._chosen, self._take_files, self._tour = chosen, take_files, tour
        self._remember = remember
        self.on_msg(self._on_message)
        self.observe(lambda change: self._fill() if change["new"] else self._closed(), "is_open")

    def offer(self) -> None:
        """Open it for somebody who has never closed one, here or in this browser."""
        if not (self._remember and closed_path().exists()):
            self._fill()
            self.offered = True

    def alt_text(self) -> str:
        return "networks to open: " + ", ".join(card["title"] for card in self.cards)

    def _fill(self) -> None:
        """Read the networks and draw their pictures, once; on a thread, as that takes a tenth of a second."""
        if self.cards:
            return
        if has_event_loop():
            begin(self._fill_later(), nothing)
        else:
            self.cards, self.networks = cards(), networks()

    async def _fill_later(self) -> None:
        self.cards = await asyncio.to_thread(cards)
        self.networks = await asyncio.to_thread(networks)

    def _closed(self) -> None:
        self.offered = False
        if not self._remember:
            return
        try:
            closed_path().parent.mkdir(parents=True, exist_ok=True)
            closed_path().touch()
        except OSError:  # a folder that cannot be written to: the browser remembers
            return

    def _on_message(self, _widget: object, content: dict[str, Any], buffers: Sequence[Any]) -> None:
        kind = content.get("kind")
        if kind in ("choose", "files", "tour"):
            self.is_open = False
        if kind == "choose":
            self._chosen(content["name"])
        elif kind == "files":
            self._take_files(list(zip(content["names"], map(bytes, buffers), strict=True)))
        elif kind == "tour":
            self._tour()


def closed_path() -> Path:
    """Return the file that is there once a door has been closed, in the user's own state folder."""
    return user_state_path("dtfm_lab") / "door-closed"
