"""A run's losses as a picture that stands alone."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dtfm_lab.figures.palette import BLUE, VERMILLION

WIDTH, HEIGHT = 620, 210
LEFT, RIGHT, TOP, BOTTOM = 52, WIDTH - 150, 26, HEIGHT - 32
MOST_POINTS = 600


def picture(
    training: Sequence[float],
    held_out: Sequence[tuple[float, float]] = (),
    reference: float | None = None,
    first: int = 0,
) -> str:
    """Training losses in nats per token from iteration ``first`` on, (iterations done, loss) on held-out text, and the
    unigram entropy; empty where nothing was trained."""
    known = [(first + i, loss) for i, loss in enumerate(training) if math.isfinite(loss)]
    if not known:
        return ""
    looks = [(at, loss) for at, loss in held_out if math.isfinite(loss)]
    levels = [loss for _, loss in (*known, *looks)] + ([] if reference is None else [reference])
    low, high = min(levels), max(levels)
    high = high if high > low else low + 1.0
    last = max(first + 1, *(at for at, _ in (*known, *looks)))

    def x(at: float) -> float:
        return LEFT + (at - first) / (last - first) * (RIGHT - LEFT)

    def y(loss: float) -> float:
        return BOTTOM - (loss - low) / (high - low) * (BOTTOM - TOP)

    def line(points: Sequence[tuple[float, float]], color: str) -> str:
        joined = " ".join(f"{x(at):.1f},{y(loss):.1f}" for at, loss in points)
        return f'<polyline points="{joined}" fill="none" stroke="{color}" stroke-width="2"/>'

    ends = [(known[-1][1], "training", BLUE)]
    drawn = line(_thinned(known), BLUE)
    if looks:
        drawn += line(_thinned(looks), VERMILLION)
        ends.append((looks[-1][1], "held-out", VERMILLION))
    if reference is not None:
        drawn += f'<path d="M{LEFT} {y(reference):.1f}H{RIGHT}" stroke="#777" stroke-dasharray="5 4"/>'
        ends.append((reference, "unigram entropy", "#555"))
    labels, before = "", -math.inf
    for loss, name, color in sorted(ends, reverse=True):
        before = max(y(loss) + 4, before + 14)
        labels += f'<text x="{RIGHT + 8}" y="{before:.1f}" fill="{color}">{loss:.3f} {name}</text>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'font-family="system-ui, sans-serif" font-size="12" fill="#333" role="img" '
        f'aria-label="training loss {known[0][1]:.3f} to {known[-1][1]:.3f} nats per token">'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/><text x="{LEFT}" y="15">loss, nats per token</text>'
        f'<path d="M{LEFT} {TOP}V{BOTTOM}H{RIGHT}" fill="none" stroke="#aaa"/>'
        f'<text x="{LEFT - 6}" y="{TOP + 4}" text-anchor="end">{high:.2f}</text>'
        f'<text x="{LEFT - 6}" y="{BOTTOM + 4}" text-anchor="end">{low:.2f}</text>'
        f'<text x="{LEFT}" y="{HEIGHT - 12}">{first}</text>'
        f'<text x="{RIGHT}" y="{HEIGHT - 12}" text-anchor="end">{last:g} iterations done</text>{drawn}{labels}</svg>'
    )


def _thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Evenly, with the last."""
    step = max(1, math.ceil(len(points) / MOST_POINTS))
    return [*points[:-1:step], points[-1]]
