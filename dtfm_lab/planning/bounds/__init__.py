"""Lower bounds on the communication cost, and optima with proof.

``planning.cost.lower_bound_s`` is quick, ``bound_search`` tightens it for as long as a search goes on;
``optima`` finds the optimum of small and of regular networks.
"""

from dtfm_lab.planning.cost import lower_bound_s
