"""The Gantt chart: predicted bars, and over them measured ones as they come in."""

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
    NO_MESSAGES,
    NO_PATH,
    Bars,
    ChartRows,
    CriticalPath,
    MessageColumns,
    gaps_before,
    lateness_s,
)
from dtfm_lab.widgets.views.view import View


class GanttView(View):
    """Draws bars on rows over time; times in seconds.

    Predicted bars are traits. Measured bars are sent as messages, each with how much later it ends than the predicted
    bar of the same action: the page appends new ones, and a page that opens late sends ``hello`` and is sent all.
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
    """The name of each row in sentences; its label where empty."""
    devices = traitlets.List(traitlets.Unicode()).tag(sync=True)
    """The device of each row."""
    kinds = traitlets.List(traitlets.Dict()).tag(sync=True)
    """{"name", "color"} a kind. Optional are "shades", a colour for each stage of a device, "dark_shades" on a dark
    page, "message", true for messages, and "family", "forward", "backward", "averaging" or "step": idle time before a
    bar is hatched in its family's hue."""
    devices_per_pipeline = traitlets.Int(0).tag(sync=True)
    """Number of devices of a pipeline where devices hold several stages: stage s is the (s // n)-th of its device.
    Else 0."""
    units = traitlets.List(traitlets.Dict()).tag(sync=True)
    """What is drawn, from top to bottom: {"label", "rows", "device", "stage", "replica", "tip", "members"}.
    The first of its ``rows`` is above, the second below. ``members`` are units that a click opens. Where there
    are no units, each row is drawn by itself."""
    n_stages = traitlets.Int(1).tag(sync=True)
    """Number of stages of the units, for their colours."""
    selected = traitlets.List(traitlets.Unicode()).tag(sync=True)
    """The devices that were clicked."""
    selected_stage = traitlets.Int(-1).tag(sync=True)
    """The stage whose row was clicked; -1 for none."""
    show_path = traitlets.Bool(False).tag(sync=True)
    show_messages = traitlets.Bool(False).tag(sync=True)
    title = traitlets.Unicode("Schedule").tag(sync=True)
    caption = traitlets.Unicode("").tag(sync=True)
    empty_words = traitlets.Unicode("No schedule yet").tag(sync=True)
    busy = traitlets.Unicode("").tag(sync=True)
    """The computation that is under way, in words; empty if there is none."""
    stale = traitlets.Unicode("").tag(sync=True)
    """Why the picture is no longer true, in words over it while it is dimmed; empty if it is true."""
    shares = traitlets.List(traitlets.Dict()).tag(sync=True)
    """{"name", "share", "tone"} of what a device's time goes to; a tone is a family of kinds, or "ink", "dark",
    "middle" or "light"."""
    bare = traitlets.Bool(False).tag(sync=True)
    """Without heading, legend and hint: for a pane that has its own."""
    overview = traitlets.Bool(True).tag(sync=True)
    """With the whole iteration in a narrow strip."""
    time_unit = traitlets.Unicode("s").tag(sync=True)
    height = traitlets.Int(320).tag(sync=True)
    """Pixels of the rows, the time axis and strips; 0 fills the element that holds the view."""
    ends = traitlets.List(traitlets.Dict()).tag(sync=True)
    """{"at", "text", "dashed"} of each end of an iteration, where two are compared."""
    interval = traitlets.List(traitlets.Float()).tag(sync=True)
    """Seconds from which to which the iteration of the upper bars ends with 90 % confidence; empty if unknown."""
    ghost = traitlets.Dict().tag(sync=True)
    """Columns of the bars of the prediction before, packed: a thin line under each lane."""
    gaps = traitlets.List(traitlets.Dict()).tag(sync=True)
    """{"device", "from", "to", "text", "tip", "open"} of each gap in a device's row, where it was lost and its copy had
    not taken over yet, see ``bars.py``. What is before 0 was before the iteration was begun again."""
    n_measured = traitlets.Int(0).tag(sync=True)
    measured_iteration = traitlets.Int(-1).tag(sync=True)
    """The iteration that the measured bars are from; -1 before any."""

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
        """The measured bars of this iteration, so far."""
        return Bars.concatenate(self._measured)

    def set_predicted(
        self,
        *columns: npt.ArrayLike,
        rows: Sequence[str],
        kinds: Sequence[dict[str, Any]],
        names: Sequence[str] = (),
        devices: Sequence[str] = (),
        devices_per_pipeline: int = 0,
        after: npt.ArrayLike | None = None,
        path: CriticalPath = NO_PATH,
        messages: MessageColumns = NO_MESSAGES,
        units: Sequence[dict[str, Any]] = (),
        n_stages: int = 1,
        before: Bars = NO_BARS,
    ) -> None:
        """Replace the upper bars by those of ``columns``, see ``Bars``; ``after`` and ``path.bar`` count them as given.

        Bars of the same rows glide to their new places. ``before`` are bars of the same rows, drawn as a line under
        each lane, with a mark where they end.
        """
        bars, order = Bars.of(*columns).ordered()
        place = np.empty(len(order) + 1, dtype="<i4")
        place[order], place[-1] = np.arange(len(order)), NO_BAR  # index NO_BAR gives NO_BAR
        waited = np.full(len(order), NO_BAR) if after is None else np.asarray(after)[order]
        self._upper = bars
        with self.hold_sync():
            for name, column in _packed(bars).items():
                setattr(self, name, column)
            to_bar = waited > FIRST_MESSAGE
            self.after = np.where(to_bar, place[np.where(to_bar, waited, NO_BAR)], waited).astype("<i4").tobytes()
            self.path, self.messages = _packed(path._replace(bar=place[path.bar])), _packed(messages)
            self.rows, self.kinds, self.names = list(rows), [dict(kind) for kind in kinds], list(names)
            self.devices, self.devices_per_pipeline = list(devices), devices_per_pipeline
            self.units, self.n_stages = list(units), n_stages
            self._set_ghost(before)
        if self.n_measured:
            self._send_measured(self.measured, reset=True)

    def _set_ghost(self, before: Bars) -> None:
        self._ghost = before.ordered()[0]
        self.ghost = {name: getattr(self._ghost, name).tobytes() for name in ("start", "end", "row")}
        self._mark_ends()

    def clear(self) -> None:
        """Remove all bars and the caption."""
        self.set_predicted(*NO_BARS, rows=[], kinds=[])
        self.caption, self.interval = "", []
        self.shares, self.stale = [], ""
        self.reset_measured()

    def reset_measured(self, iteration: int = -1) -> None:
        """Begin again with the measured bars of another iteration."""
        had_any, self._measured = bool(self._measured), []
        self.n_measured, self.measured_iteration, self.gaps = 0, iteration, []
        if had_any:
            self._send_measured(NO_BARS, reset=True)
        else:
            self._mark_ends()

    def extend_measured(self, *columns: npt.ArrayLike) -> None:
        """Append measured bars, columns of ``Bars`` in the same clock as the predicted ones."""
        bars, _ = Bars.of(*columns).ordered()
        if not len(bars.start):
            return
        self._measured.append(bars)
        self.n_measured += len(bars.start)
        self._send_measured(bars, reset=False)

    def show_measured(self, measured: Trace) -> None:
        """Draw the typical iteration of a measurement over the prediction, which has as many rows."""
        context, iteration = measured.context, measured.typical_iteration
        self.reset_measured(iteration)
        self.extend_measured(*ChartRows(context).chart(measured).bars)
        self.gaps = gaps_before(context.faults, iteration, measured.iteration_s, context.time_scale)

    def ask_png(self, name: str) -> None:
        """Have every open page download what it shows as a PNG, on white and twice as sharp."""
        self.send({"kind": "png", "name": name})

    def offer(self, name: str, content_type: str, data: bytes) -> None:
        """Have every open page download these bytes as a file."""
        self.send({"kind": "file", "name": name, "type": content_type}, buffers=[gzip.compress(data, 6)])

    def alt_text(self) -> str:
        if not len(self._upper.start):
            return f"{self.title}: {self.empty_words}"
        measured = f", {self.n_measured:,} measured" if self.n_measured else ""
        bars = f"{len(self._upper.start):,} predicted bars on {counted(len(self.rows), 'row')}{measured}"
        return " · ".join(filter(None, [f"{self.title}: {bars}", self.caption, *(gap["tip"] for gap in self.gaps)]))

    def _send_measured(self, bars: Bars, *, reset: bool) -> None:
        """Send measured bars: the newest of all, to be appended, or with ``reset`` all of them."""
        late_s = NO_BARS.end
        if len(bars.start):
            late_s = lateness_s(self._upper, whole := self.measured)[len(whole.start) - len(bars.start) :]
        self.send({"kind": "measured", "reset": reset}, buffers=[*bars.buffers(), late_s.tobytes()])
        self._mark_ends()

    def _mark_ends(self) -> None:
        """Mark where the prediction before ended, or the predicted iteration, or both once the measured one is whole.

        Measured bars come in over the predicted ones, whose end stays in sight.
        """
        known, word = (self._upper, "predicted") if self.n_measured else (self._ghost, "was")
        at_s = float(known.end.max()) if len(known.start) else 0.0
        ends = [{"at": at_s, "text": f"{word} {format_s(at_s)}", "dashed": True}] if at_s > 0 else []
        if self.n_measured and self.n_measured >= len(self._upper.start):
            end_s = float(self.measured.end.max())
            # one of many iterations, and not what the run took
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
