"""The plans of training systems, run for real one after the other beside their predictions."""

from collections.abc import Iterator
from dataclasses import replace

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.trace import Trace
from dtfm_lab.runtime.client import launch
from dtfm_lab.runtime.client.proxy_model import NAME, why_not_trained
from dtfm_lab.runtime.client.run import Run
from dtfm_lab.runtime.protocol.run_options import RunOptions
from dtfm_lab.simulation import simulate
from dtfm_lab.systems import Budget, Outcome, Strategy, outcome_of
from dtfm_lab.systems.choosing import Asked, chosen
from dtfm_lab.systems.strategy_run import StrategyRun
from dtfm_lab.systems.strategy_runs import StrategyRuns


def stream_strategy_runs(
    topology: Topology,
    job: Job,
    systems: Asked,
    budget: Budget,
    options: RunOptions,
) -> Iterator[StrategyRuns]:
    """All runs so far, after each system: its best plan by the link model is run, and then predicted like its run.

    A system that has no plan here, or whose plan workers cannot play, is a run with the reason. If one system needs a
    proxy model, all train it, so that their losses compare. Ctrl-C ends the run in progress, keeps what is whole of it,
    and ends the stream.

    Raises UnknownName for a system that is none.
    """
    wanted = chosen(systems)
    outcomes = [outcome_of(one, topology, job, budget) for one in wanted]
    if options.stand_in is None:
        options = replace(options, stand_in=NAME if any(_wants_stand_in(one, options) for one in outcomes) else None)
    runs: list[StrategyRun] = []
    for outcome in outcomes:
        interrupted = False
        if reason := why_not_played(outcome, options):
            runs.append(StrategyRun(outcome=outcome, reason=reason))
        else:
            one, interrupted = _ran(outcome, options)
            if interrupted and one.measured is None and not runs:
                raise KeyboardInterrupt
            runs.append(one)
        yield StrategyRuns(topology=topology, clock=options.clock, runs=tuple(runs), wanted=len(wanted))
        if interrupted:
            return


def why_not_played(outcome: Outcome, options: RunOptions) -> str:
    """Why workers do not run this outcome's plan, in one line; empty where they can try."""
    if outcome.found is None:
        return outcome.reason
    if type(outcome.strategy).trace is not Strategy.trace:
        return f"{outcome.title} takes other seconds than the schedule of its plan, which is all that workers play"
    every = outcome.job.averages_every
    if (iterations := _iterations(options)) < every:
        return (
            f"{outcome.title} averages once in {every} iterations, and {iterations} would run; wanted iterations of "
            f"{every} or more, or a system that averages more often"
        )
    return ""


def _wants_stand_in(outcome: Outcome, options: RunOptions) -> bool:
    """Whether workers would run this outcome's plan, but cannot train its model."""
    if why_not_played(outcome, options):
        return False
    try:
        part, _ = launch.what_runs(outcome.plan, options.workers)
    except LabError:  # no such part: the run is refused with that reason
        return False
    return bool(why_not_trained(part.job))


def _iterations(options: RunOptions) -> int:
    return options.iterations or launch.DEFAULT_ITERATIONS[options.clock]


def _ran(outcome: Outcome, options: RunOptions) -> tuple[StrategyRun, bool]:
    """The run of an outcome's plan, and whether it was interrupted."""
    reason, interrupted, plan = "", False, outcome.plan
    measured: Trace | None = None
    predicted: Trace | None = None
    try:
        run = Run(launch.prepare(plan, None, options))
        try:
            measured = run.wait()
        except KeyboardInterrupt:
            interrupted, reason = True, "stopped before its first average"
            if (stopped := run.trace()).n_iterations >= outcome.job.averages_every:
                measured = stopped
                reason = f"stopped after {measured.n_iterations} of {_iterations(options)} iterations"
        predicted = None if measured is None else simulate(plan, like=measured)
    except LabError as error:
        reason = reason or str(error)
    return StrategyRun(outcome=outcome, predicted=predicted, measured=measured, reason=reason), interrupted
