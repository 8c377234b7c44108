"""The whole story in a handful of functions: what notebooks, widgets and the command line call."""

from dtfm_lab.lab.nouns import AnySchedule
from dtfm_lab.lab.plans import (
    SMALL_NETWORK,
    default_job,
    diff,
    evaluate,
    explain,
    fitted,
    load_job,
    load_topology,
    plan,
    search,
    with_job,
    worth,
    worths,
)
from dtfm_lab.lab.predictions import advice, build_schedule, gains, memory, sensitivity, simulate, sweep, sweeps
from dtfm_lab.lab.runs import baseline_runs, baselines, compare, refit, run, start, warm_up, write

__all__ = [
    "SMALL_NETWORK",
    "AnySchedule",
    "advice",
    "baseline_runs",
    "baselines",
    "build_schedule",
    "compare",
    "default_job",
    "diff",
    "evaluate",
    "explain",
    "fitted",
    "gains",
    "load_job",
    "load_topology",
    "memory",
    "plan",
    "refit",
    "run",
    "search",
    "sensitivity",
    "simulate",
    "start",
    "sweep",
    "sweeps",
    "warm_up",
    "with_job",
    "worth",
    "worths",
    "write",
]
