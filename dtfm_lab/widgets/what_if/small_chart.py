"""The chart of an answer."""

from dtfm_lab.widgets.schedule.predictions import Prediction
from dtfm_lab.widgets.views.gantt import GanttView
from dtfm_lab.widgets.views.gantt.bars import legend


class PredictionChart(GanttView):
    """Draws a prediction."""

    def show(self, prediction: Prediction, before: Prediction | None = None) -> None:
        chart, rows, context = prediction.chart, prediction.rows, prediction.trace.context
        self.set_predicted(
            *chart.bars,
            rows=rows.labels,
            names=[name for name in rows.names for _ in range(rows.rows_per_device)],
            devices=rows.devices,
            kinds=legend(context.stages_per_device),
            after=chart.after,
            path=chart.path,
            messages=chart.messages,
        )
        self.caption = prediction.caption
