"""Which activations a user of a system lets it compute again: those that it offers, or one of them."""

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.job.system import CHECKPOINTINGS

TRIED = "tried"
"""All that the system offers, the fastest that fits being taken."""
CHECKPOINTS = (TRIED, *CHECKPOINTINGS)


def checkpointings(job: Job, checkpointing: str, offered: tuple[str, ...] = ("none", "block")) -> list[str]:
    """Each checkpointing that a user tries, the least first.

    ``selective`` is left out where the model's layers do not say what it keeps.
    """
    if checkpointing != TRIED:
        return [checkpointing]
    known = any(layer.selective_elements for layer in job.modelled().layers)
    return [one for one in offered if known or one != "selective"]
