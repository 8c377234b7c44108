"""What a model of a system assumes: an option with the place that says so, and those that several systems share."""

from dataclasses import dataclass

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.options import Option

TRIED = "tried"
"""All that the system offers, the fastest that fits being taken."""
ORDERS = ("dp-pp", "pp-dp")
"""Which ranks are neighbours: those of a data-parallel group, or those of a pipeline."""


@dataclass(frozen=True, kw_only=True)
class Assumption(Option):
    """The annotation of a strategy's field: what is assumed, in a sentence, and where that is from.

    ``transport: Annotated[str, Assumption(help="A stage waits until what it sends has arrived.", source="...")]``
    """

    source: str
    """A paper's section, a file of the system's repository, or what was measured. Never "so that it fits"."""


def checkpointings(job: Job, checkpointing: str, offered: tuple[str, ...] = ("none", "block")) -> list[str]:
    """Each checkpointing that a user tries, the least first.

    ``selective`` is left out where the model's layers do not say what it keeps.
    """
    if checkpointing != TRIED:
        return [checkpointing]
    known = any(layer.selective_elements for layer in job.modelled().layers)
    return [one for one in offered if known or one != "selective"]


def shardings(job: Job, sharding: str) -> tuple[str, ...]:
    """What replicas split that a user tries: nothing, or the optimiser's states; the first for a single replica."""
    tried = ("none", "zero-1") if sharding == TRIED else (sharding,)
    return tried[:1] if job.n_replicas == 1 else tried
