"""The lower bound of the communication cost during a search.

An extension may register a class in ``search_bounds`` that raises the bound between generations. The first one is used.
Without an extension, the bound is the one known before the search, or a higher one that the planner proves.
"""

from dtfm_lab.domain.registry import Registry
from dtfm_lab.planning.problem import Generation, Problem


class SearchBound:
    """The lower bound of one search in seconds. In this class, only a bound that the planner proves raises it."""

    def __init__(self, problem: Problem, timed: bool, enabled: bool = True) -> None:
        """``timed`` is True if the search has a time limit. If ``enabled`` is False, no time is spent on raising the
        bound."""
        self.bound_s = problem.bound_s
        self._problem, self._timed, self._enabled = problem, timed, enabled

    def update(self, found: Generation, generation: int, elapsed_s: float) -> float:
        """Return the bound after one more generation, complete or not, ``elapsed_s`` seconds after the search began."""
        if found.bound_s is not None:
            self.bound_s = max(self.bound_s, found.bound_s)
        elif self._enabled and found.complete and self.bound_s < found.best_s:
            self._raise(found.best_s, generation, elapsed_s)
        self.bound_s = min(self.bound_s, found.best_s)
        return self.bound_s

    def _raise(self, best_s: float, generation: int, elapsed_s: float) -> None:
        """Spend a short time on raising the bound. ``best_s`` is the cost of the best placement so far. Does nothing
        here: subclasses override it."""


search_bounds: Registry[type[SearchBound]] = Registry(
    "bound of a search",
    group="dtfm_lab.search_bounds",
    fits=lambda entry: isinstance(entry, type) and issubclass(entry, SearchBound),
)


def search_bound(problem: Problem, timed: bool, enabled: bool = True) -> SearchBound:
    """Return an object that bounds one search: of the first class that an extension registered, or a ``SearchBound`` if
    there is no such class or ``enabled`` is False."""
    kind = next(iter(search_bounds.values()), SearchBound) if enabled else SearchBound
    return kind(problem, timed, enabled)
