"""Many lines as one plotly trace, and as little of it as can be seen: a notebook keeps every number and word."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dtfm_lab.domain.units import FloatArray

Drawn = npt.NDArray[np.float32]
"""what plotly writes down as bytes, four a number, where a list has a line a number"""
LIFTED = np.full((1, 2), np.nan)


def strokes(lines: Iterable[FloatArray]) -> dict[str, Drawn]:
    """``x`` and ``y`` of lines of (n, 2) points each; a NaN after each of them, or within one, lifts the pen."""
    points = np.vstack([np.empty((0, 2)), *(part for line in lines for part in (line, LIFTED))])
    x, y = points.T.astype(np.float32)
    return {"x": x, "y": y}


def packed(values: FloatArray) -> dict[str, str]:
    """Numbers as plotly writes arrays down; for the few properties of which it would make a list."""
    return {"dtype": "f4", "bdata": b64encode(values.astype("<f4").tobytes()).decode()}


def worded(lines: Sequence[FloatArray], words: Sequence[str]) -> dict[str, Any]:
    """Strokes with words to show all along each line; the words are kept once a line, not once a point."""
    said = [f"%{{meta[{at}]}}" for at, line in enumerate(lines) for _ in range(len(line) + 1)]
    return {**strokes(lines), "meta": list(words), "hovertemplate": said, "hoverlabel": {"namelength": 0}}


def spaced(line: FloatArray, length: FloatArray | float) -> FloatArray:
    """Points of a line (n, 2) about a ``length`` apart, of both axes or of each, with both ends and one between.

    A line with lifts is spaced piece by piece.
    """
    lifted = np.flatnonzero(np.isnan(line[:, 0]))
    if lifted.size:
        pieces = np.split(line, lifted)
        kept = [spaced(piece[min(at, 1) :], length) for at, piece in enumerate(pieces)]
        return np.vstack([part for piece in kept for part in (piece, LIFTED)][:-1])
    gone = np.linalg.norm(np.diff(line, axis=0) / length, axis=1).cumsum()
    n = max(2, int(np.ceil(gone[-1]))) if gone.size else 1
    at = np.searchsorted(gone, np.linspace(0, gone[-1], n + 1)[1:-1]) + 1 if gone.size else []
    return line[np.unique([0, *at, len(line) - 1])]


def outline(ring: FloatArray, tolerance: float) -> FloatArray:
    """A closed ring (n, 2) without the points that it passes within the tolerance anyhow.

    Source: Douglas and Peucker 1973; a ring is two lines, parted where it is furthest from its first point.
    """
    keep = np.zeros(len(ring), dtype=bool)
    far = int(np.linalg.norm(ring - ring[0], axis=1).argmax())
    keep[[0, far, -1]] = True
    parts = [(0, far), (far, len(ring) - 1)]
    while parts:
        a, b = parts.pop()
        if b - a < 2:
            continue
        way, off = ring[b] - ring[a], ring[a + 1 : b] - ring[a]
        share = np.clip(off @ way / (way @ way), 0, 1) if way.any() else np.zeros(len(off))
        aside = np.linalg.norm(off - share[:, None] * way, axis=1)
        if aside.max() > tolerance:
            middle = a + 1 + int(aside.argmax())
            keep[middle] = True
            parts += [(a, middle), (middle, b)]
    return ring[keep]
