"""The lower bound beside a search for seconds or dollars: it rises while the search goes on, in a share of its time."""

from collections.abc import Callable

from dtfm_lab.planning.iteration.candidate import Candidate
from dtfm_lab.planning.iteration.problem import IterationProblem
from dtfm_lab.planning.iteration.tables_of import Aim

SHARE = 0.25
"""Share of the search's time that may go into the bound."""


class IncrementalBound:
    """The bounds of one problem, updated between two steps of a search."""

    def __init__(self, problem: IterationProblem, aim: Aim, *, enabled: bool = True) -> None:
        flop = problem.job.flop
        self.iteration_s = flop / float(problem.flop_per_s.sum())
        """Seconds of an iteration that no plan is faster than."""
        self.dollars = flop * float((problem.price_per_hour / problem.flop_per_s).min()) / 3600
        """US dollars of an iteration that no plan is cheaper than."""

    def update(self, candidate: Candidate, spent_s: Callable[[], float]) -> None:
        """Let the bounds rise, below the best plan so far."""
