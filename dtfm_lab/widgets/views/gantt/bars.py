"""Convert a Trace to the columns of the Gantt chart: row order, differences of two charts, gaps of lost devices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from dtfm_lab.domain.schedule import LANE, PASSES, RECEIVES, SENDS, Action, Kind, Lane
from dtfm_lab.domain.trace import Fault, RunContext, Span, Trace
from dtfm_lab.domain.units import IntArray, counted, format_s
from dtfm_lab.figures.palette import KIND_TINTS, PAGES, kind_color, legend_name, mixed
from dtfm_lab.figures.timeline.bars import PALEST

LONGEST = 0.3
"""Maximum width of a gap, as a share of the iteration. A few seconds lost on this machine may be many iterations on a
modelled clock."""


def gaps_before(
    faults: Iterable[Fault], iteration: int, iteration_s: float, time_scale: float = 1.0
) -> list[dict[str, Any]]:
    """Return the gaps before a restarted iteration, for ``GanttView.gaps``.

    The iteration starts at 0, so a gap ends there. A second of the chart, whose iteration lasts ``iteration_s``, takes
    ``time_scale`` seconds of this machine.
    """
    # All gaps end at the restart, so two of the same device would cover each other.
    last = {fault.device: fault for fault in faults if fault.iteration == iteration}
    return [_before(fault, *_width(fault.lost_s / time_scale, iteration_s)) for fault in last.values()]


def gap_after(device: str, from_s: float, lost_s: float, iteration_s: float, time_scale: float = 1.0) -> dict[str, Any]:
    """Return the gap of a device lost for ``lost_s`` seconds of this machine. Its last bar ends at ``from_s``."""
    width_s, cut = _width(lost_s / time_scale, iteration_s)
    tip = f"{device} is lost: a replacement is starting{cut}"
    return {"device": device, "from": from_s, "to": from_s + width_s, "text": "lost", "tip": tip, "open": True}


def _before(fault: Fault, width_s: float, cut: str) -> dict[str, Any]:
    lost = format_s(fault.lost_s)
    tip = (
        f"{fault.device} {fault.how}: {lost} of this machine until its copy took over, with the state of "
        f"{fault.state_from}; then iteration {fault.iteration} was restarted{cut}"
    )
    return {"device": fault.device, "from": -width_s, "to": 0.0, "text": f"{lost} lost", "tip": tip, "open": False}


def _width(lost_s: float, iteration_s: float) -> tuple[float, str]:
    """Return the seconds of the chart that a gap takes, and a note if it is drawn shorter than it was."""
    longest_s = LONGEST * iteration_s
    return (longest_s, " (drawn shorter than it was)") if lost_s > longest_s > 0 else (lost_s, "")


DISPLAYED = (*PASSES, Kind.PART, *SENDS, Kind.PACK, Kind.REDUCE, Kind.STEP)
"""The kinds of action that get bars, in the order of the legend. Receives mirror the sends and are left out."""
KIND_INDEX = {kind: i for i, kind in enumerate(DISPLAYED)}
ROWS_PER_DEVICE = 2
"""Each device has a row for its computations, and one for the messages that it sends."""
STAGES_NAMED = 3
MOST_DEVICES_APART = 16
"""Maximum devices that are drawn one by one. For more, each stage is drawn as one unit that a click opens."""
LETTERS = 3
"""Number of letters shown of each region's name if a stage is in two regions."""
NO_BAR = -1
FIRST_MESSAGE = -2
"""In ``after``, message m is written as FIRST_MESSAGE - m."""


class Bars(NamedTuple):
    """Columns of a chart, one entry per bar, of the dtypes that the page reads."""

    start: np.ndarray
    end: np.ndarray
    row: np.ndarray
    kind: np.ndarray
    microbatch: np.ndarray
    """Micro-batch of each bar. -1 for none."""
    stage: np.ndarray

    @classmethod
    def of(cls, *columns: npt.ArrayLike) -> Bars:
        """Return the bars of these columns. Without the last column, all are of stage 0."""
        given = columns if len(columns) == len(cls._fields) else (*columns, np.zeros(np.size(columns[0])))
        return cls(*_typed(given, ("<f4", "<f4", "<u2", "<u1", "<i4", "<u2")))

    @classmethod
    def concatenate(cls, parts: Sequence[Bars]) -> Bars:
        return cls(*(np.concatenate(column) for column in zip(*parts, strict=True))) if parts else NO_BARS

    def ordered(self) -> tuple[Bars, np.ndarray]:
        """Return the bars sorted by row and start, for the page's binary searches, and the old index of each."""
        order = np.lexsort((self.start, self.row))
        return Bars(*(column[order] for column in self)), order

    def buffers(self) -> list[bytes]:
        return [column.tobytes() for column in self]


class MessageColumns(NamedTuple):
    """Columns of messages, one entry each, in the order in which they leave."""

    source: np.ndarray
    """Rows of the senders."""
    target: np.ndarray
    """Rows of the receivers."""
    leaves: np.ndarray
    arrives: np.ndarray
    kind: np.ndarray
    microbatch: np.ndarray
    """Micro-batch of each message. -1 for none."""

    @classmethod
    def of(cls, *columns: npt.ArrayLike) -> MessageColumns:
        return cls(*_typed(columns, ("<u2", "<u2", "<f4", "<f4", "<u1", "<i4")))


class CriticalPath(NamedTuple):
    """The critical path in order of time: each entry runs along a row, then straight to the start of the next."""

    row: np.ndarray
    start: np.ndarray
    end: np.ndarray
    bar: np.ndarray
    """The bar of each entry. NO_BAR for a message that is not drawn."""

    @classmethod
    def of(cls, *columns: npt.ArrayLike) -> CriticalPath:
        return cls(*_typed(columns, ("<u2", "<f4", "<f4", "<i4")))


def _typed(columns: Sequence[npt.ArrayLike], dtypes: Sequence[str]) -> list[np.ndarray]:
    return [np.asarray(c).astype(d, copy=True).ravel() for c, d in zip(columns, dtypes, strict=True)]


NO_BARS = Bars.of([], [], [], [], [])
NO_MESSAGES = MessageColumns.of([], [], [], [], [], [])
NO_PATH = CriticalPath.of([], [], [], [])


class Chart(NamedTuple):
    """An iteration, for ``GanttView.set_predicted``."""

    bars: Bars
    after: IntArray | None = None
    """For each bar, the bar that it waited for last, FIRST_MESSAGE - m for message m, NO_BAR for none; None if that is
    unknown."""
    path: CriticalPath = NO_PATH
    messages: MessageColumns = NO_MESSAGES


def legend(stages_per_device: int) -> list[dict[str, Any]]:
    """Return ``GanttView.kinds`` for all kinds that get bars. Passes have a shade for each of a device's stages.

    ``shades`` are for a light page, ``dark_shades`` for a dark one.
    """
    # A single stage has no steps between shades, but must not divide by 0.
    steps = max(1, stages_per_device - 1)
    shares = [PALEST * chunk / steps for chunk in range(stages_per_device)]

    def shades(kind: Kind, dark: bool) -> list[str]:
        color = kind_color(kind, dark=dark)
        return [mixed(color, PAGES[dark], share) for share in (shares if kind in PASSES else [0])]

    return [
        {"name": legend_name(kind), "color": kind_color(kind), "family": KIND_TINTS[kind][0], "message": kind in SENDS}
        | {"shades": shades(kind, False), "dark_shades": shades(kind, True)}
        for kind in DISPLAYED
    ]


class ChartRows:
    """The rows of a chart, two per device, and the bars of actions on them."""

    def __init__(self, context: RunContext) -> None:
        self._devices, self._stages_per_device = context.devices, context.stages_per_device
        self._n_positions, self._n_replicas = self.shape = len(context.devices), len(context.devices[0])
        """Number of devices per pipeline, and number of replicas."""

    @property
    def labels(self) -> list[str]:
        """The label of each row: the device's stages and name on its first row, ``network`` on its second."""
        return [label for name in self.names for label in (name, "network")]

    @property
    def devices(self) -> list[str]:
        """The device of each row."""
        return [name for group in self._devices for name in group for _ in range(ROWS_PER_DEVICE)]

    @property
    def names(self) -> list[str]:
        """The name of each device with its stages: ``S1 · ada``, or ``S1, S5 · ada`` if it holds two."""
        return [f"{self._stages(position)} · {name}" for position, row in enumerate(self._devices) for name in row]

    def bars(self, spans: Iterable[Span]) -> Bars:
        """Return the bars of a run's new spans. Actions of a kind without bars are left out."""
        drawn = [span for span in spans if span.action.kind in KIND_INDEX]
        actions = [span.action for span in drawn]
        replica = np.array([span.replica for span in drawn], dtype=np.int64)
        return Bars.of(
            [span.start_s for span in drawn],
            [span.end_s for span in drawn],
            self._row(actions, np.arange(len(actions)), replica),
            *_kind_microbatch_stage(actions, np.arange(len(actions))),
        )

    def chart(self, trace: Trace) -> Chart:
        """Return the typical iteration, with its messages and its critical path if the trace has ``after``."""
        iteration = trace.typical_iteration
        rows = np.flatnonzero(trace.iteration == iteration)
        drawn = rows[np.array([action.kind in KIND_INDEX for action in trace.actions])[trace.action[rows]]]
        bar_of = np.full(len(trace), NO_BAR)
        bar_of[drawn] = np.arange(len(drawn))
        bars = Bars.of(
            trace.start_s[drawn],
            trace.end_s[drawn],
            self._row(trace.actions, trace.action[drawn], trace.replica[drawn]),
            *_kind_microbatch_stage(trace.actions, trace.action[drawn]),
        )
        if trace.after is None:
            return Chart(bars)
        sent, received = trace.message_rows(iteration)
        # By time, so that the page can draw a part of them without searching.
        by_time = np.argsort(trace.start_s[sent], kind="stable")
        sent, received = sent[by_time], received[by_time]
        message_of = np.full(len(trace), -1)
        message_of[received] = np.arange(len(received))
        waited = trace.after[drawn]
        # Below FIRST_MESSAGE, numbers are messages, so one column tells both.
        after = np.where(message_of[waited] >= 0, FIRST_MESSAGE - message_of[waited], bar_of[waited])
        path = trace.critical_path(iteration)
        passed = path["row"].to_numpy()
        arrives = path["kind"].isin([*RECEIVES]).to_numpy()  # a message in transit is between two rows
        begins = np.where(arrives, path["end_s"], path["start_s"])
        here, there, along = (
            self._row(trace.actions, trace.action[some], trace.replica[some]) for some in (sent, received, passed)
        )
        kind, microbatch, _ = _kind_microbatch_stage(trace.actions, trace.action[sent])
        return Chart(
            bars,
            # Waiting for nothing is -1, which took the last entries above.
            after=np.where(waited < 0, NO_BAR, after),
            messages=MessageColumns.of(here, there, trace.end_s[sent], trace.end_s[received], kind, microbatch),
            path=CriticalPath.of(along, begins, path["end_s"], bar_of[passed]),
        )

    def _row(self, actions: Sequence[Action], action: IntArray, replica: IntArray) -> IntArray:
        """Return the row of each (action, replica). A receive is on the row of the computation that waits for it."""
        # Stages go round the devices: device p holds stages p, p + n, p + 2n.
        position = np.array([a.stage % self._n_positions for a in actions], dtype=np.int64)
        below = np.array([LANE[a.kind] is Lane.SEND for a in actions], dtype=np.int64)
        device = position[action] * self._n_replicas + replica
        rows: IntArray = device * ROWS_PER_DEVICE + below[action]
        return rows

    def _stages(self, position: int) -> str:
        stages = range(position, self._n_positions * self._stages_per_device, self._n_positions)
        if len(stages) <= STAGES_NAMED:
            return ", ".join(f"S{stage}" for stage in stages)
        return f"S{stages[0]}…S{stages[-1]}"


def units_of(rows: ChartRows, regions: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the units to draw, stage by stage from top to bottom, for ``GanttView.units``.

    A unit is a device. If there are many devices, a unit is a stage that shows its first pipeline and has the others as
    members. ``regions`` maps each device to its region.
    """
    n_positions, n_replicas = rows.shape
    device, names = rows.devices[::ROWS_PER_DEVICE], rows.names

    def unit(position: int, replica: int) -> dict[str, Any]:
        index = position * n_replicas + replica
        first = index * ROWS_PER_DEVICE
        tip = f"{names[index]}, pipeline {replica}: computing above, sent messages below"
        what = {"label": device[index], "device": device[index], "stage": position, "replica": replica, "tip": tip}
        return what | {"rows": list(range(first, first + ROWS_PER_DEVICE))}

    def stage(position: int) -> dict[str, Any]:
        members = [unit(position, replica) for replica in range(n_replicas)]
        first = members[0]["device"]
        # A region says more about a stage than one of its devices.
        label = _place([regions.get(one["device"], "") for one in members]) or f"{first} +{n_replicas - 1}"
        tip = f"stage {position}: showing {first} of pipeline 0. Click to show all {counted(n_replicas, 'device')}"
        return members[0] | {"label": label, "replica": -1, "members": members, "tip": tip}

    # A stage with one replica would have nothing to open.
    if n_replicas > 1 and n_positions * n_replicas > MOST_DEVICES_APART:
        return [stage(position) for position in range(n_positions)]
    return [unit(position, replica) for position in range(n_positions) for replica in range(n_replicas)]


def _place(regions: Sequence[str]) -> str:
    """Return the devices' regions in short: one name, the letters of two, or the first name and how many more.

    Empty if no device has a region.
    """
    names = list(dict.fromkeys(name for name in regions if name))
    if len(names) == 2:
        begins = [name[:LETTERS] for name in names]
        # Regions such as us-east and us-west begin alike, so their ends are shown.
        return " + ".join(begins if begins[0] != begins[1] else [f"…{name[-LETTERS:]}" for name in names])
    return f"{names[0]} +{len(names) - 1}" if len(names) > 2 else "".join(names)


def _kind_microbatch_stage(actions: Sequence[Action], action: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    columns = (
        # Kinds without bars are never looked up, so any index will do.
        [KIND_INDEX.get(a.kind, 0) for a in actions],
        [-1 if a.microbatch is None else a.microbatch for a in actions],
        [a.stage for a in actions],
    )
    kind, microbatch, stage = (np.array(column, dtype=np.int64)[action] for column in columns)
    return kind, microbatch, stage


ACTION = ["row", "kind", "stage", "microbatch"]
"""Columns that identify a bar's action."""


def lateness_s(upper: Bars, lower: Bars) -> npt.NDArray[np.float32]:
    """Return for each bar of ``lower`` how many seconds later it ends than the bar of the same action in ``upper``.

    NaN if ``upper`` has no such bar. If an action has several bars, they are matched in the order of their starts.
    """
    above, below = _numbered(upper), _numbered(lower)
    pairs = below.merge(above, on=[*ACTION, "nth"], how="left", suffixes=("", "_above"))
    return (pairs["end"] - pairs["end_above"]).to_numpy("<f4")


def _numbered(bars: Bars) -> pd.DataFrame:
    """Return the bars with a column ``nth``: 0 for the first bar of an action by its start, 1 for the second, and so
    on."""
    frame = pd.DataFrame(bars._asdict())
    return frame.assign(nth=frame.sort_values("start", kind="stable").groupby(ACTION).cumcount())
