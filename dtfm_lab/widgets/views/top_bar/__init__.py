"""The bar over the lab: network and job, live numbers, the one next action, and the headline below them."""

from collections.abc import Callable, Sequence
from typing import Any

import traitlets

from dtfm_lab.widgets.views.view import View


class TopBar(View):
    """Shows what its traits say; what is pressed goes to ``on_press`` by name.

    The page opens the menus ``network``, ``job`` and ``more`` by itself: boxes of widgets with the class
    ``dtfm-menu-<name>`` anywhere in the lab. It also closes the menus of panes, tells ``dark``, knows the keys that
    hold for the whole lab, and shows the lab in the whole window.
    """

    network = traitlets.List(traitlets.Unicode(), ["", ""]).tag(sync=True)
    """Name of the network, and what it consists of."""
    job = traitlets.List(traitlets.Unicode(), ["", ""]).tag(sync=True)
    """Name of the job, and its shape."""
    numbers = traitlets.List(traitlets.Dict()).tag(sync=True)
    """{label, value, was, note, short, bad, word} of each number; ``word`` is its entry in the glossary."""
    headline = traitlets.Dict().tag(sync=True)
    """{lead, rest, kind}, see ``shell.headline``."""
    action = traitlets.Dict().tag(sync=True)
    """{name, label, why_not} of the next action."""
    live = traitlets.Bool(True).tag(sync=True)
    """Whether every edit is followed by a new plan."""
    live_note = traitlets.Unicode("").tag(sync=True)
    """How long the last plan took to find."""
    can_undo = traitlets.Bool(False).tag(sync=True)
    dark = traitlets.Bool(False).tag(sync=True)
    """Whether the page has a dark theme; the page sets it."""

    def __init__(self, on_press: Callable[[str], None], **traits: Any) -> None:
        self._on_press = on_press
        super().__init__(**traits)

    def received(self, content: dict[str, Any], buffers: Sequence[Any]) -> None:
        if content.get("kind") == "press":
            self._on_press(str(content.get("name", "")))

    def alt_text(self) -> str:
        said = [f"{n['label']} {n['value']}" for n in self.numbers]
        return " · ".join([*filter(None, self.network[:1]), *said, str(self.headline.get("lead", ""))])
