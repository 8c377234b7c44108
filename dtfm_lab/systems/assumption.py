"""What a model of a system assumes: an option with the place that says so, and those that several systems share."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.job.system import ATTENTIONS, CHECKPOINTINGS
from dtfm_lab.domain.options import Option

TRIED = "tried"
"""All that the system offers, the fastest that fits being taken."""
CHECKPOINTS = (TRIED, *CHECKPOINTINGS)
HOSTS = ("listed", "random")
"""Orders of hosts: as the network lists them, or drawn."""
ORDERS = ("dp-pp", "pp-dp")
"""Which ranks are neighbours: those of a data-parallel group, or those of a pipeline."""
DEVICES = ("tried", "all")
"""Whether a user leaves out devices."""


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


OfSource = Callable[..., Assumption]
"""Called with ``source=``, where the system's own assumption is from."""

checkpointing: OfSource = partial(
    Assumption,
    help="The faster of keeping all activations and recomputing each block, of those that fit.",
    choices=CHECKPOINTS,
)
microbatches: OfSource = partial(
    Assumption,
    help="Micro-batches of other sizes are tried than the job's own; or that is kept.",
    choices=("tried", "given"),
)
devices: OfSource = partial(
    Assumption,
    help="Its user leaves out kinds of devices, regions and what shapes leave over, where that is faster; or nobody.",
    choices=DEVICES,
)
hosts = partial(Assumption, help="Hosts get ranks as the network lists them, or in a drawn order.", choices=HOSTS)
hosts_in_rings: OfSource = partial(hosts, help=f"{hosts.keywords['help'][:-1]}; rings enter each host once.")
order: OfSource = partial(
    Assumption, help="Ranks of one data-parallel group are neighbours, pipelines stride over them.", choices=ORDERS
)
sharding: OfSource = partial(
    Assumption,
    help="Every replica keeps all of the optimiser's states, or a shard (ZeRO-1); the faster of those that fit.",
    choices=(TRIED, "none", "zero-1"),
)
ring_or_tree: OfSource = partial(Assumption, help="Replicas average in a ring, or in a tree.", choices=("ring", "tree"))
attention: OfSource = partial(
    Assumption, help="Attention keeps its matrix for the backward (unfused), or not.", choices=ATTENTIONS
)
MEMORY_TRAFFIC = Assumption(
    help="The time of operators that only move memory is in the efficiency, not counted beside it.",
    source="an efficiency fitted to whole iterations holds it; that of matrix products alone does not",
)
