"""Proofs for the communication cost: the planner ``exact``, and a lower bound that rises while any search runs.

``optima`` finds the optimum of small and of regular networks, ``bound_search`` raises the bound of any. Both ask
OR-tools' solver, which is imported when it is first asked. ``pyproject.toml`` registers them with the planners and with
``planning.bounds.search_bound``.
"""

from dtfm_lab.domain.extension import Extension

EXTENSION = Extension(name="proofs")
