"""What can be seen of a teaching search: when its best or its median falls."""

from collections.abc import Sequence

import numpy as np

from dtfm_lab.planning.teaching import TeachingFrame

VISIBLE = 0.002
"""Share of a curve's range by which it has to fall to be seen."""


def falls(values: Sequence[float]) -> list[int]:
    """Return the generations at which a curve fell visibly."""
    least, found, visible = values[0], [], VISIBLE * (np.ptp(values) or 1.0)
    for generation, value in enumerate(values):
        if value < least - visible:
            least = value
            found.append(generation)
    return found


def visible_falls(frames: Sequence[TeachingFrame]) -> tuple[list[int], list[int]]:
    """Return the generations at which the best fell, and those at which the best or the median did."""
    best = falls([frame.best.cost_s for frame in frames])
    return best, sorted({*best, *falls([frame.median_s for frame in frames])})
