"""A button that draws a plotly figure of what no view shows, below what is there."""

import asyncio
from collections.abc import Callable

import ipywidgets as w
import plotly.graph_objects as go
import plotly.io as pio

from dtfm_lab import figures
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.tasks import begin


class AsFigure:
    """``button`` draws what ``make`` returns into ``output``, and hides it again; ``figure`` is the last one.

    ``make`` runs on a thread and returns None where there is nothing to show yet; a LabError that it raises goes to
    ``report_error``. ``name`` is what the button says.
    """

    def __init__(
        self,
        make: Callable[[], go.Figure | None],
        lab_state: LabState | None,
        report_error: Callable[[str], None],
        name: str = "As figure",
    ) -> None:
        self._make, self._lab_state, self._report_error, self._name = make, lab_state, report_error, name
        self.figure: go.Figure | None = None
        self.button = w.Button(
            description=name,
            icon="area-chart",
            tooltip="A plotly figure that stands alone; press again to put it away",
            layout=w.Layout(width="auto"),
        )
        self.output = w.Output()
        self.parts = (self.button, self.output)
        self.button.on_click(lambda _: self._press())

    def _press(self) -> None:
        if self.output.outputs:
            self.put_away()
        elif not self.button.disabled:
            begin(self._draw(), self._report_error)

    async def _draw(self) -> None:
        self.button.disabled = True
        try:
            made = await asyncio.to_thread(self._make)
        finally:
            self.button.disabled = False
        if made is None:
            self._report_error("there is nothing to draw as a figure yet")
            return
        self.figure = figures.theme(made, dark=self._lab_state is not None and self._lab_state.dark)
        # not by ``display``: an output does not capture what a task displays after its cell has ended
        data = pio.renderers["plotly_mimetype"].to_mimebundle(self.figure.to_dict())
        words = figures.alt_text(self.figure)
        self.output.outputs = ({"output_type": "display_data", "data": {**data, "text/plain": words}, "metadata": {}},)
        self._update_button()

    def put_away(self) -> None:
        """Hide the figure, where one is shown."""
        self.output.outputs = ()
        self._update_button()

    def _update_button(self) -> None:
        self.button.description = "Hide figure" if self.output.outputs else self._name
