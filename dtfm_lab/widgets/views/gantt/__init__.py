"""The Gantt chart: predicted bars, and over them measured ones as they arrive."""

import gzip
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import traitlets

from dtfm_lab.compare.errors import format_error
from dtfm_lab.domain.trace import Trace
from dtfm_lab.domain.units import counted, format_s
from dtfm_lab.widgets.views.gantt.bars import (
    FIRST_MESSAGE,
    NO_BAR,
    NO_BARS,
    Bars,
    Chart,
    ChartRows,
    CriticalPath,
    MessageColumns,
    gaps_before,
    lateness_s,
)
from dtfm_lab.widgets.views.view import View


class GanttView(View):
    """Draws bars on rows over time, in seconds.

    Predicted bars are traits. Measured bars are sent as messages, each with how much later it ends than the predicted
    bar of the same action. The page appends new ones. A page that opens late sends ``hello`` and receives all.
    """

    start = traitlets.Bytes(b"").tag(sync=True)
    end = traitlets.Bytes(b"").tag(sync=True)
    row = traitlets.Bytes(b"").tag(sync=True)
    kind = traitlets.Bytes(b"").tag(sync=True)
    microbatch = traitlets.Bytes(b"").tag(sync=True)
    stage = traitlets.Bytes(b"").tag(sync=True)
    after = traitlets.Bytes(b"").tag(sync=True)
    """For each bar, as i4: the bar that it waited for last, FIRST_MESSAGE - m for message m, NO_BAR for none."""
    path = traitlets.Dict().tag(sync=True)
    """Columns of ``CriticalPath``, packed."""
    messages = traitlets.Dict().tag(sync=True)
    """Columns of ``MessageColumns``, packed."""
    rows = traitlets.List(traitlets.Unicode()).tag(sync=True)
    """A label for each row."""
    names = traitlets.List(traitlets.Unicode()).tag(sync=True)
    """The name of each row in sentences. If the list is empty, the labels are used."""
    devices = traitlets.List(traitlets.Unicode()).tag(sync=True)
    """The device of each row."""
    kinds = traitlets.List(traitlets.Dict()).tag(sync=True)
    """{"name", "color"} of each kind. Optional keys:

    - "shades", a colour for each stage of a device, and "dark_shades" for a dark page
    - "message", true for messages
    - "family": "forward", "backward", "averaging" or "step". Idle time before a bar is hatched in its family's hue.
    """
    devices_per_pipeline = traitlets.Int(0).tag(sync=True)
    """Devices per pipeline, n, if devices hold several stages: stage s is the (s // n)-th of its device. Else 0."""
    units = traitlets.List(traitlets.Dict()).tag(sync=True)
    """The units to draw, from top to bottom: {"label", "rows", "device", "stage", "replica", "tip", "members"}.

    The first of its ``rows`` is above, the second below. ``members`` are units that a click opens. Without units, each
    row is drawn separately.
    """
    n_stages = traitlets.Int(1).tag(sync=True)
    """Number of stages of the units, for their colours."""
    selected = traitlets.List(traitlets.Unicode()).tag(sync=True)
    """Names of the selected devices."""
    selected_stage = traitlets.Int(-1).tag(sync=True)
    """The selected stage. -1 for none."""
    show_path = traitlets.Bool(False).tag(sync=True)
    show_messages = traitlets.Bool(False).tag(sync=True)
    title = traitlets.Unicode("Schedule").tag(sync=True)
    caption = traitlets.Unicode("").tag(sync=True)
    empty_words = traitlets.Unicode("No schedule yet").tag(sync=True)
    busy = traitlets.Unicode("").tag(sync=True)
    """The current computation, in words. Empty if nothing is being computed."""
    stale = traitlets.Unicode("").tag(sync=True)
    """Why the picture is out of date, shown over it while it is dimmed. Empty if it is not."""
    shares = traitlets.List(traitlets.Dict()).tag(sync=True)
    """{"name", "share", "tone"} of each part of the iteration. A tone is a family of kinds, or "ink", "dark", "middle",
    "light"."""
    bare = traitlets.Bool(False).tag(sync=True)
    """True to leave out heading, legend and hint, for a pane that has its own."""
    overview = traitlets.Bool(True).tag(sync=True)
    """True to show the whole iteration in a narrow strip."""
    time_unit = traitlets.Unicode("s").tag(sync=True)
    height = traitlets.Int(320).tag(sync=True)
    """Pixels of the rows, the time axis and strips. 0 fills the parent element."""
    ends = traitlets.List(traitlets.Dict()).tag(sync=True)
    """{"at", "text", "dashed"} of each marked end of an iteration, see ``_mark_ends``."""
    interval = traitlets.List(traitlets.Float()).tag(sync=True)
    """Earliest and latest second at which the predicted iteration ends, with 90 % confidence. Empty if unknown."""
    ghost = traitlets.Dict().tag(sync=True)
    """Columns of the previous prediction's bars, packed: a thin line under each lane."""
    gaps = traitlets.List(traitlets.Dict()).tag(sync=True)
    """{"device", "from", "to", "text", "tip", "open"} of each gap in a device's row, see ``bars.py``.

    A gap lasts from the loss of a device until its copy takes over. "open" is True while the copy is still starting.
    Times below 0 are before the iteration was restarted. Long gaps are drawn shorter: at most ``bars.LONGEST`` of the
    iteration.
    """
    n_measured = traitlets.Int(0).tag(sync=True)
    measured_iteration = traitlets.Int(-1).tag(sync=True)
    """The iteration that the measured bars are from. -1 before any."""

    def __init__(self, **traits: object) -> None:
        super().__init__(**traits)
        self._measured: list[Bars] = []
        self._upper = self._ghost = NO_BARS

    @property
    def predicted(self) -> Bars:
        """The predicted bars, by row and start."""
        return self._upper

    @property
    def measured(self) -> Bars:
        """The bars of ``measured_iteration`` so far."""
        return Bars.concatenate(self._measured)

    def set_predicted(
        self,
        chart: Chart,
        *,
        rows: Sequence[str],
        kinds: Sequence[dict[str, Any]],
        names: Sequence[str] = (),
        devices: Sequence[str] = (),
        devices_per_pipeline: int = 0,
        units: Sequence[dict[str, Any]] = (),
        n_stages: int = 1,
        before: Bars = NO_BARS,
    ) -> None:
        """Replace the predicted bars, their critical path and messages by those of ``chart``.

        Bars of the same rows glide to their new places. ``before`` are bars of the same rows, drawn as a line under
        each lane, with a mark where they end.
        """
        # The page searches by row and start, so indices are renumbered.
        bars, order = chart.bars.ordered()
        place = np.empty(len(order) + 1, dtype="<i4")
        place[order], place[-1] = np.arange(len(order)), NO_BAR  # index NO_BAR gives NO_BAR
        waited = np.full(len(order), NO_BAR) if chart.after is None else chart.after[order]
        self._upper = bars
        with self.hold_sync():
            for name, column in _packed(bars).items():
                setattr(self, name, column)
            # Numbers of messages stay as they are, because only bars were reordered.
            to_bar = waited > FIRST_MESSAGE
            self.after = np.where(to_bar, place[np.where(to_bar, waited, NO_BAR)], waited).astype("<i4").tobytes()
            self.path = _packed(chart.path._replace(bar=place[chart.path.bar]))
            self.messages = _packed(chart.messages)
            self.rows, self.kinds, self.names = list(rows), [dict(kind) for kind in kinds], list(names)
            self.devices, self.devices_per_pipeline = list(devices), devices_per_pipeline
            self.units, self.n_stages = list(units), n_stages
            self._set_ghost(before)
        # Their lateness refers to the predicted bars, which are others now.
        if self.n_measured:
            self._send_measured(self.measured, reset=True)

    def _set_ghost(self, before: Bars) -> None:
        self._ghost = before.ordered()[0]
        self.ghost = {name: getattr(self._ghost, name).tobytes() for name in ("start", "end", "row")}
        self._mark_ends()

    def clear(self) -> None:
        """Remove all bars and the caption."""
        self.set_predicted(Chart(NO_BARS), rows=[], kinds=[])
        self.caption, self.interval = "", []
        self.shares, self.stale = [], ""
        self.reset_measured()

    def reset_measured(self, iteration: int = -1) -> None:
        """Start over with the measured bars of another iteration."""
        had_any, self._measured = bool(self._measured), []
        self.n_measured, self.measured_iteration, self.gaps = 0, iteration, []
        if had_any:
            self._send_measured(NO_BARS, reset=True)
        else:
            self._mark_ends()

    def extend_measured(self, *columns: npt.ArrayLike) -> None:
        """Append measured bars, as columns of ``Bars``, on the same clock as the predicted ones."""
        bars, _ = Bars.of(*columns).ordered()
        if not len(bars.start):
            return
        self._measured.append(bars)
        self.n_measured += len(bars.start)
        self._send_measured(bars, reset=False)

    def show_measured(self, measured: Trace) -> None:
        """Draw the typical iteration of a measurement with the prediction, which must have as many rows."""
        context, iteration = measured.context, measured.typical_iteration
        self.reset_measured(iteration)
        self.extend_measured(*ChartRows(context).chart(measured).bars)
        self.gaps = gaps_before(context.faults, iteration, measured.iteration_s, context.time_scale)

    def ask_png(self, name: str) -> None:
        """Make every open page download its chart as a PNG, on white and at double resolution."""
        self.send({"kind": "png", "name": name})

    def offer(self, name: str, content_type: str, data: bytes) -> None:
        """Make every open page download these bytes as a file."""
        self.send({"kind": "file", "name": name, "type": content_type}, buffers=[gzip.compress(data, 6)])

    def alt_text(self) -> str:
        if not len(self._upper.start):
            return f"{self.title}: {self.empty_words}"
        measured = f", {self.n_measured:,} measured" if self.n_measured else ""
        bars = f"{len(self._upper.start):,} predicted bars on {counted(len(self.rows), 'row')}{measured}"
        return " · ".join(filter(None, [f"{self.title}: {bars}", self.caption, *(gap["tip"] for gap in self.gaps)]))

    def _send_measured(self, bars: Bars, *, reset: bool) -> None:
        """Send measured bars: the newest, to be appended, or with ``reset`` all of them."""
        late_s = NO_BARS.end
        if len(bars.start):
            # Repeated bars of an action are counted from the first, so the earlier ones are needed too.
            late_s = lateness_s(self._upper, whole := self.measured)[len(whole.start) - len(bars.start) :]
        self.send({"kind": "measured", "reset": reset}, buffers=[*bars.buffers(), late_s.tobytes()])
        self._mark_ends()

    def _mark_ends(self) -> None:
        """Mark where iterations end. Without measured bars, mark the end of the previous prediction.

        With measured bars, mark the end of the current prediction, and the end of the measurement once it is complete.
        """
        known, word = (self._upper, "predicted") if self.n_measured else (self._ghost, "was")
        at_s = float(known.end.max()) if len(known.start) else 0.0
        ends = [{"at": at_s, "text": f"{word} {format_s(at_s)}", "dashed": True}] if at_s > 0 else []
        # An end is only named once the whole iteration is there.
        if self.n_measured and self.n_measured >= len(self._upper.start):
            end_s = float(self.measured.end.max())
            # name the iteration, because its length is not the run's average
            text = f"iteration {self.measured_iteration} measured" if self.measured_iteration >= 0 else "measured"
            text += f" {format_s(end_s)}"
            if at_s > 0:
                text += f", {format_error(end_s - at_s, at_s)}"
            ends.append({"at": end_s, "text": text, "dashed": False})
        self.ends = ends

    def received(self, content: dict[str, Any], buffers: Sequence[Any]) -> None:
        if content.get("kind") == "hello" and self.n_measured:
            self._send_measured(self.measured, reset=True)


def _packed(columns: Bars | CriticalPath | MessageColumns) -> dict[str, bytes]:
    return {name: column.tobytes() for name, column in columns._asdict().items()}
