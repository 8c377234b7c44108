"""How far the optimiser goes; a function of how many steps it has taken, so that a resumed run goes on as it was."""

from __future__ import annotations

WARM_UP = 5
"""steps in which the rate grows evenly to the whole: at first Adam knows the size of a gradient from hardly any"""


def learning_rate_at(learning_rate: float, iteration: int) -> float:
    """Of the step that ends this iteration, counted from 0 over all resumed runs: the steps taken before it."""
    return learning_rate * min(1.0, (iteration + 1) / WARM_UP)
