"""Pipeline schedules: builders by name, and ``build``, which gives a builder what it asks for of a plan.

A schedule of one's own is a function of the numbers of devices and micro-batches, registered here or by an entry
point of the group ``dtfm_lab.schedules``.
"""

from dtfm_lab.simulation.schedules.adaptive import choose_warmups
from dtfm_lab.simulation.schedules.building import build, made_for
from dtfm_lab.simulation.schedules.builtin import peak_activations
from dtfm_lab.simulation.schedules.registry import build_named, choices_of, schedules

__all__ = ["build", "build_named", "choices_of", "choose_warmups", "made_for", "peak_activations", "schedules"]
