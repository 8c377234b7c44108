"""The bars of a Gantt chart: a plotly trace for each kind of action, of interleaved stages for each of their
shades, and hover and label for each bar."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
import plotly.graph_objects as go

from dtfm_lab.domain.schedule import COMPUTE, PASSES, RECEIVES, SENDS, Kind
from dtfm_lab.domain.trace import RunContext, Span
from dtfm_lab.domain.units import format_s
from dtfm_lab.figures.palette import EDGES, KIND_COLORS, KIND_NAMES, legend_name, paler
from dtfm_lab.figures.rows import Rows
from dtfm_lab.figures.theme import literal

LABELLED_UP_TO = 1_500
"""bars; in more, micro-batch numbers and outlines would find no room"""
PALEST = 0.55
"""of the way to white: the last of a device's stages"""
HAIRLINE = "rgba(255, 255, 255, 0.7)"
HATCH = "rgba(255, 255, 255, 0.85)"
ORDER = (*COMPUTE, *(kind for pair in SENDS.items() for kind in pair))
"""of the legend; drawn the other way round, so that whole-lane shards never hide half-lane activations"""


def bars(
    sides: Sequence[Sequence[Span]],
    contexts: Sequence[RunContext],
    rows: Rows,
    unit: str,
    words: Sequence[str],
    *,
    labelled: bool | None = None,
) -> list[go.Bar]:
    """The first side plain, the second hatched; one legend entry for a message, sent or received.

    ``labelled``: with outlines and micro-batch numbers; where None, if there are few enough.
    """
    if labelled is None:
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
                marker=_look(kind, color, hatched=side > 0, outlined=labelled),
            )
            if labelled and kind in PASSES:
                bar.update(text=[str(s.action.microbatch) for s in some], textposition="inside", textangle=0)
                bar.update(insidetextanchor="middle")
            named.add(name)
            out.append(bar)
    return out


class Hover:
    """``ada · forward 2 · 12.1 to 15.4 ms (3.3 ms)``"""

    def __init__(self, context: RunContext, unit: str, whole_s: float) -> None:
        self._devices = [[literal(name) for name in group] for group in context.devices]
        self._interleaved = context.stages_per_device > 1
        self._unit = unit
        self.scale = 1e3 if unit == "ms" else 1.0
        digits_before = int(np.floor(np.log10(whole_s * self.scale))) + 1 if whole_s > 0 else 1
        self._decimals = max(0, 4 - max(1, digits_before))

    def text(self, span: Span, word: str = "") -> str:
        action = span.action
        what = KIND_NAMES[action.kind]
        if action.microbatch is not None:
            what += f" {action.microbatch}"
        if self._interleaved and action.kind in PASSES:
            what += f" of stage {action.stage}"
        parts = [
            self.device(action.stage, span.replica),
            what + self._far_end(span),
            self.time(span.start_s, span.end_s),
        ]
        return " · ".join([word, *parts] if word else parts)

    def time(self, start_s: float, end_s: float) -> str:
        """``12.1 to 15.4 ms (3.3 ms)``"""
        start, end = (f"{seconds * self.scale:.{self._decimals}f}" for seconds in (start_s, end_s))
        return f"{start} to {end} {self._unit} ({format_s(end_s - start_s)})"

    def device(self, stage: int, replica: int) -> str:
        return self._devices[stage % len(self._devices)][replica]

    def _far_end(self, span: Span) -> str:
        kind = span.action.kind
        if kind not in SENDS and kind not in RECEIVES:
            return ""
        stage, replica = span.action.other_end(span.replica, len(self._devices[0]))
        return f" {'to' if kind in SENDS else 'from'} {self.device(stage, replica)}"


def _alike(spans: Sequence[Span], n_positions: int) -> Iterator[tuple[Kind, int, list[Span]]]:
    """By kind, passes also by which of its device's stages they are of, 0 for the first."""
    found = defaultdict(list)
    for span in spans:
        kind = span.action.kind
        found[kind, span.action.stage // n_positions if kind in PASSES else 0].append(span)
    first_to_last = sorted(found, key=lambda key: (-ORDER.index(key[0]), key[1]))
    return ((kind, turn, found[kind, turn]) for kind, turn in first_to_last)


def _look(kind: Kind, color: str, *, hatched: bool, outlined: bool) -> dict[str, object]:
    """Outlines tell neighbours of one colour apart, and keep what is shorter than a pixel in sight."""
    line: dict[str, object] = {"width": 0}
    if kind in (Kind.PACK, Kind.REDUCE, Kind.STEP):
        line = {"width": 1, "color": color}
    elif outlined:
        edge = EDGES.get(KIND_COLORS[kind])
        line = {"width": 0.8, "color": edge} if edge else {"width": 0.5, "color": HAIRLINE}
    look: dict[str, object] = {"color": color, "line": line}
    if hatched:
        look["pattern"] = {"shape": "/", "size": 5, "solidity": 0.25, "fgcolor": HATCH, "bgcolor": color}
    return look
