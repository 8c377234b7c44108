"""Who does what when: predicted bars, and measured ones below them as they come in."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import anywidget
import numpy as np
import traitlets

STATIC = Path(__file__).parent / "static"


class Bars(NamedTuple):
    """Columns of a chart, one entry a bar; the dtypes are what the view reads."""

    start: np.ndarray
    end: np.ndarray
    row: np.ndarray
    kind: np.ndarray
    microbatch: np.ndarray

    @classmethod
    def of(cls, start, end, row, kind, microbatch) -> "Bars":
        columns = (start, end, row, kind, microbatch)
        arrays = (np.asarray(c).astype(d, copy=True).ravel() for c, d in zip(columns, DTYPES, strict=True))
        return cls(*arrays)

    @classmethod
    def concatenate(cls, parts: Sequence["Bars"]) -> "Bars":
        return cls(*(np.concatenate(column) for column in zip(*parts, strict=True))) if parts else NO_BARS

    def in_order(self) -> "Bars":
        """Sorted by row, then start, as the view's binary searches need it."""
        order = np.lexsort((self.start, self.row))
        return Bars(*(column[order] for column in self))

    def buffers(self) -> list[bytes]:
        return [column.tobytes() for column in self]


DTYPES = ("<f4", "<f4", "<u2", "<u1", "<i2")
NO_BARS = Bars.of([], [], [], [], [])


class GanttView(anywidget.AnyWidget):
    """Draws bars on rows over time; times in seconds.

    Predicted bars are traits. Measured bars stream as messages: a view appends what is new, and
    one that is opened late says hello and is sent everything.
    """

    _esm = STATIC / "gantt.js"
    _css = STATIC / "gantt.css"

    start = traitlets.Bytes(b"").tag(sync=True)
    end = traitlets.Bytes(b"").tag(sync=True)
    row = traitlets.Bytes(b"").tag(sync=True)
    kind = traitlets.Bytes(b"").tag(sync=True)
    microbatch = traitlets.Bytes(b"").tag(sync=True)
    rows = traitlets.List(traitlets.Unicode()).tag(sync=True)
    """a label for each row"""
    kinds = traitlets.List(traitlets.Dict()).tag(sync=True)
    """{"name", "color"} of each kind"""
    title = traitlets.Unicode("Schedule").tag(sync=True)
    caption = traitlets.Unicode("").tag(sync=True)
    time_unit = traitlets.Unicode("s").tag(sync=True)
    height = traitlets.Int(320).tag(sync=True)
    n_measured = traitlets.Int(0).tag(sync=True)
    measured_iteration = traitlets.Int(-1).tag(sync=True)
    """which iteration the measured bars are from; -1 before any"""

    def __init__(self, **traits: object) -> None:
        super().__init__(**traits)
        self._measured: list[Bars] = []
        self.on_msg(self._answer)

    @property
    def measured(self) -> Bars:
        """The measured bars of this iteration, so far."""
        return Bars.concatenate(self._measured)

    def set_predicted(self, start, end, row, kind, microbatch, rows: Sequence[str], kinds: Sequence[dict]) -> None:
        """Replace the predicted bars; ``microbatch`` is -1 where there is none."""
        bars = Bars.of(start, end, row, kind, microbatch).in_order()
        with self.hold_sync():
            for name, column in bars._asdict().items():
                setattr(self, name, column.tobytes())
            self.rows, self.kinds = list(rows), [dict(kind) for kind in kinds]

    def reset_measured(self, iteration: int = -1) -> None:
        """Begin again with the measured bars of another iteration."""
        self._measured = []
        self.n_measured, self.measured_iteration = 0, iteration
        self._send_measured(NO_BARS, reset=True)

    def extend_measured(self, start, end, row, kind, microbatch) -> None:
        """Append measured bars, in the same clock as the predicted ones."""
        bars = Bars.of(start, end, row, kind, microbatch).in_order()
        if not len(bars.start):
            return
        self._measured.append(bars)
        self.n_measured += len(bars.start)
        self._send_measured(bars, reset=False)

    def _send_measured(self, bars: Bars, reset: bool) -> None:
        message = {"kind": "measured", "iteration": self.measured_iteration, "reset": reset}
        self.send(message, buffers=bars.buffers())

    def _answer(self, _widget: object, content: dict, _buffers: object) -> None:
        if content.get("kind") == "hello":
            self._send_measured(self.measured, reset=True)
