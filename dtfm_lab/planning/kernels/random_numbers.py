"""Random numbers for compiled loops: splitmix64 (Steele, Lea and Flood 2014), with one 64-bit word of state."""

import numpy as np
import numpy.typing as npt

from dtfm_lab.domain.compiling import compiled

RandomState = npt.NDArray[np.uint64]
"""(1,) state of the generator. Drawing a number changes it."""


def seeded(rng: np.random.Generator) -> RandomState:
    """Return a new state, seeded from ``rng``."""
    return rng.integers(0, 2**64, size=1, dtype=np.uint64)


@compiled
def uniform(state: RandomState) -> float:
    """Return a random number in [0, 1)."""
    # the constants of the published generator
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    # the top 53 bits, as many as a double holds
    return float(z >> np.uint64(11)) * 2.0**-53


@compiled
def below(state: RandomState, n: int) -> int:
    """Return a random whole number from 0 to n - 1."""
    return int(uniform(state) * n)
