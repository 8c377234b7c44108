"""The losses of a run: their mean over replicas, and warnings if they are no longer finite."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dtfm_lab.domain.units import counted

DIVERGED = "the training diverged or began from damaged numbers; wanted a smaller learning_rate, or another checkpoint"


def mean_loss(answers: Sequence[Mapping[str, Any]], n_replicas: int) -> float:
    """Return the mean loss over all replicas.

    If devices are absent, a worker's loss may include losses of other replicas.
    """
    return float(sum(answer["loss"] for answer in answers if answer["loss"] is not None) / n_replicas)


def why_warned(losses: Sequence[float], what: str) -> str:
    """Return a warning if the last loss is not finite and the one before, if any, is. Empty otherwise.

    ``what`` names the last one: ``the loss of iteration 3``.
    """
    if math.isfinite(losses[-1]) or not all(map(math.isfinite, losses[-2:-1])):
        return ""
    return f"{what} is {losses[-1]}: {DIVERGED}"


def summary_of_diverged(losses: Sequence[float], first_iteration: int) -> str:
    """Return how many losses are not finite, and which is the first. Empty if all are finite."""
    lost = [first_iteration + i for i, loss in enumerate(losses) if not math.isfinite(loss)]
    if not lost:
        return ""
    are = f"{len(lost)} of {counted(len(losses), 'loss')} {'is' if len(lost) == 1 else 'are'} no finite number"
    return f"{are}, the first that of iteration {lost[0]}: {DIVERGED}"
