"""The planners, each in a file of its own; importing this package registers them."""

from dtfm_lab.planning.planners import evolutionary, random_search

__all__ = ["evolutionary", "random_search"]
