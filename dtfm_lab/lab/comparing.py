"""The public function ``compare``.

This module is loaded with the lab. The package ``dtfm_lab.compare``, if imported later, would hide the function of the
same name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, overload, runtime_checkable

from dtfm_lab.compare import Comparison
from dtfm_lab.compare import compare as compare_traces
from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.trace import Trace

if TYPE_CHECKING:
    from dtfm_lab.planning import Difference, Draws
    from dtfm_lab.planning.draws import GivenSpread

DRAWS = 1000
"""Default number of random draws: a copy of ``planning.draws.DRAWS``, which takes a while to import."""


@runtime_checkable
class Comparable(Protocol):
    """An object of an extension that can compare itself with another of its type."""

    def compared_with(self, after: Any) -> Any: ...


@overload
def compare(before: Plan | str, after: Plan | str) -> Difference: ...
@overload
def compare(before: Trace, after: Trace) -> Comparison: ...
@overload
def compare(before: Comparable, after: Comparable) -> Any: ...
@overload
def compare(
    before: Plan | str,
    after: Plan | str | None = None,
    *more: Plan | str,
    spread: GivenSpread,
    draws: int = DRAWS,
    seed: int = 0,
) -> Draws: ...
def compare(
    before: Any, after: Any = None, *more: Any, spread: GivenSpread | None = None, draws: int = DRAWS, seed: int = 0
) -> Any:
    """Compare two traces (errors and their causes), two plans (what moved, and what that cost), or two objects of an
    extension.

    Two traces, predicted and measured, give errors by row, iteration, kind, stage, device and link, with ``.suspects``,
    ``.drift`` and ``.refit(plan, lab.simulate)``. Two plans give what moved, and what that cost or gained: ``.text``,
    ``.to_frame()``, ``.parts``.

    With a ``spread``, one or several plans of one network are simulated on the same random variations of it. The result
    has expected seconds and quantiles, and says how often the nominally slower of two plans is faster:
    ``.to_frame()``, ``.to_frame("pairs")``, ``.sentence``. The spread is a standard deviation of the logarithm: 0.3 for
    bandwidth, latency and compute speed alike, or a mapping such as ``{"bandwidth": 0.3}``. In each of the ``draws``,
    every device has its own factor. All links between two regions share a factor for bandwidth and one for latency.
    """
    from dtfm_lab.lab.arguments import as_plan  # imports the planners, which take a while to load
    from dtfm_lab.planning import Difference, drawn

    if spread is not None:
        plans = before, *(() if after is None and not more else (after,)), *more
        return drawn([as_plan(plan) for plan in plans], spread, n=draws, seed=seed)
    if more:
        raise LabError(f"{2 + len(more)} things to compare without a spread; wanted two")
    # Extensions bring their own results, which know best how two of them differ.
    if isinstance(before, Comparable) and type(before) is type(after):
        return before.compared_with(after)
    if isinstance(before, Plan | str) or isinstance(after, Plan | str):
        return Difference(as_plan(before), as_plan(after))
    return compare_traces(before, after)
