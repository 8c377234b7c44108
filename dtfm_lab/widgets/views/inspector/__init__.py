"""The inspector below the network: what is selected, and the sliders of a selected link."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import traitlets

from dtfm_lab.widgets.views.view import View


class Inspector(View):
    """Shows ``facts``, see ``shell.inspection``; it has a fixed place and height, so that nothing jumps.

    ``on_link(ends, gbps, ms, phase)`` is called at every move of a link's slider, with ``phase`` one of begin, move and
    end; ``on_select(what)`` with {stage}, {devices} or {} to let go of the selection.
    """

    facts = traitlets.Dict().tag(sync=True)

    def __init__(
        self,
        on_link: Callable[[Sequence[str], float, float, str], None],
        on_select: Callable[[Mapping[str, Any]], None],
    ) -> None:
        self._on_link, self._on_select = on_link, on_select
        super().__init__()

    def received(self, content: dict[str, Any], buffers: Sequence[Any]) -> None:
        if content.get("kind") == "link":
            self._on_link(content["ends"], float(content["gbps"]), float(content["ms"]), str(content["phase"]))
        elif content.get("kind") == "select":
            self._on_select(content)

    def alt_text(self) -> str:
        return f"{self.facts.get('title', '')}: {self.facts.get('hint', '')}"
