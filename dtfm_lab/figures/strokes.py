"""Many lines as one plotly trace with as few points as the picture needs, because a notebook stores every number."""

from base64 import b64encode
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dtfm_lab.domain.units import FloatArray

Drawn = npt.NDArray[np.float32]
"""Coordinates in single precision. plotly writes an array as four bytes per number, and a list as one line per
number."""
LIFTED = np.full((1, 2), np.nan)
"""The row of NaN that interrupts a line."""


def strokes(lines: Iterable[FloatArray]) -> dict[str, Drawn]:
    """Return ``x`` and ``y`` of lines of (n, 2) points each. NaN follows each line. A row of NaN within one
    interrupts it."""
    points = np.vstack([np.empty((0, 2)), *(part for line in lines for part in (line, LIFTED))])
    x, y = points.T.astype(np.float32)
    return {"x": x, "y": y}


def packed(values: FloatArray) -> dict[str, str]:
    """Return numbers in the form in which plotly writes arrays, for the few properties for which it would write a
    list."""
    return {"dtype": "f4", "bdata": b64encode(values.astype("<f4").tobytes()).decode()}


def worded(lines: Sequence[FloatArray], words: Sequence[str]) -> dict[str, Any]:
    """Return ``strokes`` with one hover text per line, stored once and shown at all of its points."""
    templates = [f"%{{meta[{at}]}}" for at, line in enumerate(lines) for _ in range(len(line) + 1)]
    return {**strokes(lines), "meta": list(words), "hovertemplate": templates, "hoverlabel": {"namelength": 0}}


def spaced(line: FloatArray, length: FloatArray | float) -> FloatArray:
    """Return points of a line (n, 2) that are about ``length`` apart, with both ends and at least one between.

    ``length`` holds for both axes, or has one value per axis. An interrupted line is spaced piece by piece.
    """
    # Each stroke by itself: the gap between two has no length.
    lifted = np.flatnonzero(np.isnan(line[:, 0]))
    if lifted.size:
        pieces = np.split(line, lifted)
        kept = [spaced(piece[min(at, 1) :], length) for at, piece in enumerate(pieces)]
        return np.vstack([part for piece in kept for part in (piece, LIFTED)][:-1])
    travelled = np.linalg.norm(np.diff(line, axis=0) / length, axis=1).cumsum()
    n = max(2, int(np.ceil(travelled[-1]))) if travelled.size else 1
    at: Any = np.searchsorted(travelled, np.linspace(0, travelled[-1], n + 1)[1:-1]) + 1 if travelled.size else []
    kept_points: FloatArray = line[np.unique([0, *at, len(line) - 1])]
    return kept_points


def outline(ring: FloatArray, tolerance: float) -> FloatArray:
    """Return a closed ring (n, 2) without the points that are within the tolerance of the line through the others.

    Source: Douglas and Peucker 1973. The ring is treated as two lines that meet at the point furthest from the first.
    """
    keep = np.zeros(len(ring), dtype=bool)
    # A closed ring has no two ends, so it is cut at the point farthest from its start.
    far = int(np.linalg.norm(ring - ring[0], axis=1).argmax())
    keep[[0, far, -1]] = True
    parts = [(0, far), (far, len(ring) - 1)]
    while parts:
        a, b = parts.pop()
        if b - a < 2:
            continue
        way, off = ring[b] - ring[a], ring[a + 1 : b] - ring[a]
        # A ring may come back to the same point, from which no direction leads.
        share = np.clip(off @ way / (way @ way), 0, 1) if way.any() else np.zeros(len(off))
        aside = np.linalg.norm(off - share[:, None] * way, axis=1)
        if aside.max() > tolerance:
            middle = a + 1 + int(aside.argmax())
            keep[middle] = True
            parts += [(a, middle), (middle, b)]
    return ring[keep]
