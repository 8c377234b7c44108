"""Small pieces of HTML that follow JupyterLab's theme."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterable, Sequence
from html import escape
from pathlib import Path

Scale = Callable[[float], float]

CSS = (Path(__file__).parent / "lab.css").read_text(encoding="utf-8")


def heading(number: int, title: str, hint: str) -> str:
    return (
        f'<div class="dtfm-step"><span class="dtfm-number">{number}</span><b>{escape(title)}</b>'
        f'<span class="dtfm-step-hint">{escape(hint)}</span></div>'
    )


def line(text: str, kind: str = "note") -> str:
    """One line of text: a ``note``, a ``warning`` or a ``figure`` that matters."""
    return f'<div class="dtfm-line dtfm-{kind}" role="status">{text}</div>' if text else ""


def warning(text: str) -> str:
    """A line that must not be missed; nothing where there is no text."""
    if not text:
        return ""
    sign = (
        '<svg viewBox="0 0 16 16" width="16" height="16" aria-hidden="true"><path d="M8 1.2 15.4 14.5H.6Z"/>'
        '<path class="dtfm-sign-mark" d="M8 6v4M8 11.9v1.2"/></svg>'
    )
    return f'<div class="dtfm-line dtfm-alarm" role="alert">{sign}<span>{escape(text)}</span></div>'


def table(head: Sequence[str], rows: Iterable[Sequence[str]], caption: str) -> str:
    """First column left, numbers right."""
    header = "".join(f'<th scope="col">{escape(h)}</th>' for h in head)
    body = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>' + "".join(f"<td>{escape(c)}</td>" for c in row[1:]) + "</tr>"
        for row in rows
    )
    return (
        f'<div class="dtfm-scroll"><table class="dtfm-table"><caption>{escape(caption)}</caption>'
        f"<thead><tr>{header}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def curve(
    values: Sequence[float],
    label: str,
    unit: str,
    *,
    x_label: str,
    first: int = 0,
    beside: tuple[str, Sequence[tuple[float, float]]] = ("", ()),
    reference: tuple[str, float | None] = ("", None),
    width: int = 490,
    height: int = 160,
) -> str:
    """A line chart of one value per iteration as SVG, its ends labelled.

    ``first`` is the first value's iteration, ``beside`` a name and (iteration, value) points of another line,
    ``reference`` a name and a value that does not change.
    """
    if not values:
        return f'<div class="dtfm-curve-empty" style="width:{width}px;height:{height}px">No {escape(label)} yet</div>'
    other_label, other = beside
    level_label, level = reference
    left, right, top, bottom = 46.0, width - 152.0, 22.0, height - 28.0
    shown = [v for v in (*values, *(v for _, v in other), level) if v is not None and math.isfinite(v)] or [0.0]
    low, high = min(shown), max(shown)
    last_x = max([first + len(values) - 1, first + 1, *(at for at, _ in other)])
    x = _scale(first, last_x, left, right)
    y = _scale(low, high if high > low else low + 1.0, bottom, top)
    ticks = "".join(
        f'<text x="{left - 6}" y="{y(v) + 4:.1f}" text-anchor="end">{v:.2f}</text>' for v in dict.fromkeys([high, low])
    )
    ends = [(values[-1], label if other or level is not None else "", "last")]
    drawn = _line([(first + i, v) for i, v in enumerate(values)], x, y, "")
    if other:
        drawn = _line(other, x, y, "dtfm-curve-other") + drawn
        ends.append((other[-1][1], other_label, "other"))
    if level is not None and math.isfinite(level):
        drawn = f'<path d="M{left} {y(level):.1f}H{right}" class="dtfm-curve-level"/>' + drawn
        ends.append((level, level_label, "level"))
    told = f"{label}: {values[0]:.3f} to {values[-1]:.3f} {unit}"
    told += "".join(f"; {name} {value:.3f}" for value, name, _ in ends[1:])
    return (
        f'<svg class="dtfm-curve" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'role="img" aria-label="{escape(told)}">'
        f'<text x="{left}" y="13" class="dtfm-curve-title">{escape(label)}, {escape(unit)}</text>'
        f'<path d="M{left} {top}V{bottom}H{right}" class="dtfm-axis"/>{ticks}{drawn}{_end_labels(ends, y, right + 7)}'
        f'<text x="{left}" y="{height - 10}">{first}</text>'
        f'<text x="{right}" y="{height - 10}" text-anchor="end">{escape(x_label)} {last_x:g}</text></svg>'
    )


def _line(points: Sequence[tuple[float, float]], x: Scale, y: Scale, kind: str) -> str:
    """The points joined, the last one marked; those that are no numbers are left out."""
    seen = [(x(at), y(v)) for at, v in points if math.isfinite(v)]
    if not seen:
        return ""
    joined = " ".join(f"{at:.1f},{v:.1f}" for at, v in seen)
    end_x, end_y = seen[-1]
    return f'<g class="{kind}"><polyline points="{joined}"/><circle cx="{end_x:.1f}" cy="{end_y:.1f}" r="3"/></g>'


def _end_labels(ends: Sequence[tuple[float, str, str]], y: Scale, at: float) -> str:
    """Values at the lines' ends with their names, from top to bottom, none over another."""
    labels, before = "", -math.inf
    for value, name, kind in sorted((end for end in ends if math.isfinite(end[0])), reverse=True):
        before = max(y(value) + 4, before + 13)
        labels += f'<text x="{at:.1f}" y="{before:.1f}" class="dtfm-curve-{kind}">{value:.3f} {escape(name)}</text>'
    return labels


def quotation(before: str, text: str) -> str:
    """What a model wrote after a beginning that it was given."""
    return f'<div class="dtfm-written"><b>{escape(before)}</b>{escape(text)}</div>'


def download(name: str, file_name: str, text: str) -> str:
    """A link that saves the text as a file, without a server."""
    data = base64.b64encode(text.encode()).decode()
    return (
        f'<a class="dtfm-download" download="{escape(file_name)}" href="data:text/csv;base64,{data}">{escape(name)}</a>'
    )


def _scale(low: float, high: float, start: float, end: float) -> Scale:
    return lambda value: start + (value - low) / (high - low) * (end - start)
