"""What a plan's cost comes from: ``explain`` one plan, ``diff`` two plans, ``worth`` of each device to a plan."""

from dtfm_lab.planning.explain.device_worth import DeviceWorth, stream_worth, worth_table
from dtfm_lab.planning.explain.difference import Difference, diff
from dtfm_lab.planning.explain.explanation import Explanation, explain
from dtfm_lab.planning.explain.iteration_analysis import IterationAnalysis
from dtfm_lab.planning.explain.two_objectives import why_they_differ

__all__ = [
    "DeviceWorth",
    "Difference",
    "Explanation",
    "IterationAnalysis",
    "diff",
    "explain",
    "stream_worth",
    "why_they_differ",
    "worth_table",
]
