"""What a plan's cost comes from: ``explain`` one plan, the ``Difference`` of two, the worth of devices to a plan."""

from dtfm_lab.planning.explain.difference import Difference
from dtfm_lab.planning.explain.explanation import Explanation, explain
from dtfm_lab.planning.explain.iteration_analysis import IterationAnalysis
from dtfm_lab.planning.explain.worth import (
    Addition,
    Worth,
    additions_table,
    stream_additions,
    stream_worth,
    worth_table,
)

__all__ = [
    "Addition",
    "Difference",
    "Explanation",
    "IterationAnalysis",
    "Worth",
    "additions_table",
    "explain",
    "stream_additions",
    "stream_worth",
    "worth_table",
]
