"""Real runs, and predictions beside measurements: one's own, and those that others published."""

import os
from collections.abc import Callable
from typing import Any, ParamSpec, Protocol, cast, overload

from dtfm_lab import published
from dtfm_lab.compare import Comparison, HistoryComparison
from dtfm_lab.compare import compare as compare_traces
from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.history import History
from dtfm_lab.domain.network import shortened
from dtfm_lab.domain.options import takes_options
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.trace import Trace
from dtfm_lab.lab.arguments import AnySchedule, MeasuredOptions, Progress, as_plan, as_schedule, of_schedule
from dtfm_lab.lab.histories import AnyAvailability, AnyPolicy, run_hours
from dtfm_lab.planning import Difference, Draws, drawn
from dtfm_lab.planning.draws import DRAWS, GivenSpread
from dtfm_lab.published import Ledger, Source
from dtfm_lab.runtime.client import launch
from dtfm_lab.runtime.client.run import Run
from dtfm_lab.runtime.protocol.run_options import RunOptions


@of_schedule(RunOptions)
def start(plan: Plan | str, schedule: AnySchedule | None = None, **options: Any) -> Run:
    """Start real workers on this machine and return a handle at once; its ``wait`` returns the measured Trace.

    ``dtfm_lab.runtime.protocol.run_options.RunOptions`` describes each option, ``launch.start`` lists what is refused.
    """
    return launch.start(as_plan(plan), as_schedule(schedule), **options)


P = ParamSpec("P")


class OfRun(Protocol[P]):
    """``run``, which returns a History where an availability is given."""

    @overload
    def __call__(  # type: ignore[overload-overlap]  # no option of a run is called availability
        self, plan: Plan | str, schedule: AnySchedule | None = None, *args: P.args, **options: P.kwargs
    ) -> Trace: ...
    @overload
    def __call__(self, plan: Plan | str, *, availability: AnyAvailability, **options: Any) -> History: ...


def _of_run(options: Callable[P, object]) -> Callable[[Callable[..., Trace | History]], OfRun[P]]:
    """Decorator: ``of_schedule`` for what returns either."""
    return cast("Callable[[Callable[..., Trace | History]], OfRun[P]]", takes_options(options))


@_of_run(MeasuredOptions)
def run(
    plan: Plan | str,
    schedule: AnySchedule | None = None,
    *,
    progress: Progress | None = None,
    availability: AnyAvailability | None = None,
    policy: AnyPolicy | None = None,
    start_s: float = 45.0,
    restart_s: float | None = None,
    regroup_s: float = 2.0,
    **options: Any,
) -> Trace | History:
    """Run a plan for real on this machine and return the measured Trace; ``progress`` is called with every event.

    With an ``availability``, play its hours on the paced clock and return the measured History: workers are killed and
    started as devices leave and come, and ``policy`` (oobleck, if none is given) says how the run goes on, each time by
    a plan of the lab for who is there, on the network and for the job of ``plan``. An hour takes ``time_scale`` hours.
    ``start_s``, ``restart_s`` and ``regroup_s`` are as in ``replay``, which predicts these hours; a change takes at
    least what they say. Policies by which a device does another stage beside its own or leaves one out, such as bamboo
    and skippipe, and rounds of local steps are refused with LabError.

    Other options are those of ``start``.
    """
    if availability is None:
        if policy is not None:
            raise LabError(f"policy is {shortened(policy)} without an availability; wanted both, or neither")
        return launch.start(as_plan(plan), as_schedule(schedule), **options).wait(progress)
    if schedule is not None:
        raise LabError(f"schedule is {schedule} beside an availability, whose plans have their own; wanted none")
    return run_hours(
        as_plan(plan),
        availability,
        policy or "oobleck",
        start_s=start_s,
        restart_s=restart_s,
        regroup_s=regroup_s,
        progress=progress,
        **options,
    )


@overload
def compare(before: Plan | str, after: Plan | str) -> Difference: ...
@overload
def compare(before: Trace, after: Trace) -> Comparison: ...
@overload
def compare(before: History, after: History) -> HistoryComparison: ...
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
) -> Comparison | Difference | HistoryComparison | Draws:
    """Two traces side by side, predicted and measured: errors by row, iteration, kind, stage, device and link;
    ``.suspects``, ``.drift``, ``.refit(plan, lab.simulate)``. Or two plans: what moved, and what that cost or brought:
    ``.text``, ``.to_frame()``, ``.parts``. Or two histories of the same hours: ``.text``, ``.goodput_error``
    and what it is made of, and a row for each stretch between two changes, ``.to_frame()``.

    With a ``spread``, one plan or several of one network on the same random draws of it: expected seconds, quantiles,
    and how often two of them change order, ``.to_frame()``, ``.to_frame("pairs")``, ``.sentence``. The spread is one
    standard deviation of the logarithm of bandwidth, latency and speed of computing, or a mapping of these names:
    ``spread={"bandwidth": 0.3}``. Each device has a factor of its own in a draw, and all links of two regions one.
    """
    if spread is not None:
        plans = before, *(() if after is None and not more else (after,)), *more
        return drawn([as_plan(plan) for plan in plans], spread, n=draws, seed=seed)
    if more:
        raise LabError(f"{2 + len(more)} things to compare without a spread; wanted two")
    if isinstance(before, History) and isinstance(after, History):
        return HistoryComparison(before, after)
    if isinstance(before, Plan | str) or isinstance(after, Plan | str):
        return Difference(as_plan(before), as_plan(after))
    return compare_traces(before, after)


def reproduce(
    *sources: str | Source, own: str | os.PathLike[str] | None = None, progress: Progress | None = None
) -> Ledger:
    """Predict what others measured: every published row beside our prediction, with its band, source and assumptions.

    All sources, or those named (``lab.published.sources`` lists them), or the rows of a CSV or JSON file of one's own,
    whose columns docs/published.md describes. ``.sentence``, ``.groups``, ``.misses``, ``.to_frame()``; in a notebook
    it shows itself, and ``lab.figures.ledger`` draws it. ``progress`` is called with every row; Ctrl-C keeps the rows
    so far.
    """
    return published.reproduce(sources, own=own, progress=progress)
