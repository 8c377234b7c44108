"""What a plan's cost comes from: ``explain`` one plan, ``diff`` two plans, ``worth`` of each device to a plan."""

from dtfm_lab.planning.explain.additions import Addition, additions_table, stream_additions
from dtfm_lab.planning.explain.device_worth import DeviceWorth, stream_worth, worth_table
from dtfm_lab.planning.explain.difference import Difference, diff
from dtfm_lab.planning.explain.explanation import Explanation, explain
from dtfm_lab.planning.explain.iteration_analysis import IterationAnalysis
from dtfm_lab.planning.explain.iteration_worth import IterationWorth
from dtfm_lab.planning.explain.two_objectives import why_they_differ

__all__ = [
    "Addition",
    "DeviceWorth",
    "Difference",
    "Explanation",
    "IterationAnalysis",
    "IterationWorth",
    "additions_table",
    "diff",
    "explain",
    "stream_additions",
    "stream_worth",
    "why_they_differ",
    "worth_table",
]
