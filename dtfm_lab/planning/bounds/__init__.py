"""Lower bounds on the communication cost, and optima with proof.

``lower_bound`` is quick, ``search_bound`` is that of a search while it runs, ``bound_search`` raises it;
``optima`` finds the optimum of small and of regular networks.
"""

from dtfm_lab.planning.bounds.lower_bound import lower_bound_s
