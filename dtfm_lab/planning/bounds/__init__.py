"""The lower bound of the communication cost during a search. ``planning.cost`` has the quick one."""

from dtfm_lab.planning.cost import lower_bound_s
