"""A Trace as the columns that the Gantt chart draws, and the order of its rows."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from dtfm_lab.domain.schedule import LANE, PASSES, RECEIVES, SENDS, Action, Kind, Lane
from dtfm_lab.domain.trace import RunContext, Span, Trace
from dtfm_lab.domain.units import IntArray
from dtfm_lab.figures.palette import EDGES, KIND_COLORS, legend_name, paler
from dtfm_lab.figures.timeline.bars import PALEST
from dtfm_lab.widgets.views.gantt.columns import (
    FIRST_MESSAGE,
    NO_BAR,
    NO_MESSAGES,
    NO_PATH,
    Bars,
    CriticalPath,
    Messages,
)

DRAWN = (*PASSES, *SENDS, Kind.PACK, Kind.REDUCE, Kind.STEP)
"""The kinds of action that get bars, in the order of the legend. Receives mirror the sends and are left out."""
KIND_INDEX = {kind: i for i, kind in enumerate(DRAWN)}
MOST_ROWS_WITH_NETWORK = 32
"""Most devices with rows for messages; with more, only computations get a row."""
STAGES_NAMED = 3
ROWS_BY = ("stage", "pipeline", "region")
NOWHERE = "no region"


class Chart(NamedTuple):
    """An iteration as ``GanttView.set_predicted`` takes it."""

    bars: Bars
    after: IntArray | None = None
    path: CriticalPath = NO_PATH
    messages: Messages = NO_MESSAGES


def legend(stages_per_device: int) -> list[dict[str, Any]]:
    """Return the name, colour, shades (of passes, one for each of a device's stages) and edge of each kind."""
    steps = max(1, stages_per_device - 1)
    shares = [PALEST * chunk / steps for chunk in range(stages_per_device)]
    return [
        {
            "name": legend_name(kind),
            "color": (color := KIND_COLORS[kind]),
            "shades": [paler(color, share) for share in (shares if kind in PASSES else [0.0])],
            "edge": EDGES.get(color, ""),
            "message": kind in SENDS,
        }
        for kind in DRAWN
    ]


class ChartRows:
    """The rows of a chart, one or two for each device, and the bars of actions on them."""

    def __init__(self, context: RunContext) -> None:
        self._devices, self._stages_per_device = context.devices, context.stages_per_device
        n_positions, n_replicas = len(context.devices), len(context.devices[0])
        self._with_network = n_positions * n_replicas <= MOST_ROWS_WITH_NETWORK
        self._n_positions, self._n_replicas = n_positions, n_replicas
        self.legend = legend(context.stages_per_device)

    @property
    def labels(self) -> list[str]:
        """The label of each row: the device's stages and name on its first row, ``network`` on its second."""
        network = ["network"] if self._with_network else []
        return [label for name in self.names for label in (name, *network)]

    @property
    def devices(self) -> list[str]:
        """The device of each row."""
        return [name for group in self._devices for name in group for _ in range(self.rows_per_device)]

    @property
    def shape(self) -> tuple[int, int]:
        """(positions, replicas)"""
        return self._n_positions, self._n_replicas

    @property
    def names(self) -> list[str]:
        """The name of each device with its stages: ``S1 · ada``, or ``S1, S5 · ada`` where it holds two."""
        return [f"{self._stages(position)} · {name}" for position, row in enumerate(self._devices) for name in row]

    @property
    def rows_per_device(self) -> int:
        return 2 if self._with_network else 1

    def bars(self, spans: Iterable[Span]) -> Bars:
        """Return the bars of those spans that have a row, as they come in from a run."""
        drawn = [span for span in spans if self._is_drawn(span.action)]
        actions = [span.action for span in drawn]
        replica = np.array([span.replica for span in drawn], dtype=np.int64)
        return Bars.of(
            [span.start_s for span in drawn],
            [span.end_s for span in drawn],
            self._row(actions, np.arange(len(actions)), replica),
            *_kind_microbatch_stage(actions, np.arange(len(actions))),
        )

    def chart(self, trace: Trace) -> Chart:
        """Return the typical iteration; where the trace has ``after``, with its messages and its critical path."""
        iteration = trace.typical_iteration
        rows = np.flatnonzero(trace.iteration == iteration)
        drawn = rows[np.array([self._is_drawn(action) for action in trace.actions])[trace.action[rows]]]
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
        sent, received = _pairs(trace, rows)
        message_of = np.full(len(trace), -1)
        message_of[received] = np.arange(len(received))
        waited = trace.after[drawn]
        after = np.where(message_of[waited] >= 0, FIRST_MESSAGE - message_of[waited], bar_of[waited])
        path = trace.critical_path(iteration)
        passed = path["row"].to_numpy()
        arrives = path["kind"].isin([*RECEIVES]).to_numpy()  # a message in transit is between two rows
        return Chart(
            bars,
            after=np.where(waited < 0, NO_BAR, after),
            messages=Messages.of(
                self._row(trace.actions, trace.action[sent], trace.replica[sent]),
                self._row(trace.actions, trace.action[received], trace.replica[received]),
                # where sends have no bars, a message leaves its device when its first byte does
                trace.end_s[sent] if self._with_network else trace.start_s[sent],
                trace.end_s[received],
                *_kind_microbatch_stage(trace.actions, trace.action[sent])[:2],
            ),
            path=CriticalPath.of(
                self._row(trace.actions, trace.action[passed], trace.replica[passed]),
                np.where(arrives, path["end_s"], path["start_s"]),
                path["end_s"],
                bar_of[passed],
            ),
        )

    def _is_drawn(self, action: Action) -> bool:
        return action.kind in KIND_INDEX and (self._with_network or action.kind not in SENDS)

    def _row(self, actions: Sequence[Action], action: IntArray, replica: IntArray) -> IntArray:
        """Return the row of each (action, replica); a receive is on the row of the computation that waits for it."""
        position = np.array([a.stage % self._n_positions for a in actions], dtype=np.int64)
        below = np.array([self._with_network and LANE[a.kind] is Lane.SEND for a in actions], dtype=np.int64)
        device = position[action] * self._n_replicas + replica
        rows: IntArray = device * self.rows_per_device + below[action]
        return rows

    def _stages(self, position: int) -> str:
        stages = range(position, self._n_positions * self._stages_per_device, self._n_positions)
        if len(stages) <= STAGES_NAMED:
            return ", ".join(f"S{stage}" for stage in stages)
        return f"S{stages[0]}…S{stages[-1]}"


def arranged(
    rows: ChartRows, by: str, regions: Mapping[str, str], *, network: bool
) -> tuple[list[int], list[dict[str, Any]]]:
    """Return the rows to draw, from top to bottom, and how many of them each group has.

    ``by`` is one of ROWS_BY; without ``network`` the rows of messages are left out. ``regions`` maps each
    device to its region.
    """
    n_positions, n_replicas = rows.shape
    device = rows.devices[:: rows.rows_per_device]
    places = [(position, replica) for position in range(n_positions) for replica in range(n_replicas)]

    def group(index: int) -> str:
        position, replica = places[index]
        if by == "region":
            return regions.get(device[index], "") or NOWHERE
        return f"pipeline {replica}" if by == "pipeline" else f"stage {position}"

    turned = by == "pipeline"
    order = sorted(range(len(places)), key=lambda i: places[i][::-1] if turned else places[i])
    if by == "region":
        order.sort(key=group)
    each = range(rows.rows_per_device if network else 1)
    drawn = [index * rows.rows_per_device + below for index in order for below in each]
    members = [(name, len(list(same)) * len(each)) for name, same in groupby(order, group)]
    if by == "stage":  # labels name the stage already; a line separates stages of several rows
        return drawn, [{"label": "", "count": n} for _, n in members] if n_replicas > 1 else []
    return drawn, [{"label": name, "count": n} for name, n in members]


def _kind_microbatch_stage(actions: Sequence[Action], action: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    columns = (
        [KIND_INDEX.get(a.kind, 0) for a in actions],
        [-1 if a.microbatch is None else a.microbatch for a in actions],
        [a.stage for a in actions],
    )
    kind, microbatch, stage = (np.array(column, dtype=np.int64)[action] for column in columns)
    return kind, microbatch, stage


def _pairs(trace: Trace, rows: IntArray) -> tuple[IntArray, IntArray]:
    """Return the sends among these rows of one iteration that have a receive, and those receives, by time sent."""
    n_replicas, at = len(trace.context.devices[0]), {action: i for i, action in enumerate(trace.actions)}
    receive, away = np.full(len(at), -1), np.zeros(len(at), dtype=np.int64)
    for action, i in at.items():
        if action.kind in SENDS:
            receive[i] = at.get(action.counterpart(), -1)
            away[i] = action.other_end(0, n_replicas)[1]
    row_of = np.full((n_replicas, len(at) + 1), -1)  # the last column: no such action
    row_of[trace.replica[rows], trace.action[rows]] = rows
    to = row_of[(trace.replica[rows] + away[trace.action[rows]]) % n_replicas, receive[trace.action[rows]]]
    sent, received = rows[to >= 0], to[to >= 0]
    order = np.argsort(trace.start_s[sent], kind="stable")
    return sent[order], received[order]
