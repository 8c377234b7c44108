"""Pipeline schedules: builders by name, and ``build``, which chooses for a plan what they leave open."""

from dtfm_lab.simulation.schedules.adaptive import choose_warmups
from dtfm_lab.simulation.schedules.building import build, made_for
from dtfm_lab.simulation.schedules.flushed import adaptive, gpipe, one_forward_one_backward
from dtfm_lab.simulation.schedules.interleaved import interleaved
from dtfm_lab.simulation.schedules.orders import peak_activations
from dtfm_lab.simulation.schedules.registry import Builder, schedules
from dtfm_lab.simulation.schedules.zero_bubble import zero_bubble

__all__ = [
    "Builder",
    "adaptive",
    "build",
    "choose_warmups",
    "gpipe",
    "interleaved",
    "made_for",
    "one_forward_one_backward",
    "peak_activations",
    "schedules",
    "zero_bubble",
]
