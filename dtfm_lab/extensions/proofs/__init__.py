"""Proofs for the communication cost: the planner ``exact``, and a lower bound that rises during any search.

``optima`` finds the optimum of small and of regular networks. ``bound_search`` raises the bound of any network. Both
use OR-tools' solver, which is imported on first use. ``pyproject.toml`` registers them with the planners and with
``planning.bounds.search_bound``.
"""

from dtfm_lab.domain.extension import Extension

EXTENSION = Extension(name="proofs")
