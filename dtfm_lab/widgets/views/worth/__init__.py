"""A sorted list of what each better link or device would save. A click on a row selects it."""

from collections.abc import Callable, Sequence
from typing import Any

import traitlets

from dtfm_lab.widgets.views.view import View


class WorthView(View):
    """Draws rows {"name", "what", "saves", "share", "length", "devices"}. A click calls ``on_select`` with the devices.

    ``length`` is the length of the row's bar, from 0 to 1.
    """

    rows = traitlets.List(traitlets.Dict()).tag(sync=True)
    caption = traitlets.Unicode("").tag(sync=True)
    """The list's progress, or what it leaves out."""
    stale = traitlets.Bool(False).tag(sync=True)
    """True if the plan, its choices or the factor have changed since the rows were computed."""

    def __init__(self, on_select: Callable[[list[str]], None] = lambda _: None, **traits: Any) -> None:
        self._on_select = on_select
        super().__init__(**traits)

    def received(self, content: dict[str, Any], buffers: Sequence[Any]) -> None:
        if content.get("kind") == "select" and isinstance(devices := content.get("devices"), list):
            self._on_select([str(name) for name in devices])
