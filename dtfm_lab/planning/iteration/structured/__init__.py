"""Structured plans: what a practitioner would launch, priced in closed form before any search begins.

A structured plan is a grid of tensor, pipeline and data parallelism whose ranks follow the order of the hosts. Such
grids are tried on all devices, and on parts of the network that a practitioner might use alone. A part is, for example,
one kind of GPU, one region, the fastest devices, or the best connected ones. ``layouts`` lists the grids and prices
their passes, memory and averaging. ``estimates`` puts these together, and ``candidates`` lets the simulator price the
best.
"""

from dtfm_lab.planning.iteration.structured.candidates import StructuredPlans

__all__ = ["StructuredPlans"]
