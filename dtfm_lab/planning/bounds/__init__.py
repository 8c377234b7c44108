"""Lower bounds on the communication cost: ``lower_bound`` is quick, ``search_bound`` is that of a search as it runs."""

from dtfm_lab.planning.bounds.lower_bound import lower_bound_s
