"""Chance inside compiled loops: splitmix64 (Steele, Lea and Flood 2014), one 64-bit word of state."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dtfm_lab.domain.compiling import compiled

State = npt.NDArray[np.uint64]
"""(1,) changed by every draw"""


def seeded(rng: np.random.Generator) -> State:
    """A fresh state, drawn from ``rng``."""
    return rng.integers(0, 2**64, size=1, dtype=np.uint64)


@compiled
def uniform(state: State) -> float:
    """In [0, 1)."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return float(z >> np.uint64(11)) * 2.0**-53


@compiled
def below(state: State, n: int) -> int:
    """A whole number from 0 to n - 1."""
    return int(uniform(state) * n)
