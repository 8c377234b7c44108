"""How far each step of the lab has come, in words."""

from __future__ import annotations

from dtfm_lab.domain.units import format_s
from dtfm_lab.figures.network import count
from dtfm_lab.widgets.bench import Bench
from dtfm_lab.widgets.desk import staleness
from dtfm_lab.widgets.desk.section import State

WATCHED = ("topology", "job", "plan", "schedule", "queueing", "choices", "predicted", "measured", "comparison")
"""traits of the bench that change a state"""


def states(bench: Bench) -> dict[str, State]:
    """By name of the step."""
    plan, measured = bench.plan, bench.measured
    of_plan = staleness.of_plan(bench)
    of_run = staleness.of_trace(bench, measured)
    return {
        "network": State(_network(bench)),
        "plan": State("" if plan is None else f"{format_s(plan.cost.total_s)}, gap {plan.gap:.1%}", of_plan),
        "groups": State(_grouped(bench), of_plan),
        "schedule": State(_predicted(bench), staleness.of_trace(bench, bench.predicted)),
        "what-if": State("", of_plan),
        "run": State("" if measured is None else f"measured {format_s(measured.iteration_s)}", of_run),
        "compare": State(_compared(bench), of_run if bench.comparison is not None else ""),
    }


def _network(bench: Bench) -> str:
    topology = bench.topology
    return "" if topology is None else f"{topology.name}, {count(len(topology), 'device')}"


def _grouped(bench: Bench) -> str:
    plan = bench.plan
    return "" if plan is None else f"{count(plan.job.n_stages, 'group')} of {plan.job.n_replicas}"


def _predicted(bench: Bench) -> str:
    predicted = bench.predicted
    if predicted is None:
        return ""
    return f"predicted {format_s(predicted.iteration_s)} under {predicted.context.schedule}"


def _compared(bench: Bench) -> str:
    comparison = bench.comparison
    return "" if comparison is None else f"error {comparison.iteration_error:+.2%}"
