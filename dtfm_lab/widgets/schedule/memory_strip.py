"""The memory of one device over time, drawn below the chart on its time axis."""

import ipywidgets as w
import numpy as np

from dtfm_lab.simulation.memory import MemoryReport
from dtfm_lab.widgets.controls import labelled
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.schedule.predictions import Prediction
from dtfm_lab.widgets.views.gantt import NOTHING_HELD, GanttView, Held

FULLEST, NONE = "", " "
"""Choices of the menu in addition to the devices' names."""
MOST_POINTS = 4_000
"""Points of a curve; a longer one keeps the highest of each time slot."""


class MemoryStrip:
    """``control`` names the device whose memory is shown; at first there is none."""

    def __init__(self, lab_state: LabState, chart: GanttView) -> None:
        self._lab_state, self._chart = lab_state, chart
        self._shown: tuple[Prediction | None, Prediction | None] = (None, None)
        self.control = labelled(
            w.Dropdown,
            "Memory of",
            "255px",
            "75px",
            options=[("none", NONE), ("selected or fullest", FULLEST)],
            tooltip="Whose memory over time is drawn below the rows",
        )
        self.control.observe(lambda _: self._draw(), "value")
        lab_state.observe(lambda _: self._draw(), "selected")

    def show(self, upper: Prediction | None, lower: Prediction | None = None) -> None:
        """Draw the memory of these predictions, the second one's dashed; None for no strip."""
        self._shown = (upper, lower)
        names = [] if upper is None else [name for group in upper.memory.devices for name in group]
        options = [("none", NONE), ("selected or fullest", FULLEST), *((name, name) for name in sorted(names))]
        if options != list(self.control.options):
            chosen = self.control.value
            self.control.options = options
            self.control.value = chosen if chosen in (FULLEST, NONE, *names) else NONE
        self._draw()

    def _draw(self) -> None:
        upper, lower = self._shown
        if upper is None or self.control.value == NONE:
            self._chart.set_memory(NOTHING_HELD)
            return
        position, replica = self._place(upper.memory)
        other = NOTHING_HELD if lower is None else held(lower, position, replica)
        self._chart.set_memory(
            held(upper, position, replica),
            float(upper.memory.limit_bytes[position, replica]),
            upper.memory.devices[position][replica],
            other,
        )

    def _place(self, report: MemoryReport) -> tuple[int, int]:
        """Return (position, replica) of the device to show."""
        wanted = [self.control.value] if self.control.value != FULLEST else list(self._lab_state.selected[-1:])
        for position, group in enumerate(report.devices):
            for name in wanted:
                if name in group:
                    return position, group.index(name)
        return report.worst


def held(prediction: Prediction, position: int, replica: int) -> Held:
    """Return what one device holds in the iteration that is drawn."""
    trace, report = prediction.trace, prediction.memory
    iteration = int(np.searchsorted(np.unique(trace.iteration), trace.typical_iteration))
    time, n_bytes = report.timeline(report.devices[position][replica], iteration)
    if len(time) > MOST_POINTS and time[-1] > 0:  # keep the fullest moment of each time slot
        slot = np.minimum((time / time[-1] * MOST_POINTS).astype(np.int64), MOST_POINTS - 1)
        fullest = np.lexsort((n_bytes, slot))
        kept = np.sort(fullest[np.flatnonzero(np.diff(slot[fullest], append=MOST_POINTS))])
        time, n_bytes = time[kept], n_bytes[kept]
    return Held(time, n_bytes)
