"""The functions that notebooks, widgets and the command line call, from loading a network to comparing traces."""

from dtfm_lab.lab import missions
from dtfm_lab.lab.arguments import AnySchedule
from dtfm_lab.lab.codesign import codesign, search_codesign
from dtfm_lab.lab.crossings import crossings, search_crossings
from dtfm_lab.lab.frontiers import frontier, search_frontier
from dtfm_lab.lab.ledgers import calibrate, papers_table, papers_waterfall, reproduce
from dtfm_lab.lab.plans import (
    SMALL_NETWORK,
    additions,
    bound_bindings,
    default_job,
    diff,
    evaluate,
    explain,
    fitted,
    load_job,
    load_topology,
    plan,
    search,
    why_they_differ,
    with_job,
    worth,
)
from dtfm_lab.lab.predictions import advice, build_schedule, memory, sensitivity, simulate, sweep, sweep_summary
from dtfm_lab.lab.runs import baselines, compare, refit, run, start, warm_up, write
from dtfm_lab.lab.strategies import search_strategies, strategies

__all__ = [
    "SMALL_NETWORK",
    "AnySchedule",
    "additions",
    "advice",
    "baselines",
    "bound_bindings",
    "build_schedule",
    "calibrate",
    "codesign",
    "compare",
    "crossings",
    "default_job",
    "diff",
    "evaluate",
    "explain",
    "fitted",
    "frontier",
    "load_job",
    "load_topology",
    "memory",
    "missions",
    "papers_table",
    "papers_waterfall",
    "plan",
    "refit",
    "reproduce",
    "run",
    "search",
    "search_codesign",
    "search_crossings",
    "search_frontier",
    "search_strategies",
    "sensitivity",
    "simulate",
    "start",
    "strategies",
    "sweep",
    "sweep_summary",
    "warm_up",
    "why_they_differ",
    "with_job",
    "worth",
    "write",
]
