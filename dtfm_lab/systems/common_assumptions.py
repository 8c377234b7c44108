"""Assumptions that models of several systems share, each with the source of the system that makes it."""

from collections.abc import Callable
from functools import partial

from dtfm_lab.domain.job.system import ATTENTIONS
from dtfm_lab.systems.assumption import Assumption
from dtfm_lab.systems.checkpoints import CHECKPOINTS, TRIED
from dtfm_lab.systems.device_sets import DEVICES
from dtfm_lab.systems.grids import HOSTS, ORDERS

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
hosts: OfSource = partial(
    Assumption, help="Hosts get ranks as the network lists them, or in a drawn order.", choices=HOSTS
)
hosts_in_rings: OfSource = partial(
    Assumption,
    help="Hosts get ranks as the network lists them, or in a drawn order; rings enter each host once.",
    choices=HOSTS,
)
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
