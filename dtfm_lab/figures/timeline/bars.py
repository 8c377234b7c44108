"""The bars of a Gantt chart, and their rows.

Bars of one kind of action are one plotly trace. If a device holds several stages, each stage has a shade and a separate
trace. A row is a lane of a device, first stage on top.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go

from dtfm_lab.domain.schedule import ACROSS_STAGES, COMPUTE, LANE, PASSES, RECEIVES, SENDS, Action, Kind, Lane
from dtfm_lab.domain.trace import RunContext, Span
from dtfm_lab.domain.units import by_key, format_s
from dtfm_lab.figures.palette import EDGES, KIND_COLORS, KIND_NAMES, legend_name, paler
from dtfm_lab.figures.strokes import packed
from dtfm_lab.figures.theme import literal

LANE_PX = {Lane.COMPUTE: 24, Lane.SEND: 18, Lane.RECEIVE: 18}
CROWDED_PX = 11
"""Height of a row in pixels if there are many devices."""
MANY_DEVICES = 24
"""With more devices, rows are narrow."""
BETWEEN_DEVICES_PX = 4
BETWEEN_STAGES_PX = 12
STAGES_NAMED = 3
"""Maximum number of stages of a device that its label lists. With more, it names the first and the last."""
FILLED = 0.88
"""Share of a lane's height that bars fill. The rest separates lanes."""
LABELLED_UP_TO = 1_500
"""Maximum number of bars with micro-batch numbers and outlines. With more bars, these do not fit."""
PALEST = 0.55
"""Share of white in the colour of the last of a device's stages."""
ALIKE = 0.0005
"""Relative difference of durations that is too small to be shown."""
HAIRLINE = "rgba(255, 255, 255, 0.7)"
HATCH = "rgba(255, 255, 255, 0.85)"
ORDER = (*COMPUTE, *(kind for pair in SENDS.items() for kind in pair))
"""Order of the legend. Bars are drawn in the reverse order, so that shards, which fill a lane, never hide activations,
which fill half of one."""


class Strip(NamedTuple):
    """The place of a bar: its middle, in pixels from the top, and its height in pixels."""

    middle: float
    height: float


class Rows:
    """The place of each lane of each device, in pixels from the top."""

    def __init__(
        self,
        devices: tuple[tuple[str, ...], ...],
        lanes: tuple[Lane, ...],
        n_sides: int = 1,
        stages_per_device: int = 1,
    ) -> None:
        self._devices = [[literal(name) for name in group] for group in devices]
        self._stages_per_device = stages_per_device
        self.lanes = lanes
        """The lanes of each device, from top to bottom."""
        many = sum(map(len, devices)) > MANY_DEVICES
        crowded_px = CROWDED_PX * (1 + n_sides) / 2
        self._lane_px = {lane: crowded_px if many else LANE_PX[lane] for lane in lanes}
        self._n_sides = n_sides
        self._top: dict[tuple[int, int, Lane], float] = {}
        at = 0.0
        for position, group in enumerate(devices):
            for replica in range(len(group)):
                for lane in lanes:
                    self._top[position, replica, lane] = at
                    at += self._lane_px[lane]
                # With this many devices, gaps would take more room than the rows.
                at += 0 if many or len(lanes) == 1 else BETWEEN_DEVICES_PX
            at += BETWEEN_STAGES_PX
        self.height_px = at - BETWEEN_STAGES_PX

    def strip(self, action: Action, replica: int, side: int) -> Strip:
        """Return the place of an action's bar: in its lane or, if that is not drawn, in the topmost lane of its device.

        ``side`` is 0 for the first trace, 1 for the second one below it.

        Messages between stages overlap in time with messages of the other direction. So forward messages take the upper
        half of their lane, and backward messages the lower half.
        """
        lane = action.lane if action.lane in self.lanes else self.lanes[0]
        height = self._lane_px[lane] * FILLED / self._n_sides
        middle = self._top[action.stage % len(self._devices), replica, lane] + (side + 0.5) * height
        if lane is not action.lane or action.kind not in ACROSS_STAGES:
            return Strip(middle, height)
        return Strip(middle + (-height if action.kind in (Kind.SEND_F, Kind.RECV_F) else height) / 4, height / 2)

    def named(self, kind: Kind) -> bool:
        """True if the axis names the device next to the bars of this kind."""
        return self._n_sides == 1 and LANE[kind] is self.lanes[0] is Lane.COMPUTE

    def axis(self) -> dict[str, Any]:
        """Return the y axis. A device's first lane is labelled "stage · device", its others by their names in small
        type."""
        places, labels = [], []
        for (position, replica, lane), top in self._top.items():
            places.append(top + self._lane_px[lane] * FILLED / 2)
            name = f"{self._stages(position)} · {self._devices[position][replica]}"
            if lane is not self.lanes[0]:
                name = f'<span style="font-size:9px">{lane.value}</span>'
            elif lane is not Lane.COMPUTE:
                name += f" {lane.value}"
            labels.append(name)
        crowded = min(self._lane_px.values()) < LANE_PX[Lane.SEND]
        return {
            "range": [self.height_px, -2],
            "tickvals": np.array(places, dtype=np.float32),
            "ticktext": labels,
            "tickfont_size": 9 if crowded else 11,
            "showgrid": False,
            "zeroline": False,
        }

    def _stages(self, position: int) -> str:
        """Return the stages of a device: ``1``, or ``1, 5`` if it holds two, or ``1…13`` if it holds many."""
        n_positions = len(self._devices)
        stages = range(position, n_positions * self._stages_per_device, n_positions)
        return ", ".join(map(str, stages)) if len(stages) <= STAGES_NAMED else f"{stages[0]}…{stages[-1]}"


def bars(
    sides: Sequence[Sequence[Span]], contexts: Sequence[RunContext], rows: Rows, unit: str, words: Sequence[str]
) -> list[go.Bar]:
    """Return the bars of one trace, or of two with the second hatched. A message has one legend entry for both of its
    ends."""
    # With too many bars the numbers inside would be unreadable, and slow.
    labelled = sum(map(len, sides)) <= LABELLED_UP_TO
    whole_s = max((span.end_s for spans in sides for span in spans), default=0.0)
    named: set[str] = set()
    out = []
    for side, (spans, context, word) in enumerate(zip(sides, contexts, words, strict=True)):
        hover = Hover(context, unit, whole_s)
        for kind, turn, some in _alike(spans, len(context.devices)):
            name = legend_name(kind)
            strips = [rows.strip(span.action, span.replica, side) for span in some]
            start_s, end_s = (np.array([getattr(s, end) for s in some]) for end in ("start_s", "end_s"))
            color = paler(KIND_COLORS[kind], PALEST * turn / max(context.stages_per_device - 1, 1))
            bar = go.Bar(
                orientation="h",
                base=packed(start_s * hover.scale),
                x=((end_s - start_s) * hover.scale).astype(np.float32),
                y=np.array([strip.middle for strip in strips], dtype=np.float32),
                width=strips[0].height,
                **hover.of(kind, some, word, named=rows.named(kind)),
                name=name,
                legendgroup=name,
                showlegend=name not in named,
                legendrank=ORDER.index(kind),
                marker=_look(kind, color, hatched=side > 0, outlined=labelled),
            )
            if labelled and kind in PASSES:
                bar.update(texttemplate="%{customdata[0]}", textposition="inside", textangle=0)
                bar.update(insidetextanchor="middle")
            named.add(name)
            out.append(bar)
    return out


class Hover:
    """Texts such as ``ada · forward 2 · 12.1 to 15.4 ms (3.3 ms)``, as templates over the numbers of the bars."""

    def __init__(self, context: RunContext, unit: str, whole_s: float) -> None:
        self._devices = [[literal(name) for name in group] for group in context.devices]
        self._interleaved = context.stages_per_device > 1
        self._unit = unit
        self.scale = 1e3 if unit == "ms" else 1.0
        digits_before = int(np.floor(np.log10(whole_s * self.scale))) + 1 if whole_s > 0 else 1
        self._decimals = max(0, 4 - max(1, digits_before))

    def of(self, kind: Kind, spans: Sequence[Span], word: str, *, named: bool) -> dict[str, Any]:
        """Return the template of bars of one kind, and the data that fill it.

        Columns of the data are micro-batches, stages and durations, if the bars have them and they differ. ``named`` is
        True if the axis names the device already.
        """
        what, durations_s = KIND_NAMES[kind], np.array([span.end_s - span.start_s for span in spans])
        longest_s = float(durations_s.max())
        columns: list[list[float]] = []
        if spans[0].action.microbatch is not None:
            what += " %{customdata[0]}"
            columns.append([span.action.microbatch or 0 for span in spans])
        if self._interleaved and kind in PASSES:
            what += " of stage %{customdata[1]}"
            columns.append([span.action.stage for span in spans])
        took = format_s(float(f"{longest_s:.6g}"))
        # Each bar has its own duration in the hover text only if durations differ.
        if np.ptp(durations_s) > ALIKE * longest_s:
            took = self.took(f"customdata[{len(columns)}]")
            columns.append((durations_s * self.scale).tolist())
        parts: dict[str, Any] = {} if named else {"hovertext": [self._ends(span) for span in spans]}
        where = "stage %{y}" if named else "%{hovertext}"
        words = " · ".join(([word] if word else []) + [where, what, self.time("base", "x", took)])
        if columns:
            data = np.array(columns).T
            parts["customdata"] = data if data.dtype.kind == "i" else data.astype(np.float32)
        return {**parts, "hovertemplate": f"{words}<extra></extra>"}

    def time(self, start: str, end: str, took: str) -> str:
        """Return ``12.1 to 15.4 ms (3.3 ms)``, from two fields of a template and the text of a duration."""
        digits = f".{self._decimals}f"
        return f"%{{{start}:{digits}}} to %{{{end}:{digits}}} {self._unit} ({took})"

    def took(self, field: str) -> str:
        """Return a duration in the chart's unit, from a field of a template."""
        return f"%{{{field}:.4~r}} {self._unit}"

    def device(self, stage: int, replica: int) -> str:
        """Return the literal name of the device that holds a stage."""
        return self._devices[stage % len(self._devices)][replica]

    def _ends(self, span: Span) -> str:
        """Return the device, ``ada``, or both ends of a message, ``ada to grace`` or ``grace from ada``."""
        here, kind = self.device(span.action.stage, span.replica), span.action.kind
        if kind not in SENDS and kind not in RECEIVES:
            return here
        stage, replica = span.action.other_end(span.replica, len(self._devices[0]))
        return f"{here} {'to' if kind in SENDS else 'from'} {self.device(stage, replica)}"


def _alike(spans: Sequence[Span], n_positions: int) -> Iterator[tuple[Kind, int, list[Span]]]:
    """Return (kind, number, spans) in the order to draw them, one for each kind of action.

    Passes have one for each stage of a device instead: the number counts these stages from 0. It is 0 for other kinds.
    """
    of = ((span.action.kind, span.action.stage // n_positions, span) for span in spans)
    found = by_key(((kind, turn if kind in PASSES else 0), span) for kind, turn, span in of)
    first_to_last = sorted(found, key=lambda key: (-ORDER.index(key[0]), key[1]))
    return ((*key, found[key]) for key in first_to_last)


def _look(kind: Kind, color: str, *, hatched: bool, outlined: bool) -> dict[str, object]:
    """Return colour, outline and hatching. Outlines separate neighbours of one colour, and keep the shortest bars
    visible."""
    line: dict[str, object] = {"width": 0}
    # They last so briefly that without an outline they would not be seen.
    if kind in (Kind.PACK, Kind.REDUCE, Kind.STEP):
        line = {"width": 1, "color": color}
    elif outlined:
        edge = EDGES.get(KIND_COLORS[kind])
        line = {"width": 0.8, "color": edge} if edge else {"width": 0.5, "color": HAIRLINE}
    look: dict[str, object] = {"color": color, "line": line}
    if hatched:
        look["pattern"] = {"shape": "/", "size": 5, "solidity": 0.25, "fgcolor": HATCH, "bgcolor": color}
    return look
