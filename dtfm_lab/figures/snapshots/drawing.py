"""Draws the parts of plotly that this lab uses: scatter, bar and heatmap traces, shapes, annotations, axes, legend.

The picture is on white paper, legible on a light and on a dark page, and of bounded size however large the figure is.
"""

import html
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.figures.palette import CATEGORIES, ink_on
from dtfm_lab.figures.snapshots.axes import Axis, Part, axis_of, share_scales
from dtfm_lab.figures.snapshots.shapes import (
    INK,
    LETTER_PX,
    LINE_PX,
    MOST_LETTERS,
    PAPER,
    SOFT,
    decoded,
    image,
    look_of,
    markers,
    numbers,
    path,
    polylines,
    spread,
    text,
)

FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
MOST_BARS = 3_500
"""Most rectangles of the picture in a saved notebook, some 45 KB."""
MERGE_PX = (0.05, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 64.0, 1e9)
"""Gaps between bars that are drawn as one, tried in this order until few enough rectangles are left."""
MOST_TEXTS = 600
"""Most bars of a picture in which texts are drawn."""
LONG_PX = 400.0
"""Assumed length of an axis that is not placed yet, to find its labels."""
CLEAR = "rgba(0, 0, 0, 0)"
LEVELS = 4
"""Number of opacities of rectangles that several bars are merged into."""
ANCHORS = {"left": "start", "center": "middle", "right": "end"}


def svg(figure: Any, words: str = "", *, most_bars: int = MOST_BARS) -> str:
    """Draw a plotly figure or its dictionary. ``words`` describe the picture to those who cannot see it."""
    plain = figure if isinstance(figure, Mapping) else figure.to_plotly_json()
    return _FigureDrawing(plain.get("data") or (), plain.get("layout") or {}, most_bars).picture(words)


class _Runs(NamedTuple):
    """The rectangles of one bar trace, in pixels; neighbours too narrow to see are merged."""

    left: FloatArray
    right: FloatArray
    row: FloatArray
    busy: FloatArray
    """Share of the width that bars cover."""
    first: IntArray
    n_bars: IntArray


class _FigureDrawing:
    """A figure's traces and layout, with the pixels of its axes."""

    def __init__(self, traces: Iterable[Part], layout: Part, most_bars: int) -> None:
        self.traces = [trace for trace in traces if trace.get("visible", True) is True]
        self.layout, self.most_bars = layout, most_bars
        self.shapes, self.annotations = list(layout.get("shapes") or ()), list(layout.get("annotations") or ())
        keys = sorted({key for key in layout if re.fullmatch(r"[xy]axis\d*", key)} | {"xaxis", "yaxis"})
        self.axes = {key[0] + key[5:]: axis_of(key, layout, self.traces) for key in keys}
        self.width, self.height = float(layout.get("width") or 900), float(layout.get("height") or 450)
        self._place({"l": 16, "r": 16, "t": 60, "b": 50} | dict(layout.get("margin") or {}))

    def _place(self, margin: Mapping[str, float]) -> None:
        """Give every axis its pixels, with room for labels on the left and for the legend below."""
        upright = [axis for axis in self.axes.values() if not axis.across and axis.is_drawn]
        labels = [
            label for axis in upright if axis.look.get("showticklabels", True) for _, label in axis.ticks(LONG_PX)
        ]
        lines = [line for label in labels for line in label.split("<br>")]
        left = max((LETTER_PX * len(re.sub("<[^>]*>", "", line)) + 16 for line in lines), default=0.0)
        left += 20 * any(axis.title for axis in upright)
        scaled = any(trace.get("type") == "heatmap" and trace.get("showscale", True) for trace in self.traces)
        n_rows, drawn = len(self._legend_rows()), any(axis.is_drawn for axis in self.axes.values())
        self.legend_y = self.height - 20.0 * (n_rows - 1) - 12
        bottom = max(margin["b"], 12 + 20.0 * n_rows + 44 * (drawn and n_rows > 0))
        self.box = max(left, 16.0), margin["t"], self.width - max(margin["r"], 96 * scaled), self.height - bottom
        for axis in self.axes.values():
            a, b = (self.box[0], self.box[2]) if axis.across else (self.box[3], self.box[1])
            low, high = axis.look.get("domain") or (0.0, 1.0)
            axis.start_px, axis.end_px = a + low * (b - a), a + high * (b - a)
        share_scales(self.axes)

    def picture(self, words: str) -> str:
        body = [self._shape(part) for part in self.shapes if part.get("layer") == "below"]
        for name, axis in self.axes.items():
            partner = ("y" if axis.across else "x") + name[1:]
            body.append(axis.drawn(self.axes[str(axis.look.get("anchor") or partner)]) if axis.is_drawn else "")
        bars = [trace for trace in self.traces if trace.get("type") == "bar"]
        for closest in MERGE_PX:
            runs = [self._runs(trace, closest) for trace in bars]
            drawn = sum(len(run.first) for run in runs)
            if drawn <= self.most_bars:
                break
        remaining = iter(runs if bars else ())
        for number, trace in enumerate(self.traces):
            color = CATEGORIES[number % len(CATEGORIES)]
            match trace.get("type", "scatter"):
                case "bar":
                    body.append(self._bars(trace, color, next(remaining), with_text=drawn <= MOST_TEXTS))
                case "heatmap":
                    body.append(self._heatmap(trace))
                case "scatter":
                    body.append(self._scatter(trace, color))
        body += [self._shape(part) for part in self.shapes if part.get("layer") != "below"]
        body += [self._annotation(part) for part in self.annotations]
        body += [self._heading(), *self._legend()]
        size = f'width="{self.width:.0f}" height="{self.height:.0f}"'
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {self.width:.0f} {self.height:.0f}" '
            f'font-family="{FONT}" font-size="12" fill="{INK}" role="img" aria-label="{html.escape(words)}">'
            f'<rect {size} fill="{PAPER}"/>{"".join(body)}</svg>'
        )

    def _on(self, part: Part, kind: str = "ref") -> tuple[Axis, Axis]:
        """Return the axes of a trace, a shape or an annotation, which may refer to ``paper`` or ``x domain``."""
        return self._axis(str(part.get(f"x{kind}") or "x"), True), self._axis(str(part.get(f"y{kind}") or "y"), False)

    def _axis(self, name: str, across: bool) -> Axis:
        if name in self.axes:
            return self.axes[name]
        left, top, right, bottom = self.box
        of = self.axes.get(name.split()[0])
        ends = (of.start_px, of.end_px) if of else (left, right) if across else (bottom, top)
        return Axis({}, across, start_px=ends[0], end_px=ends[1])

    def _heading(self) -> str:
        title = self.layout.get("title") or {}
        title = {"text": title} if isinstance(title, str) else title
        first, below = str(title.get("text") or ""), str((title.get("subtitle") or {}).get("text") or "")
        y = 28 + 22 * first.count("<br>")
        return text(16, 28, first, size=16, line_px=22) + text(16, y + 20, below, SOFT, line_px=16)

    def _scatter(self, trace: Part, color: str) -> str:
        x_axis, y_axis = self._on(trace, "axis")
        x, y = x_axis.px(trace.get("x", ())), y_axis.px(trace.get("y", ()))
        mode, line, marker = str(trace.get("mode") or "lines"), trace.get("line") or {}, trace.get("marker") or {}
        closed, parts = trace.get("fill") == "toself", []
        if "lines" in mode or closed:
            d = polylines(x, y, steps=line.get("shape") == "hv", closed=closed)
            stroke = str(line.get("color") or color)
            more = look_of(line, float(trace.get("opacity") or 1.0))
            if closed:
                parts.append(f'<path d="{d}" fill="{trace.get("fillcolor") or stroke}"/>')
            if line.get("width", 2):
                parts.append(path(d, stroke, float(line.get("width", 2)), more))
        if "markers" in mode and marker.get("opacity") != 0:
            parts.append(markers(x, y, marker, color))
        clipped = self._clipped("".join(parts), x_axis, y_axis)
        return clipped + (
            self._texts(trace, x, y, marker if "markers" in mode else {"size": 0}) if "text" in mode else ""
        )

    def _clipped(self, drawn: str, x_axis: Axis, y_axis: Axis) -> str:
        """Return what is drawn, cut at the edges of the panel where both axes have a stated range."""
        if not (drawn and "range" in x_axis.look and "range" in y_axis.look):
            return drawn
        left, right = sorted((x_axis.start_px, x_axis.end_px))
        top, bottom = sorted((y_axis.start_px, y_axis.end_px))
        box = f"{left - 6:.0f} {top - 6:.0f} {right - left + 12:.0f} {bottom - top + 12:.0f}"
        x, y, w, h = box.split()
        return f'<svg x="{x}" y="{y}" width="{w}" height="{h}" viewBox="{box}">{drawn}</svg>'

    def _texts(self, trace: Part, x: FloatArray, y: FloatArray, marker: Part) -> str:
        font, n, parts = trace.get("textfont") or {}, len(x), []
        where = trace.get("textposition", "middle center")
        columns = (trace.get("text"), font.get("color", INK), font.get("size", 12), where, marker.get("size", 6))
        rows = zip(x, y, *(spread(column, n) for column in columns), strict=True)
        for left, top, words, ink, size, place, diameter in rows:
            if words and np.isfinite(left + top):
                above, aside = str(place).split()
                half = float(diameter) / 2
                dy = {"top": -half - 4, "bottom": half + 12}.get(above, float(size) / 3)
                dx, anchor = {"left": (-half - 4, "end"), "right": (half + 4, "start")}.get(aside, (0.0, "middle"))
                parts.append(text(left + dx, top + dy, str(words), str(ink), size=float(size), anchor=anchor))
        return "".join(parts)

    def _runs(self, trace: Part, closest: float) -> _Runs:
        """Merge neighbours of a row at most ``closest`` pixels apart where both are narrow; from 8 pixels on, any."""
        x_axis, y_axis = self._on(trace, "axis")
        base, row = numbers(trace.get("base", np.zeros(len(decoded(trace["x"]))))), y_axis.px(trace["y"])
        ends = np.sort(x_axis.px(np.stack([base, base + numbers(trace["x"])])), axis=0)
        order = np.lexsort((ends[0], row))
        order = order[np.isfinite(ends[0, order] + row[order])]
        row, (a, b) = row[order], ends[:, order]
        if not len(row):
            return _Runs(a, b, row, row, order, order)
        another = np.diff(row) != 0
        lane = np.append(0, np.cumsum(another)) * 1e5  # rows far apart, so that one sweep serves all
        narrow = (b - a) < max(3.0, closest)
        near = (a + lane)[1:] <= np.maximum.accumulate(b + lane)[:-1] + closest
        begins = np.flatnonzero(np.append(True, another | ~near | ~((narrow[1:] & narrow[:-1]) | (closest >= 8))))
        left, right = a[begins], np.maximum.reduceat(b, begins)
        busy = np.add.reduceat(b - a, begins) / np.maximum(right - left, 1e-9)
        return _Runs(left, right, row[begins], busy, order[begins], np.diff(np.append(begins, len(row))))

    def _bars(self, trace: Part, color: str, runs: _Runs, *, with_text: bool) -> str:
        """Return a path for all bars of each colour and opacity: one thick line with gaps."""
        rows, marker, n = self._on(trace, "axis")[1], trace.get("marker") or {}, len(decoded(trace["x"]))
        widths = trace.get("width")
        thicks = abs(rows.unit_px) * numbers(spread(0.8 if widths is None else widths, n))
        thick = float(thicks.max(initial=0.0))
        middle = (runs.row + rows.unit_px * float(trace.get("offset") or 0.0)).tolist()
        fills = spread(marker.get("color", color), n)
        whole = runs.right - runs.left
        wide = np.maximum(whole - ((runs.n_bars == 1) & (whole > 6)), 0.4).tolist()
        level = np.where(runs.n_bars > 1, np.clip(np.ceil(LEVELS * runs.busy), 1, LEVELS), LEVELS).tolist()
        line = marker.get("line") or {}
        groups: dict[tuple[str, float, float], list[str]] = {}
        for at, first in enumerate(runs.first.tolist()):
            if str(fills[first]) == CLEAR:  # an outline of bars of other traces
                top, high = middle[at] - thicks[first] / 2, thicks[first]
                d = f"M{runs.left[at]:.1f} {top:.1f}h{wide[at]:.3g}v{high:.3g}h{-wide[at]:.3g}z"
                groups.setdefault((str(line.get("color", INK)), 1.0, float(line.get("width", 1.0))), []).append(d)
                continue
            d = f"M{runs.left[at]:.1f} {middle[at]:.1f}h{wide[at]:.3g}"
            groups.setdefault((str(fills[first]), level[at] / LEVELS, float(thicks[first])), []).append(d)
        parts = [path("".join(ds), fill, px, look_of({}, share)) for (fill, share, px), ds in groups.items()]
        words, size = spread(trace.get("text"), n), min(12.0, thick)
        for at, first in enumerate(runs.first.tolist() if with_text and trace.get("text") is not None else ()):
            y = middle[at] + size / 3
            if trace.get("textposition") == "outside":
                x, anchor = (runs.left[at] - 5, "end") if trace["x"][first] < 0 else (runs.right[at] + 5, "start")
                parts.append(text(x, y, words[first], anchor=anchor))
            elif thick >= 8 and wide[at] > LETTER_PX * len(words[first]) + 3 and runs.n_bars[at] == 1:
                ink = ink_on(str(fills[first]))
                parts.append(text(runs.left[at] + wide[at] / 2, y, words[first], ink, size=size, anchor="middle"))
        return "".join(parts)

    def _heatmap(self, trace: Part) -> str:
        x_axis, y_axis = self._on(trace, "axis")
        cells = np.array([numbers(row) for row in decoded(trace["z"])], dtype=float)
        rows, columns = cells.shape
        known = cells[np.isfinite(cells)]
        low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
        low, high = float(trace.get("zmin") or low), float(trace.get("zmax") or high)
        box = (*sorted((x_axis.at(-0.5), x_axis.at(columns - 0.5))), *sorted((y_axis.at(-0.5), y_axis.at(rows - 0.5))))
        left, right, top, bottom = box
        colors = trace.get("colorscale") or ((0, PAPER), (1, INK))
        parts = [image(cells if y_axis.unit_px > 0 else cells[::-1], colors, low, high, (left, top, right, bottom))]
        dark_is_high = ink_on(str(colors[-1][1])) == PAPER
        for row, column in np.argwhere(np.isfinite(cells)).tolist() if trace.get("texttemplate") else ():
            ink = PAPER if (cells[row, column] > (low + high) / 2) == dark_is_high else INK
            words = str(decoded(trace["text"])[row][column])
            parts.append(text(x_axis.at(column), y_axis.at(row) + 4, words, ink, size=11, anchor="middle"))
        if trace.get("showscale", True):
            bar, x = trace.get("colorbar") or {}, right + 16
            ramp = np.linspace(high, low, 64)[:, None]
            parts.append(image(ramp, colors, low, high, (x, top, x + 12, bottom)))
            marks = {"tickvals": bar["tickvals"], "ticktext": bar["ticktext"]} if "ticktext" in bar else {}
            scale = Axis(marks, False, low, high, bottom, top)
            parts += [text(x + 18, scale.at(unit) + 4, label, SOFT) for unit, label in scale.ticks()]
            parts.append(text(x, top - 10, str((bar.get("title") or {}).get("text") or ""), SOFT))
        return "".join(parts)

    def _shape(self, part: Part) -> str:
        x_axis, y_axis = self._on(part)
        (x0, x1), (y0, y1) = x_axis.px([part["x0"], part["x1"]]), y_axis.px([part["y0"], part["y1"]])
        line = part.get("line") or {}
        width, color = float(line.get("width", 2)), str(line.get("color") or INK)
        more = look_of(line, float(part.get("opacity") or 1.0))
        if part.get("type") == "line":
            return path(f"M{x0:.1f} {y0:.1f}L{x1:.1f} {y1:.1f}", color, width, more)
        edge = f' stroke="{color}" stroke-width="{width:g}"{more}' if width else more
        fill, (w, h) = part.get("fillcolor") or "none", (abs(x1 - x0), abs(y1 - y0))
        round_by = f' rx="{w / 2:.1f}" ry="{h / 2:.1f}"' if part.get("type") == "circle" else ""
        place = f'x="{min(x0, x1):.1f}" y="{min(y0, y1):.1f}" width="{w:.1f}" height="{h:.1f}"'
        return f'<rect {place}{round_by} fill="{fill}"{edge}/>'

    def _annotation(self, part: Part) -> str:
        x_axis, y_axis = self._on(part)
        x = x_axis.at(float(part["x"])) if x_axis.is_log else float(x_axis.px([part["x"]])[0])
        y = y_axis.at(float(part["y"])) if y_axis.is_log else float(y_axis.px([part["y"]])[0])
        x, y = x + float(part.get("xshift") or 0), y - float(part.get("yshift") or 0)
        font, words = part.get("font") or {}, str(part.get("text") or "")
        size = float(font.get("size") or 12)
        lower = {"bottom": -words.count("<br>") * LINE_PX - 4.0, "top": size}
        middle = size / 3 - words.count("<br>") * LINE_PX / 2
        y += lower.get(str(part.get("yanchor")), middle)
        anchor = ANCHORS.get(str(part.get("xanchor")), "middle")
        color = str(font.get("color") or INK)
        return text(x, y, words, color, size=size, anchor=anchor, most=MOST_LETTERS)

    def _legend_rows(self) -> list[list[tuple[float, str, str, float]]]:
        """Return x, name, colour and line width (11 for areas) of each entry, as many in a row as fit."""
        entries: dict[str, tuple[str, float]] = {}
        alone = sum(trace.get("showlegend", True) is not False for trace in self.traces) < 2
        for number, trace in enumerate(self.traces):
            kind, line = trace.get("type", "scatter"), trace.get("line") or {}
            if trace.get("showlegend", not alone) and trace.get("name") and kind != "heatmap":
                own = line.get("color") or (trace.get("marker") or {}).get("color")
                color = own if isinstance(own, str) else CATEGORIES[number % len(CATEGORIES)]
                is_line = kind == "scatter" and "lines" in str(trace.get("mode") or "lines")
                entries[str(trace["name"])] = color, min(11.0, float(line.get("width", 2))) if is_line else 11.0
        rows: list[list[tuple[float, str, str, float]]] = []
        x = math.inf
        for name, (color, stroke) in entries.items() if self.layout.get("showlegend", True) else ():
            wide = 38 + LETTER_PX * len(html.unescape(name))
            if x + wide > self.width:
                rows.append([])
                x = 16.0
            rows[-1].append((x, name, color, stroke))
            x += wide
        return rows

    def _legend(self) -> list[str]:
        """Return the names, each after a line of its curve's width or a square."""
        parts = []
        for row, entries in enumerate(self._legend_rows()):
            y = self.legend_y + 20 * row
            for x, name, color, stroke in entries:
                parts.append(path(f"M{x:.0f} {y - 4:.0f}h{11 if stroke == 11 else 16}", color, stroke))
                parts.append(text(x + 20, y, name, SOFT))
        return parts
