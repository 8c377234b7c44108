"""Topology + Job -> Plan: the communication cost, bounds on it, and planners that lower it."""

from dtfm_lab.planning import planners as _registered  # noqa: F401
from dtfm_lab.planning.bounds.lower_bound import lower_bound_s
from dtfm_lab.planning.cost import price_placement
from dtfm_lab.planning.evaluate import evaluate, reshaped
from dtfm_lab.planning.explain.difference import Difference, diff
from dtfm_lab.planning.explain.explanation import Explanation, explain
from dtfm_lab.planning.explain.worth import DeviceWorth, worth, worth_table, worths
from dtfm_lab.planning.problem import Generation, Planner, Problem, planners
from dtfm_lab.planning.search import PlanStep, plan, search
from dtfm_lab.planning.warm_start import carried_over

__all__ = [
    "DeviceWorth",
    "Difference",
    "Explanation",
    "Generation",
    "PlanStep",
    "Planner",
    "Problem",
    "carried_over",
    "diff",
    "evaluate",
    "explain",
    "lower_bound_s",
    "plan",
    "planners",
    "price_placement",
    "reshaped",
    "search",
    "worth",
    "worth_table",
    "worths",
]
