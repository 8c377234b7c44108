"""Units and round numbers of axes."""

from __future__ import annotations

import numpy as np

MOST_TICKS = 9


def time_unit(longest_s: float) -> tuple[str, float]:
    """The unit that an axis of times is in, and how many of it are a second: ms below one second, else s."""
    return ("ms", 1e3) if longest_s < 1 else ("s", 1.0)


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten between two positive numbers; where those are few, also 2 and 5 times each, or every digit."""
    powers = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    ticks: list[float] = []
    for digits in ((1,), (1, 2, 5), range(1, 10)):
        finer = [float(f"{digit}e{power}") for power in powers for digit in digits]
        finer = [tick for tick in finer if low * 0.999 <= tick <= high * 1.001]
        if len(finer) > MOST_TICKS:
            break
        ticks = finer
        if len(ticks) > 3:
            break
    return ticks if len(ticks) > 1 else sorted({low, high})
