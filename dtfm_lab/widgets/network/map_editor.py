"""The map of the network as an editor of its drawing."""

from collections.abc import Callable

from dtfm_lab.widgets.network.drawing import Drawing
from dtfm_lab.widgets.views.map import MapView


class MapEditor:
    """``view`` shows a drawing on the map, which fills its pane; ``canvas`` is the same.

    ``on_swap(a, b)`` is called where a person drops device ``a`` on device ``b`` to exchange their places in the plan.
    """

    def __init__(self, drawing: Drawing) -> None:
        self.canvas = self.view = MapView(drawing, height=0)
        self.canvas.add_class("dtfm-fill")
        self.on_swap: Callable[[str, str], None] = lambda a, b: None
        self.canvas.on_msg(self._on_message)

    @property
    def worth_showing(self) -> bool:
        """Whether at least two regions are known places."""
        return bool(self.canvas.worth_showing)

    def _on_message(self, _widget: object, content: dict[str, object], _buffers: object) -> None:
        drawn = {device["name"] for device in self.canvas.document["devices"]}
        a, b = content.get("a"), content.get("b")
        if content.get("kind") == "swap" and isinstance(a, str) and isinstance(b, str) and {a, b} <= drawn:
            self.on_swap(a, b)
