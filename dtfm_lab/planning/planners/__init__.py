"""The planners, each in a file of its own; importing this package registers them."""

from dtfm_lab.planning.planners import dtfm, evolutionary, exact, random_search

__all__ = ["dtfm", "evolutionary", "exact", "random_search"]
