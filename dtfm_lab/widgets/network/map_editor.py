"""The world map with its controls."""

import ipywidgets as w

from dtfm_lab.widgets.controls import labelled
from dtfm_lab.widgets.network.drawing import Drawing
from dtfm_lab.widgets.views.map import MapView

HINT = (
    "Drag a device, or a region by its name, to another city; Shift and drag selects; "
    "once clicked, the wheel zooms and arrows pan."
)


class MapEditor:
    """``view`` shows a drawing on the map of the world; ``canvas`` is the map alone."""

    def __init__(self, drawing: Drawing) -> None:
        self.canvas = MapView(drawing)
        self.gpu = labelled(
            w.Dropdown, "New devices", "230px", "84px", tooltip="What a device that is added on the map is"
        )
        self._offer()
        self.canvas.observe(lambda _: self._offer(), "gpus")
        self.gpu.observe(lambda change: setattr(self.canvas, "gpu", change["new"] or ""), "value")
        self.view = w.VBox([self.canvas, w.HBox([self.gpu, w.HTML(f'<div class="dtfm-line dtfm-note">{HINT}</div>')])])

    def _offer(self) -> None:
        """Offer the GPUs that the drawing has; the chosen one stays if it is among them."""
        kinds = tuple(self.canvas.gpus)
        if kinds == self.gpu.options:
            return
        chosen = self.gpu.value
        self.gpu.options = kinds
        self.gpu.value = chosen if chosen in kinds else next(iter(kinds), None)
