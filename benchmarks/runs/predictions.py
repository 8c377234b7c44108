"""Predicted against measured iterations of real workers, clock by clock, on the networks of ``run_cases.py``.

A prediction is ``lab.simulate(plan, like=measured)``: from the profile taken before the run, never from its spans. The
error is predicted over measured, less one, of the median iteration. ``computed`` is the share of the predicted
iteration's critical path that is computation; the rest is messages. By construction a message takes what the emulated
link takes, on virtual and paced clocks, unless it is late, and on the paced clock a computation what the specified
device takes, unless it overruns. So the virtual clock tests order, dependencies and the profile, the paced one order,
dependencies, links and transport, and the real clock everything but the specified links. ``scale`` is wall seconds a
second, ``stretched`` counts computations longer than on the specified device, ``late`` and ``overran`` what was not in
time in the whole run. Goals are those of a machine with nothing else to do.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import click
import numpy as np
from machine import machine_line
from run_cases import CASES, CLOCKS, Case, plan_of

import dtfm_lab as lab
from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.trace import Trace

GOALS = {"virtual": (0.02, 0.06), "paced": (0.01, 0.04), "real": (0.10, np.inf)}
"""Median and worst absolute error that are wanted on each clock."""
FEWEST_TOGETHER = 4
"""Least number of synchronised iterations, where only every H-th one synchronises."""
NAME_WIDTH = 88


@click.command(help=__doc__)
@click.option("--clock", "clocks", default=CLOCKS, show_default=True, multiple=True, type=click.Choice(CLOCKS))
@click.option("--iterations", default=9, show_default=True, help="Of each run.")
@click.option("--only", default="", help="Cases whose name contains this.")
def main(clocks: Sequence[str], iterations: int, only: str) -> None:
    print(machine_line())
    for clock in clocks:
        columns = ["predicted", "measured", "error", "computed", "scale", "stretched", "late", "overran", "took"]
        print(f"\n{f'{clock} clock, seconds':{NAME_WIDTH}}" + "".join(f"{column:>10}" for column in columns))
        chosen = [case for case in CASES if clock in case.clocks and only in case.name]
        errors = [error for case in chosen if (error := one(case, clock, iterations)) is not None]
        for what, kept in (("all", errors), ("nothing late, no overrun", [e for e in errors if e[1]])):
            if kept and (what == "all" or clock == "paced"):
                print_summary(what, clock, [abs(error) for error, _ in kept], len(chosen))
    print(machine_line())


def one(case: Case, clock: str, iterations: int) -> tuple[float, bool] | None:
    """The case's error and whether all was in time; None where it failed, which is printed."""
    began_s = time.monotonic()
    try:
        plan = plan_of(case, clock)
        enough = max(iterations, FEWEST_TOGETHER * plan.job.synchronise_every)
        measured = lab.run(plan, case.schedule, clock=clock, iterations=enough, **case.options)
        predicted = lab.simulate(plan, like=measured)
        error = lab.compare(predicted, measured).iteration_error
    except LabError as failure:
        print(f"{case.name:{NAME_WIDTH}}  failed: {failure}", flush=True)
        return None
    ran = measured.context
    counters = f"{ran.time_scale:>10.2f}{ran.stretched:>10}{ran.late_messages:>10}{ran.overruns:>10}"
    shown = f"{predicted.iteration_s:>10.4f}{measured.iteration_s:>10.4f}{error:>+10.2%}{computed(predicted):>10.0%}"
    print(f"{case.name:{NAME_WIDTH}}{shown}{counters}{time.monotonic() - began_s:>8.1f} s", flush=True)
    return error, not ran.late_messages and not ran.overruns


def computed(trace: Trace) -> float:
    """Share of computation in the critical path."""
    path = trace.critical_path()
    seconds = path["end_s"] - path["start_s"]
    return float(seconds[path["what"] == "compute"].sum() / seconds.sum())


def print_summary(what: str, clock: str, errors: Sequence[float], n_cases: int) -> None:
    median, worst = np.median(errors), max(errors)
    goal_median, goal_worst = GOALS[clock]
    met = "met" if median <= goal_median and worst <= goal_worst else "not met"
    wanted = f"median {goal_median:.0%}" + (f", worst {goal_worst:.0%}" if np.isfinite(goal_worst) else "")
    print(f"{what}, {len(errors)} of {n_cases}: |error| median {median:.2%}, worst {worst:.2%}; goal {wanted}: {met}")


if __name__ == "__main__":
    main()
