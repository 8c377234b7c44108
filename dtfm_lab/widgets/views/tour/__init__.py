"""The card of a tour: it points at one thing after another in the lab, and never covers what it points at."""

from collections.abc import Callable, Sequence
from typing import Any

import traitlets

from dtfm_lab.widgets.views.view import View


class TourView(View):
    """Draws one step; ``press`` is called with act, next, back or leave."""

    step = traitlets.Dict().tag(sync=True)
    """{"title", "words", "targets", "act"} of the step that is shown; empty while there is no tour. ``targets`` are
    CSS selectors, of which the first that is visible is pointed at; ``act`` names the button that does the step."""
    at = traitlets.Int(0).tag(sync=True)
    count = traitlets.Int(0).tag(sync=True)
    done = traitlets.Bool(False).tag(sync=True)
    """Whether what the step asks for has been done."""
    note = traitlets.Unicode("").tag(sync=True)
    """What goes on while one waits."""

    def __init__(self, press: Callable[[str], None] = lambda _: None, **traits: Any) -> None:
        super().__init__(**traits)
        self._press = press

    def alt_text(self) -> str:
        return f"tour, step {self.at + 1} of {self.count}: {self.step['title']}" if self.step else "no tour"

    def received(self, content: dict[str, Any], buffers: Sequence[Any]) -> None:
        if content.get("kind") in ("act", "next", "back", "leave"):
            self._press(content["kind"])
