"""The bars of a Gantt chart: one plotly trace for each kind of action, hover and label for each bar."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
import plotly.graph_objects as go

from dtfm_lab.domain.schedule import COMPUTE, RECEIVES, SENDS, Kind
from dtfm_lab.domain.trace import Span
from dtfm_lab.domain.units import format_s
from dtfm_lab.figures.palette import KIND_COLORS, KIND_NAMES, YELLOW, YELLOW_EDGE, legend_name
from dtfm_lab.figures.rows import Rows
from dtfm_lab.figures.theme import literal

LABELLED_UP_TO = 1_500
"""bars; in more, micro-batch numbers and outlines would find no room"""
HAIRLINE = "rgba(255, 255, 255, 0.7)"
HATCH = "rgba(255, 255, 255, 0.85)"
ORDER = (*COMPUTE, *(kind for pair in SENDS.items() for kind in pair))
"""of the legend; drawn the other way round, so that whole-lane shards never hide half-lane activations"""


def bars(
    sides: Sequence[Sequence[Span]],
    devices: tuple[tuple[str, ...], ...],
    rows: Rows,
    unit: str,
    words: Sequence[str],
) -> list[go.Bar]:
    """The first side plain, the second hatched; one legend entry for a message, sent or received."""
    labelled = sum(map(len, sides)) <= LABELLED_UP_TO
    whole_s = max((span.end_s for spans in sides for span in spans), default=0.0)
    hover = Hover(devices, unit, whole_s)
    named: set[str] = set()
    out = []
    for side, (spans, word) in enumerate(zip(sides, words, strict=True)):
        for kind, some in _by_kind(spans):
            name = legend_name(kind)
            strips = [rows.strip(span.action, span.replica, side) for span in some]
            start_s, end_s = (np.array([getattr(s, end) for s in some]) for end in ("start_s", "end_s"))
            bar = go.Bar(
                orientation="h",
                base=start_s * hover.scale,
                x=(end_s - start_s) * hover.scale,
                y=np.array([strip.middle for strip in strips]),
                width=np.array([strip.height for strip in strips]),
                hovertext=[hover.text(span, word) for span in some],
                hoverinfo="text",
                name=name,
                legendgroup=name,
                showlegend=name not in named,
                legendrank=ORDER.index(kind),
                marker=_look(kind, hatched=side > 0, outlined=labelled),
            )
            if labelled and kind in (Kind.FORWARD, Kind.BACKWARD):
                bar.update(text=[str(s.action.microbatch) for s in some], textposition="inside", textangle=0)
                bar.update(insidetextanchor="middle")
            named.add(name)
            out.append(bar)
    return out


class Hover:
    """``ada · forward 2 · 12.1 to 15.4 ms (3.3 ms)``"""

    def __init__(self, devices: tuple[tuple[str, ...], ...], unit: str, whole_s: float) -> None:
        self._devices = [[literal(name) for name in group] for group in devices]
        self._unit = unit
        self.scale = 1e3 if unit == "ms" else 1.0
        digits_before = int(np.floor(np.log10(whole_s * self.scale))) + 1 if whole_s > 0 else 1
        self._decimals = max(0, 4 - max(1, digits_before))

    def text(self, span: Span, word: str) -> str:
        action = span.action
        what = KIND_NAMES[action.kind]
        if action.microbatch is not None:
            what += f" {action.microbatch}"
        start, end = (f"{seconds * self.scale:.{self._decimals}f}" for seconds in (span.start_s, span.end_s))
        parts = [
            self._devices[action.stage][span.replica],
            what + self._far_end(span),
            f"{start} to {end} {self._unit} ({format_s(span.end_s - span.start_s)})",
        ]
        return " · ".join([word, *parts] if word else parts)

    def _far_end(self, span: Span) -> str:
        kind = span.action.kind
        if kind not in SENDS and kind not in RECEIVES:
            return ""
        stage, replica = span.action.other_end(span.replica, len(self._devices[0]))
        return f" {'to' if kind in SENDS else 'from'} {self._devices[stage][replica]}"


def _by_kind(spans: Sequence[Span]) -> Iterator[tuple[Kind, list[Span]]]:
    found = defaultdict(list)
    for span in spans:
        found[span.action.kind].append(span)
    return ((kind, found[kind]) for kind in reversed(ORDER) if kind in found)


def _look(kind: Kind, *, hatched: bool, outlined: bool) -> dict[str, object]:
    """Outlines tell neighbours of one colour apart, and keep what is shorter than a pixel in sight."""
    color = KIND_COLORS[kind]
    line: dict[str, object] = {"width": 0}
    if kind in (Kind.REDUCE, Kind.STEP):
        line = {"width": 1, "color": color}
    elif outlined:
        line = {"width": 0.8, "color": YELLOW_EDGE} if color == YELLOW else {"width": 0.5, "color": HAIRLINE}
    look: dict[str, object] = {"color": color, "line": line}
    if hatched:
        look["pattern"] = {"shape": "/", "size": 5, "solidity": 0.25, "fgcolor": HATCH, "bgcolor": color}
    return look
