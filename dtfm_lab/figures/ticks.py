"""Round numbers on logarithmic scales."""

from __future__ import annotations

import numpy as np

MOST_TICKS = 9


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten between two numbers above 0; where those are few, 2 and 5 times them too, or every digit."""
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
