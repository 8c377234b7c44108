"""Topology + Job -> Plan: the communication cost, bounds on it, and planners that lower it."""

from dtfm_lab.planning import planners as _registered  # noqa: F401
from dtfm_lab.planning.bounds import lower_bound_s
from dtfm_lab.planning.cost import price_placement
from dtfm_lab.planning.evaluate import evaluate, reshaped
from dtfm_lab.planning.problem import Generation, Planner, Problem, planners
from dtfm_lab.planning.search import PlanStep, plan, search

__all__ = [
    "Generation",
    "PlanStep",
    "Planner",
    "Problem",
    "evaluate",
    "lower_bound_s",
    "plan",
    "planners",
    "price_placement",
    "reshaped",
    "search",
]
