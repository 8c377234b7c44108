"""Who does what when: predicted bars, and measured ones below them as they come in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import traitlets

from dtfm_lab.widgets.view import STATIC, View

NO_BAR = -1
FIRST_MESSAGE = -2
"""in ``after``: message m is written FIRST_MESSAGE - m"""


class Bars(NamedTuple):
    """Columns of a chart, one entry a bar; the dtypes are what the view reads."""

    start: np.ndarray
    end: np.ndarray
    row: np.ndarray
    kind: np.ndarray
    microbatch: np.ndarray
    """-1 where there is none"""
    stage: np.ndarray

    @classmethod
    def of(
        cls,
        start: npt.ArrayLike,
        end: npt.ArrayLike,
        row: npt.ArrayLike,
        kind: npt.ArrayLike,
        microbatch: npt.ArrayLike,
        stage: npt.ArrayLike | None = None,
    ) -> Bars:
        given = np.zeros(np.size(start)) if stage is None else stage
        return cls(*_typed((start, end, row, kind, microbatch, given), ("<f4", "<f4", "<u2", "<u1", "<i2", "<u2")))

    @classmethod
    def concatenate(cls, parts: Sequence[Bars]) -> Bars:
        return cls(*(np.concatenate(column) for column in zip(*parts, strict=True))) if parts else NO_BARS

    def ordered(self) -> tuple[Bars, np.ndarray]:
        """Sorted by row, then start, as the view's binary searches need it; and where each bar came from."""
        order = np.lexsort((self.start, self.row))
        return Bars(*(column[order] for column in self)), order

    def buffers(self) -> list[bytes]:
        return [column.tobytes() for column in self]


class Messages(NamedTuple):
    """One entry a message, in the order in which they leave."""

    source: np.ndarray
    """row"""
    target: np.ndarray
    """row"""
    leaves: np.ndarray
    arrives: np.ndarray
    kind: np.ndarray
    microbatch: np.ndarray
    """-1 where there is none"""

    @classmethod
    def of(cls, *columns: npt.ArrayLike) -> Messages:
        return cls(*_typed(columns, ("<u2", "<u2", "<f4", "<f4", "<u1", "<i2")))


class CriticalPath(NamedTuple):
    """Where the critical path goes, in order of time: along a row, and straight on to the next entry's beginning."""

    row: np.ndarray
    start: np.ndarray
    end: np.ndarray
    bar: np.ndarray
    """NO_BAR where it has none, as a message has that is not drawn"""

    @classmethod
    def of(cls, *columns: npt.ArrayLike) -> CriticalPath:
        return cls(*_typed(columns, ("<u2", "<f4", "<f4", "<i4")))


def _typed(columns: Sequence[npt.ArrayLike], dtypes: Sequence[str]) -> list[np.ndarray]:
    return [np.asarray(c).astype(d, copy=True).ravel() for c, d in zip(columns, dtypes, strict=True)]


NO_BARS = Bars.of([], [], [], [], [])
NO_MESSAGES = Messages.of([], [], [], [], [], [])
NO_PATH = CriticalPath.of([], [], [], [])


class GanttView(View):
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
    stage = traitlets.Bytes(b"").tag(sync=True)
    after = traitlets.Bytes(b"").tag(sync=True)
    """per bar, i4: the bar that it waited for last, FIRST_MESSAGE - m for message m, NO_BAR for none"""
    path_row = traitlets.Bytes(b"").tag(sync=True)
    path_start = traitlets.Bytes(b"").tag(sync=True)
    path_end = traitlets.Bytes(b"").tag(sync=True)
    path_bar = traitlets.Bytes(b"").tag(sync=True)
    message_source = traitlets.Bytes(b"").tag(sync=True)
    message_target = traitlets.Bytes(b"").tag(sync=True)
    message_leaves = traitlets.Bytes(b"").tag(sync=True)
    message_arrives = traitlets.Bytes(b"").tag(sync=True)
    message_kind = traitlets.Bytes(b"").tag(sync=True)
    message_microbatch = traitlets.Bytes(b"").tag(sync=True)
    rows = traitlets.List(traitlets.Unicode()).tag(sync=True)
    """a label for each row"""
    names = traitlets.List(traitlets.Unicode()).tag(sync=True)
    """what each row is called where it is spoken of; its label where empty"""
    kinds = traitlets.List(traitlets.Dict()).tag(sync=True)
    """{"name", "color"} of each kind; also "shades", a colour for each stage of a device, "edge", a colour around
    its bars, and "message" where it is one"""
    devices_per_pipeline = traitlets.Int(0).tag(sync=True)
    """where devices hold several stages: stage s is the (s // this)-th of its device; else 0"""
    show_path = traitlets.Bool(False).tag(sync=True)
    show_messages = traitlets.Bool(False).tag(sync=True)
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

    def set_predicted(
        self,
        start: npt.ArrayLike,
        end: npt.ArrayLike,
        row: npt.ArrayLike,
        kind: npt.ArrayLike,
        microbatch: npt.ArrayLike,
        stage: npt.ArrayLike | None = None,
        *,
        rows: Sequence[str],
        kinds: Sequence[dict[str, Any]],
        names: Sequence[str] = (),
        devices_per_pipeline: int = 0,
        after: npt.ArrayLike | None = None,
        path: CriticalPath = NO_PATH,
        messages: Messages = NO_MESSAGES,
    ) -> None:
        """Replace the predicted bars; ``after`` and ``path.bar`` count them as they are given here."""
        given = Bars.of(start, end, row, kind, microbatch, stage)
        bars, order = given.ordered()
        place = np.empty(len(order) + 1, dtype="<i4")
        place[order], place[-1] = np.arange(len(order)), NO_BAR  # NO_BAR stays what it is
        waited = np.full(len(order), NO_BAR) if after is None else np.asarray(after)[order]
        with self.hold_sync():
            for name, column in bars._asdict().items():
                setattr(self, name, column.tobytes())
            to_bar = waited > FIRST_MESSAGE
            self.after = np.where(to_bar, place[np.where(to_bar, waited, NO_BAR)], waited).astype("<i4").tobytes()
            for what, columns in (("path", path._replace(bar=place[path.bar])), ("message", messages)):
                for name, column in columns._asdict().items():
                    setattr(self, f"{what}_{name}", column.tobytes())
            self.rows, self.kinds, self.names = list(rows), [dict(kind) for kind in kinds], list(names)
            self.devices_per_pipeline = devices_per_pipeline

    def clear(self) -> None:
        """No bars, predicted or measured."""
        self.set_predicted(*NO_BARS, rows=[], kinds=[])
        self.caption = ""
        self.reset_measured()

    def reset_measured(self, iteration: int = -1) -> None:
        """Begin again with the measured bars of another iteration."""
        self._measured = []
        self.n_measured, self.measured_iteration = 0, iteration
        self._send_measured(NO_BARS, reset=True)

    def extend_measured(
        self,
        start: npt.ArrayLike,
        end: npt.ArrayLike,
        row: npt.ArrayLike,
        kind: npt.ArrayLike,
        microbatch: npt.ArrayLike,
        stage: npt.ArrayLike | None = None,
    ) -> None:
        """Append measured bars, in the same clock as the predicted ones."""
        bars, _ = Bars.of(start, end, row, kind, microbatch, stage).ordered()
        if not len(bars.start):
            return
        self._measured.append(bars)
        self.n_measured += len(bars.start)
        self._send_measured(bars, reset=False)

    def _send_measured(self, bars: Bars, reset: bool) -> None:
        message = {"kind": "measured", "iteration": self.measured_iteration, "reset": reset}
        self.send(message, buffers=bars.buffers())

    def _answer(self, _widget: object, content: dict[str, Any], _buffers: object) -> None:
        if content.get("kind") == "hello":
            self._send_measured(self.measured, reset=True)
