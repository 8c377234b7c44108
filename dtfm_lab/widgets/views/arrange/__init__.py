"""A placement to be arranged by hand: a row a stage, a column a pipeline; two clicks exchange two devices."""

from collections.abc import Callable, Sequence
from typing import Any

import traitlets

from dtfm_lab.domain.units import format_s
from dtfm_lab.widgets.views.view import View


class ArrangeView(View):
    """Draws ``state``; two devices that are clicked one after the other are exchanged by ``swap``."""

    state = traitlets.Dict().tag(sync=True)
    """``rows`` of device names by stage, ``idle`` names, ``groups_s`` and ``hops_s``; the seconds ``now_s``,
    ``planner_s`` and ``bound_s`` (0 where not known) and ``chance_s``; ``score``, ``moves``, ``hints``, ``seconds`` of
    play, ``best`` in words; empty where there is nothing to arrange."""
    hinted = traitlets.List(traitlets.Unicode()).tag(sync=True)
    """The two devices of the proposed exchange."""
    note = traitlets.Unicode("").tag(sync=True)
    hint = traitlets.Unicode("").tag(sync=True)
    """What stands where there is nothing to arrange."""
    height = traitlets.Int(0).tag(sync=True)
    """Pixels; 0 fills the element that it is in."""

    def __init__(self, swap: Callable[[str, str], None] | None = None, **traits: Any) -> None:
        super().__init__(**traits)
        self._swap = swap

    def alt_text(self) -> str:
        if not self.state:
            return "Arranged by hand: nothing yet"
        return f"Arranged by hand: {format_s(self.state['now_s'])} after {self.state['moves']} moves"

    def received(self, content: dict[str, Any], buffers: Sequence[Any]) -> None:
        match content:
            case {"kind": "swap", "devices": [str(one), str(other)]} if self._swap is not None:
                self._swap(one, other)
