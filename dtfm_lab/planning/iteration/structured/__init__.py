"""Structured plans: what a practitioner would launch, priced in closed form before any search begins.

A structured plan is a grid of tensor, pipeline and data parallelism whose ranks follow the order of the hosts. The
family holds every such grid on all devices, and on parts of the network that a practitioner might use alone. Such parts
are one kind of GPU, one region, the fastest devices, or the best connected ones. ``layouts`` lists the grids and prices
their passes, memory and averaging. ``estimates`` puts these together, and ``candidates`` lets the simulator price the
best.
"""

from dtfm_lab.planning.iteration.structured.candidates import StructuredPlans

__all__ = ["StructuredPlans"]
