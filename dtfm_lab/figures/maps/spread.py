"""Clusters of markers on a map, pushed apart until none covers another."""

from __future__ import annotations

import numpy as np

from dtfm_lab.domain.units import FloatArray

ROUNDS = 400
HOMESICK = 0.02
"""of the way back to its own place that a cluster goes each round"""


def apart(centres: FloatArray, halves: FloatArray) -> FloatArray:
    """Centres (n, 2) of boxes of half sizes (n, 2), moved as little as a few hundred small pushes need.

    Each round, overlapping boxes part along the axis on which they overlap least, and all go a little
    way home; the last rounds only push.
    """
    home = np.asarray(centres, dtype=float)
    n = len(home)
    now = home
    # boxes level with each other, or at one and the same place, part in their own order
    in_order = np.sign(np.subtract.outer(np.arange(n), np.arange(n)))[..., None]
    reach = halves[:, None] + halves[None, :]
    for step in range(ROUNDS):
        away = now[:, None] - now[None, :]
        overlap = reach - np.abs(away)
        touching = (overlap > 1e-9).all(axis=-1) & ~np.eye(n, dtype=bool)
        last = step >= ROUNDS // 2
        if not touching.any() and last:
            break
        along_x = overlap[..., 0] < overlap[..., 1]
        sense = np.where(away == 0, in_order, np.sign(away))
        push = np.where(np.stack([along_x, ~along_x], axis=-1), overlap * sense, 0.0)
        now = now + 0.3 * np.where(touching[..., None], push, 0.0).sum(axis=1)
        if not last:
            now = now + HOMESICK * (home - now)
    return now
