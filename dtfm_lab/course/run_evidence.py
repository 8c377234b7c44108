"""What checks of missions ask of real runs: that they ran the plan, and that a prediction was one."""

from __future__ import annotations

from collections.abc import Sequence

from dtfm_lab.course.evidence import really_measured, require
from dtfm_lab.domain.plan import Plan, check_same_plan
from dtfm_lab.domain.trace import Trace
from dtfm_lab.simulation import simulate


def traces_of(answer: Sequence[object], *called: str) -> tuple[Trace, ...]:
    """The traces of a list, one for each name. Raises NotYet where they are others, or not so many."""
    wanted = f"wanted a list of {len(called)} traces: {', '.join(called)}"
    require(len(answer) == len(called), f"the list has {len(answer)} things; {wanted}")
    for one, name in zip(answer, called, strict=True):
        require(isinstance(one, Trace), f"{name} is {type(one).__name__} {one!r:.40}; {wanted}")
    return tuple(one for one in answer if isinstance(one, Trace))


def ran_plan(trace: Trace, plan: Plan, *, iterations: int = 1) -> None:
    """Raise NotYet unless a real run of this plan measured the trace, for at least so many iterations.

    Raises TraceError, whose sentence says so, where it ran on other devices or another network.
    """
    really_measured(trace)
    check_same_plan(plan, trace.context, "n_microbatches", "microbatch_counts")
    found = trace.n_iterations
    require(found >= iterations, f"it ran for {found} iterations; wanted {iterations} or more")


def predicted_before(predicted: Trace, measured: Trace, plan: Plan) -> None:
    """Raise NotYet unless a prediction is what the plan and the profile from before the run lead to.

    The prediction is made again; one from peaks, or from the run's own spans, is told as what it is.
    """
    require(
        predicted.context.source == "simulated",
        "the prediction was measured itself; wanted [predicted, measured], the first from lab.simulate",
    )
    require(
        predicted.context.clock == measured.context.clock,
        f"it counts seconds by the {predicted.context.clock} clock, the run by the {measured.context.clock} clock: its "
        "computations come from drawn peaks or from a fit, not from the profile that workers took before the run",
    )
    again_s = simulate(plan, like=measured).iteration_s
    require(
        abs(predicted.iteration_s - again_s) <= 1e-6 * again_s,
        f"it predicts {predicted.iteration_s:.4g} s; the plan, with the profile from before this run, leads to "
        f"{again_s:.4g} s. What was fitted to a run, or is of another, does not predict it",
    )
