"""The lower bound of the communication cost during a search. ``planning.cost`` has the bound known before a search."""

from dtfm_lab.planning.cost import lower_bound_s
