"""A Gantt chart that shows predictions: rows by stage, ghosts of what was, and where a GPU's time goes."""

import asyncio
from collections.abc import Callable
from typing import Any

from dtfm_lab.domain.trace import predicted_ends
from dtfm_lab.widgets.schedule.predictions import ChartedPrediction
from dtfm_lab.widgets.tasks import Result, run_on_thread
from dtfm_lab.widgets.views.gantt import GanttView
from dtfm_lab.widgets.views.gantt.bars import ROWS_PER_DEVICE, arranged, legend
from dtfm_lab.widgets.views.gantt.columns import NO_BARS


class PredictionChart(GanttView):
    """``show`` draws a prediction, and as a thin line what it was before.

    For a pane: it fills the element that holds it, and leaves heading and legend to the lab.
    """

    def __init__(self, **traits: Any) -> None:
        super().__init__(**({"height": 0, "bare": True, "overview": False} | traits))
        self.shown: ChartedPrediction | None = None
        self.rows_by, self.with_network = "stage", True

    def show(self, prediction: ChartedPrediction, before: ChartedPrediction | None = None) -> None:
        """Draw a prediction; bars of the same rows glide to their new places.

        ``before`` stays as a thin line under each lane, with a mark where it ended, where it has as many stages and
        replicas.
        """
        self.shown = prediction
        context, chart, rows = prediction.trace.context, prediction.chart, prediction.rows
        n_shades = context.stages_per_device
        has_ghost = before is not None and before is not prediction and before.rows.shape == rows.shape
        with self.hold_sync():
            self.set_predicted(
                *chart.bars,
                rows=rows.labels,
                names=[name for name in rows.names for _ in range(ROWS_PER_DEVICE)],
                devices=rows.devices,
                kinds=legend(n_shades),
                devices_per_pipeline=len(context.devices) if n_shades > 1 else 0,
                after=chart.after,
                path=chart.path,
                messages=chart.messages,
                units=self._units(prediction),
                n_stages=len(context.devices),
                before=before.chart.bars if before is not None and has_ghost else NO_BARS,
            )
            drawn_s = prediction.chart.bars.end
            ends_s = predicted_ends(prediction.trace, float(drawn_s.max())) if len(drawn_s) else None
            self.interval = list(ends_s or ())
            self.title = f"One iteration under {context.schedule}"
            self.caption, self.stale = prediction.caption, ""
            self.shares = prediction.shares

    def arrange(self, rows_by: str, *, network: bool) -> None:
        """Order the rows by stage, pipeline or region, with or without those of messages."""
        self.rows_by, self.with_network = rows_by, network
        if self.shown is not None:
            self.units = self._units(self.shown)

    async def wait_for(
        self, work: Callable[[], Result], words: str, stopped: asyncio.Event, set_slow: Callable[[bool], None]
    ) -> Result | None:
        """Return what work on a thread returns, or raise what it raises; None once ``stopped`` is set.

        Where it takes long, the chart says so in these words. ``set_slow`` is then called with True, and at the end
        with False.
        """
        stopped.clear()

        def on_slow() -> None:
            self.busy = words
            set_slow(True)

        try:
            return await run_on_thread(work, stopped, on_slow)
        finally:
            self.busy = ""
            set_slow(False)

    def clear(self) -> None:
        self.shown = None
        super().clear()

    def _units(self, prediction: ChartedPrediction) -> list[dict[str, Any]]:
        regions = {device.name: device.region for device in prediction.plan.topology.devices}
        return arranged(prediction.rows, self.rows_by, regions, network=self.with_network)
