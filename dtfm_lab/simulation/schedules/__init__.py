"""Pipeline schedules: builders by name, and ``build``, which gives a builder what it asks for of a plan.

A schedule of one's own is a function of the numbers of devices and micro-batches, registered here or by an entry
point of the group ``dtfm_lab.schedules``.
"""

from dtfm_lab.simulation.schedules.adaptive import adaptive_1f1b, choose_warmups
from dtfm_lab.simulation.schedules.building import build, made_for
from dtfm_lab.simulation.schedules.flushed import adaptive, gpipe, one_forward_one_backward
from dtfm_lab.simulation.schedules.interleaved import interleaved
from dtfm_lab.simulation.schedules.orders import peak_activations
from dtfm_lab.simulation.schedules.registry import Builder, build_named, choices_of, schedules
from dtfm_lab.simulation.schedules.zero_bubble import zero_bubble

__all__ = [
    "Builder",
    "adaptive",
    "adaptive_1f1b",
    "build",
    "build_named",
    "choices_of",
    "choose_warmups",
    "gpipe",
    "interleaved",
    "made_for",
    "one_forward_one_backward",
    "peak_activations",
    "schedules",
    "zero_bubble",
]
