"""Small pieces of HTML that follow JupyterLab's theme."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape
from pathlib import Path

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


def curve(values: Sequence[float], label: str, unit: str, *, x_label: str, width: int = 420, height: int = 150) -> str:
    """A line chart of one value per iteration as SVG, its ends labelled."""
    if not values:
        return f'<div class="dtfm-curve-empty" style="width:{width}px;height:{height}px">No {escape(label)} yet</div>'
    left, right, top, bottom = 46.0, width - 64.0, 22.0, height - 28.0
    low, high = min(values), max(values)
    x = _scale(0, max(len(values) - 1, 1), left, right)
    y = _scale(low, high if high > low else low + 1.0, bottom, top)
    points = " ".join(f"{x(i):.1f},{y(v):.1f}" for i, v in enumerate(values))
    ticks = "".join(
        f'<text x="{left - 6}" y="{y(v) + 4:.1f}" text-anchor="end">{v:.2f}</text>' for v in dict.fromkeys([high, low])
    )
    last = values[-1]
    return (
        f'<svg class="dtfm-curve" width="{width}" height="{height}" role="img" '
        f'aria-label="{escape(label)}: {values[0]:.3f} to {last:.3f} {escape(unit)}">'
        f'<text x="{left}" y="13" class="dtfm-curve-title">{escape(label)}, {escape(unit)}</text>'
        f'<path d="M{left} {top}V{bottom}H{right}" class="dtfm-axis"/>{ticks}'
        f'<polyline points="{points}"/><circle cx="{x(len(values) - 1):.1f}" cy="{y(last):.1f}" r="3"/>'
        f'<text x="{x(len(values) - 1) + 7:.1f}" y="{y(last) + 4:.1f}" class="dtfm-curve-last">{last:.3f}</text>'
        f'<text x="{left}" y="{height - 10}">0</text>'
        f'<text x="{right}" y="{height - 10}" text-anchor="end">{escape(x_label)} {len(values) - 1}</text></svg>'
    )


def _scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    return lambda value: start + (value - low) / (high - low) * (end - start)
